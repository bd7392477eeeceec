package check

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	"weir/cmd/weir/internal/config/serving"
	"weir/cmd/weir/internal/config/vips"
	"weir/lb/health"
)

// bfd reports different sessions with one address and port: two hosts have one session (RFC 5881, 2).
// Those of BGP are over one link.
func (d serviceCheck) bfd() {
	first := map[netip.AddrPort]*serving.Service{}
	for _, s := range d.Services {
		if s.Check == nil || s.Check.Check.Kind != health.BFD {
			continue
		}
		c := s.Check.Check
		t := s.Sub("check")
		for _, b := range s.Backends {
			at := netip.AddrPortFrom(b.Addr.Addr(), c.BFDPort())
			if o := cmp.Or(first[at], s); o.Check.Check.BFD != c.BFD {
				t.Fail("type", fmt.Sprintf("the BFD session with %q has other parameters in %s at %s", at.Addr(), o.Called(), o.Sub("check").At("type")),
					"use the same bfd_ keys in both")
				break
			}
			first[at] = s
			if d.VIPs.BGP == nil || at.Port() != health.LinkBFDPort {
				continue
			}
			if i := slices.IndexFunc(d.VIPs.BGP.Peers, func(p *vips.Peer) bool { return p.BFD.Enabled && p.Address == at.Addr() }); i >= 0 {
				t.Fail("type", fmt.Sprintf("the BGP peer %q has a BFD session with %q", d.VIPs.BGP.Peers[i].Name, at.Addr()),
					"use another type of check, or remove bfd of the peer")
				break
			}
		}
	}
}
