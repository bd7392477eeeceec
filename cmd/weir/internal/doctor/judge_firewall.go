package doctor

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"weir/cmd/weir/internal/config"
	"weir/cmd/weir/internal/doctor/facts"
	"weir/lb"
	"weir/lb/linux"
)

// mixed reports rules in both backends of iptables: a packet passes both, and each program
// shows only its own.
func mixed(f box) []Finding {
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
		// The backend of weir stays.
		slices.SortStableFunc(both, func(a, b linux.Tables) int { return cmp.Compare(f.foreign(a), f.foreign(b)) })
		stays, goes := both[0], both[1]
		x := Finding{
			Severity: Warning,
			Text: fmt.Sprintf("%s has %d rules in %s and %d in %s", family, stays.Rules(), stays.Program(),
				goes.Rules(), goes.Program()),
			Fix: fmt.Sprintf("check the output of %s-save, and move its rules to the other backend "+
				"(update-alternatives --config iptables): they may be the firewall of this box", goes.Program()),
		}
		if f.foreign(goes) == 0 {
			x.Severity = Error
			x.Text += ", and weir's own are in both"
			x.Fix = "set kernel.iptables to one backend, flush the other, and restart weir"
		}
		out = append(out, x)
	}
	return out
}

// foreign returns 0 for tables with weir's chains, and 1 for others.
func (f box) foreign(t linux.Tables) int {
	if _, ok := t.Find("filter", f.prefix()+"-IPVS-FILTER"); ok {
		return 0
	}
	return 1
}

// usualPrefix is the default prefix of the names of chains.
const usualPrefix = "KUBE"

// prefix returns the prefix of the names of weir's chains.
func (f box) prefix() string {
	if f.Config == nil {
		return usualPrefix
	}
	return f.Config.Kernel.NamePrefix
}

// kubeProxy reports kube-proxy, by its process and its chains.
func kubeProxy(f box) []Finding {
	apart := f.prefix() != usualPrefix
	var out []Finding
	for _, p := range f.Processes {
		if p.Name != "kube-proxy" {
			continue
		}
		x := Finding{
			Severity: Error, Text: fmt.Sprintf("kube-proxy is running as process %d", p.PID),
			Fix: "remove its DaemonSet (kubectl -n kube-system delete daemonset kube-proxy), then run kube-proxy --cleanup here; " +
				"or set kernel.name_prefix and kernel.device, and run both",
		}
		if apart {
			x.Severity, x.Fix = Info, ""
			x.Text += "; weir uses other names and keeps its objects"
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
				Severity: Error, Text: fmt.Sprintf("kube-proxy left chains (%s): %s", t.Program(), strings.Join(names, ", ")),
				Fix: "run kube-proxy --cleanup, or remove them", Command: strings.Join(cmds, " && "),
			})
		}
	}
	return out
}

// removal returns the commands that remove a chain: jumps to it, its rules, the chain.
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

// need is a packet that must pass, and the traffic that it stands for.
type need struct {
	packet
	what string
}

