package keepalived

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"weir/cmd/weir/internal/draft"
)

// virtualServer writes a virtual_server as a service for each of its ports.
func (c *converter) virtualServer(out *draft.Writer, n *node) {
	s := &server{node: n, proto: "udp", ports: map[uint16][]netip.Addr{}}
	if p := c.take(n, "protocol"); p != nil {
		s.proto = strings.ToLower(p.word(1))
	}
	base, ok := c.frontends(s)
	if !ok {
		return
	}
	if m, reason := unforwarded(n); m != nil {
		c.lose(n, n, m.name()+" "+m.value()+" ("+m.at.Brief()+"): "+reason)
		c.unserved(n)
		return
	}
	for port, vips := range s.ports {
		if port == 0 {
			for _, a := range vips {
				if _, ok := c.vips[a]; !ok {
					c.vips[a] = false
				}
			}
			delete(s.ports, port)
			c.lose(n, n, "weir serves single ports, and this is all ports of an address: add a service with the ports")
		}
	}
	if len(s.ports)+len(s.marks) == 0 {
		return
	}
	c.realServers(s)
	check := checkConverter{c}.check(s)
	if check == nil {
		c.unchecked(s)
	}
	for _, port := range slices.Sorted(maps.Keys(s.ports)) {
		name := base
		if len(s.ports) > 1 {
			name += "-" + strconv.Itoa(int(port))
		}
		c.service(out, s, c.unused(n, name), port, check)
	}
	for _, m := range s.marks {
		markConverter{c}.marked(out, s, m, check)
	}
}

// unserved records the addresses of a virtual_server without a service.
func (c *converter) unserved(n *node) {
	s := &server{node: n, ports: map[uint16][]netip.Addr{}}
	c.frontends(s)
	for _, vips := range s.ports {
		for _, a := range vips {
			if _, ok := c.vips[a]; !ok {
				c.vips[a] = false
			}
		}
	}
}

// unchecked leaves out the settings of checks of a service without one.
func (c *converter) unchecked(s *server) {
	blocks := []*node{s.node}
	for _, r := range s.backends {
		blocks = append(blocks, r.node)
	}
	for _, in := range blocks {
		for _, n := range in.all("connect_timeout", "retry", "delay_before_retry", "delay_loop", "virtualhost") {
			c.leave(n, "the service has no check")
		}
	}
}

// frontends reads the addresses and ports of a virtual_server, and returns its name.
func (c *converter) frontends(s *server) (name string, ok bool) {
	n := s.node
	switch n.word(1) {
	case "fwmark":
		markConverter{c}.read(s, n, n.word(2))
		return "", len(s.marks) > 0
	case "group":
		for _, g := range c.top.all("virtual_server_group") {
			if g.word(1) == n.word(2) {
				c.group(s, g)
			}
		}
		if len(s.ports)+len(s.marks) == 0 {
			c.lose(n, n, "there is no address in the group")
		}
		return "group-" + n.word(2), len(s.ports)+len(s.marks) > 0
	}
	addr, err := netip.ParseAddr(n.word(1))
	port, portErr := parsePort(n.word(2))
	if err != nil || portErr != nil {
		c.lose(n, n, "it is not an address and a port")
		return "", false
	}
	s.ports[port] = []netip.Addr{addr}
	return fmt.Sprintf("vs-%s-%d", addr, port), true
}

// group reads the addresses of a virtual_server_group.
func (c *converter) group(s *server, g *node) {
	for _, e := range g.block {
		if e.name() == "fwmark" {
			markConverter{c}.read(s, e, e.word(1))
			continue
		}
		addrs, ok := draft.Addresses(e.name())
		port, err := parsePort(e.word(1))
		if !ok || err != nil {
			c.lose(s.node, e, "it is not a range of addresses and a port, or one of more than "+strconv.Itoa(draft.MostAddresses))
			continue
		}
		c.done[e] = true
		s.ports[port] = append(s.ports[port], addrs...)
	}
}

