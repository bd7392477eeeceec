package keepalived

import (
	"net/netip"
	"slices"
	"strconv"
	"time"

	"weir/cmd/weir/internal/config/load"
	"weir/cmd/weir/internal/draft"
)

// policyConverter converts the treatment of connections.
type policyConverter struct{ *converter }

// traffic writes scheduler, affinity, one-packet scheduling and source address. The port is that of the
// service, 0 for a fwmark.
func (c policyConverter) traffic(out *draft.Writer, s *server, port uint16) {
	scheduler, reason := "wlc", "keepalived's default"
	if n := c.take(s.node, "lvs_sched", "lb_algo"); n != nil {
		if known, _ := load.Schema().Key("service.scheduler"); slices.Contains(known.Values, n.word(1)) {
			scheduler, reason = n.word(1), from(n)
		} else {
			c.leave(n, "weir supports only the schedulers of the kernel")
		}
	}
	out.Key("scheduler", scheduler, reason)
	c.flags(out, s, scheduler)
	if n := c.take(s.node, "persistence_timeout"); n != nil {
		d, ok := 6*time.Minute, true
		if n.word(1) != "" {
			d, ok = seconds(n.word(1))
		}
		if d = d.Truncate(time.Second); ok && d <= 596*time.Hour {
			out.Key("affinity_timeout", d, from(n))
		} else {
			c.leave(n, "it is not a time up to 596 hours")
		}
	}
	c.onePacket(out, s, port)
	c.forward(out, s)
}

// onePacket writes one-packet scheduling where replies have the VIP as their source.
func (c policyConverter) onePacket(out *draft.Writer, s *server, port uint16) {
	n := s.node.find("ops")
	service, _ := methodOf(s.node)
	switch {
	case n == nil:
	case s.proto != "udp":
		c.leave(n, onlyUDP)
	case port == 0:
		c.leave(n, "weir has it for ports, and a fwmark selects packets of any protocol")
	case slices.ContainsFunc(s.backends, func(r real) bool { return r.method == nat }), service == nat && s.node.find("sorry_server") != nil:
		c.leave(n, natOPS)
	default:
		c.done[n] = true
		out.Key("one_packet", true, from(n))
	}
}

// forward writes the method of a service. With keepalived, backends with NAT see the clients'
// addresses.
func (c policyConverter) forward(out *draft.Writer, s *server) {
	m, n := methodOf(s.node)
	c.take(s.node, "lvs_method", "lb_kind")
	if m != nat {
		out.Key("forward", m.forward, from(n))
	}
	if t, d := tunnelOf(s.node); d != nil && (m.forward == "tunnel" || slices.ContainsFunc(s.backends, func(r real) bool { return r.own == d })) {
		t.write(out, d)
	}
	if !slices.ContainsFunc(s.backends, func(r real) bool { return r.method == nat }) {
		return
	}
	out.Remark("Backends see the clients' addresses and must reply through this box, as with keepalived.")
	out.Key("source_address", "keep", "lvs_method NAT")
}

// flags writes those of sh and mh. keepalived's default is none, weir's default is some.
func (c policyConverter) flags(out *draft.Writer, s *server, scheduler string) {
	if scheduler != "sh" && scheduler != "mh" {
		return
	}
	var list []string
	for _, f := range []struct{ flag, own, number string }{{"fallback", scheduler + "-fallback", "flag-1"}, {"port", scheduler + "-port", "flag-2"}} {
		if c.take(s.node, f.own, f.number) != nil {
			list = append(list, f.flag)
		}
	}
	if len(list) == 0 {
		out.Remark("keepalived's default without flags refuses the clients of a backend that is down; weir's default selects another one.")
		return
	}
	out.Key("scheduler_flags", list, "as keepalived has them")
}

// quorum writes when_down and the quorum. keepalived counts weights, weir counts backends:
// the number of heaviest backends with that weight. The port is that of the service, 0 for a fwmark.
func (c policyConverter) quorum(out *draft.Writer, s *server, port uint16, check *check) {
	sorry := s.node.find("sorry_server")
	n, h := s.node.find("quorum"), s.node.find("hysteresis")
	if check == nil {
		if sorry != nil {
			c.leave(sorry, "it would never be used: weir supports no check of the real servers")
		}
		return
	}
	if fallback, ok := c.sorry(s, sorry, port); ok {
		out.Key("when_down", "fallback", from(sorry))
		out.Key("fallback", []string{fallback}, from(sorry))
	} else {
		out.Key("when_down", "refuse", "like keepalived, which removes backends that are down")
	}
	if n == nil || sorry == nil && s.node.find("quorum_down") == nil {
		return
	}
	weight, err := strconv.ParseUint(n.word(1), 10, 32)
	if err != nil || weight == 0 {
		c.leave(n, "it is not a number")
		return
	}
	most := s.mostOfAFamily()
	need := min(s.heaviest(weight), most)
	c.done[n] = true
	out.Key("quorum", int64(need), from(n)+": the number of backends with the weight "+n.word(1))
	if h != nil {
		more, err := strconv.ParseUint(h.word(1), 10, 32)
		if err != nil {
			c.leave(h, "it is not a number")
			return
		}
		c.done[h] = true
		if tolerated := min(s.heaviest(weight+more), most) - need; tolerated > 0 {
			out.Key("hysteresis", int64(tolerated), from(h)+": of weight "+h.word(1))
		}
	}
}

// sorry returns the address of a sorry_server in weir's form, for the service of a port. It serves a
// fwmark (port 0) with its own port only if packets do not keep that of the client.
func (c policyConverter) sorry(s *server, n *node, of uint16) (string, bool) {
	if n == nil {
		return "", false
	}
	addr, err := netip.ParseAddr(n.word(1))
	port, portErr := parsePort(n.word(2))
	if err != nil || portErr != nil {
		c.leave(n, "it is not an address with or without a port")
		return "", false
	}
	if slices.ContainsFunc(s.backends, func(r real) bool { return r.addr == addr && (r.port == port || r.port == 0 || port == 0) }) {
		c.leave(n, "it is also a real_server, and weir's fallback can't be a backend")
		return "", false
	}
	c.take(s.node, "sorry_server")
	if m, _ := methodOf(s.node); of == 0 && (port == 0 || m != nat || s.node.find("persistence_timeout") != nil) {
		return addr.String(), true
	}
	if port == 0 {
		port = of
	}
	return netip.AddrPortFrom(addr, port).String(), true
}
