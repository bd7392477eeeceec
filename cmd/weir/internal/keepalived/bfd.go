package keepalived

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"time"

	"weir/cmd/weir/internal/draft"
)

// bfd writes the check of a bfd_instance, if each real_server of s has one: all backends of a service
// get a session. keepalived sends to the port of one link, whatever max_hops is.
func (c checkConverter) bfd(s *server, r real, k *check) bool {
	if slices.ContainsFunc(s.backends, func(r real) bool { return c.instance(r) == nil }) {
		return false
	}
	in := c.instance(r)
	c.take(k.node, "name")
	c.take(in, "neighbor_ip", "neighbour_ip")
	c.setting(s, r, k, "delay_loop", "connect_timeout", "retry", "delay_before_retry")
	k.add("type", "bfd", from(k.node))
	k.add("bfd_min_tx", c.milliseconds(in, "min_tx", 10*time.Millisecond), origin(in, "min_tx"))
	k.add("bfd_min_rx", c.milliseconds(in, "min_rx", 10*time.Millisecond), origin(in, "min_rx"))
	k.add("bfd_idle_tx", c.milliseconds(in, "idle_tx", time.Second), origin(in, "idle_tx"))
	k.add("bfd_multiplier", c.number(in, "multiplier", 5), origin(in, "multiplier"))
	if n := c.take(in, "passive"); n != nil {
		k.add("bfd_passive", true, from(n))
	}
	if n := c.take(in, "source_ip"); n != nil {
		k.add("bfd_source", n.word(1), from(n))
	}
	limit, hops := "ttl", int64(255)
	if r.addr.Is6() {
		limit, hops = "hoplimit", 64
	}
	k.add("bfd_ttl", c.number(in, limit, hops), origin(in, limit))
	c.take(in, "ttl", "hoplimit") // that of the other family has no effect
	if n := c.number(in, "max_hops", 0); n != 0 {
		k.add("bfd_max_hops", n, origin(in, "max_hops"))
		k.add("port", int64(3784), "keepalived has one port for any number of hops")
	}
	return true
}

// instance returns the bfd_instance of a real_server's BFD_CHECK, nil if there is none with its address.
func (c checkConverter) instance(r real) *node {
	check := append(r.node.all("BFD_CHECK"), &node{})[0]
	for _, n := range check.all("name") {
		for _, in := range c.top.all("bfd_instance") {
			neighbor := append(in.all("neighbor_ip", "neighbour_ip"), &node{})[0]
			if a, _ := netip.ParseAddr(neighbor.word(1)); a == r.addr && in.word(1) == n.word(1) {
				return in
			}
		}
	}
	return nil
}

// origin returns the directive of a value, or that it is keepalived's default.
func origin(in *node, directive string) string {
	if n := in.find(directive); n != nil {
		return from(n)
	}
	return "keepalived's default of " + directive
}

// milliseconds returns an interval of a bfd_instance. The shortest one of weir is keepalived's default.
func (c checkConverter) milliseconds(in *node, directive string, least time.Duration) time.Duration {
	n := c.take(in, directive)
	if n == nil {
		return least
	}
	f, err := strconv.ParseFloat(n.word(1), 64)
	d := time.Duration(f * float64(time.Millisecond))
	switch {
	case err != nil || f <= 0 || f > 60_000:
		c.leave(n, "it is not a number of milliseconds up to 60000")
		return least
	case d < least && least < time.Second: // otherwise nothing changes while the session is up
		c.leave(n, fmt.Sprintf("the shortest interval is %s", draft.Duration(least)))
	}
	return max(d.Truncate(time.Millisecond), least)
}

// number returns a number of a bfd_instance, up to 255.
func (c checkConverter) number(in *node, directive string, absent int64) int64 {
	n := c.take(in, directive)
	if n == nil {
		return absent
	}
	v, err := strconv.ParseUint(n.word(1), 10, 8)
	if err != nil {
		c.leave(n, "it is not a number up to 255")
		return absent
	}
	return int64(v)
}
