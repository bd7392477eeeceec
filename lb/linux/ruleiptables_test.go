package linux

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"weir/cmd/weirlab/fuzzing"
	"weir/lb"
)

// iptablesParser reads options of iptables as the rule values that weir renders as such.
type iptablesParser struct {
	ruleNames
	left []string
}

// parse returns the rule of a line of iptables-save; false if it is of no rule.
func (p *iptablesParser) parse() (r rule, ok bool) {
	for len(p.left) > 0 && p.left[0] != "-j" && p.left[0] != "-g" {
		m := p.match()
		if m == nil {
			return r, false
		}
		r.matches = append(r.matches, m)
	}
	if len(p.left) > 1 {
		r.action = p.action()
	}
	return r, r.action != nil && len(p.left) == 0
}

// next removes and returns the next word, "" at the end.
func (p *iptablesParser) next() string {
	if len(p.left) == 0 {
		return ""
	}
	word := p.left[0]
	p.left = p.left[1:]
	return word
}

// took removes the next words if they are these.
func (p *iptablesParser) took(words string) bool {
	all := strings.Fields(words)
	if len(p.left) < len(all) || !slices.Equal(p.left[:len(all)], all) {
		return false
	}
	p.left = p.left[len(all):]
	return true
}

func (p *iptablesParser) bits() bits {
	value, mask, _ := parseMark(p.next())
	return bits{value, mask}
}

func (p *iptablesParser) set(name string) lb.Set {
	all := lb.Sets()
	if i := slices.IndexFunc(all, func(s lb.Set) bool { return s.Name(p.prefix, p.family) == name }); i >= 0 {
		return all[i]
	}
	return lb.Set(0xff)
}

func (p *iptablesParser) match() match {
	icmp := map[lb.Family]string{lb.IPv4: "-m icmp --icmp-type", lb.IPv6: "-m icmp6 --icmpv6-type"}[p.family]
	switch {
	case p.took("-m set ! --match-set"):
		return inSet{p.set(p.next()), p.next(), true}
	case p.took("-m set --match-set"):
		return inSet{p.set(p.next()), p.next(), false}
	case p.took("-p"):
		return protocol(p.next())
	case p.took(icmp):
		n, err := strconv.ParseUint(p.next(), 10, 8)
		if err != nil {
			return nil
		}
		return icmpType(n)
	case p.took("-m conntrack --ctstate"):
		return state(p.next())
	case p.took("-m conntrack --ctdir REPLY"):
		return isReply{}
	case p.took("-s"):
		prefix, err := netip.ParsePrefix(p.next())
		if err != nil {
			return nil
		}
		return source(prefix)
	case p.took("-m addrtype ! --src-type LOCAL"):
		return ownSource{not: true}
	case p.took("-m addrtype --src-type LOCAL"):
		return ownSource{}
	case p.took("-i"):
		return inputInterface(p.next())
	case p.took("-m tcp ! --tcp-flags FIN,SYN,RST,ACK SYN"):
		return notFirst{}
	case p.took("-m tcp --tcp-flags SYN,ACK SYN,ACK"):
		return accepting{}
	case p.took("-m mark ! --mark"):
		return mark{p.bits(), true}
	case p.took("-m mark --mark"):
		return mark{p.bits(), false}
	case p.took("-m connmark --mark"):
		return connMark(p.bits())
	}
	return nil
}

func (p *iptablesParser) action() action {
	if p.took("-g") {
		return goTo(strings.TrimPrefix(p.next(), p.chain("")))
	}
	p.next()
	switch target := p.next(); target {
	case "REJECT":
		port := map[lb.Family]string{lb.IPv4: "--reject-with icmp-port-unreachable", lb.IPv6: "--reject-with icmp6-port-unreachable"}[p.family]
		if p.took("--reject-with tcp-reset") {
			return refuse{reset: true}
		} else if p.took(port) {
			return refuse{}
		}
	case "MARK", "CONNMARK":
		if !p.took("--set-xmark") {
			return nil
		}
		if target == "MARK" {
			return setMark(p.bits())
		}
		return setConnMark(p.bits())
	case "SET":
		if p.took("--map-set") {
			s := p.set(p.next())
			if p.took("dst,dst --map-mark") {
				return markFrom(s)
			}
		}
	case "MASQUERADE":
		return masquerade{p.took("--random-fully")}
	case "SNAT":
		if a, err := netip.ParseAddr(p.after("--to-source")); err == nil {
			return sourceNAT(a)
		}
	case "DNAT":
		if n, err := strconv.ParseUint(strings.TrimPrefix(p.after("--to-destination"), ":"), 10, 16); err == nil {
			return destinationPort(n)
		}
	case "TCPMSS":
		if n, err := strconv.ParseUint(p.after("--set-mss"), 10, 16); err == nil {
			return setSegment(n)
		}
	case string(pass), string(drop), string(accept):
		return result(target)
	default:
		return jump(strings.TrimPrefix(target, p.chain("")))
	}
	return nil
}

