package routerconfig

import (
	"fmt"

	"weir/bgp"
)

// printFRR prints for FRRouting 8 and later, as vtysh reads it.
func printFRR(p *page, f facts) {
	p.head("FRRouting", "Into /etc/frr/frr.conf, or: vtysh -f FILE. /etc/frr/daemons needs bgpd=yes"+
		frrDaemons(f)+".", f)
	frrFilters(p, f)
	p.block(fmt.Sprintf("router bgp %d", f.ASN), "exit", " ", func() {
		p.comment(commentECMP)
		p.put("bgp bestpath as-path multipath-relax")
		frrNeighbor(p, f)
		for _, v6 := range []bool{false, true} {
			frrFamily(p, f, v6)
		}
	})
	if f.BFD.Enabled {
		p.put("!")
		p.commentBFD(f)
		p.block("bfd", "exit", " ", func() {
			p.block("profile weir", "exit", " ", func() {
				p.put("detect-multiplier %d", f.BFD.Multiplier)
				p.put("receive-interval %d", f.intervalMS())
				p.put("transmit-interval %d", f.intervalMS())
			})
		})
	}
}

func frrDaemons(f facts) string {
	s := ""
	if f.BFD.Enabled {
		s += " and bfdd=yes"
	}
	if f.Port != bgp.DefaultPort {
		s += fmt.Sprintf(`, and bgpd_options with "-p %d", where weir connects to`, f.Port)
	}
	return s
}

func frrFilters(p *page, f facts) {
	p.commentFilter(f)
	for _, a := range f.families {
		for i, prefix := range a.prefixes {
			length := fmt.Sprintf(" ge %d", a.longest)
			if !a.hosts {
				length = fmt.Sprintf(" le %d", a.longest)
			}
			if prefix.IsSingleIP() {
				length = ""
			}
			p.put("%s prefix-list WEIR seq %d permit %s%s", a.name("ip", "ipv6"), 5*(i+1), prefix, length)
		}
	}
	p.put("!")
	p.comment(commentShutdown)
	p.put("bgp community-list standard WEIR-SHUTDOWN seq 5 permit graceful-shutdown")
	p.put("!")
	for i, a := range f.families {
		frrMap(p, 20*i+10, a, true)
		frrMap(p, 20*i+20, a, false)
	}
	p.comment(commentNothingOut)
	p.put("route-map WEIR-OUT deny 10")
	p.put("exit")
	p.put("!")
}

func frrMap(p *page, seq int, a accepted, shutdown bool) {
	p.block(fmt.Sprintf("route-map WEIR-IN permit %d", seq), "exit", " ", func() {
		p.put("match %s address prefix-list WEIR", a.name("ip", "ipv6"))
		if shutdown {
			p.put("match community WEIR-SHUTDOWN")
			p.put("set local-preference 0")
		}
	})
	p.put("!")
}

func frrNeighbor(p *page, f facts) {
	n := "neighbor " + f.box
	p.put("%s remote-as %d", n, f.LocalASN)
	p.put("%s description weir", n)
	if f.Address.IsValid() {
		p.put("%s update-source %s", n, f.Address)
	}
	if f.boxPort != 0 && f.boxPort != bgp.DefaultPort {
		p.put("%s port %d", n, f.boxPort)
	}
	if f.passive() {
		p.comment("The box does not listen; it connects.")
		p.put("%s passive", n)
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
		p.put("%s ttl-security hops %d", n, f.TTLSecurity)
	}
	p.comment(commentTimers)
	p.put("%s timers %s %s", n, seconds(f.Keepalive), seconds(f.Hold))
	p.put("%s timers connect %s", n, seconds(f.ConnectRetry))
	p.commentRestart(f)
	if f.restart == 0 {
		p.put("%s graceful-restart-disable", n)
	} else {
		p.put("%s graceful-restart-helper", n)
	}
	if f.BFD.Enabled {
		p.put("%s bfd", n)
		p.put("%s bfd profile weir", n)
		if f.restart != 0 {
			p.comment("To have the routes kept too when weir itself is killed (and then, for as long, when the whole box dies): "+
				"%s bfd check-control-plane-failure", n)
		}
	}
}

func frrFamily(p *page, f facts, v6 bool) {
	p.put("!")
	n := "neighbor " + f.box
	for _, a := range f.families {
		if a.v6 != v6 {
			continue
		}
		p.block("address-family "+a.name("ipv4", "ipv6")+" unicast", "exit-address-family", " ", func() {
			p.put("%s activate", n)
			p.put("%s route-map WEIR-IN in", n)
			p.put("%s route-map WEIR-OUT out", n)
			p.comment(commentLimit)
			p.put("%s maximum-prefix %d restart 1", n, a.limit)
			if f.Internal() {
				p.put("maximum-paths ibgp %d", multipath)
			} else {
				p.put("maximum-paths %d", multipath)
			}
		})
		return
	}
	if !v6 {
		p.block("address-family ipv4 unicast", "exit-address-family", " ", func() {
			p.comment("weir announces no IPv4 here, which FRRouting takes for granted.")
			p.put("no %s activate", n)
		})
	}
}
