package linux

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"weir/lb"
)

// manualConfig has all rules, and a service by firewall mark.
func manualConfig(f lb.Family) (Config, insidePorts) {
	c := DefaultConfig()
	c.ClusterCIDRs = []netip.Prefix{netip.MustParsePrefix("10.244.0.0/16"), netip.MustParsePrefix("fd00:244::/56")}
	c.LocalInterfaces, c.SloppyTCP, c.CheckVIPs, c.Decapsulates, c.TunnelMTU = []string{"cni0"}, true, true, true, 1500
	c.Sources = []netip.Addr{netip.MustParseAddr("192.0.2.250"), netip.MustParseAddr("2001:db8::250")}
	return c, insidePorts{lb.MarkFrontend(f, 3): 8080, lb.GivenFrontend(f, 7): 0}
}

// manualRules returns the tables of all rules for kernel.md.
func manualRules() string {
	var b strings.Builder
	static := func(s stage) func(lb.Family) []ruleTable {
		return func(f lb.Family) []ruleTable {
			c, ports := manualConfig(f)
			return staticRules(c, f, s, ports)
		}
	}
	ipvs, rules := manualChains(static(byIPVS)), manualChains(static(byDNAT))
	all := func(string) bool { return true }
	manualTable(&b, ipvs, all)
	b.WriteString("\nOnly nftables has these chains, in mode `ipvs`:\n\n")
	manualTable(&b, manualChains(func(f lb.Family) []ruleTable {
		c, _ := manualConfig(f)
		return onlyNFT(c, f, byIPVS)
	}), all)
	b.WriteString("\nIn mode `netfilter` these chains differ:\n\n")
	manualTable(&b, rules, func(name string) bool {
		i := slices.IndexFunc(ipvs, func(c manualChain) bool { return c.name == name })
		j := slices.IndexFunc(rules, func(c manualChain) bool { return c.name == name })
		return i < 0 || !slices.Equal(ipvs[i].rows, rules[j].rows)
	})
	b.WriteString("\nThese chains have the virtual servers of mode `netfilter`. With nftables there is one for each kind, such\n" +
		"as those below. A packet for which a map has no key continues with the next rule.\n\n")
	manualTable(&b, manualKinds(), all)
	b.WriteString(manualMaps())
	b.WriteString("\nWith iptables each virtual server and each backend has one:\n\n")
	manualTable(&b, manualNAT(), all)
	fmt.Fprintf(&b, "\nTables `%s` have one rule:\n\n", NFTHooksTable)
	manualTable(&b, []manualChain{{hooksChain(ruleNames{}).name, [][2]string{describe(hooksRule)}}}, all)
	return b.String()
}

// manualChain has the cells of each rule of a chain.
type manualChain struct {
	name string
	rows [][2]string
}

func manualTable(b *strings.Builder, chains []manualChain, shown func(name string) bool) {
	b.WriteString("| chain | packets | action |\n| --- | --- | --- |\n")
	for _, c := range chains {
		if !shown(c.name) {
			continue
		}
		name := "`" + c.name + "`"
		for _, r := range c.rows {
			fmt.Fprintf(b, "| %s | %s | %s |\n", name, r[0], r[1])
			name = ""
		}
	}
}

// manualChains describes the rules of both families. Those of one family only name it.
func manualChains(tables func(lb.Family) []ruleTable) (out []manualChain) {
	both := map[lb.Family][]manualChain{}
	for _, f := range []lb.Family{lb.IPv4, lb.IPv6} {
		for _, t := range tables(f) {
			both[f] = append(both[f], manualJumps(t)...)
			for _, chain := range t.chains {
				d := manualChain{name: "KUBE-" + chain.name}
				for _, r := range chain.rules {
					d.rows = append(d.rows, describe(r))
				}
				both[f] = append(both[f], d)
			}
		}
	}
	for _, four := range both[lb.IPv4] {
		var six [][2]string
		if i := slices.IndexFunc(both[lb.IPv6], func(c manualChain) bool { return c.name == four.name }); i >= 0 {
			six = both[lb.IPv6][i].rows
		}
		merged := manualChain{name: four.name}
		for _, r := range four.rows {
			at := slices.Index(six, r)
			if at < 0 {
				merged.rows = append(merged.rows, [2]string{"IPv4: " + r[0], r[1]})
				continue
			}
			for _, only := range six[:at] {
				merged.rows = append(merged.rows, [2]string{"IPv6: " + only[0], only[1]})
			}
			merged.rows, six = append(merged.rows, r), six[at+1:]
		}
		for _, only := range six {
			merged.rows = append(merged.rows, [2]string{"IPv6: " + only[0], only[1]})
		}
		out = append(out, merged)
	}
	return out
}

