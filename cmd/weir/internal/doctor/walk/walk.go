// Package walk sends packets through rules of iptables, as the kernel does, as far as the rules are known. It never
// reports a rule with an unknown match (a set, a mark, a rate), and never reads rules from the kernel.
package walk

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"weir/lb/linux"
)

// Packet has the fields that rules match; empty ones are not known. State is that of
// conntrack: NEW, ESTABLISHED.
type Packet struct {
	Hook     string // PREROUTING, INPUT, FORWARD, OUTPUT
	In, Out  string
	Src, Dst netip.Addr
	Proto    string
	Port     uint16 // of the destination
	State    string // or several, separated by commas
	// Stateless is set where rules do not know the State yet.
	Stateless bool
	// Service is set for a packet of a client to a VIP, or its reply: only those are
	// accepted by the rules of weir.
	Service bool
}

// Fate is the result for a packet.
type Fate struct {
	Dropped bool
	// Maybe is set if an unknown rule may have accepted it before.
	Maybe bool
	// Table, Chain and Rule are the place of the drop; Rule counts from 1, 0 is the policy. Top is
	// the rule in the chain of the hook that jumped there.
	Table, Chain string
	Rule, Top    int
	// Passed are the chains that the packet has entered for certain.
	Passed []string
}

// String describes the place of the drop.
func (f Fate) String() string {
	chain := f.Chain
	if f.Table != "filter" {
		chain += " in table " + f.Table
	}
	if f.Rule == 0 {
		return "the policy of chain " + chain + " is DROP"
	}
	return fmt.Sprintf("rule %d of chain %s drops it", f.Rule, chain)
}

// verdict of a chain or a rule.
type verdict int

const (
	goesOn verdict = iota
	accepted
	dropped
	returned
)

// Pass sends a packet through the base chain of a table. There weir's chains have names that begin with prefix.
func Pass(t linux.Tables, table, base, prefix string, p Packet) Fate {
	c, ok := t.Find(table, base)
	if !ok {
		return Fate{}
	}
	w := &walk{tables: t, prefix: prefix, packet: p, fate: Fate{Table: table}}
rules:
	for i, r := range c.Rules {
		w.fate.Top = i + 1
		switch w.rule(c.Name, i, r, 0) {
		case accepted:
			return Fate{}
		case dropped:
			w.fate.Dropped = true
			return w.fate
		case returned:
			break rules
		}
	}
	if c.Policy != "DROP" {
		return Fate{}
	}
	w.fate.Dropped, w.fate.Chain, w.fate.Rule, w.fate.Top = true, c.Name, 0, len(c.Rules)+1
	return w.fate
}

// walk is a packet on its way.
type walk struct {
	tables linux.Tables
	prefix string
	packet Packet
	fate   Fate
	// skips is set if an uncertain RETURN may have left a chain before this rule.
	skips bool
}

// deepest is how many chains may call each other; the kernel refuses loops.
const deepest = 32

func (w *walk) chain(name string, depth int) verdict {
	c, ok := w.tables.Find(w.fate.Table, name)
	if !ok || depth > deepest {
		return goesOn
	}
	before := w.skips
	defer func() { w.skips = before }() // the caller goes on in any case
	for i, r := range c.Rules {
		switch v := w.rule(name, i, r, depth); v {
		case goesOn:
		case returned:
			return goesOn
		default:
			return v
		}
	}
	return goesOn
}

func (w *walk) rule(chain string, i int, words []string, depth int) verdict {
	matches, sure, target := w.packet.matches(words)
	if !matches {
		return goesOn
	}
	v := goesOn
	switch target {
	case "ACCEPT":
		v = accepted
	case "DROP", "REJECT":
		v = dropped
	case "RETURN":
		v = returned
	case "":
		return goesOn
	case w.prefix + "-IPVS-FILTER", w.prefix + "-FORWARD":
		// They match sets and marks, which only the kernel knows.
		if w.packet.Service {
			v = accepted
		}
	default:
		// An uncertain packet may be accepted there, but its drop is not reported.
		before := w.fate
		if sure {
			w.fate.Passed = append(w.fate.Passed, target)
		}
		if v = w.chain(target, depth+1); !sure && v != goesOn {
			w.fate = before
		}
		if v == goesOn && slices.Contains(words, "-g") {
			v = returned // not to this chain
		}
	}
	if !sure {
		// An uncertain DROP is ignored; an uncertain ACCEPT may accept it, and an
		// uncertain RETURN may skip a drop of this chain.
		w.fate.Maybe = w.fate.Maybe || v == accepted
		w.skips = w.skips || v == returned
		return goesOn
	}
	if v == dropped && (target == "DROP" || target == "REJECT") {
		w.fate.Chain, w.fate.Rule, w.fate.Maybe = chain, i+1, w.fate.Maybe || w.skips
	}
	return v
}