// after returns the word behind an option, "" without the option.
func (p *iptablesParser) after(option string) string {
	if !p.took(option) {
		return ""
	}
	return p.next()
}

// byIPTables reports whether iptables can render a rule.
func byIPTables(r rule) bool {
	switch r.action.(type) {
	case originalAddress, originalPort:
		return false
	}
	return !slices.ContainsFunc(r.matches, func(m match) bool { _, ok := m.(checksummed); return ok })
}

// readsBack reports how the text of a rule reads otherwise; "" if it is the same rule.
func readsBack(n ruleNames, want rule) string {
	if want.action == (keepDestination{}) {
		want.action = accept // iptables has one word for both
	}
	text := want.iptables(n)
	p := iptablesParser{n, splitRule(text)}
	if got, ok := p.parse(); !ok || !reflect.DeepEqual(got, want) {
		return fmt.Sprintf("%#v is rendered as %q\nand read as %#v, %v", want, text, got, ok)
	}
	return ""
}

// FuzzIPTablesReadBack renders rules for iptables and reads them: none loses a part of its meaning. The tables
// of these rules, and virtual servers as rules, are those that weir finds in the kernel afterwards.
func FuzzIPTablesReadBack(f *testing.F) {
	fuzzing.Wide(f)
	for seed := range uint64(200) {
		f.Add(seed, seed%2 == 0)
	}
	f.Fuzz(func(t *testing.T, seed uint64, six bool) {
		n := ruleNames{"KUBE", lb.IPv4}
		if six {
			n.family = lb.IPv6
		}
		r := rand.New(rand.NewPCG(seed, 1))
		want := table{name: "nat", open: n.chain("OPEN"), chains: []chain{{name: n.chain("SERVICES")}, {name: n.chain("EMPTY")}}}
		for range 5 {
			one := someRule(r, n.family)
			if !byIPTables(one) {
				continue
			}
			if fault := readsBack(n, one); fault != "" {
				t.Error(fault)
			}
			want.chains[0].rules = append(want.chains[0].rules, one.iptables(n))
		}
		var b bytes.Buffer
		want.writeRestore(&b, savedTable{})
		if have := parseSave(b.String())["nat"]; !want.match(have) {
			t.Errorf("%v is read as %v", want, have)
		}
		for _, p := range someNATServices(r, 3) {
			chains := testNames.chains(p)
			got, exact, ok := testNames.parseNATService(lb.FamilyOf(p.server.Frontend.Addr), chains[0].rules)
			if !ok || !exact || got.server != p.server || !slices.Equal(got.reals, p.reals) {
				t.Errorf("%+v is read as %+v: %t, %t", p, got, exact, ok)
			}
			want := testNames.dispatchRule(p.server.Frontend)
			if got, ok := parseNAT(want.String()); !ok || got != want {
				t.Errorf("%+v is rendered as %s\nand read as %+v", want, want, got)
			}
		}
	})
}

// The rules of every configuration read back as well.
func TestAllRulesOfIPTablesReadBack(t *testing.T) {
	t.Parallel()
	for name, c := range nftConfigs() {
		for _, f := range []lb.Family{lb.IPv4, lb.IPv6} {
			for _, s := range []stage{byIPVS, byDNAT, byBoth, afterIPVS} {
				for _, table := range staticRules(c, f, s, insidePorts{lb.MarkFrontend(f, 3): 8080}) {
					for _, chain := range table.chains {
						for _, want := range chain.rules {
							if fault := readsBack(ruleNames{c.Prefix, f}, want); fault != "" {
								t.Errorf("%s %s: %s", name, f, fault)
							}
						}
					}
				}
			}
		}
	}
}
