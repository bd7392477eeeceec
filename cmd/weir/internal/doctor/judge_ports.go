package doctor

import (
	"fmt"
	"net/netip"
	"strings"

	"weir/cmd/weir/internal/doctor/facts"
	"weir/lb"
)

// who returns the name of a socket's process.
func who(s facts.Socket) string {
	if s.PID == 0 {
		return "a process (run as root for its name)"
	}
	return fmt.Sprintf("%s, process %d,", s.Process, s.PID)
}

// takes reports whether a socket has a port of an address, or of all addresses.
func takes(s facts.Socket, a netip.Addr, port uint16) bool {
	return s.Addr.Port() == port && (s.Addr.Addr() == a || s.Addr.Addr().IsUnspecified() || !a.IsValid() || a.IsUnspecified())
}

// deafListener reports programs that listen on a frontend or a node port and never receive
// a packet.
func deafListener(f box) []Finding {
	served := facts.ServedBy(&f.Facts)
	var out []Finding
	for _, s := range f.Sockets {
		if s.PID != 0 && s.PID == facts.PID(&f.Facts) {
			continue // health checks of node ports
		}
		for _, x := range served.Frontends {
			if s.Addr == netip.AddrPortFrom(x.Addr, x.Port) && strings.EqualFold(s.Proto.String(), x.Proto) {
				out = append(out, Finding{
					Severity: Warning, Text: fmt.Sprintf("%s listens on %s of %s: no client reaches it", who(s), s.Addr, x.Service),
					Fix: "stop it, or make it listen on an address of the box",
				})
			}
		}
		for _, x := range served.NodePorts {
			if takes(s, x.Addr, x.Port) && strings.EqualFold(s.Proto.String(), x.Proto) {
				out = append(out, Finding{
					Severity: Warning, Text: fmt.Sprintf("%s listens on port %d, a node port of %s: outside clients do not reach it", who(s), x.Port, x.Service),
					Fix: "stop it, or change its port; node ports are 30000 to 32767",
				})
				break
			}
		}
	}
	return out
}

// port is one that weir itself listens on.
type port struct {
	key   string
	addr  netip.Addr // unspecified or invalid: all
	port  uint16
	proto lb.Protocol
}

// ports returns the ports on which weir listens by its configuration.
func (f box) ports() []port {
	var out []port
	if b := f.Config.BGP; b != nil && b.Speaker.ListenPort > 0 {
		addrs := b.Speaker.ListenAddrs
		if len(addrs) == 0 {
			addrs = []netip.Addr{{}}
		}
		for _, a := range addrs {
			out = append(out, port{"bgp.listen_port", a, uint16(b.Speaker.ListenPort), lb.TCP})
		}
	}
	if c := f.Config.Fleet; c != nil {
		for _, proto := range []lb.Protocol{lb.TCP, lb.UDP} {
			out = append(out, port{"fleet.bind", c.Gossip.Bind.Addr(), c.Gossip.Bind.Port(), proto})
		}
	}
	seen := map[string]bool{}
	for _, l := range f.Config.Daemon.Listeners() {
		if a, err := netip.ParseAddrPort(l.Addr); err == nil && !seen[l.Addr] {
			seen[l.Addr] = true
			out = append(out, port{"daemon." + l.Key, a.Addr(), a.Port(), lb.TCP})
		}
	}
	return out
}

// healthPorts returns the healthCheckNodePorts on which the daemon listens.
func (f box) healthPorts() (out []netip.AddrPort) {
	of := map[uint16]bool{}
	for _, x := range f.Services.Frontends {
		of[x.HealthCheckNodePort] = true
	}
	for _, s := range f.Sockets {
		if s.Proto == lb.TCP && s.PID != 0 && s.PID == facts.PID(&f.Facts) && of[s.Addr.Port()] {
			out = append(out, s.Addr)
		}
	}
	return out
}

// takenPort reports other programs on the ports of weir.
func takenPort(f box) []Finding {
	var out []Finding
	for _, p := range f.ports() {
		for _, s := range f.Sockets {
			if s.PID == 0 || s.PID == facts.PID(&f.Facts) || s.Process == facts.Unit || s.Proto != p.proto || !takes(s, p.addr, p.port) {
				continue
			}
			out = append(out, Finding{
				Severity: Error, Text: fmt.Sprintf("%s has %s port %d of %s", who(s), strings.ToLower(p.proto.String()), p.port, p.key),
				Fix: "stop it, or change that port or address",
			})
			break
		}
	}
	return out
}
