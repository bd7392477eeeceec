package doctor

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"weir/lb"
	"weir/lb/linux"
)

// mixed finds rules in both kinds of iptables: a packet goes through both, and each
// program shows only its own.
func mixed(f Facts) []Finding {
	var out []Finding
	for _, family := range []lb.Family{lb.IPv4, lb.IPv6} {
		var both []linux.Tables
		for _, t := range f.Tables {
			if t.Family == family && t.Rules() > 0 {
				both = append(both, t)
			}
		}
		if len(both) < 2 {
			continue
		}
		// weir's own backend stays; the other one is to go.
		slices.SortStableFunc(both, func(a, b linux.Tables) int { return cmp.Compare(f.foreign(a), f.foreign(b)) })
		stays, goes := both[0], both[1]
		x := Finding{
			Severity: Warning,
			What: fmt.Sprintf("%s has %d rules in %s and %d in %s", family, stays.Rules(), stays.Program(),
				goes.Rules(), goes.Program()),
			Fix: fmt.Sprintf("see what %s-save prints, have whoever made that use the other kind "+
				"(update-alternatives --config iptables), and make it again there: it may be the firewall that guards this box", goes.Program()),
		}
		if f.foreign(goes) == 0 {
			x.Severity = Error
			x.What += ", and weir's own are in both"
			x.Fix = "set kernel.iptables to the one that weir shall use, empty the other, and restart weir"
		}
		out = append(out, x)
	}
	return out
}

// foreign is 0 for tables that hold weir's chains.
func (f Facts) foreign(t linux.Tables) int {
	if _, ok := t.Find("filter", f.prefix()+"-IPVS-FILTER"); ok {
		return 0
	}
	return 1
}

// usualPrefix begins the names of chains if nobody says otherwise.
const usualPrefix = "KUBE"

// prefix begins the names of weir's chains.
func (f Facts) prefix() string {
	if f.Config == nil {
		return usualPrefix
	}
	return f.Config.Kernel.NamePrefix
}

// kubeProxy finds kube-proxy, by its process and by what it has left.
func kubeProxy(f Facts) []Finding {
	apart := f.prefix() != usualPrefix
	var out []Finding
	for _, p := range f.Processes {
		if p.Name != "kube-proxy" {
			continue
		}
		x := Finding{
			Severity: Error, What: fmt.Sprintf("kube-proxy runs here, as process %d", p.PID),
			Fix: "remove its DaemonSet (kubectl -n kube-system delete daemonset kube-proxy), then run kube-proxy --cleanup here; " +
				"or give weir names of its own, kernel.name_prefix and kernel.device, and let both run",
		}
		if apart {
			x.Severity, x.Fix = Info, ""
			x.What += "; weir has names of its own and leaves it alone"
		}
		out = append(out, x)
	}
	if len(out) > 0 || apart {
		return out
	}
	for _, t := range f.Tables {
		var names, cmds []string
		for _, c := range t.KubeProxy() {
			names = append(names, c.Name+" in table "+c.Table)
			cmds = append(cmds, removal(t, c)...)
		}
		if len(names) > 0 {
			out = append(out, Finding{
				Severity: Error, What: fmt.Sprintf("kube-proxy has left chains (%s): %s", t.Program(), strings.Join(names, ", ")),
				Fix: "run kube-proxy --cleanup, or take them out", Command: strings.Join(cmds, " && "),
			})
		}
	}
	return out
}

// removal takes one chain out: first what leads to it, then its rules, then the chain.
func removal(t linux.Tables, c linux.Chain) []string {
	var cmds []string
	for _, from := range t.Chains {
		for _, words := range from.Rules {
			if from.Table == c.Table && lastTarget(words) == c.Name {
				cmds = append(cmds, fmt.Sprintf("%s -t %s -D %s %s", t.Program(), c.Table, from.Name, strings.Join(words, " ")))
			}
		}
	}
	return append(cmds, fmt.Sprintf("%s -t %s -F %s", t.Program(), c.Table, c.Name), fmt.Sprintf("%s -t %s -X %s", t.Program(), c.Table, c.Name))
}

// need is a packet that must come through, and what is lost without it.
type need struct {
	packet
	what string
}