// matches reports whether a rule matches a packet, whether that is certain, and its target.
func (p Packet) matches(words []string) (matches, sure bool, target string) {
	sure = true
	for len(words) > 0 {
		not := words[0] == "!"
		if not {
			words = words[1:]
		}
		if len(words) == 0 {
			break
		}
		option, values := words[0], words[1:]
		n := slices.IndexFunc(values, func(w string) bool { return w == "!" || strings.HasPrefix(w, "-") })
		if n < 0 {
			n = len(values)
		}
		values, words = values[:n], values[n:]
		value := strings.Join(values, " ")
		ok, known := p.match(option, value)
		switch {
		case option == "-j" || option == "-g":
			target = value
		case option == "-m" || option == "--comment" || target != "": // options of targets come last
		case !known:
			sure = false
		case ok == not:
			return false, true, ""
		}
	}
	return true, sure, target
}

// match reports whether one option of a rule matches, and whether it is known.
func (p Packet) match(option, value string) (ok, known bool) {
	switch option {
	case "-i":
		if p.In == "" { // from outside, on any interface
			return false, value == "lo"
		}
		return sameInterface(value, p.In), true
	case "-o":
		if p.Out == "" { // to other hosts, on any interface
			return false, value == "lo"
		}
		return sameInterface(value, p.Out), true
	case "-p":
		return value == "all" || slices.Contains(strings.Split(value, ","), p.Proto), true
	case "--nfproto":
		return value == "ipv6" == cmp.Or(p.Src, p.Dst).Is6(), true
	case "-s", "-d":
		of := p.Src
		if option == "-d" {
			of = p.Dst
		}
		if !of.IsValid() {
			prefix, err := netip.ParsePrefix(value)
			return false, err == nil && prefix.Addr().IsMulticast()
		}
		return within(value, of), true
	case "--dport", "--dports":
		return hasPort(value, p.Port), true
	case "--dst-type", "--src-type":
		// What comes from outside to the box itself, or through it, is unicast. Elsewhere it may be to a VIP.
		return option == "--dst-type" && value == "LOCAL" && p.Hook == "INPUT", p.Hook == "INPUT" || p.Hook == "FORWARD"
	case "--ctstate", "--state":
		return slices.ContainsFunc(strings.Split(p.State, ","), func(s string) bool { return slices.Contains(strings.Split(value, ","), s) }), !p.Stateless
	}
	return false, false
}

// sameInterface compares as iptables does: "eth+" is all that begin so. A rule of nf_tables may have a list.
func sameInterface(list, name string) bool {
	return slices.ContainsFunc(strings.Split(list, ","), func(pattern string) bool {
		head, many := strings.CutSuffix(pattern, "+")
		return pattern == name || many && strings.HasPrefix(name, head)
	})
}

func within(list string, a netip.Addr) bool {
	return slices.ContainsFunc(strings.Split(list, ","), func(value string) bool {
		if p, err := netip.ParsePrefix(value); err == nil {
			return p.Contains(a)
		}
		other, err := netip.ParseAddr(value)
		return err == nil && other == a
	})
}

// hasPort looks a port up in "80", "80:90" or "22,80:90".
func hasPort(list string, port uint16) bool {
	for word := range strings.SplitSeq(list, ",") {
		low, high, isRange := strings.Cut(word, ":")
		if !isRange {
			high = low
		}
		from, err1 := strconv.ParseUint(low, 10, 16)
		to, err2 := strconv.ParseUint(high, 10, 16)
		if err1 == nil && err2 == nil && uint64(port) >= from && uint64(port) <= to {
			return true
		}
	}
	return false
}
