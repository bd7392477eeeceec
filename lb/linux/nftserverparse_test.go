package linux

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"weir/cmd/weirlab/fuzzing"
	"weir/lb"
)

// serverReader reads the expressions of a rule of virtual servers as steps in words. It follows the content of
// each register and of the packet's mark: a key with a part from a wrong register gives other words.
type serverReader struct {
	ruleNames
	marks   marking
	regs    map[int]string // words of four bytes: "destination 0"
	mark    string
	matches []string // what ends the rule
	actions []string
}

// readServerRule returns the matches and actions of a rule.
func readServerRule(n ruleNames, marks marking, rule nftRule) (matches, actions []string) {
	r := serverReader{ruleNames: n, marks: marks, regs: map[int]string{}, mark: "mark"}
	left := rule.expressions
	p := ruleParser{n, left}
	if m, ok := p.masked().(mark); ok { // only packets with a mark
		r.matches, left = append(r.matches, describeMatch(m)), p.left
	}
	for _, x := range left {
		r.step(x)
	}
	if r.mark != "mark" {
		r.actions = append(r.actions, "leaves the mark "+r.mark)
	}
	return r.matches, r.actions
}

// register returns the place of the register in an attribute, in words of four bytes.
func (x expression) register(typ uint16) int {
	n := int(x.number(typ))
	if n >= unix.NFT_REG32_00 {
		return n - unix.NFT_REG32_00
	}
	return 4 * (n - unix.NFT_REG_1)
}

// put gives a value of some bytes to registers.
func (r *serverReader) put(at int, what string, size int) {
	for i := range (size + 3) / 4 {
		r.regs[at+i] = fmt.Sprintf("%s %d", what, i)
	}
}

// get returns the value of some bytes; "?" if it is of several parts.
func (r *serverReader) get(at, size int) string {
	what, ok := strings.CutSuffix(r.regs[at], " 0")
	for i := range (size + 3) / 4 {
		ok = ok && r.regs[at+i] == fmt.Sprintf("%s %d", what, i)
	}
	if !ok {
		return "?"
	}
	return what
}

// key returns the fields of a map's key in registers.
func (r *serverReader) key(m serverMap, at int) string {
	kind := r.serverMapKind(m)
	var types []nftType
	for t := kind.key; t != 0; t >>= nftTypeBits {
		types = append([]nftType{t & (1<<nftTypeBits - 1)}, types...)
	}
	var out []string
	for _, t := range types {
		out = append(out, r.get(at, int(t.size())))
		at += (int(t.size()) + 3) / 4
	}
	return strings.NewReplacer("destination, protocol, port", "frontend", "masked mark, protocol, number 0", "marked frontend").Replace(strings.Join(out, ", "))
}

func (r *serverReader) mapOf(x expression, typ uint16) serverMap {
	for m := range numServerMaps {
		if r.serverMap(m) == cString(x.value(typ)) {
			return m
		}
	}
	return numServerMaps
}

