package linux

import (
	"fmt"
	"net/netip"
	"strings"

	"weir/lb"
)

// Rules as text for iptables, in the form that iptables-save prints, so that the two can be
// compared.

// table is weir's part of a table of iptables.
type table struct {
	name   string
	jumps  []textJump
	chains []chain
	open   string // as in ruleTable
}

// chain is one of weir's chains.
type chain struct {
	name  string
	rules []string // without "-A NAME "
}

// textJump is one rule in a chain of the kernel: "-A CHAIN SPEC".
type textJump struct{ chain, spec string }

// ruleNames has the names of chains and sets.
type ruleNames struct {
	prefix string
	family lb.Family
}

// ownComment begins the comment of each jump from a chain of the kernel to one of weir's.
const ownComment = "weir: "

func (n ruleNames) chain(name string) string { return n.prefix + "-" + name }

// iptablesRules returns the text of all rules of a family.
func iptablesRules(c Config, f lb.Family, s stage, ports insidePorts) []table {
	n := ruleNames{c.Prefix, f}
	var out []table
	for _, from := range staticRules(c, f, s, ports) {
		t := table{name: from.name}
		if from.open != "" {
			t.open = n.chain(from.open)
		}
		for _, j := range from.jumps {
			spec := fmt.Sprintf(`-m comment --comment "%s%s" %s`, ownComment, j.comment, jump(j.to).iptables(n))
			t.jumps = append(t.jumps, textJump{j.from, spec})
		}
		for _, c := range from.chains {
			text := chain{name: n.chain(c.name)}
			for _, r := range c.rules {
				text.rules = append(text.rules, r.iptables(n))
			}
			t.chains = append(t.chains, text)
		}
		out = append(out, t)
	}
	return out
}

func (r rule) iptables(n ruleNames) string {
	var words []string
	for _, m := range r.matches {
		words = append(words, m.iptables(n))
	}
	return strings.Join(append(words, r.action.iptables(n)), " ")
}

func (m inSet) iptables(n ruleNames) string {
	not := ""
	if m.not {
		not = "! "
	}
	return fmt.Sprintf("-m set %s--match-set %s %s", not, m.set.Name(n.prefix, n.family), m.dims)
}

func (p protocol) iptables(ruleNames) string { return "-p " + string(p) }

func (t icmpType) iptables(n ruleNames) string {
	if n.family == lb.IPv6 {
		return fmt.Sprintf("-m icmp6 --icmpv6-type %d", t)
	}
	return fmt.Sprintf("-m icmp --icmp-type %d", t)
}

func (s state) iptables(ruleNames) string          { return "-m conntrack --ctstate " + string(s) }
func (isReply) iptables(ruleNames) string          { return "-m conntrack --ctdir REPLY" }
func (p source) iptables(ruleNames) string         { return "-s " + netip.Prefix(p).String() }
func (i inputInterface) iptables(ruleNames) string { return "-i " + string(i) }

func (o ownSource) iptables(ruleNames) string {
	if o.not {
		return "-m addrtype ! --src-type LOCAL"
	}
	return "-m addrtype --src-type LOCAL"
}

func (notFirst) iptables(ruleNames) string { return "-m tcp ! --tcp-flags FIN,SYN,RST,ACK SYN" }

func (accepting) iptables(ruleNames) string { return "-m tcp --tcp-flags SYN,ACK SYN,ACK" }

const notByIPTables = "iptables can't render it" // onlyNFT

func (checksummed) iptables(ruleNames) string     { panic(notByIPTables) }
func (originalAddress) iptables(ruleNames) string { panic(notByIPTables) }
func (originalPort) iptables(ruleNames) string    { panic(notByIPTables) }

// allBits is the mask of a whole mark.
const allBits = 1<<32 - 1

func (b bits) String() string {
	if b.mask == allBits {
		return fmt.Sprintf("%#x", b.value)
	}
	return fmt.Sprintf("%#x/%#x", b.value, b.mask)
}

func (m mark) iptables(ruleNames) string {
	if m.not {
		return "-m mark ! --mark " + m.String()
	}
	return "-m mark --mark " + m.String()
}

func (m connMark) iptables(ruleNames) string { return "-m connmark --mark " + bits(m).String() }

func (r result) iptables(ruleNames) string { return "-j " + string(r) }
func (j jump) iptables(n ruleNames) string { return "-j " + n.chain(string(j)) }
func (g goTo) iptables(n ruleNames) string { return "-g " + n.chain(string(g)) }

func (r refuse) iptables(n ruleNames) string {
	switch {
	case r.reset:
		return "-j REJECT --reject-with tcp-reset"
	case n.family == lb.IPv6:
		return "-j REJECT --reject-with icmp6-port-unreachable"
	}
	return "-j REJECT --reject-with icmp-port-unreachable"
}

func (s setMark) iptables(ruleNames) string     { return "-j MARK --set-xmark " + bits(s).String() }
func (s setConnMark) iptables(ruleNames) string { return "-j CONNMARK --set-xmark " + bits(s).String() }

func (keepDestination) iptables(ruleNames) string { return "-j ACCEPT" }

func (m markFrom) iptables(n ruleNames) string {
	return "-j SET --map-set " + lb.Set(m).Name(n.prefix, n.family) + " dst,dst --map-mark"
}

func (m masquerade) iptables(ruleNames) string {
	if m.random {
		return "-j MASQUERADE --random-fully"
	}
	return "-j MASQUERADE"
}

func (a sourceNAT) iptables(ruleNames) string {
	return "-j SNAT --to-source " + netip.Addr(a).String()
}

func (p destinationPort) iptables(ruleNames) string {
	return fmt.Sprintf("-j DNAT --to-destination :%d", p)
}

func (m setSegment) iptables(ruleNames) string { return fmt.Sprintf("-j TCPMSS --set-mss %d", m) }
