package routerconfig

import (
	"fmt"

	"weir/bgp"
)

// printGoBGP prints for GoBGP 3 and later, in TOML.
func printGoBGP(p *page, f facts) {
	p.head("GoBGP", "For: gobgpd -f FILE. To write the routes into the kernel GoBGP needs FRRouting's zebra.", f)
	p.block("[global.config]", "", "  ", func() {
		p.put("as = %d", f.ASN)
		if !f.Address.Is4() {
			p.comment("An IPv4 address that no other router has.")
		}
		p.put("router-id = %q", f.routerID)
		if f.Port != bgp.DefaultPort {
			p.put("port = %d", f.Port)
		}
	})
	p.comment(commentECMP)
	p.block("[global.use-multiple-paths.config]", "", "  ", func() { p.put("enabled = true") })
	p.commentFilter(f)
	p.comment(commentNothingOut)
	p.block("[global.apply-policy.config]", "", "  ", func() {
		p.put(`import-policy-list = ["weir"]`)
		p.put(`default-import-policy = "reject-route"`)
		p.put(`default-export-policy = "reject-route"`)
	})
	p.WriteString("\n")
	gobgpNeighbor(p, f)
	p.WriteString("\n")
	gobgpPolicy(p, f)
}

func gobgpNeighbor(p *page, f facts) {
	table := func(name string, lines ...string) {
		p.block("[neighbors."+name+"]", "", "  ", func() {
			for _, l := range lines {
				p.put("%s", l)
			}
		})
	}
	p.put("[[neighbors]]")
	p.indent = "  "
	lines := []string{fmt.Sprintf("neighbor-address = %q", f.box), fmt.Sprintf("peer-as = %d", f.LocalASN), `description = "weir"`}
	if p.commentPassword(f) {
		lines = append(lines, fmt.Sprintf("auth-password = %q", passwordMissing))
	}
	table("config", lines...)
	gobgpTransport(p, f, table)
	if f.Multihop != 0 {
		p.comment("The box is not on the same link.")
		table("ebgp-multihop.config", "enabled = true", fmt.Sprintf("multihop-ttl = %d", f.Multihop))
	}
	if f.TTLSecurity != 0 {
		p.commentTTL(f)
		table("ttl-security.config", "enabled = true", fmt.Sprintf("ttl-min = %d", 256-f.TTLSecurity))
	}
	p.comment(commentTimers)
	table("timers.config", "hold-time = "+seconds(f.Hold), "keepalive-interval = "+seconds(f.Keepalive), "connect-retry = "+seconds(f.ConnectRetry))
	if f.BFD.Enabled {
		p.commentBFD(f)
		p.comment("GoBGP has BFD from 4.6 on; take these lines in there.")
		us := f.BFD.Interval.Microseconds()
		for _, l := range []string{"[neighbors.bfd.config]", "  enabled = true", fmt.Sprintf("  desired-minimum-tx-interval = %d", us),
			fmt.Sprintf("  required-minimum-receive = %d", us), fmt.Sprintf("  detection-multiplier = %d", f.BFD.Multiplier)} {
			p.put("#%s", l)
		}
	}
	p.commentRestart(f)
	table("graceful-restart.config", fmt.Sprintf("enabled = %t", f.restart != 0))
	for _, a := range f.families {
		p.put("[[neighbors.afi-safis]]")
		p.block("[neighbors.afi-safis.config]", "", "  ", func() { p.put("afi-safi-name = %q", a.name("ipv4-unicast", "ipv6-unicast")) })
		p.block("[neighbors.afi-safis.mp-graceful-restart.config]", "", "  ", func() { p.put("enabled = %t", f.restart != 0) })
		p.comment(commentLimit)
		p.block("[neighbors.afi-safis.prefix-limit.config]", "", "  ", func() { p.put("max-prefixes = %d", a.limit) })
	}
	p.indent = ""
}

func gobgpTransport(p *page, f facts, table func(name string, lines ...string)) {
	var lines []string
	if f.Address.IsValid() {
		lines = append(lines, fmt.Sprintf("local-address = %q", f.Address))
	}
	if f.passive() {
		p.comment("The box does not listen; it connects.")
		lines = append(lines, "passive-mode = true")
	} else if f.boxPort != 0 && f.boxPort != bgp.DefaultPort {
		lines = append(lines, fmt.Sprintf("remote-port = %d", f.boxPort))
	}
	if len(lines) > 0 {
		table("transport.config", lines...)
	}
}

func gobgpPolicy(p *page, f facts) {
	for _, a := range f.families {
		p.put("[[defined-sets.prefix-sets]]")
		p.put("  prefix-set-name = %q", a.name("weir4", "weir6"))
		for _, prefix := range a.prefixes {
			shortest := a.longest
			if !a.hosts {
				shortest = prefix.Bits()
			}
			p.put("  [[defined-sets.prefix-sets.prefix-list]]")
			p.put("    ip-prefix = %q", prefix)
			p.put("    masklength-range = \"%d..%d\"", shortest, a.longest)
		}
	}
	p.put("[[defined-sets.bgp-defined-sets.community-sets]]")
	p.put(`  community-set-name = "weir-shutdown"`)
	p.put(`  community-list = ["65535:0"]`)
	p.WriteString("\n")
	p.put("[[policy-definitions]]")
	p.put(`  name = "weir"`)
	p.indent = "  "
	for _, a := range f.families {
		set := a.name("weir4", "weir6")
		p.comment(commentShutdown + " (To GoBGP 0 is no preference, and 1 is the least.)")
		p.put("[[policy-definitions.statements]]")
		p.put("  name = %q", set+"-shutdown")
		p.put("  [policy-definitions.statements.conditions.match-prefix-set]")
		p.put("    prefix-set = %q", set)
		p.put("  [policy-definitions.statements.conditions.bgp-conditions.match-community-set]")
		p.put(`    community-set = "weir-shutdown"`)
		p.put("  [policy-definitions.statements.actions]")
		p.put(`    route-disposition = "accept-route"`)
		p.put("    [policy-definitions.statements.actions.bgp-actions]")
		p.put("      set-local-pref = 1")
		p.put("[[policy-definitions.statements]]")
		p.put("  name = %q", set)
		p.put("  [policy-definitions.statements.conditions.match-prefix-set]")
		p.put("    prefix-set = %q", set)
		p.put("  [policy-definitions.statements.actions]")
		p.put(`    route-disposition = "accept-route"`)
	}
	p.indent = ""
}