func (r *serverReader) step(x expression) {
	from, to, size := r.ipHeader()
	switch x.name {
	case "payload":
		network := x.number(unix.NFTA_PAYLOAD_BASE) == unix.NFT_PAYLOAD_NETWORK_HEADER
		offset, length := int(x.number(unix.NFTA_PAYLOAD_OFFSET)), int(x.number(unix.NFTA_PAYLOAD_LEN))
		what := map[[2]int]string{{from, size}: "client", {to, size}: "destination"}[[2]int{offset, length}]
		if !network {
			what = map[[2]int]string{{destinationPortAt, 2}: "port"}[[2]int{offset, length}]
		}
		r.put(x.register(unix.NFTA_PAYLOAD_DREG), what, length)
	case "meta":
		reg := x.register(unix.NFTA_META_SREG)
		switch {
		case x.value(unix.NFTA_META_SREG) != nil:
			r.mark = r.get(reg, 4)
		case x.number(unix.NFTA_META_KEY) == unix.NFT_META_MARK:
			r.put(x.register(unix.NFTA_META_DREG), r.mark, 4)
		default:
			r.put(x.register(unix.NFTA_META_DREG), "protocol", 1)
		}
	case "bitwise":
		at := x.register(unix.NFTA_BITWISE_SREG)
		what := "wrong mark"
		if bytes.Equal(x.value(unix.NFTA_BITWISE_MASK), native32(^r.marks.reserved())) && getU32(x.value(unix.NFTA_BITWISE_XOR)) == 0 && r.get(at, 4) == "mark" {
			what = "masked mark"
		}
		r.put(at, what, 4)
		for i := 1; i < size/4; i++ { // the rest of an address is zero, and that comes as a value
			r.regs[at+i] = ""
		}
	case "immediate":
		r.value(x)
	case "numgen":
		r.put(x.register(unix.NFTA_NG_DREG), fmt.Sprintf("random slot of %d", x.number(unix.NFTA_NG_MODULUS)), 4)
	case "lookup":
		r.find(x)
	case "dynset":
		m := r.mapOf(x, unix.NFTA_DYNSET_SET_NAME)
		key := r.key(m, x.register(unix.NFTA_DYNSET_SREG_KEY))
		what := "forget"
		if x.number(unix.NFTA_DYNSET_OP) == unix.NFT_DYNSET_OP_UPDATE {
			what = fmt.Sprintf("for %d ms remember %s for", binary.BigEndian.Uint64(x.value(unix.NFTA_DYNSET_TIMEOUT)), r.get(x.register(unix.NFTA_DYNSET_SREG_DATA), 4))
		}
		r.actions = append(r.actions, fmt.Sprintf("%s %s in `%s`", what, key, r.serverMap(m)))
	case "nat":
		addr, port := r.get(x.register(unix.NFTA_NAT_REG_ADDR_MIN), size), r.get(x.register(unix.NFTA_NAT_REG_PROTO_MIN), 2)
		r.actions = append(r.actions, fmt.Sprintf("set the destination to %s and %s", addr, port))
	default:
		r.actions = append(r.actions, "unknown "+x.name)
	}
}

// value reads a constant. Behind a masked mark it is the rest of an address.
func (r *serverReader) value(x expression) {
	at, v := x.register(unix.NFTA_IMMEDIATE_DREG), x.value(unix.NFTA_IMMEDIATE_DATA)
	if r.regs[at-1] == "masked mark 0" && len(v) > 4 {
		for i := range len(v) / 4 {
			r.regs[at+i] = fmt.Sprintf("masked mark %d", i+1)
		}
		if slices.Max(v) != 0 {
			r.regs[at] = "a wrong rest"
		}
		return
	}
	r.put(at, fmt.Sprintf("number %d", getU32(v)), len(v))
}

// find reads a lookup: of the chain of a kind, of a backend, or of a number.
func (r *serverReader) find(x expression) {
	m := r.mapOf(x, unix.NFTA_LOOKUP_SET)
	key, to := r.key(m, x.register(unix.NFTA_LOOKUP_SREG)), x.register(unix.NFTA_LOOKUP_DREG)
	if x.number(unix.NFTA_LOOKUP_DREG) == regResult {
		r.actions = append(r.actions, fmt.Sprintf("go to the chain in `%s` of %s", r.serverMap(m), key))
		return
	}
	r.matches = append(r.matches, fmt.Sprintf("%s in `%s`", key, r.serverMap(m)))
	if _, _, size := r.ipHeader(); m == mapBackends {
		r.put(to, "its address", size)
		r.put(to+size/4, "its port", 2)
		return
	}
	r.put(to, "its number", 4)
}

