package doctor

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"weir/lb/linux"
)

// A packet traverses the filter table as in the kernel, as far as its rules are known. A
// rule with an unknown match (a set, a mark, a rate) is never reported.

// packet has the fields that rules match; empty ones are not known. State is that of
// conntrack: NEW, ESTABLISHED.
type packet struct {
	hook     string // INPUT, FORWARD, OUTPUT
	in, out  string
	src, dst netip.Addr
	proto    string
	port     uint16 // of the destination
	state    string // or several, separated by commas
	// service is set for a packet of a client to a VIP, or its reply: only those are
	// accepted by the rules of weir.
	service bool
}

// fate is the result for a packet.
type fate struct {
	dropped bool
	// maybe is set if an unknown rule may have accepted it before.
	maybe bool
	// chain and rule are the place of the drop; rule counts from 1, 0 is the policy. top is
	// the rule in the chain of the hook that jumped there.
	chain     string
	rule, top int
	// passed are the chains that the packet has entered for certain.
	passed []string
}

// String describes the place of the drop.
func (f fate) String() string {
	if f.rule == 0 {
		return "the policy of chain " + f.chain + " is DROP"
	}
	return fmt.Sprintf("rule %d of chain %s drops it", f.rule, f.chain)
}

// verdict of a chain or a rule.
type verdict int

const (
	goesOn verdict = iota
	accepted
	dropped
	returned
)

// pass sends a packet through the filter table, in which weir's chains have names that
// begin with prefix.
func pass(t linux.Tables, prefix string, p packet) fate { return passFrom(p.hook, t, prefix, p) }

// passFrom is pass for a base chain with another name than its hook.
func passFrom(base string, t linux.Tables, prefix string, p packet) fate {
	c, ok := t.Find("filter", base)
	if !ok {
		return fate{}
	}
	w := &walk{tables: t, prefix: prefix, packet: p}
rules:
	for i, r := range c.Rules {
		w.fate.top = i + 1
		switch w.rule(c.Name, i, r, 0) {
		case accepted:
			return fate{}
		case dropped:
			w.fate.dropped = true
			return w.fate
		case returned:
			break rules
		}
	}
	if c.Policy != "DROP" {
		return fate{}
	}
	w.fate.dropped, w.fate.chain, w.fate.rule, w.fate.top = true, c.Name, 0, len(c.Rules)+1
	return w.fate
}

// walk is a packet on its way.
type walk struct {
	tables linux.Tables
	prefix string
	packet packet
	fate   fate
}

// deepest is how many chains may call each other; the kernel refuses loops.
const deepest = 32

func (w *walk) chain(name string, depth int) verdict {
	c, ok := w.tables.Find("filter", name)
	if !ok || depth > deepest {
		return goesOn
	}
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
		if w.packet.service {
			v = accepted
		}
	default:
		// An uncertain packet may be accepted there, but its drop is not reported.
		before := w.fate
		if sure {
			w.fate.passed = append(w.fate.passed, target)
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
		// uncertain RETURN may skip the drop.
		w.fate.maybe = w.fate.maybe || v == accepted || v == returned
		return goesOn
	}
	if v == dropped && (target == "DROP" || target == "REJECT") {
		w.fate.chain, w.fate.rule = chain, i+1
	}
	return v
}

// matches reports whether a rule matches a packet, whether that is certain, and its target.
func (p packet) matches(words []string) (matches, sure bool, target string) {
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

// lastTarget is where a rule leads.
func lastTarget(words []string) string {
	for i := len(words) - 2; i >= 0; i-- {
		if words[i] == "-j" || words[i] == "-g" {
			return words[i+1]
		}
	}
	return ""
}

// match reports whether one option of a rule matches, and whether it is known.
func (p packet) match(option, value string) (ok, known bool) {
	switch option {
	case "-i":
		if p.in == "" { // from outside, on any interface
			return false, value == "lo"
		}
		return sameInterface(value, p.in), true
	case "-o":
		if p.out == "" { // to other hosts, on any interface
			return false, value == "lo"
		}
		return sameInterface(value, p.out), true
	case "-p":
		return value == "all" || slices.Contains(strings.Split(value, ","), p.proto), true
	case "--nfproto":
		return value == "ipv6" == cmp.Or(p.src, p.dst).Is6(), true
	case "-s", "-d":
		of := p.src
		if option == "-d" {
			of = p.dst
		}
		if !of.IsValid() {
			prefix, err := netip.ParsePrefix(value)
			return false, err == nil && prefix.Addr().IsMulticast()
		}
		return within(value, of), true
	case "--dport", "--dports":
		return hasPort(value, p.port), true
	case "--dst-type", "--src-type":
		// What comes from outside to the box itself, or through it, is unicast. At OUTPUT it may be to a VIP.
		return option == "--dst-type" && value == "LOCAL" && p.hook == "INPUT", p.hook != "OUTPUT"
	case "--ctstate", "--state":
		return slices.ContainsFunc(strings.Split(p.state, ","), func(s string) bool { return slices.Contains(strings.Split(value, ","), s) }), true
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
