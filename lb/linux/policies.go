package linux

import (
	"bytes"
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
// and can't if nf_tables has them. weir's own rules of an earlier run do not count. It runs no program.
func UsedFilter(ctx context.Context, c Config) (what string, err error) {
	conn := newConn(unix.NETLINK_NETFILTER, &Traffic{})
	defer conn.close()
	for _, f := range c.Families {
		own := ownFilter(c, f)
		what, err := newNFTRules(f, "", newNFTTables(conn, "filter")).used(ctx, own)
		if err != nil && !noNFTables(err) {
			return "", fmt.Errorf("read the chains of nf_tables: %w", err)
		}
		if what == "" {
			what = legacyUsed(f, own)
		}
		if what != "" {
			return fmt.Sprintf("iptables (%s) %s", f, what), nil
		}
	}
	return "", nil
}

// ownChains has the names of weir's chains in table filter.
type ownChains map[string]bool

func ownFilter(c Config, f lb.Family) ownChains {
	out := ownChains{}
	for _, own := range (ruleMaker{Config: c, family: f}).filter().chains {
		out[ruleNames{c.Prefix, f}.chain(own.name)] = true
	}
	return out
}

// used returns what the table filter of iptables-nft has beside weir's rules, "" for nothing.
func (r *nftRules) used(ctx context.Context, own ownChains) (what string, err error) {
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
	err = r.list(ctx, func() { what = "" }, func(chain string, rule []byte) {
		if (chain == "INPUT" || chain == "FORWARD") && !own.jump(rule) {
			what = "has rules in " + chain
		}
	})
	return what, err
}

// jump reports whether a rule of iptables-nft is a jump of weir. kube-proxy has chains of the same names, so
// it must have weir's comment.
func (own ownChains) jump(rule []byte) bool {
	for _, x := range attributes(attribute(rule, unix.NFTA_RULE_EXPRESSIONS)) {
		verdict := attribute(attribute(attribute(x, unix.NFTA_EXPR_DATA), unix.NFTA_IMMEDIATE_DATA), unix.NFTA_DATA_VERDICT)
		if cString(attribute(x, unix.NFTA_EXPR_NAME)) == "immediate" && own[cString(attribute(verdict, unix.NFTA_VERDICT_CHAIN))] {
			return bytes.Contains(rule, []byte(ownComment))
		}
	}
	return false
}

const (
	soGetEntries = 65 // IPT_SO_GET_ENTRIES, IP6T_SO_GET_ENTRIES

	// The layout of struct ipt_get_entries, ipt_entry, ip6t_entry, xt_standard_target and xt_error_target,
	// from include/uapi/linux/netfilter_ipv4/ip_tables.h, netfilter_ipv6/ip6_tables.h and
	// netfilter/x_tables.h.
	entriesHeader = 40
	targetOffset4 = 88
	targetOffset6 = 140
	targetName    = 2
	targetHeader  = 32
	targetNameEnd = targetHeader - 1
	verdictDrop   = int32(-nfDrop - 1)
	// errorTarget begins each chain that a program has made, with its name, and ends the table.
	errorTarget = "ERROR"
)

// emptyFilter is the number of entries of the table filter without rules: three policies and the end.
const emptyFilter = 4

// legacyUsed returns what the table filter of iptables-legacy has beside weir's rules, "" for nothing.
// The last rule of each chain is its policy. A kernel without the table gets no request, which would load its
// module. The list of tables in /proc is for root only, and the daemon is not root.
func legacyUsed(f lb.Family, own ownChains) string {
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
	entries := make([]byte, entriesHeader+int(info.size))
	copy(entries, "filter")
	binary.NativeEndian.PutUint32(entries[32:], info.size)
	read := getsockopt(fd, level, soGetEntries, entries)
	entries = entries[entriesHeader:]
	if info.numEntries > emptyFilter && !(read && own.only(&info, entries, at)) {
		return "has rules in table filter"
	}
	if !read {
		return ""
	}
	policy := func(hook int) int32 { return policyOf(entries, int(info.underflow[hook]), at) }
	switch verdictDrop {
	case policy(unix.NF_INET_LOCAL_IN):
		return "has policy DROP in INPUT"
	case policy(unix.NF_INET_FORWARD):
		return "has policy DROP in FORWARD"
	}
	return ""
}

// only reports whether the entries of a table of iptables-legacy are weir's chains, jumps with weir's comment in
// the kernel's chains, and their policies. With no other chains there, these jumps are to weir's.
func (own ownChains) only(info *getInfo, entries []byte, targetOffset int) bool {
	for at := 0; at < len(entries); {
		if at+targetOffset+4 > len(entries) {
			return false
		}
		target := int(binary.NativeEndian.Uint16(entries[at+targetOffset:]))
		next := at + int(binary.NativeEndian.Uint16(entries[at+targetOffset+2:]))
		if next > len(entries) || at+target+targetHeader+4 > next {
			return false
		}
		entry := entries[at:next]
		value := entry[target+targetHeader:]
		switch name := cString(entry[target+targetName : target+targetNameEnd]); {
		case name == errorTarget:
			if next < len(entries) && !own[cString(value)] {
				return false
			}
		case info.inKernelChain(at):
			if jumps := name == "" && int32(binary.NativeEndian.Uint32(value)) >= 0; !jumps || !bytes.Contains(entry, []byte(ownComment)) {
				return false
			}
		}
		at = next
	}
	return true
}

// inKernelChain reports whether the entry at an offset is a rule of one of the kernel's chains, and no policy.
func (i *getInfo) inKernelChain(at int) bool {
	for hook := range i.hookEntry {
		if i.validHooks&(1<<hook) != 0 && at >= int(i.hookEntry[hook]) && at < int(i.underflow[hook]) {
			return true
		}
	}
	return false
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