// manualJumps describes the jumps from the base chains of a table.
func manualJumps(t ruleTable) (out []manualChain) {
	for _, j := range t.jumps {
		name := t.name + "-" + j.from
		i := slices.IndexFunc(out, func(c manualChain) bool { return c.name == name })
		if i < 0 {
			i = len(out)
			out = append(out, manualChain{name: name})
		}
		out[i].rows = append(out[i].rows, describe(when().then(jump(j.to))))
	}
	return out
}

// manualKinds describes the chains of virtual servers in nftables, with some kinds.
func manualKinds() (out []manualChain) {
	n, marks := ruleNames{"KUBE", lb.IPv4}, marking{DefaultConfig().Mark}
	chains := []nftChain{{name: n.chain(virtualServers), rules: n.serverRules(marks)}}
	for _, k := range []serverKind{{3, 0, false}, {3, 60, false}, {3, 0, true}} {
		chains = append(chains, n.kindChain(k, marks))
	}
	words := strings.NewReplacer(
		"number 60, client, frontend in `KUBE-STICKY-CLIENTS`", "`KUBE-STICKY-CLIENTS` has a number for this client",
		"frontend, its number in `KUBE-BACKENDS`", "`KUBE-BACKENDS` has a backend for this number",
		"marked frontend in `KUBE-SERVERS`", "`KUBE-SERVERS` has the marked frontend", "frontend in `KUBE-SERVERS`", "`KUBE-SERVERS` has the frontend",
		"frontend, random slot of 3 in `KUBE-STICKY-SLOTS`", "`KUBE-STICKY-SLOTS` has a number for a random slot of 3",
		"marked frontend, random slot of 3 in `KUBE-BACKENDS`", "`KUBE-BACKENDS` has a backend for a random slot of 3 of the marked frontend",
		"frontend, random slot of 3 in `KUBE-BACKENDS`", "`KUBE-BACKENDS` has a backend for a random slot of 3",
		"marked frontend, number 0 in `KUBE-BACKENDS`", "`KUBE-BACKENDS` has a backend for slot 0 of the marked frontend",
		"frontend, number 0 in `KUBE-BACKENDS`", "`KUBE-BACKENDS` has a backend for slot 0",
		"for 60000 ms remember its number for number 60, client, frontend in `KUBE-STICKY-CLIENTS`", "remember the number of this client's backend for 60 s",
		"forget number 60, client, frontend in `KUBE-STICKY-CLIENTS`", "forget the number of this client",
		"set the destination to its address and its port", "set the destination to the address and port of this backend",
		"go to the chain in `KUBE-SERVER-KINDS` of its number", "go to the chain that `KUBE-SERVER-KINDS` has for its kind")
	for _, chain := range chains {
		d := manualChain{name: chain.name}
		for _, rule := range chain.rules {
			matches, actions := readServerRule(n, marks, rule)
			d.rows = append(d.rows, [2]string{words.Replace(strings.Join(matches, "; ")), words.Replace(strings.Join(actions, "; "))})
		}
		out = append(out, d)
	}
	return out
}

