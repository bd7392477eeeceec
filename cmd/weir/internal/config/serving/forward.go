package serving

import (
	"fmt"
	"slices"
	"strconv"

	"weir/cmd/weir/internal/config"
	"weir/cmd/weir/internal/config/source"
	"weir/lb"
)

// forwardNames are the values of forward.
var forwardNames = []string{"nat", "direct", "tunnel"}

// forwarding returns the method of a value of forward.
func forwarding(name string) lb.Forwarding {
	switch name {
	case "direct":
		return lb.DirectRouting
	case "tunnel":
		return lb.Tunnel
	}
	return lb.Masquerading
}

// forwardName returns the value of forward for a method.
func forwardName(f lb.Forwarding) string {
	switch f {
	case lb.DirectRouting:
		return "direct"
	case lb.Tunnel:
		return "tunnel"
	}
	return "nat"
}

// masquerades reports whether a backend replies through this box.
func (s *Service) masquerades() bool {
	return slices.ContainsFunc(s.Backends, func(b Backend) bool { return !b.LB.Forward.Direct() })
}

// firstDirect returns the method of the first backend, or of the fallback, that replies to the
// client itself.
func (s *Service) firstDirect() (f lb.Forwarding, ok bool) {
	for _, b := range s.Backends {
		if b.LB.Forward.Direct() {
			return b.LB.Forward, true
		}
	}
	return s.LB.Forward, s.LB.Forward.Direct()
}

// checkForward reports combinations that a direct backend (lb.Forwarding) can't serve. Without a
// masqueraded backend the service keeps the clients' addresses.
func (s *Service) checkForward(k config.Kernel) {
	first, ok := s.firstDirect()
	if !ok {
		return
	}
	name := strconv.Quote(forwardName(first))
	if s.Text("type") == lb.ClusterIP.String() {
		s.Fail("forward", name+" can't serve type ClusterIP: its clients inside the cluster, such as this box, never get the replies",
			`use type = "LoadBalancer", or forward = "nat"`)
	}
	if k.Mode == config.ModeIPTables {
		s.Fail("forward", name+` needs IPVS, and kernel.mode is "iptables"`, `use another mode there, or forward = "nat"`)
	}
	if !s.masquerades() {
		if s.Text("source_address") == "masquerade" && s.Written("source_address") {
			s.Fail("source_address", `"masquerade" has no effect: backends with forward `+name+" see the client's address", "remove it")
		}
		s.LB.Keep = true
	}
	s.checkPorts()
}

// checkPorts reports backends and fallbacks of another port than the service's: a direct one gets
// the packets with their port.
func (s *Service) checkPorts() {
	const fix = `use the port of the service, or forward = "nat"`
	for _, p := range s.Ports {
		translated := false
		for _, b := range s.Backends {
			switch method := strconv.Quote(forwardName(b.LB.Forward)); {
			case !b.LB.Forward.Direct():
			case b.Addr.Port() != 0 && b.Addr.Port() != p.Port:
				s.Add(source.Error, b.At, source.Join(s.Shown, b.Name),
					fmt.Sprintf("%q has another port than the service (%d), and forward %s does not change ports", b.Addr, p.Port, method), fix)
			case b.Addr.Port() == 0 && p.Backend != p.Port && !translated:
				translated = true
				s.Add(source.Error, p.At, source.Join(s.Shown, "ports"),
					fmt.Sprintf("%q is to become port %d of %s, and forward %s does not change ports", p.PortKey, p.Backend, b.Addr.Addr(), method), fix)
			}
		}
		for _, f := range s.Fallback {
			if s.LB.Forward.Direct() && f.Addr.Port() != p.Port {
				s.Add(source.Error, f.At, source.Join(s.Shown, f.Name),
					fmt.Sprintf("%q has another port than the service (%d), and forward %q does not change ports", f.Addr, p.Port, forwardName(s.LB.Forward)), fix)
			}
		}
	}
}
