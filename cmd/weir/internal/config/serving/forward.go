package serving

import (
	"fmt"
	"slices"
	"strconv"

	"weir/cmd/weir/internal/config"
	"weir/cmd/weir/internal/config/parse"
	"weir/cmd/weir/internal/config/source"
	"weir/lb"
)

// forwardNames are the values of forward.
var forwardNames = []string{"nat", "direct", "tunnel"}

// tunnelNames and checksumNames are the values of tunnel and tunnel_checksum.
var (
	tunnelNames   = []string{lb.IPIP.String(), lb.GUE.String(), lb.GRE.String()}
	checksumNames = []string{lb.NoChecksum.String(), lb.FullChecksum.String(), lb.RemoteChecksum.String()}
)

// encap returns the tunnel of a method.
func (s *Service) encap(f lb.Forwarding) lb.Encap {
	e := lb.Encap{Type: lb.EncapType(max(0, slices.Index(tunnelNames, s.Text("tunnel"))))}
	switch {
	case f != lb.Tunnel:
		return lb.Encap{}
	case e.Type == lb.IPIP:
		return e
	case e.Type == lb.GUE:
		e.Port = s.tunnelPort
	}
	e.Checksum = lb.EncapChecksum(max(0, slices.Index(checksumNames, s.Text("tunnel_checksum"))))
	return e
}

// checkOnePacket reports services with one_packet that would fail. A masqueraded backend replies from
// its own address: without a connection nothing restores the VIP.
func (s forwardCheck) checkOnePacket() {
	if !s.LB.OnePacket {
		return
	}
	if !slices.ContainsFunc(s.Ports, func(p parse.ServicePort) bool { return p.Proto == lb.UDP }) && len(s.Ports) > 0 {
		s.Fail("one_packet", "has no effect without a UDP port", `write for instance ports = ["53/udp"], or remove this`)
	}
	if s.masquerades() || len(s.Fallback) > 0 && !s.LB.Forward.Direct() {
		s.Fail("one_packet", `clients would get replies from the address of a backend with forward "nat", not from the VIP`, `use forward = "direct" or "tunnel" for all backends`)
	}
}

// checkTunnel reports keys of tunnels that have no effect.
func (s forwardCheck) checkTunnel() {
	tunnels := s.LB.Forward == lb.Tunnel || s.tunnels()
	for _, key := range []string{"tunnel", "tunnel_port", "tunnel_checksum"} {
		kind := s.Text("tunnel")
		switch {
		case !s.Changed(key):
		case !tunnels:
			s.Fail(key, `has no effect without forward = "tunnel"`, "set that for the service or a backend, or remove this")
		case key == "tunnel_port" && kind != lb.GUE.String():
			s.Fail(key, fmt.Sprintf("tunnel %q has no ports", kind), `use tunnel = "gue", or remove this`)
		case key == "tunnel_checksum" && kind == lb.IPIP.String():
			s.Fail(key, fmt.Sprintf("tunnel %q has no checksum", kind), `use tunnel = "gue" or "gre", or remove this`)
		case key == "tunnel_checksum" && kind == lb.GRE.String() && s.Text(key) == lb.RemoteChecksum.String():
			s.Fail(key, `"remote" is for tunnel "gue" only`, `use "full" or "none"`)
		}
	}
}

// forwardCheck checks the forwarding methods of a service.
type forwardCheck struct{ *Service }

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
func (s forwardCheck) firstDirect() (f lb.Forwarding, ok bool) {
	for _, b := range s.Backends {
		if b.LB.Forward.Direct() {
			return b.LB.Forward, true
		}
	}
	return s.LB.Forward, s.LB.Forward.Direct()
}

// checkForward reports combinations that a direct backend (lb.Forwarding) can't serve. Without a
// masqueraded backend the service keeps the clients' addresses.
func (s forwardCheck) checkForward(k config.Kernel) {
	s.checkTunnel()
	s.checkOnePacket()
	first, ok := s.firstDirect()
	if !ok {
		return
	}
	name := strconv.Quote(forwardName(first))
	if s.Text("type") == lb.ClusterIP.String() {
		s.Fail("forward", name+" can't serve type ClusterIP: its clients inside the cluster, such as this box, never get the replies",
			`use type = "LoadBalancer", or forward = "nat"`)
	}
	if k.Mode == config.ModeNetfilter {
		s.Fail("forward", name+` needs IPVS, and kernel.mode is "netfilter"`, `use another mode there, or forward = "nat"`)
	}
	if !s.masquerades() {
		if s.Text("source_address") == "masquerade" && s.Set("source_address") {
			s.Fail("source_address", `"masquerade" has no effect: backends with forward `+name+" see the client's address", "remove it")
		}
		s.LB.Keep = true
	}
	s.checkPorts()
}

// checkPorts reports backends and fallbacks of another port than the service's: a direct one gets
// the packets with their port.
func (s forwardCheck) checkPorts() {
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
			if s.LB.Forward.Direct() && f.Addr.Port() != p.Port && !s.LB.Group {
				s.Add(source.Error, f.At, source.Join(s.Shown, f.Name),
					fmt.Sprintf("%q has another port than the service (%d), and forward %q does not change ports", f.Addr, p.Port, forwardName(s.LB.Forward)), fix)
			}
		}
	}
}
