package doctor

import (
	"fmt"
	"slices"
	"strings"

	"weir/cmd/weir/internal/doctor/facts"
	"weir/cmd/weir/internal/doctor/walk"
	"weir/lb"
)

// lost is a packet that a chain drops.
type lost struct {
	need
	walk.Fate
}

// foreignFirewall reports base chains of nf_tables that drop packets that must pass. A packet needs the
// consent of every table, so no rule of weir overrides them.
func foreignFirewall(f box) []Finding {
	var out []Finding
	needs := slices.Concat(f.serviceNeeds(), f.needs())
	for _, t := range f.NFTables {
		if t.Unread {
			out = append(out, f.unread(t, needs)...)
			continue
		}
		for _, h := range t.Hooks {
			if t.SavedByIPTables(h, f.Tables) {
				continue
			}
			dropped, perhaps := f.lostAt(t, h, needs)
			if len(dropped) > 0 {
				fix, command := remedy(t, h, dropped)
				out = append(out, Finding{Severity: Error, Fix: fix, Command: command, Text: fmt.Sprintf("chain %s of nf_tables table %s drops %s: %s",
					h.Chain, t, some(names(dropped)), dropped[0].Fate)})
			} else if len(perhaps) > 0 {
				out = append(out, Finding{
					Severity: Info, Text: fmt.Sprintf("chain %s of nf_tables table %s may drop %s: weir doctor can't follow all of its rules",
						h.Chain, t, some(names(perhaps))),
					Fix: "see them with: nft list table " + t.String(),
				})
			}
		}
	}
	return out
}

// unread reports the chains of a table without its rules, if packets meet them.
func (f box) unread(t facts.NFTable, needs []need) []Finding {
	var chains []string
	for _, h := range t.Hooks {
		if !t.SavedByIPTables(h, f.Tables) && slices.ContainsFunc(at(f, h, needs), func(n need) bool { return t.Has(n.family()) }) {
			chains = append(chains, "chain "+h.Chain)
		}
	}
	if len(chains) == 0 {
		return nil
	}
	return []Finding{{
		Severity: Unknown, Text: fmt.Sprintf("%s of nf_tables table %s can't be checked: the program nft is missing", some(chains), t),
		Fix: "install nftables, and repeat weir doctor",
	}}
}

// lostAt returns the packets that a base chain drops, for certain and perhaps.
func (f box) lostAt(t facts.NFTable, h facts.NFHook, needs []need) (dropped, perhaps []lost) {
	for _, n := range at(f, h, needs) {
		if !t.Has(n.family()) {
			continue
		}
		x := walk.Pass(t.Rules, "filter", h.Chain, f.prefix(), n.Packet)
		if x.Rule > 0 {
			x.Rule = t.Numbers[x.Chain][x.Rule-1]
		}
		switch {
		case x.Dropped && x.Maybe:
			perhaps = append(perhaps, lost{n, x})
		case x.Dropped:
			dropped = append(dropped, lost{n, x})
		}
	}
	return dropped, perhaps
}

// names returns the traffic that is lost.
func names(all []lost) (out []string) {
	seen := map[string]bool{}
	for _, l := range all {
		if !seen[l.what] {
			seen[l.what], out = true, append(out, l.what)
		}
	}
	return out
}

// remedy returns the fix for a chain, and the command that applies it.
func remedy(t facts.NFTable, h facts.NFHook, dropped []lost) (fix, command string) {
	switch {
	case t.Name == "firewalld" && h.Hook == "INPUT":
		return "open the ports in firewalld: no rule of weir can accept what another table drops", inFirewalld(dropped)
	case t.Name == "firewalld" && h.Hook == "OUTPUT":
		return "accept them in the policy of firewalld from HOST to the zone of the backends (firewall-cmd --policy)", ""
	case t.Name == "firewalld":
		return "add a policy between the zones of the backends and the clients (firewall-cmd --new-policy)", ""
	}
	fix = "accept them in this table and in the file of its rules, such as /etc/nftables.conf: no rule of weir can accept what another table drops"
	if slices.ContainsFunc(dropped, lost.stateless) {
		return fix, ""
	}
	return fix, inTable(t, h, dropped)
}

// inFirewalld returns the command that opens the ports of clients, and those of peers and members for
// their addresses only.
func inFirewalld(dropped []lost) string {
	var commands []string
	options := map[string][]string{} // by command
	for _, l := range dropped {
		// firewall-cmd refuses options of both kinds in one command.
		command, option := "firewall-cmd --permanent", fmt.Sprintf("--add-port=%d/%s", l.Port, l.Proto)
		if z := l.zone(); z != "" {
			command += " --zone=" + z
		}
		key := command
		if l.Src.IsValid() {
			key += " --add-rich-rule"
			option = fmt.Sprintf(`--add-rich-rule='rule family="%s" source address="%s" port port="%d" protocol="%s" accept'`,
				strings.ToLower(l.family().String()), l.Src, l.Port, l.Proto)
		}
		if len(options[key]) == 0 {
			options[key], commands = []string{command}, append(commands, key)
		}
		if !slices.Contains(options[key], option) {
			options[key] = append(options[key], option)
		}
	}
	for i, key := range commands {
		commands[i] = strings.Join(options[key], " ")
	}
	return strings.Join(append(commands, "firewall-cmd --reload"), " && ")
}

// stateless reports whether no rule knows the packet: it is not the first one, and comes before conntrack.
func (l lost) stateless() bool { return l.Stateless && !l.first() }

// zone returns the zone of firewalld in which a packet is dropped, "" for the default zone.
func (l lost) zone() string {
	for _, c := range l.Passed {
		if z, ok := strings.CutPrefix(c, "filter_IN_"); ok && !strings.HasPrefix(z, "policy_") {
			return z
		}
	}
	return ""
}

// inTable returns the commands that accept packets first in a base chain.
func inTable(t facts.NFTable, h facts.NFHook, dropped []lost) string {
	var rules []string
	add := func(rule string) {
		if !slices.Contains(rules, rule) {
			rules = append(rules, rule)
		}
	}
	for _, proto := range []string{"tcp", "udp", "sctp"} {
		var ports []string
		for _, l := range dropped {
			if port := fmt.Sprint(l.Port); l.Proto == proto && l.first() && !l.Src.IsValid() && !slices.Contains(ports, port) {
				ports = append(ports, port)
			}
		}
		switch len(ports) {
		case 0:
		case 1:
			add(proto + " dport " + ports[0])
		default:
			add(proto + " dport { " + strings.Join(ports, ", ") + " }")
		}
	}
	for _, l := range dropped {
		switch {
		case l.State == "ESTABLISHED":
			add("ct state established,related")
		case l.State == translated:
			add("ct status dnat")
		case l.Src.IsValid():
			add(fmt.Sprintf("%s saddr %s %s dport %d", map[lb.Family]string{lb.IPv4: "ip", lb.IPv6: "ip6"}[l.family()], l.Src, l.Proto, l.Port))
		}
	}
	for i, rule := range rules {
		rules[i] = fmt.Sprintf("nft insert rule %s %s %s accept", t, h.Chain, rule)
	}
	return strings.Join(rules, " && ")
}
