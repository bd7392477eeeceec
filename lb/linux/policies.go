package linux

import (
	"context"
	"encoding/binary"
	"fmt"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"weir/lb"
)

// DroppingChain returns a chain of iptables that drops by its policy all packets that none of
// its rules accepts, as those of Docker and ufw do; "" without one. weir's rules accept packets of
// Services there if iptables has them, and can't if nf_tables has them. It runs no program.
func DroppingChain(ctx context.Context, families []lb.Family) (chain string, err error) {
	conn := newConn(unix.NETLINK_NETFILTER, &Traffic{})
	defer conn.close()
	for _, f := range families {
		drops, err := newNFTRules(f, "", newNFTTables(conn, "filter")).drops(ctx)
		if err != nil && !noNFTables(err) {
			return "", fmt.Errorf("read the chains of nf_tables: %w", err)
		}
		if drops == "" {
			drops = legacyDrops(f)
		}
		if drops != "" {
			return fmt.Sprintf("%s of iptables (%s)", drops, f), nil
		}
	}
	return "", nil
}

// drops returns the chain of iptables-nft with policy DROP.
func (r *nftRules) drops(ctx context.Context) (chain string, err error) {
	put := func(e *encoder) { r.message(e, unix.NFT_MSG_GETCHAIN, unix.NLM_F_DUMP) }
	err = r.conn.query(ctx, put, func() { chain = "" }, func(m message) {
		if len(m.body) < 4 || cString(attribute(m.body[4:], unix.NFTA_CHAIN_TABLE)) != r.table {
			return
		}
		name, policy := cString(attribute(m.body[4:], unix.NFTA_CHAIN_NAME)), attribute(m.body[4:], unix.NFTA_CHAIN_POLICY)
		if (name == "INPUT" || name == "FORWARD") && len(policy) == 4 && getBE32(policy) == nfDrop {
			chain = name
		}
	})
	return chain, err
}

const (
	soGetEntries = 65 // IPT_SO_GET_ENTRIES, IP6T_SO_GET_ENTRIES

	// The layout of struct ipt_get_entries, ipt_entry, ip6t_entry and xt_standard_target, from
	// include/uapi/linux/netfilter_ipv4/ip_tables.h, netfilter_ipv6/ip6_tables.h and
	// netfilter/x_tables.h.
	entriesHeader = 40
	targetOffset4 = 88
	targetOffset6 = 140
	targetHeader  = 32
	verdictDrop   = int32(-nfDrop - 1)
)

// legacyDrops returns the chain of iptables-legacy with policy DROP. The last rule of each chain
// is its policy. A kernel without the table gets no request, which would load its module.
func legacyDrops(f lb.Family) string {
	names, family, level, at := "ip_tables_names", unix.AF_INET, unix.IPPROTO_IP, targetOffset4
	if f == lb.IPv6 {
		names, family, level, at = "ip6_tables_names", unix.AF_INET6, unix.IPPROTO_IPV6, targetOffset6
	}
	used, err := os.ReadFile(procNet + names)
	if err != nil || !slices.Contains(strings.Fields(string(used)), "filter") {
		return ""
	}
	fd, err := unix.Socket(family, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_RAW)
	if err != nil {
		return ""
	}
	defer unix.Close(fd)
	var info getInfo
	copy(info.name[:], "filter")
	if !getsockopt(fd, level, soGetInfo, info.bytes()) {
		return ""
	}
	entries := make([]byte, entriesHeader+int(info.size))
	copy(entries, "filter")
	binary.NativeEndian.PutUint32(entries[32:], info.size)
	if !getsockopt(fd, level, soGetEntries, entries) {
		return ""
	}
	policy := func(hook int) int32 { return policyOf(entries[entriesHeader:], int(info.underflow[hook]), at) }
	switch verdictDrop {
	case policy(unix.NF_INET_LOCAL_IN):
		return "INPUT"
	case policy(unix.NF_INET_FORWARD):
		return "FORWARD"
	}
	return ""
}

// policyOf returns the target of the rule at an offset, 0 if there is none.
func policyOf(entries []byte, rule, targetOffset int) int32 {
	if rule+targetOffset+2 > len(entries) {
		return 0
	}
	at := rule + int(binary.NativeEndian.Uint16(entries[rule+targetOffset:])) + targetHeader
	if at+4 > len(entries) {
		return 0
	}
	return int32(binary.NativeEndian.Uint32(entries[at:]))
}
