package doctor

import (
	"fmt"
	"net/netip"
	"strings"

	"weir/lb"
)

// who names a socket's process.
func (s Socket) who() string {
	if s.PID == 0 {
		return "a process (run as root to see which)"
	}
	return fmt.Sprintf("%s, process %d,", s.Process, s.PID)
}

// takes tells whether a socket has a port of an address: its own, or on all addresses.
func (s Socket) takes(a netip.Addr, port uint16) bool {
	return s.Addr.Port() == port && (s.Addr.Addr() == a || s.Addr.Addr().IsUnspecified() || !a.IsValid() || a.IsUnspecified())
}

// deafListener: somebody listens on a VIP's own port, or on a node port: packets go to the
// backends, and never to him.
func deafListener(f Facts) []Finding {
	served := f.served()
	var out []Finding
	for _, s := range f.Sockets {
		if s.PID != 0 && s.PID == f.pid() {
			continue // health checks of node ports
		}
		for _, x := range served.frontends {
			if s.Addr == netip.AddrPortFrom(x.addr, x.port) && strings.EqualFold(s.Proto.String(), x.proto) {
				out = append(out, Finding{
					Severity: Warning, What: fmt.Sprintf("%s listens on %s, which is %s's: nobody will ever reach it", s.who(), s.Addr, x.what),
					Fix: "stop it, or have it listen on an address of the box",
				})
			}
		}
		for _, x := range served.nodePorts {
			if s.takes(x.addr, x.port) && strings.EqualFold(s.Proto.String(), x.proto) {
				out = append(out, Finding{
					Severity: Warning, What: fmt.Sprintf("%s listens on port %d, which is a node port of %s: clients from outside do not reach it", s.who(), x.port, x.what),
					Fix: "stop it, or have it listen on another port; node ports are 30000 to 32767",
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

// ports are those that the configuration has weir listen on.
func (f Facts) ports() []port {
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
			out = append(out, port{"cluster.bind", c.Gossip.Bind.Addr(), c.Gossip.Bind.Port(), proto})
		}
	}
	if a, err := netip.ParseAddrPort(f.Config.Daemon.Listen); err == nil {
		out = append(out, port{"daemon.listen", a.Addr(), a.Port(), lb.TCP})
	}
	return out
}

// takenPort: somebody else has a port that weir is to listen on.
func takenPort(f Facts) []Finding {
	var out []Finding
	for _, p := range f.ports() {
		for _, s := range f.Sockets {
			if s.PID == 0 || s.PID == f.pid() || s.Process == unit || s.Proto != p.proto || !s.takes(p.addr, p.port) {
				continue
			}
			out = append(out, Finding{
				Severity: Error, What: fmt.Sprintf("%s has %s port %d of %s", s.who(), strings.ToLower(p.proto.String()), p.port, p.key),
				Fix: "stop it, or write another port or address there",
			})
			break
		}
	}
	return out
}
