package routerconfig

import (
	"fmt"

	"weir/bgp"
)

// printArista prints for Arista EOS 4.26 and later.
func printArista(p *page, f facts) {
	p.head("Arista EOS", "Into the configuration: configure terminal.", f)
	p.commentFilter(f)
	for _, a := range f.families {
		if !a.v6 {
			for i, prefix := range a.prefixes {
				p.put("ip prefix-list WEIR-IPV4 seq %d permit %s%s", 10*(i+1), prefix, aristaLength(a, prefix.IsSingleIP()))
			}
			continue
		}
		p.block("ipv6 prefix-list WEIR-IPV6", "", "   ", func() {
			for i, prefix := range a.prefixes {
				p.put("seq %d permit %s%s", 10*(i+1), prefix, aristaLength(a, prefix.IsSingleIP()))
			}
		})
	}
	p.put("!")
	p.comment(commentShutdown)
	p.put("ip community-list WEIR-SHUTDOWN permit 65535:0")
	p.put("!")
	for _, a := range f.families {
		name := a.name("WEIR-IPV4", "WEIR-IPV6")
		match := "match " + a.name("ip", "ipv6") + " address prefix-list " + name
		p.block("route-map "+name+" permit 10", "!", "   ", func() {
			p.put("%s", match)
			p.put("match community WEIR-SHUTDOWN")
			p.put("set local-preference 0")
		})
		p.block("route-map "+name+" permit 20", "!", "   ", func() { p.put("%s", match) })
	}
	p.comment(commentNothingOut)
	p.put("route-map WEIR-OUT deny 10")
	p.put("!")
	p.block(fmt.Sprintf("router bgp %d", f.ASN), "", "   ", func() {
		p.comment(commentECMP)
		p.put("maximum-paths %d ecmp %d", multipath, multipath)
		p.put("bgp bestpath as-path multipath-relax")
		p.commentRestart(f)
		p.put("graceful-restart-helper")
		aristaNeighbor(p, f)
	})
}

func aristaLength(a accepted, host bool) string {
	switch {
	case host:
		return ""
	case a.hosts:
		return fmt.Sprintf(" eq %d", a.longest)
	}
	return fmt.Sprintf(" le %d", a.longest)
}

func aristaNeighbor(p *page, f facts) {
	n := "neighbor " + f.box
	p.put("%s remote-as %d", n, f.LocalASN)
	p.put("%s description weir", n)
	if f.Address.IsValid() && !f.onLink {
		p.comment("The interface that has %s: %s update-source INTERFACE", f.Address, n)
	}
	if f.passive() {
		p.comment("The box does not listen; it connects.")
		p.put("%s transport connection-mode passive", n)
	} else if f.boxPort != 0 && f.boxPort != bgp.DefaultPort {
		p.put("%s transport remote-port %d", n, f.boxPort)
	}
	if f.Port != bgp.DefaultPort {
		p.comment("weir connects to port %d of this router, which listens on 179: set the peer's port to 179, or let only the router connect.", f.Port)
	}
	if p.commentPassword(f) {
		p.put("%s password %s", n, passwordMissing)
	}
	if f.Multihop != 0 {
		p.comment("The box is not on the same link.")
		p.put("%s ebgp-multihop %d", n, f.Multihop)
	}
	if f.TTLSecurity != 0 {
		p.commentTTL(f)
		p.put("%s ttl maximum-hops %d", n, f.TTLSecurity)
	}
	p.comment(commentTimers)
	p.put("%s timers %s %s", n, seconds(f.Keepalive), seconds(f.Hold))
	if f.BFD.Enabled {
		p.commentBFD(f)
		p.put("%s bfd", n)
		p.put("%s bfd interval %d min-rx %d multiplier %d", n, f.intervalMS(), f.intervalMS(), f.BFD.Multiplier)
	}
	limit := 0
	for _, a := range f.families {
		limit += a.limit
	}
	p.comment(commentLimit)
	p.put("%s maximum-routes %d", n, limit)
	for _, v6 := range []bool{false, true} {
		p.put("!")
		p.block("address-family "+accepted{v6: v6}.name("ipv4", "ipv6"), "", "   ", func() { aristaFamily(p, f, v6) })
	}
}

func aristaFamily(p *page, f facts, v6 bool) {
	n := "neighbor " + f.box
	for _, a := range f.families {
		if a.v6 == v6 {
			p.put("%s activate", n)
			p.put("%s route-map %s in", n, a.name("WEIR-IPV4", "WEIR-IPV6"))
			p.put("%s route-map WEIR-OUT out", n)
			return
		}
	}
	p.put("no %s activate", n)
}
