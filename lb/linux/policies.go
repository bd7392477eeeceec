package linux

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"weir/lb"
)

// usedForms returns the form of iptables in which another program uses table filter, by family, and what the first
// such table has: rules in INPUT or FORWARD, or policy DROP, as with Docker, ufw, and the firewall of RHEL's
// iptables-services. "" is none. Only rules of the same form can accept packets before. A family without a firewall
// gets the form of the first. weir's own rules of an earlier run do not count, nor does the kubelet's chain.
func usedForms(ctx context.Context, c Config, run runner) (what string, forms map[lb.Family]Backend, err error) {
	first, forms := AutoBackend, map[lb.Family]Backend{}
	for _, f := range c.Families {
		has, form, err := usedForm(ctx, c, f, run)
		if err != nil {
			return "", nil, err
		}
		if forms[f] = form; has != "" && what == "" {
			first, what = form, fmt.Sprintf("iptables (%s) %s", f, has)
		}
	}
	for f, form := range forms {
		if form == AutoBackend {
			forms[f] = first
		}
	}
	return what, forms, nil
}

// At boot other programs write nf_tables, and each write interrupts a read. That is no reason for iptables, nor to fail:
// if no read ends, the last one counts.
const (
	interruptedReads = 40
	interruptedPause = 50 * time.Millisecond
)

// usedForm does so for one family. It runs iptables-nft-save if nf_tables has such a table: rules of iptables can't
// come first in one that only nft can read.
func usedForm(ctx context.Context, c Config, f lb.Family, run runner) (what string, form Backend, err error) {
	conn := newConn(unix.NETLINK_NETFILTER, &Traffic{})
	defer conn.close()
	own := ownFilter(c, f)
	what, err = newNFTRules(f, "", newNFTTables(conn, "filter")).used(ctx, own)
	for range interruptedReads {
		if what != "" || !errors.Is(err, errInterrupted) || !sleep(ctx, interruptedPause) {
			break
		}
		what, err = newNFTRules(f, "", newNFTTables(conn, "filter")).used(ctx, own)
	}
	if err != nil && !noNFTables(err) && !errors.Is(err, errInterrupted) {
		return "", AutoBackend, fmt.Errorf("read the chains of nf_tables: %w", err)
	}
	if what != "" {
		r := newRules(f, run, hasProgram)
		if _ = tryForm(ctx, r, NFT); !slices.Contains(r.nftOnly, "filter") {
			return what, NFT, nil
		}
	}
	if what = legacyUsed(f, own); what != "" {
		return what, Legacy, nil
	}
	return "", AutoBackend, nil
}

// tryForm returns an error if the programs of a form can't have weir's rules.
func tryForm(ctx context.Context, r *rules, form Backend) error {
	if err := r.find(ctx, form); err != nil {
		return err
	}
	if _, err := r.saveWith(ctx, r.candidates[0]); err != nil {
		return err
	}
	return r.foreign()
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

// Every kubelet makes kubeletChain and jumps to it from INPUT, maybe after weir's start. The first of the rules drops
// what came to 127.0.0.0/8 from elsewhere, and the other, before Kubernetes 1.28, what kube-proxy had marked. Both hit
// no packet of a Service: kubernetes/pkg/kubelet/kubelet_network_linux.go. Rules are known by their comments.
const (
	kubeletChain      = "KUBE-FIREWALL"
	localnetComment   = "block incoming localnet connections"
	markedDropComment = "kubernetes firewall for dropping marked packets"
)

// expects reports whether a rule of a chain is no use of the filter by another program. to is the chain that it jumps
// to. kube-proxy has chains of the same names, so a jump of weir must have weir's comment.
func (own ownChains) expects(chain, to string, rule []byte) bool {
	has := func(comment string) bool { return bytes.Contains(rule, []byte(comment)) }
	switch chain {
	case "INPUT", "FORWARD":
		return to == kubeletChain || own[to] && has(ownComment)
	case kubeletChain:
		return has(localnetComment) || has(markedDropComment)
	}
	return true
}

// used returns what the table filter of iptables-nft has beside weir's rules, "" for nothing. An interrupted read may have
// found something, too: then the error is errInterrupted.
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
	if what != "" || err != nil && !errors.Is(err, errInterrupted) {
		return what, err
	}
	interrupted := err
	err = r.list(ctx, func() { what = "" }, func(chain string, rule []byte) {
		if !own.expects(chain, jumpOf(rule), rule) {
			what = "has rules in " + chain
		}
	})
	return what, cmp.Or(err, interrupted)
}