// manualMaps lists the maps of virtual servers.
func manualMaps() string {
	n, b := ruleNames{"KUBE", lb.IPv4}, &strings.Builder{}
	b.WriteString("\nA frontend is the address, protocol and port of the destination. A marked frontend has the mark in place of\n" +
		"the address, and port 0. The maps of IPv6 have `ipv6_addr`, and `-6-` in their names.\n\n" +
		"| map | type | content |\n| --- | --- | --- |\n")
	for m := range numServerMaps {
		fmt.Fprintf(b, "| `%s` | `%s` | %s |\n", n.serverMap(m), n.serverMapKind(m), map[serverMap]string{
			mapServers:  "the number of a frontend's kind; the comment has scheduler, flags, affinity and port",
			mapBackends: "address and port of the backend of a frontend and slot; a comment has weight and limits, unless the weight is 1",
			mapSticky:   "with affinity: the number of a frontend and slot that clients remember",
			mapKinds:    "the chain of a kind: `KUBE-CHOOSE-3` for three slots",
			mapClients:  "the number of a timeout, client and frontend, until the timeout",
		}[m])
	}
	return b.String()
}

// manualNAT describes the chains of virtual servers in iptables, with some of them.
func manualNAT() []manualChain {
	names := natNames{"KUBE", marking{DefaultConfig().Mark}}
	f := frontend("192.0.2.1:80", lb.TCP)
	p := natService{server: lb.VirtualServer{Frontend: f, Scheduler: lb.Scheduler{Name: "rr"}, Affinity: 60}}
	p.add(real(f, "10.0.0.1:8080", 1))
	p.add(real(f, "10.0.0.2:8080", 1))
	dispatch := manualChain{name: names.dispatch()}
	for _, f := range []lb.Frontend{f, lb.MarkFrontend(lb.IPv4, 3)} {
		dispatch.rows = append(dispatch.rows, describeNAT(names.dispatchRule(f), nil))
	}
	out := []manualChain{dispatch}
	chains := names.chains(p)
	backends := map[string]netip.AddrPort{}
	for _, chain := range chains[1:] {
		r, _ := parseNAT(chain.rules[0])
		backends[chain.name] = r.to
	}
	for _, chain := range chains[:2] {
		d := manualChain{name: chain.name[:len("KUBE-SVC")] + "-..."}
		for _, text := range chain.rules {
			r, _ := parseNAT(text)
			d.rows = append(d.rows, describeNAT(r, backends))
		}
		out = append(out, d)
	}
	return out
}

// describeNAT returns the packets and the action of a rule of virtual servers in words. backends has those of chains.
func describeNAT(r natRule, backends map[string]netip.AddrPort) [2]string {
	var words []string
	short := func(chain string) string {
		out := "`" + chain[:len("KUBE-SVC")] + "-...`"
		if b, ok := backends[chain]; ok {
			out += " of `" + b.String() + "`"
		}
		return out
	}
	if r.proto != 0 {
		words = append(words, strings.ToUpper(r.proto.String()))
	}
	if r.dst.IsValid() {
		words = append(words, fmt.Sprintf("to `%s`, port %d", r.dst, r.port))
	}
	if r.mask != 0 {
		words = append(words, "with mark `"+bits{r.mark, r.mask}.String()+"`")
	}
	if r.seconds != 0 {
		words = append(words, fmt.Sprintf("clients in list %s since at most %d s", short(r.remembers), r.seconds))
	}
	if r.chance != 0 {
		words = append(words, fmt.Sprintf("with chance %.2f", float64(r.chance)/always))
	}
	out := [2]string{strings.Join(words, ", "), ""}
	if len(words) == 0 {
		out[0] = "all"
	}
	switch {
	case r.to.IsValid():
		out[1] = fmt.Sprintf("remember the client in list %s; set the destination to `%s`", short(r.remembers), r.to)
	case r.jump != "":
		out[1] = "jump to " + short(r.jump)
	default:
		out[1] = "none: its comment has the attributes of the virtual server"
	}
	return out
}

// describe returns the packets and the action of a rule in words.
func describe(r rule) (out [2]string) {
	var words []string
	for _, m := range r.matches {
		words = append(words, describeMatch(m))
	}
	out[0] = strings.Join(words, ", ")
	if len(words) == 0 {
		out[0] = "all"
	}
	out[1] = describeAction(r.action)
	return out
}

