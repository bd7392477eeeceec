package doctor

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"weir/cmd/weir/internal/config"
	"weir/cmd/weir/internal/doctor/facts"
	"weir/cmd/weir/internal/doctor/walk"
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

// lastTarget is where a rule leads.
func lastTarget(words []string) string {
	for i := len(words) - 2; i >= 0; i-- {
		if words[i] == "-j" || words[i] == "-g" {
			return words[i+1]
		}
	}
	return ""
}

// firewall reports rules of iptables that drop packets that must pass.
func firewall(f box) []Finding {
	needs := append(f.needs(), f.serviceNeeds()...)
	var groups [][]lost // each is one finding
	var of []linux.Tables
	places := map[string]int{}
	for _, t := range f.Tables {
		for _, l := range lostIn(f, t, needs) {
			place := fmt.Sprint(t.Program(), l.Hook, l.State, l.Fate, l.inUFW(t))
			if !l.Service {
				place += l.what
			}
			i, ok := places[place]
			if !ok {
				i = len(groups)
				places[place], groups, of = i, append(groups, nil), append(of, t)
			}
			groups[i] = append(groups[i], l)
		}
	}
	var out []Finding
	for _, t := range f.Tables {
		if t.Unread != "" {
			out = append(out, Finding{
				Severity: Unknown, Text: fmt.Sprintf("table filter of %s %s, and can't be checked: the program %s-save is missing", t.Program(), t.Unread, t.Program()),
				Fix: "install iptables, and repeat weir doctor",
			})
		}
	}
	for i, g := range groups {
		out = append(out, f.droppedBy(of[i], g))
	}
	return out
}

// priorities are those of the tables of iptables that may drop packets.
var priorities = map[string]int{"raw": -300, "mangle": -150, "filter": 0, "security": 50}

// lostIn returns the packets that rules of iptables drop for certain.
func lostIn(f box, t linux.Tables, needs []need) (out []lost) {
	for _, c := range t.Chains {
		priority, ok := priorities[c.Table]
		if !ok || c.Policy == "-" { // a program has made the chain
			continue
		}
		if slices.ContainsFunc(f.NFTables, func(n facts.NFTable) bool { return n.Misprinted(t, c.Table) }) {
			continue // foreignFirewall follows it
		}
		for _, n := range at(f, facts.NFHook{Hook: c.Name, Chain: c.Name, Priority: priority}, needs) {
			if f.Running == nil && n.Service && c.Table == "filter" {
				continue // at its start weir puts its own rules first
			}
			x := walk.Pass(t, c.Table, c.Name, f.prefix(), n.Packet)
			if t.Family == n.family() && x.Dropped && !x.Maybe {
				out = append(out, lost{n, x})
			}
		}
	}
	return out
}

// droppedBy is the finding for packets that rules drop at one place.
func (f box) droppedBy(t linux.Tables, all []lost) Finding {
	n := all[0]
	out := Finding{
		Severity: Error, Text: fmt.Sprintf("the firewall drops %s: %s (%s)", some(names(all)), n.Fate, t.Program()),
		Fix:     "accept it before that rule, and add the rule to your firewall",
		Command: admit(t, all),
	}
	if n.inUFW(t) {
		out.Fix = "allow it in ufw"
	}
	if n.Service && n.Hook != "OUTPUT" && n.Table == "filter" && facts.Backend(&f.Facts) == linux.NFTables {
		f.overridden(&out)
	}
	return out
}

// overridden gives the remedy for rules of iptables that weir's rules in nftables can't override. A restart helps
// only if it selects iptables.
func (f box) overridden(x *Finding) {
	const effect = "weir's rules are in nftables, and only rules of iptables come before these: "
	switch {
	case f.Kernel.NFTables || f.Kernel.Modules["ip_set"] == facts.Absent || f.Kernel.Modules["xt_set"] == facts.Absent:
	case f.Config != nil && f.Config.Kernel.Rules == config.RulesAuto && f.Config.Kernel.IPTables == config.IPTablesAuto:
		x.Fix, x.Command = effect+"restart weir, and it selects iptables", "systemctl restart weir"
	default:
		x.Fix = effect + "set kernel.rules = \"auto\" and restart weir, or accept it before that rule"
	}
}

// mostPorts is how many ports a rule of iptables or ufw can have.
const mostPorts = 15

// admit returns the commands that accept packets just before they are dropped.
func admit(t linux.Tables, all []lost) string {
	top := slices.MinFunc(all, func(a, b lost) int { return cmp.Compare(a.Top, b.Top) }).Top // of all ways to the drop
	switch {
	case all[0].stateless():
		return ""
	case !all[0].first():
		all = all[:1] // one rule for all, without ports
	}
	var commands []string
	for len(all) > 0 {
		one := all[0]
		one.Top = top
		var ports []string
		var rest []lost
		for _, l := range all {
			switch port := fmt.Sprint(l.Port); {
			case !l.sameRule(one), len(ports) == mostPorts && !slices.Contains(ports, port):
				rest = append(rest, l)
			case !slices.Contains(ports, port):
				ports = append(ports, port)
			}
		}
		commands = append(commands, one.admit(t, ports))
		all = rest
	}
	return strings.Join(commands, "; ")
}

// sameRule reports whether one rule accepts both packets, except for their ports. In OUTPUT it is for all backends.
func (l lost) sameRule(as lost) bool {
	return l.Proto == as.Proto && l.Src == as.Src && (l.Hook == "OUTPUT" || l.Dst == as.Dst)
}

// admit returns the command for packets to ports.
func (l lost) admit(t linux.Tables, ports []string) string {
	if l.inUFW(t) {
		return l.allow(strings.Join(ports, ","))
	}
	words := []string{t.Program()}
	if l.Table != "filter" {
		words = append(words, "-t", l.Table)
	}
	if l.Rule > 0 {
		words = append(words, "-I", l.Hook, fmt.Sprint(l.Top))
	} else {
		words = append(words, "-A", l.Hook)
	}
	if states := map[string]string{"ESTABLISHED": "RELATED,ESTABLISHED", translated: "DNAT"}[l.State]; states != "" {
		return strings.Join(append(words, "-m", "conntrack", "--ctstate", states, "-j", "ACCEPT"), " ")
	}
	if l.Src.IsValid() {
		words = append(words, "-s", l.Src.String())
	}
	if l.Dst.IsValid() && l.Hook != "OUTPUT" {
		words = append(words, "-d", l.Dst.String())
	}
	words = append(words, "-p", l.Proto)
	if len(ports) > 1 {
		words = append(words, "-m", "multiport", "--dports")
	} else {
		words = append(words, "--dport")
	}
	return strings.Join(append(words, strings.Join(ports, ","), "-j", "ACCEPT"), " ")
}

// inUFW reports whether a rule of ufw accepts the packet: ufw has made the rules, and knows its protocol.
func (l lost) inUFW(t linux.Tables) bool {
	return l.first() && l.Table == "filter" && l.Proto != "sctp" && slices.ContainsFunc(t.Chains, func(c linux.Chain) bool { return c.Name == "ufw-user-input" || c.Name == "ufw6-user-input" })
}

// allow returns the command of ufw that accepts a packet.
func (n need) allow(ports string) string {
	from, to := "any", "any"
	if n.Src.IsValid() {
		from = n.Src.String()
	}
	if n.Dst.IsValid() {
		to = n.Dst.String()
	}
	if n.Hook == "OUTPUT" {
		return fmt.Sprintf("ufw allow out proto %s to any port %s", n.Proto, ports)
	}
	return fmt.Sprintf("ufw allow proto %s from %s to %s port %s", n.Proto, from, to, ports)
}