// jumpOf returns the chain that a rule of iptables-nft jumps to, "" for none.
func jumpOf(rule []byte) string {
	for _, x := range attributes(attribute(rule, unix.NFTA_RULE_EXPRESSIONS)) {
		if cString(attribute(x, unix.NFTA_EXPR_NAME)) == "immediate" {
			verdict := attribute(attribute(attribute(x, unix.NFTA_EXPR_DATA), unix.NFTA_IMMEDIATE_DATA), unix.NFTA_DATA_VERDICT)
			return cString(attribute(verdict, unix.NFTA_VERDICT_CHAIN))
		}
	}
	return ""
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
	verdictReturn = int32(-5) // XT_RETURN, which ends each chain that a program has made
	// errorTarget begins each chain that a program has made, with its name, and ends the table.
	errorTarget = "ERROR"
)

// filterInUse is the answer for a table that can't be read in detail.
const filterInUse = "has rules in table filter"

// emptyFilter is the number of entries of the table filter without rules: three policies and the end.
const emptyFilter = 4

// hasLegacy reports whether the kernel may have a table filter of iptables-legacy. A request for the table would load
// its module. The list of tables in /proc exists with ip_tables only. It is for root only, and the daemon is not root.
// If ip_tables is a module, the table is one, too. If both are built in, a request may make an empty table.
func hasLegacy(read func(string) ([]byte, error), sys, tables, module string) bool {
	names, err := read(procNet + tables + "_names")
	if errors.Is(err, fs.ErrPermission) {
		return exists(sys+module) || !exists(sys+tables)
	}
	return slices.Contains(strings.Fields(string(names)), "filter")
}

// legacyUsed returns what the table filter of iptables-legacy has beside weir's rules, "" for nothing.
func legacyUsed(f lb.Family, own ownChains) string {
	module, tables, family, level, at := "iptable_filter", "ip_tables", unix.AF_INET, unix.IPPROTO_IP, targetOffset4
	if f == lb.IPv6 {
		module, tables, family, level, at = "ip6table_filter", "ip6_tables", unix.AF_INET6, unix.IPPROTO_IPV6, targetOffset6
	}
	if !hasLegacy(os.ReadFile, "/sys/module/", tables, module) {
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
		if info.numEntries > emptyFilter {
			return filterInUse
		}
		return ""
	}
	return own.legacy(&info, entries[entriesHeader:], at)
}

// legacy returns what the entries of a table filter have beside weir's rules, "" for nothing. The last rule of each
// chain of the kernel is its policy. A chain of a program has its name before its rules, and a jump
// has the offset of the first of them.
func (own ownChains) legacy(info *getInfo, entries []byte, targetOffset int) (what string) {
	type rule struct {
		chain string
		to    int32
		entry []byte
	}
	var rules []rule
	starts := map[int32]string{} // the chains of programs, by the offset of the first rule
	hooks := map[int]string{unix.NF_INET_LOCAL_IN: "INPUT", unix.NF_INET_FORWARD: "FORWARD", unix.NF_INET_LOCAL_OUT: "OUTPUT"}
	chain := ""
	for at := 0; at < len(entries); {
		if at+targetOffset+4 > len(entries) {
			return filterInUse
		}
		target := int(binary.NativeEndian.Uint16(entries[at+targetOffset:]))
		next := at + int(binary.NativeEndian.Uint16(entries[at+targetOffset+2:]))
		if next > len(entries) || at+target+targetHeader > next {
			return filterInUse
		}
		policy := false
		for hook, name := range hooks {
			if at == int(info.hookEntry[hook]) {
				chain = name
			}
			policy = policy || at == int(info.underflow[hook])
		}
		r := rule{chain: chain, entry: entries[at:next]}
		name, value := cString(r.entry[target+targetName:target+targetNameEnd]), r.entry[target+targetHeader:]
		if name == "" && len(value) >= 4 {
			r.to = int32(binary.NativeEndian.Uint32(value))
		}
		switch {
		case name == errorTarget:
			chain = cString(value)
			starts[int32(next)] = chain
		case !policy && (chain != kubeletChain || r.to != verdictReturn):
			rules = append(rules, r)
		case r.to == verdictDrop && chain != "OUTPUT":
			return "has policy DROP in " + chain
		}
		at = next
	}
	for _, r := range rules {
		if !own.expects(r.chain, starts[r.to], r.entry) {
			return "has rules in " + r.chain
		}
	}
	return ""
}

func exists(file string) bool {
	_, err := os.Stat(file)
	return err == nil
}