// wantSteps returns the matches and actions of the rules of a kind, as the comments of kindRules describe them.
func (k serverKind) wantSteps(n ruleNames) (out [][2][]string) {
	frontend, clients := "frontend", n.serverMap(mapClients)
	if k.marked {
		frontend = "marked frontend"
	}
	client := fmt.Sprintf("number %d, client, %s", k.affinity, frontend)
	in := func(m serverMap, slot string) string {
		return fmt.Sprintf("%s, %s in `%s`", frontend, slot, n.serverMap(m))
	}
	renew := fmt.Sprintf("for %d ms remember its number for %s in `%s`", 1000*uint64(k.affinity), client, clients)
	const send = "set the destination to its address and its port"
	const first = "number 0"
	slot := string(first)
	if k.slots > 1 {
		slot = fmt.Sprintf("random slot of %d", k.slots)
	}
	if k.affinity != 0 {
		known := client + " in `" + clients + "`"
		out = append(out,
			[2][]string{{known, in(mapBackends, "its number")}, {renew, send}},
			[2][]string{{known}, {"forget " + client + " in `" + clients + "`"}},
			[2][]string{{in(mapSticky, slot), in(mapBackends, "its number")}, {renew, send}})
	}
	out = append(out, [2][]string{{in(mapBackends, slot)}, {send}})
	if k.slots > 1 {
		out = append(out, [2][]string{{in(mapBackends, first)}, {send}})
	}
	return out
}

// FuzzServerRulesReadBack renders the rules of virtual servers and reads them: their name, their keys and what
// they do is that of the kind.
func FuzzServerRulesReadBack(f *testing.F) {
	fuzzing.Wide(f)
	r := rand.New(rand.NewPCG(1, 2))
	for i := range 40 {
		f.Add(1+r.Uint32N(300), r.Uint32N(2)*(1+r.Uint32N(1<<20)), uint8(r.Uint32N(32)), i%2 == 0, i%3 == 0)
	}
	f.Fuzz(func(t *testing.T, slots, affinity uint32, bit uint8, marked, six bool) {
		n, marks := ruleNames{"KUBE", lb.IPv4}, marking{1 << (bit % 32)}
		if six {
			n.family = lb.IPv6
		}
		k := serverKind{max(1, slots%(1<<31)), affinity, marked}
		chain := n.kindChain(k, marks)
		if got, ok := parseKindChain(strings.TrimPrefix(chain.name, n.prefix+"-")); !ok || got != k {
			t.Errorf("%+v is %s, and that %+v", k, chain.name, got)
		}
		want := k.wantSteps(n)
		if len(chain.rules) != len(want) {
			t.Fatalf("%+v has %d rules, want %d", k, len(chain.rules), len(want))
		}
		for i, rule := range chain.rules {
			matches, actions := readServerRule(n, marks, rule)
			if !slices.Equal(matches, want[i][0]) || !slices.Equal(actions, want[i][1]) {
				t.Errorf("%+v, rule %d: %q, %q; want %q", k, i, matches, actions, want[i])
			}
		}
		for i, rule := range n.serverRules(marks) {
			frontend, given := "frontend", []string(nil)
			if i == 0 {
				frontend, given = "marked frontend", []string{describeMatch(mark{bits: marks.all()})}
			}
			matches, actions := readServerRule(n, marks, rule)
			if want := append(given, frontend+" in `"+n.serverMap(mapServers)+"`"); !slices.Equal(matches, want) ||
				!slices.Equal(actions, []string{"go to the chain in `" + n.serverMap(mapKinds) + "` of its number"}) {
				t.Errorf("rule %d: %q, %q; want %q", i, matches, actions, want)
			}
		}
	})
}

// The reader itself sees a key from a wrong register, and a mark that is not restored.
func TestTheReaderOfServerRulesSeesFaults(t *testing.T) {
	t.Parallel()
	n, marks := ruleNames{"KUBE", lb.IPv4}, marking{0x4000}
	rule := func() []expression { return n.kindChain(serverKind{3, 60, false}, marks).rules[0].expressions }
	for name, change := range map[string]func([]expression) []expression{
		"a field is missing":       func(all []expression) []expression { return all[1:] },
		"the mark is not restored": func(all []expression) []expression { return slices.Delete(all, 9, 10) },
		"a field from another place": func(all []expression) []expression {
			all[1] = loadPayload(reg32(2), unix.NFT_PAYLOAD_NETWORK_HEADER, 12, 4)
			return all
		},
	} {
		good, acts := readServerRule(n, marks, nftRule{expressions: rule()})
		bad, does := readServerRule(n, marks, nftRule{expressions: change(rule())})
		if slices.Equal(good, bad) && slices.Equal(acts, does) {
			t.Errorf("%s: %q, %q", name, bad, does)
		}
	}
}
