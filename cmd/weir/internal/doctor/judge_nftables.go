package doctor

import (
	"fmt"
	"slices"
	"strings"

	"weir/cmd/weir/internal/doctor/facts"
	"weir/lb"
)

// lost is a packet that a chain drops.
type lost struct {
	need
	fate
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
					h.Chain, t, some(names(dropped)), dropped[0].fate)})
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
		if !t.SavedByIPTables(h, f.Tables) && slices.ContainsFunc(needs, func(n need) bool { return n.hook == h.Hook && t.Has(n.family()) }) {
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
	for _, n := range needs {
		if n.hook != h.Hook || !t.Has(n.family()) {
			continue
		}
		x := passFrom(h.Chain, t.Rules, f.prefix(), n.packet)
		if x.rule > 0 {
			x.rule = t.Numbers[x.chain][x.rule-1]
		}
		switch {
		case x.dropped && x.maybe:
			perhaps = append(perhaps, lost{n, x})
		case x.dropped:
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
	return "accept them in this table and in the file of its rules, such as /etc/nftables.conf: no rule of weir can accept what another table drops",
		inTable(t, h, dropped)
}

// inFirewalld returns the command that opens the ports of clients, and those of peers and members for
// their addresses only.
func inFirewalld(dropped []lost) string {
	var commands []string
	options := map[string][]string{} // by command
	for _, l := range dropped {
		// firewall-cmd refuses options of both kinds in one command.
		command, option := "firewall-cmd --permanent", fmt.Sprintf("--add-port=%d/%s", l.port, l.proto)
		if z := l.zone(); z != "" {
			command += " --zone=" + z
		}
		key := command
		if l.src.IsValid() {
			key += " --add-rich-rule"
			option = fmt.Sprintf(`--add-rich-rule='rule family="%s" source address="%s" port port="%d" protocol="%s" accept'`,
				strings.ToLower(l.family().String()), l.src, l.port, l.proto)
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

// zone returns the zone of firewalld in which a packet is dropped, "" for the default zone.
func (l lost) zone() string {
	for _, c := range l.passed {
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
			if port := fmt.Sprint(l.port); l.proto == proto && l.state == "NEW" && !l.src.IsValid() && !slices.Contains(ports, port) {
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
		case l.state == "ESTABLISHED":
			add("ct state established,related")
		case l.state == translated:
			add("ct status dnat")
		case l.src.IsValid():
			add(fmt.Sprintf("%s saddr %s %s dport %d", map[lb.Family]string{lb.IPv4: "ip", lb.IPv6: "ip6"}[l.family()], l.src, l.proto, l.port))
		}
	}
	for i, rule := range rules {
		rules[i] = fmt.Sprintf("nft insert rule %s %s %s accept", t, h.Chain, rule)
	}
	return strings.Join(rules, " && ")
}
