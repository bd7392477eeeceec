package serving

import (
	"fmt"

	"weir/cmd/weir/internal/config/parse"
	"weir/cmd/weir/internal/config/schema"
	"weir/cmd/weir/internal/config/source"
	"weir/lb/health"
)

// bfdKeys returns the keys for checks of type bfd.
func bfdKeys(c *health.Check) []schema.Key {
	return []schema.Key{
		{Path: "service.check.bfd_min_tx", To: &c.BFD.MinTx, Default: `"300ms"`, Min: 10 * schema.Millisecond, Max: 60 * schema.Second,
			Doc: "For bfd: the interval of the packets that weir sends. The backend may ask for a longer one."},
		{Path: "service.check.bfd_min_rx", To: &c.BFD.MinRx, Default: `"300ms"`, Min: 10 * schema.Millisecond, Max: 60 * schema.Second,
			Doc: "For bfd: the shortest interval of the packets that the backend may send."},
		{Path: "service.check.bfd_idle_tx", To: &c.BFD.IdleTx, Default: `"1s"`, Min: schema.Second, Max: 60 * schema.Second,
			Doc: "For bfd: the interval of the packets that weir sends while the session is not up."},
		{Path: "service.check.bfd_multiplier", To: &c.BFD.Multiplier, Unit: "packets", Default: `3`, Min: 1, Max: 255,
			Doc: "For bfd: the number of lost packets in a row after which the backend considers weir down. weir uses the number of the backend."},
		{Path: "service.check.bfd_passive", To: &c.BFD.Passive, Default: `false`,
			Doc: "For bfd: waits for the first packet of the backend."},
		{Path: "service.check.bfd_source", Type: schema.Text, Default: `""`,
			Doc: "For bfd: the address of the box from which packets are sent. \"\" means the one that the routing table selects."},
		{Path: "service.check.bfd_max_hops", To: &c.BFD.MaxHops, Unit: "routers", Default: `0`, Max: 255,
			Doc: "For bfd: the largest number of routers between the box and the backend. With 0, packets of other links are ignored."},
		{Path: "service.check.bfd_ttl", To: &c.BFD.TTL, Default: `255`, Min: 1, Max: 255,
			Doc: "For bfd: the TTL or hop limit of packets. Those of the backend must have at least this value minus bfd_max_hops. RFC 5881 requires 255."},
	}
}

// readBFD reads what depends on other keys. The session has its own timing: a check of it only
// reads its state, and counts at once.
func readBFD(s *Service, t schema.Section, c *health.Check) {
	for _, name := range []string{"interval", "timeout", "jitter", "rise", "fall"} {
		if t.Changed(name) {
			t.Fail(name, `has no effect in a check of type "bfd"`, "use bfd_min_tx, bfd_min_rx and bfd_multiplier, or remove this")
		}
	}
	const handshakes = 3 // packets may be lost
	c.Timeout = handshakes*c.BFD.IdleTx + max(c.BFD.MinTx, c.BFD.MinRx)
	c.Rise, c.Fall = 1, 1
	text := t.Text("bfd_source")
	if text == "" {
		return
	}
	var f *source.Fault
	if c.BFD.Source, f = parse.Addr(text); f != nil {
		t.Fail("bfd_source", f.Text, f.Fix)
		return
	}
	for _, b := range s.Backends {
		if b.Addr.Addr().Is4() != c.BFD.Source.Is4() {
			t.Fail("bfd_source", fmt.Sprintf("%s has another family than backend %q", c.BFD.Source, b.Addr.Addr()), "remove it, so that the routing table selects an address")
			return
		}
	}
}
