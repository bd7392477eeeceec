package routerconfig

import (
	"fmt"
	"strings"

	"weir/bgp"
)

// printJunos prints for Junos, as set commands.
func printJunos(p *page, f facts) {
	p.head("Junos", "Into the configuration: load set terminal, then commit check.", f)
	p.put("set routing-options autonomous-system %d", f.ASN)
	p.comment(commentECMP)
	p.put("set policy-options policy-statement WEIR-ECMP then load-balance per-flow")
	p.put("set routing-options forwarding-table export WEIR-ECMP")
	p.WriteString("\n")
	junosPolicy(p, f)
	p.WriteString("\n")
	junosGroup(p, f)
}

func junosPolicy(p *page, f facts) {
	p.commentFilter(f)
	for _, a := range f.families {
		for _, prefix := range a.prefixes {
			lengths := "orlonger"
			switch {
			case prefix.IsSingleIP():
				lengths = "exact"
			case a.hosts:
				lengths = fmt.Sprintf("prefix-length-range /%d-/%d", a.longest, a.longest)
			}
			p.put("set policy-options route-filter-list %s %s %s", a.name("WEIR-IPV4", "WEIR-IPV6"), prefix, lengths)
		}
	}
	p.comment(commentShutdown)
	p.put("set policy-options community WEIR-SHUTDOWN members 65535:0")
	in := "set policy-options policy-statement WEIR-IN term "
	for _, a := range f.families {
		list := a.name("WEIR-IPV4", "WEIR-IPV6")
		for _, term := range []string{list + "-SHUTDOWN", list} {
			p.put("%s%s from family %s", in, term, a.name("inet", "inet6"))
			p.put("%s%s from route-filter-list %s", in, term, list)
			if term != list {
				p.put("%s%s from community WEIR-SHUTDOWN", in, term)
				p.put("%s%s then local-preference 0", in, term)
			}
			p.put("%s%s then accept", in, term)
		}
	}
	p.put("%sREST then reject", in)
	p.comment(commentNothingOut)
	p.put("set policy-options policy-statement WEIR-OUT then reject")
}

func junosGroup(p *page, f facts) {
	g := "set protocols bgp group WEIR "
	n := g + "neighbor " + f.box + " "
	if f.Internal() {
		p.put("%stype internal", g)
		p.put("%smultipath", g)
	} else {
		p.put("%stype external", g)
		p.put("%smultipath multiple-as", g)
	}
	p.put("%simport WEIR-IN", g)
	p.put("%sexport WEIR-OUT", g)
	p.put("%sdescription weir", n)
	if !f.Internal() {
		p.put("%speer-as %d", n, f.LocalASN)
	}
	if f.Address.IsValid() {
		p.put("%slocal-address %s", n, f.Address)
	}
	junosTransport(p, f, n)
	p.comment(commentTimers)
	p.put("%shold-time %s", n, seconds(f.Hold))
	p.commentRestart(f)
	if f.restart == 0 {
		p.put("%sgraceful-restart disable", n)
	} else {
		p.put("%sgraceful-restart stale-routes-time %s", n, seconds(f.restart))
	}
	if f.BFD.Enabled {
		p.commentBFD(f)
		p.put("%sbfd-liveness-detection minimum-interval %d", n, f.intervalMS())
		p.put("%sbfd-liveness-detection multiplier %d", n, f.BFD.Multiplier)
		p.put("%sbfd-liveness-detection session-mode single-hop", n)
	}
	p.comment(commentLimit)
	for _, a := range f.families {
		p.put("%sfamily %s unicast accepted-prefix-limit maximum %d", n, a.name("inet", "inet6"), a.limit)
	}
}

func junosTransport(p *page, f facts, n string) {
	if f.passive() {
		p.comment("The box does not listen; it connects.")
		p.put("%spassive", n)
	} else if f.boxPort != 0 && f.boxPort != bgp.DefaultPort {
		p.comment("The box listens on port %d, and Junos connects to 179 only: let the box connect.", f.boxPort)
		p.put("%spassive", n)
	}
	if f.Port != bgp.DefaultPort {
		p.comment("weir connects to port %d of this router, which listens on 179: set the peer's port to 179.", f.Port)
	}
	if p.commentPassword(f) {
		p.put("%sauthentication-key %q", n, passwordMissing)
	}
	if f.Multihop != 0 {
		p.comment("The box is not on the same link.")
		p.put("%smultihop ttl %d", n, f.Multihop)
	}
	if f.TTLSecurity == 0 {
		return
	}
	p.commentTTL(f)
	if f.TTLSecurity == 1 {
		p.put("%sttl 255", n)
	} else {
		p.put("%smultihop ttl 255", n)
	}
	p.comment("Incoming packets pass a filter: a term before the one that accepts BGP of the box, on the interface or lo0:")
	if !strings.Contains(f.box, ":") {
		p.put("set firewall family inet filter WEIR-TTL term far from source-address %s/32", f.box)
		p.put("set firewall family inet filter WEIR-TTL term far from protocol tcp")
		p.put("set firewall family inet filter WEIR-TTL term far from port bgp")
		p.put("set firewall family inet filter WEIR-TTL term far from ttl-except %d-255", 256-f.TTLSecurity)
		p.put("set firewall family inet filter WEIR-TTL term far then discard")
		p.put("set firewall family inet filter WEIR-TTL term rest then accept")
		return
	}
	p.put("set firewall family inet6 filter WEIR-TTL6 term far from source-address %s/128", f.box)
	p.put("set firewall family inet6 filter WEIR-TTL6 term far from next-header tcp")
	p.put("set firewall family inet6 filter WEIR-TTL6 term far from port bgp")
	p.put("set firewall family inet6 filter WEIR-TTL6 term far from hop-limit-except %d-255", 256-f.TTLSecurity)
	p.put("set firewall family inet6 filter WEIR-TTL6 term far then discard")
	p.put("set firewall family inet6 filter WEIR-TTL6 term rest then accept")
}
