package routerconfig

import (
	"fmt"
	"strings"

	"weir/bgp"
)

// printBIRD prints for BIRD 2.
func printBIRD(p *page, f facts) {
	p.head("BIRD 2", "Into /etc/bird/bird.conf; leave out what is there already: device, direct, kernel, bfd.", f)
	if f.Address.Is4() {
		p.put("router id %s;", f.routerID)
	} else {
		p.comment("A router that has no IPv4 address needs: router id NUMBER;")
	}
	p.put("protocol device { }")
	if !f.onLink {
		p.comment("For a session that may go over several hops the way to the box is looked up among these, and those of an IGP.")
		p.put("protocol direct { ipv4; ipv6; }")
	}
	p.comment(commentECMP + " (Here the ASN does not matter, the path's length does.) The kernel's hash: sysctl " +
		"net.ipv4.fib_multipath_hash_policy=1 and net.ipv6.fib_multipath_hash_policy=1 count ports too.")
	for _, a := range f.families {
		p.put("protocol kernel { %s { export where source = RTS_BGP; }; merge paths on limit %d; }", a.name("ipv4", "ipv6"), multipath)
	}
	if f.BFD.Enabled {
		p.commentBFD(f)
		p.put(`protocol bfd { interface "*" { interval %d ms; multiplier %d; }; }`, f.intervalMS(), f.BFD.Multiplier)
	}
	p.WriteString("\n")
	birdFilters(p, f)
	p.block("protocol bgp "+birdName(f.Name)+" {", "}", "  ", func() { birdSession(p, f) })
}

// birdName is a symbol for a box as this peer sees it.
func birdName(peer string) string {
	return "weir_" + strings.NewReplacer("-", "_", ".", "_").Replace(peer)
}

func birdFilters(p *page, f facts) {
	p.commentFilter(f)
	p.comment(commentShutdown)
	for _, a := range f.families {
		sets := make([]string, len(a.prefixes))
		for i, prefix := range a.prefixes {
			lengths := fmt.Sprintf("{%d,%d}", a.longest, a.longest)
			if !a.hosts {
				lengths = fmt.Sprintf("{%d,%d}", prefix.Bits(), a.longest)
			}
			if prefix.IsSingleIP() {
				lengths = ""
			}
			sets[i] = prefix.String() + lengths
		}
		p.block(a.name("filter weir4 {", "filter weir6 {"), "}", "  ", func() {
			p.put("if net !~ [ %s ] then reject;", strings.Join(sets, ", "))
			p.put("if (65535, 0) ~ bgp_community then bgp_local_pref = 0;")
			p.put("accept;")
		})
	}
	p.WriteString("\n")
}

func birdSession(p *page, f facts) {
	local := ""
	if f.Address.IsValid() {
		local = " " + f.Address.String()
	}
	if f.Port != bgp.DefaultPort {
		local += fmt.Sprintf(" port %d", f.Port)
	}
	p.put("local%s as %d;", local, f.ASN)
	port := ""
	if f.boxPort != 0 && f.boxPort != bgp.DefaultPort {
		port = fmt.Sprintf(" port %d", f.boxPort)
	}
	p.put("neighbor %s%s as %d;", f.box, port, f.LocalASN)
	if !f.Passive && !f.Range.IsValid() {
		p.comment(commentBIRDWaits)
		p.put("passive on;")
	}
	if p.commentPassword(f) {
		p.put("password %q;", passwordMissing)
	}
	birdHops(p, f)
	p.comment(commentTimers)
	p.put("hold time %s; keepalive time %s;", seconds(f.Hold), seconds(f.Keepalive))
	p.put("connect retry time %s; error wait time %s, %s;", seconds(f.ConnectRetry), seconds(f.ConnectRetry), seconds(6*f.ConnectRetry))
	p.commentRestart(f)
	if f.restart == 0 {
		p.put("graceful restart off;")
	} else {
		p.put("graceful restart aware;")
	}
	if f.BFD.Enabled {
		if f.restart != 0 {
			p.comment("With \"bfd graceful\" the routes are kept too when weir itself is killed; and then, for as long, when the whole box dies.")
		}
		p.put("bfd on;")
	}
	for _, a := range f.families {
		p.block(a.name("ipv4 {", "ipv6 {"), "};", "  ", func() {
			p.put("import filter %s;", a.name("weir4", "weir6"))
			p.comment(commentLimit)
			p.put("import limit %d action block;", a.limit)
			p.comment(commentNothingOut)
			p.put("export none;")
		})
	}
}

// RFC 4724, section 4.2 makes BIRD take a connection beside an established session for a
// restart of the box. If both sides connect at the same time, that happens during the restart
// of weir: BIRD drops the routes of the second session before it has any of the first.
const commentBIRDWaits = "The box connects. If both did at the same time after a restart of weir, BIRD could count it as two restarts, and drop the box's routes for some seconds."

// birdHops writes how far away the box is.
func birdHops(p *page, f facts) {
	switch {
	case f.TTLSecurity != 0:
		p.commentTTL(f)
		if f.TTLSecurity == 1 {
			p.put("direct; ttl security on;")
		} else {
			p.put("multihop %d; ttl security on;", f.TTLSecurity)
		}
	case f.Multihop != 0:
		p.comment("The box is not on the same link.")
		p.put("multihop %d;", f.Multihop)
	case f.Internal() && f.BFD.Enabled:
		p.comment("weir's BFD is that of one link (RFC 5881), and an internal session counts as one over several otherwise.")
		p.put("direct;")
	}
}
