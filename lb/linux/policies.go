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

// UsedFilter returns the table filter of iptables that another program uses: it has rules in INPUT
// or FORWARD, or one of their policies is DROP, as with Docker, ufw, and the firewall of RHEL's
// iptables-services. "" is none. weir's rules accept packets of Services before those if iptables has them,
// and can't if nf_tables has them. It runs no program.
func UsedFilter(ctx context.Context, families []lb.Family) (what string, err error) {
	conn := newConn(unix.NETLINK_NETFILTER, &Traffic{})
	defer conn.close()
	for _, f := range families {
		what, err := newNFTRules(f, "", newNFTTables(conn, "filter")).used(ctx)
		if err != nil && !noNFTables(err) {
			return "", fmt.Errorf("read the chains of nf_tables: %w", err)
		}
		if what == "" {
			what = legacyUsed(f)
		}
		if what != "" {
			return fmt.Sprintf("iptables (%s) %s", f, what), nil
		}
	}
	return "", nil
}

// used returns what the table filter of iptables-nft has, "" for nothing.
func (r *nftRules) used(ctx context.Context) (what string, err error) {
	put := func(e *encoder) { r.message(e, unix.NFT_MSG_GETCHAIN, unix.NLM_F_DUMP) }
	err = r.conn.query(ctx, put, func() { what = "" }, func(m message) {
		if len(m.body) < 4 || cString(attribute(m.body[4:], unix.NFTA_CHAIN_TABLE)) != r.table {
			return
		}
		name, policy := cString(attribute(m.body[4:], unix.NFTA_CHAIN_NAME)), attribute(m.body[4:], unix.NFTA_CHAIN_POLICY)
		if (name == "INPUT" || name == "FORWARD") && len(policy) == 4 && getBE32(policy) == nfDrop {
			what = "has policy DROP in " + name
		}
	})
	if err != nil || what != "" {
		return what, err
	}
	err = r.list(ctx, func() { what = "" }, func(chain string, _ []byte) {
		if chain == "INPUT" || chain == "FORWARD" {
			what = "has rules in " + chain
		}
	})
	return what, err
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

// emptyFilter is the number of entries of the table filter without rules: three policies and the end.
const emptyFilter = 4

// legacyUsed returns what the table filter of iptables-legacy has, "" for nothing. The last rule of
// each chain is its policy. A kernel without the table gets no request, which would load its module. The
// list of tables in /proc is for root only, and the daemon is not root.
func legacyUsed(f lb.Family) string {
	module, names, family, level, at := "iptable_filter", "ip_tables_names", unix.AF_INET, unix.IPPROTO_IP, targetOffset4
	if f == lb.IPv6 {
		module, names, family, level, at = "ip6table_filter", "ip6_tables_names", unix.AF_INET6, unix.IPPROTO_IPV6, targetOffset6
	}
	if !listed(procNet+names, "filter") && !exists("/sys/module/"+module) {
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
	if info.numEntries > emptyFilter {
		return "has rules in table filter"
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
		return "has policy DROP in INPUT"
	case policy(unix.NF_INET_FORWARD):
		return "has policy DROP in FORWARD"
	}
	return ""
}

// listed reports whether a file that may be unreadable has a word.
func listed(file, word string) bool {
	b, err := os.ReadFile(file)
	return err == nil && slices.Contains(strings.Fields(string(b)), word)
}

func exists(file string) bool {
	_, err := os.Stat(file)
	return err == nil
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