// needs are the packets that must come through, by what is configured and served.
func (f Facts) needs() []need {
	var out []need
	add := func(what string, p packet) { out = append(out, need{p, what}) }
	for _, p := range f.Speakers {
		way := packet{hook: "INPUT", in: p.Interface, src: p.Addr.Addr().WithZone(""), proto: "tcp"}
		answer := way
		answer.state, answer.port = "ESTABLISHED", 40000
		add("what BGP peer "+p.Name+" answers", answer)
		way.state = "NEW"
		if f.Config != nil && f.Config.BGP != nil && f.Config.BGP.Speaker.ListenPort > 0 {
			way.port = uint16(f.Config.BGP.Speaker.ListenPort)
			add("connections of BGP peer "+p.Name, way)
		}
		if f.bfd(p.Name) {
			way.proto, way.port = "udp", 3784
			add("BFD of peer "+p.Name, way)
		}
	}
	if f.Config != nil && f.Config.Fleet != nil {
		for _, m := range f.Members {
			way := packet{hook: "INPUT", in: m.Interface, src: m.Addr.Addr(), proto: "udp", port: f.Config.Fleet.Gossip.Bind.Port(), state: "NEW"}
			add("gossip of member "+m.Name, way)
			way.proto = "tcp"
			add("connections of member "+m.Name, way)
		}
	}
	if f.Running == nil {
		return out // weir puts its own rules first when it starts
	}
	for _, x := range f.Services.Frontends {
		if a, err := netip.ParseAddr(x.Address); err == nil && x.Service != "" {
			add("clients of "+x.Service, packet{hook: "INPUT", dst: a, proto: strings.ToLower(x.Protocol), port: x.Port, state: "NEW", service: true})
			break // weir's rules are the same for all
		}
	}
	for _, w := range f.Ways {
		if w.Error == "" && !w.Local {
			add("replies of backend "+w.Backend.String(), packet{hook: "FORWARD", in: w.Interface, src: w.Backend, proto: "tcp", port: 40000, state: "ESTABLISHED", service: true})
			break
		}
	}
	return out
}

func (f Facts) bfd(peer string) bool {
	if f.Config == nil || f.Config.BGP == nil {
		return false
	}
	for _, p := range f.Config.BGP.Speaker.Peers {
		if p.Name == peer {
			return p.BFD.Enabled
		}
	}
	return false
}

// firewall finds rules that drop what must come through, and says how to let it.
func firewall(f Facts) []Finding {
	var out []Finding
	for _, n := range f.needs() {
		of := lb.IPv4
		if a := cmp.Or(n.src, n.dst); a.Is6() {
			of = lb.IPv6
		}
		for _, t := range f.Tables {
			if t.Family != of {
				continue
			}
			if x := pass(t, f.prefix(), n.packet); x.dropped && !x.maybe {
				out = append(out, Finding{
					Severity: Error, What: fmt.Sprintf("the firewall drops %s: %s (%s)", n.what, x, t.Program()),
					Fix:     "let it in before that, and keep the rule where your firewall has its own",
					Command: n.admit(t, x),
				})
			}
		}
	}
	return out
}

// admit is the command that lets a packet through, just before it is dropped: weir's own
// rules keep their place.
func (n need) admit(t linux.Tables, x fate) string {
	words := []string{t.Program(), "-I", n.hook, fmt.Sprint(x.top)}
	if x.rule == 0 {
		words = []string{t.Program(), "-A", n.hook}
	}
	if n.state == "ESTABLISHED" {
		words = append(words, "-m", "conntrack", "--ctstate", "RELATED,ESTABLISHED")
		return strings.Join(append(words, "-j", "ACCEPT"), " ")
	}
	if n.src.IsValid() {
		words = append(words, "-s", n.src.String())
	}
	if n.dst.IsValid() {
		words = append(words, "-d", n.dst.String())
	}
	return strings.Join(append(words, "-p", n.proto, "--dport", fmt.Sprint(n.port), "-j", "ACCEPT"), " ")
}

// foreignFirewall finds chains of nf_tables that doctor can't follow.
func foreignFirewall(f Facts) []Finding {
	var out []Finding
	for _, c := range f.NFTables {
		if !c.Drops {
			continue
		}
		how := "has rules that drop or reject"
		if c.PolicyDrop {
			how = "drops what no rule of it lets in"
		}
		x := Finding{
			Severity: Info, What: fmt.Sprintf("chain %s of nf_tables table %s (%s) %s: clients, peers and members must be let in there too",
				c.Name, c.Table, c.Hook, how),
			Fix: "see it with: nft list chain " + c.Table + " " + c.Name,
		}
		if strings.HasSuffix(c.Table, " firewalld") {
			x.Fix = "let in what is served, BGP (TCP 179, UDP 3784) and members, in the zones of their interfaces, such as: " +
				"firewall-cmd --permanent --zone=public --add-port=443/tcp && firewall-cmd --reload; " +
				"what is forwarded to backends needs a policy between the two zones (firewall-cmd --new-policy)"
		}
		out = append(out, x)
	}
	return out
}