// realServers reads the backends.
func (c *converter) realServers(s *server) {
	for _, n := range s.node.all("real_server") {
		addr, err := netip.ParseAddr(n.word(1))
		port, portErr := parsePort(n.word(2))
		r := real{node: n, addr: addr, port: port, weight: 1}
		r.method, _ = methodOf(s.node)
		if m, own := methodOf(n); own != nil && m != r.method {
			r.method, r.own = m, own
		}
		c.take(n, "lvs_method", "lb_kind")
		same := func(o real) bool { return o.addr == r.addr && o.port == r.port }
		switch {
		case err != nil || portErr != nil:
			c.lose(s.node, n, "it is not an address with or without a port")
			continue
		case slices.ContainsFunc(s.backends, same):
			c.leave(n, "the virtual_server has it twice")
			continue
		}
		for _, w := range slices.Concat(s.node.all("weight"), n.all("weight")) {
			c.done[w] = true
			if weight, err := strconv.ParseUint(w.word(1), 10, 16); err != nil {
				c.leave(w, "a weight is from 0 to 65535")
			} else {
				r.weight, r.weightFrom = weight, w
			}
		}
		s.backends = append(s.backends, r)
	}
}

// unused returns a valid and unique name for a service of a virtual_server.
func (c *converter) unused(n *node, name string) string {
	name = strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' || r == '.' {
			return r
		}
		return '-'
	}, strings.ToLower(name))
	name = strings.Trim(name[:min(len(name), 50)], "-.")
	free := name
	for i := 2; c.services[free] != nil; i++ {
		free = fmt.Sprintf("%s-%d", name, i)
	}
	c.services[free] = n
	return free
}

// service writes one.
func (c *converter) service(out *draft.Writer, s *server, name string, port uint16, check *check) {
	out.Table("[[service]]")
	out.Key("name", name, from(s.node))
	var vips []string
	for _, a := range s.ports[port] {
		if text := a.String(); !slices.Contains(vips, text) {
			vips = append(vips, text)
		}
		c.vips[a] = true
	}
	out.Key("vips", vips, s.node.at.Brief())
	backendPort, uniform := s.backendPort(port)
	text := strconv.Itoa(int(port))
	if uniform && backendPort != port {
		text += ":" + strconv.Itoa(int(backendPort))
	}
	if s.proto != "tcp" {
		text += "/" + s.proto
	}
	var what any = text
	if text == strconv.Itoa(int(port)) {
		what = int64(port)
	}
	if s.node.find("protocol") == nil {
		out.Remark("It has no protocol, and keepalived's default is UDP: remove /udp if TCP is intended.")
	}
	out.Key("ports", []any{what}, s.node.at.Brief())
	c.remainder(out, s, port, uniform, check)
}

// remainder writes the backends of a service, and the treatment of its connections. The port is 0 for a
// fwmark.
func (c *converter) remainder(out *draft.Writer, s *server, port uint16, uniform bool, check *check) {
	c.compact(out, s, uniform)
	policyConverter{c}.traffic(out, s, port)
	policyConverter{c}.quorum(out, s, port, check)
	c.backends(out, s, uniform)
	if check != nil {
		check.write(out)
	}
}

func (c *converter) compact(out *draft.Writer, s *server, uniform bool) {
	if !s.isPlain() {
		return
	}
	list := []string{}
	for _, r := range s.backends {
		list = append(list, r.text(uniform))
	}
	out.Key("backends", list, "real_server")
}

// backends writes tables, for backends with more than an address.
func (c *converter) backends(out *draft.Writer, s *server, uniform bool) {
	if s.isPlain() {
		return
	}
	for _, r := range s.backends {
		out.Table("[[service.backend]]")
		out.Key("address", r.text(uniform), from(r.node))
		if r.weight != 1 {
			out.Key("weight", int64(r.weight), from(r.weightFrom))
		}
		if r.own != nil {
			out.Key("forward", r.method.forward, from(r.own))
		}
		upper := c.number(out, r.node, "uthreshold", "max_connections", 1<<32-1)
		if upper > 0 {
			c.number(out, r.node, "lthreshold", "min_connections", upper-1)
		}
	}
}

// number writes a whole number unless it is 0, and returns it.
func (c *converter) number(out *draft.Writer, in *node, name, key string, most int64) int64 {
	n := c.take(in, name)
	if n == nil {
		return 0
	}
	v, err := strconv.ParseInt(n.word(1), 10, 64)
	if err != nil || v < 0 || v > most {
		c.leave(n, fmt.Sprintf("it is not a number from 0 to %d", most))
		return 0
	}
	if v > 0 {
		out.Key(key, v, from(n))
	}
	return v
}