func describeMatch(m match) string {
	not := func(is bool, s string) string {
		if is {
			return "not " + s
		}
		return s
	}
	switch m := m.(type) {
	case inSet:
		fields := map[string]string{"dst": "destination", "dst,dst": "destination", "dst,dst,src": "destination and source",
			"dst,dst,dst": "destination, also as source", "src,src,src": "source", "src,src": "source"}[m.dims]
		return fields + " " + not(m.not, "in `"+m.set.Name("KUBE", lb.IPv4)+"`")
	case protocol:
		return strings.ToUpper(strings.TrimPrefix(string(m), "ipv6-"))
	case icmpType:
		return fmt.Sprintf("type %d", m)
	case state:
		return "state " + string(m)
	case isReply:
		return "replies"
	case source:
		return "from `" + netip.Prefix(m).String() + "`"
	case ownSource:
		return not(m.not, "from an address of the box")
	case inputInterface:
		return "from interface `" + string(m) + "`"
	case notFirst:
		return "not the first packet"
	case accepting:
		return "answers that accept a connection"
	case checksummed:
		if m.not {
			return "without a checksum"
		}
		return "with a checksum"
	case mark:
		return not(m.not, "with mark `"+m.String()+"`")
	case connMark:
		return "connections with mark `" + bits(m).String() + "`"
	}
	panic(fmt.Sprintf("a match %T", m))
}

func describeAction(a action) string {
	switch a := a.(type) {
	case result:
		return map[result]string{pass: "return", drop: "drop", accept: "accept"}[a]
	case jump:
		return "jump to `KUBE-" + string(a) + "`"
	case goTo:
		return "go to `KUBE-" + string(a) + "`"
	case refuse:
		if a.reset {
			return "refuse with a reset"
		}
		return "refuse with port unreachable"
	case setMark:
		return describeBits(bits(a)) + " of the mark"
	case setConnMark:
		return describeBits(bits(a)) + " of the connection's mark"
	case keepDestination:
		return "no other DNAT follows"
	case markFrom:
		return "set the mark of `" + lb.Set(a).Name("KUBE", lb.IPv4) + "`"
	case masquerade:
		if a.random {
			return "masquerade, with a random port"
		}
		return "masquerade"
	case sourceNAT:
		return "set the source to `" + netip.Addr(a).String() + "`"
	case setSegment:
		return fmt.Sprintf("lower the MSS to %d", a)
	case destinationPort:
		return fmt.Sprintf("set the destination port to %d", a)
	case originalAddress:
		return "set the source to the address that the client uses"
	case originalPort:
		return "set the source port to the one that the client uses"
	}
	panic(fmt.Sprintf("an action %T", a))
}

func describeBits(b bits) string {
	if b.mask == 0 {
		return fmt.Sprintf("flip `%#x`", b.value)
	}
	return fmt.Sprintf("set `%#x`", b.value)
}

// The manual lists each rule: go test ./lb/linux -run TestTheManualListsAllRules -update writes it.
func TestTheManualListsAllRules(t *testing.T) {
	t.Parallel()
	const begin, end = "<!-- rules: begin -->\n", "<!-- rules: end -->\n"
	file := filepath.Join("..", "..", "packaging", "doc", "kernel.md")
	text, err := os.ReadFile(file)
	must(t, err)
	before, rest, found := strings.Cut(string(text), begin)
	_, after, ended := strings.Cut(rest, end)
	if !found || !ended {
		t.Fatalf("%s has no place for the rules", file)
	}
	rules := manualRules()
	want := before + begin + rules + end + after
	if *update {
		must(t, os.WriteFile(file, []byte(want), 0o644))
		return
	}
	for _, stage := range []stage{byIPVS, byDNAT} {
		c, ports := manualConfig(lb.IPv4)
		for _, chain := range nftStatic(c, lb.IPv4, stage, ports) {
			if !strings.Contains(rules, "\n| `"+chain.name+"` |") {
				t.Errorf("%s does not list chain %s", file, chain.name)
			}
			if overview := before[strings.Index(before, "| chain | content |"):]; !strings.Contains(overview, "`"+chain.name+"`") {
				t.Errorf("%s does not name the purpose of chain %s", file, chain.name)
			}
		}
	}
	if string(text) != want {
		t.Errorf("%s does not list the rules as they are: -update writes them", file)
	}
}