// needs returns the packets of peers and members that must pass, and their replies.
func (f box) needs() []need {
	var out []need
	add := func(what string, p packet) { out = append(out, need{p, what}) }
	for _, p := range f.Speakers {
		way := packet{hook: "INPUT", in: p.Interface, src: p.Addr.Addr().WithZone(""), proto: "tcp"}
		answer := way
		answer.state, answer.port = "ESTABLISHED", 40000
		add("replies of BGP peer "+p.Name, answer)
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
	ports := f.bfdBackends()
	for _, w := range f.Ways {
		if port, ok := ports[w.Backend]; ok && w.Error == "" {
			add("BFD of backend "+w.Backend.String(), packet{hook: "INPUT", in: w.Interface, src: w.Backend, proto: "udp", port: port, state: "NEW"})
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
	return out
}

// serviceNeeds returns the packets of clients that must pass, and of the replies one for each interface.
func (f box) serviceNeeds() []need {
	out := f.clientNeeds()
	links := map[string]bool{}
	for _, w := range f.Ways {
		if w.Error == "" && !w.Local && !links[w.Interface] {
			links[w.Interface] = true
			out = append(out, need{packet{hook: "FORWARD", in: w.Interface, src: w.Backend, proto: "tcp", port: 40000, state: "ESTABLISHED", service: true}, "replies of backend " + w.Backend.String()})
		}
	}
	for _, p := range f.healthPorts() {
		for _, in := range f.uplinks() {
			out = append(out, need{packet{hook: "INPUT", in: in, dst: p.Addr(), proto: "tcp", port: p.Port(), state: "NEW", service: true}, fmt.Sprintf("probes of healthCheckNodePort %d", p.Port())})
		}
	}
	return out
}

// uplinks returns the interfaces of clients and probes; "" is any.
func (f box) uplinks() []string {
	if len(f.Network.Uplinks) == 0 {
		return []string{""}
	}
	return f.Network.Uplinks
}

// translated is the state of a client's first packet after DNAT, in mode netfilter.
const translated = "NEW,DNAT"

// clientNeeds returns the packets of clients: to the box and from there to the backends with IPVS, and else
// through the box.
func (f box) clientNeeds() []need {
	served := facts.ServedBy(&f.Facts)
	if !facts.UsesIPVS(&f.Facts) {
		return f.serverNeeds(served.Servers, "FORWARD", translated)
	}
	out := f.serverNeeds(served.Servers, "OUTPUT", "NEW") // as if the box had made them
	for _, x := range slices.Concat(served.Frontends, served.NodePorts) {
		for _, in := range f.uplinks() {
			out = append(out, need{packet{hook: "INPUT", in: in, dst: x.Addr, proto: x.Proto, port: x.Port, state: "NEW", service: true}, "clients of " + x.Service})
		}
	}
	return out
}

// serverNeeds returns the packets of clients to the servers that are not the box itself.
func (f box) serverNeeds(servers []facts.Server, hook, state string) (out []need) {
	ways := map[netip.Addr]facts.Way{}
	for _, w := range f.Ways {
		ways[w.Backend] = w
	}
	for _, s := range servers {
		if w := ways[s.Backend]; !w.Local && w.Error == "" {
			out = append(out, need{packet{hook: hook, out: w.Interface, dst: s.Addr, proto: s.Proto, port: s.Port, state: state, service: true}, "clients of " + s.Service})
		}
	}
	return out
}

// bfdBackends returns the backends with a check of type bfd, and the port of its packets.
func (f box) bfdBackends() map[netip.Addr]uint16 {
	out := map[netip.Addr]uint16{}
	if f.Config == nil {
		return out
	}
	for _, g := range f.Config.Checks {
		for _, p := range g.Ports {
			for _, b := range p.Backends {
				if g.Check.Kind == "bfd" {
					out[b.Addr.Addr()] = g.Check.BFDPort()
				}
			}
		}
	}
	return out
}

func (f box) bfd(peer string) bool {
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

// firewall reports rules of iptables that drop packets that must pass.
func firewall(f box) []Finding {
	needs := f.needs()
	if f.Running != nil { // at its start weir puts its own rules first
		needs = append(needs, f.serviceNeeds()...)
	}
	var out []Finding
	seen := map[string]bool{} // weir's rules are the same for all Services
	for _, n := range needs {
		for _, t := range f.Tables {
			key := n.sameRules()
			if t.Family != n.family() || n.service && seen[key] {
				continue
			}
			x := pass(t, f.prefix(), n.packet)
			if !x.dropped || x.maybe {
				continue
			}
			seen[key] = seen[key] || n.service
			finding := Finding{
				Severity: Error, Text: fmt.Sprintf("the firewall drops %s: %s (%s)", n.what, x, t.Program()),
				Fix:     "accept it before that rule, and add the rule to your firewall",
				Command: n.admit(t, x),
			}
			switch {
			case n.service && n.hook != "OUTPUT" && facts.Backend(&f.Facts) == linux.NFTables:
				f.overridden(&finding)
			case usesUFW(t) && n.state == "NEW":
				finding.Fix = "allow it in ufw"
			}
			out = append(out, finding)
		}
	}
	return out
}

// sameRules is equal for packets of Services that meet the same rules of weir, and need the same ones of others: weir
// has no rule in OUTPUT.
func (n need) sameRules() string {
	if n.hook == "OUTPUT" {
		return fmt.Sprint(n.family(), n.hook, n.proto, n.port)
	}
	return n.family().String() + n.hook + n.state
}

// overridden gives the remedy for rules of iptables that came after weir had selected nftables.
func (f box) overridden(x *Finding) {
	const effect = "weir's rules are in nftables, and only rules of iptables come before these: "
	switch {
	case f.Kernel.Modules["ip_set"] == facts.Absent || f.Kernel.Modules["xt_set"] == facts.Absent:
	case f.Config != nil && f.Config.Kernel.Rules == config.RulesAuto && f.Config.Kernel.IPTables == config.IPTablesAuto:
		x.Fix, x.Command = effect+"restart weir, and it selects iptables", "systemctl restart weir"
	default:
		x.Fix = effect + "set kernel.rules = \"auto\" and restart weir, or accept it before that rule"
	}
}

// family returns the family of a packet.
func (n need) family() lb.Family {
	if cmp.Or(n.src, n.dst).Is6() {
		return lb.IPv6
	}
	return lb.IPv4
}

// admit returns the command that accepts a packet just before it is dropped.
func (n need) admit(t linux.Tables, x fate) string {
	if usesUFW(t) && n.state == "NEW" {
		return n.allow()
	}
	words := []string{t.Program(), "-I", n.hook, fmt.Sprint(x.top)}
	if x.rule == 0 {
		words = []string{t.Program(), "-A", n.hook}
	}
	if states := map[string]string{"ESTABLISHED": "RELATED,ESTABLISHED", translated: "DNAT"}[n.state]; states != "" {
		return strings.Join(append(words, "-m", "conntrack", "--ctstate", states, "-j", "ACCEPT"), " ")
	}
	if n.src.IsValid() {
		words = append(words, "-s", n.src.String())
	}
	if n.dst.IsValid() && n.hook != "OUTPUT" { // all backends with this port
		words = append(words, "-d", n.dst.String())
	}
	return strings.Join(append(words, "-p", n.proto, "--dport", fmt.Sprint(n.port), "-j", "ACCEPT"), " ")
}

// usesUFW reports whether ufw has made the rules.
func usesUFW(t linux.Tables) bool {
	return slices.ContainsFunc(t.Chains, func(c linux.Chain) bool { return c.Name == "ufw-user-input" || c.Name == "ufw6-user-input" })
}

// allow returns the command of ufw that accepts a packet.
func (n need) allow() string {
	from, to := "any", "any"
	if n.src.IsValid() {
		from = n.src.String()
	}
	if n.dst.IsValid() {
		to = n.dst.String()
	}
	if n.hook == "OUTPUT" {
		return fmt.Sprintf("ufw allow out proto %s to any port %d", n.proto, n.port)
	}
	return fmt.Sprintf("ufw allow proto %s from %s to %s port %d", n.proto, from, to, n.port)
}
