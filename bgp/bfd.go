package bgp

import (
	"fmt"
	"math/rand/v2"
	"net/netip"

	"weir/lb/health/bfd"
)

const bfdPacketsToSend = 3 // there is no acknowledgement

// bfdAdminDown announces to a router that the BFD session ends on purpose, so that the
// router does not consider the box dead (RFC 5880, 6.8.16; RFC 5882, 3.2). GoBGP has
// closed its own end by now; without the router's discriminator the packet finds the
// session by its addresses (RFC 5880, 6.8.6).
func bfdAdminDown(router, local netip.Addr, p Peer) error {
	packet := bfd.Packet{
		Diagnostic:    bfd.Administrative,
		State:         bfd.AdminDown,
		Multiplier:    uint8(p.BFD.Multiplier),
		Mine:          rand.Uint32() | 1,
		DesiredMinTx:  p.BFD.Interval,
		RequiredMinRx: p.BFD.Interval,
	}.Marshal()
	conn, err := bfd.Dial(netip.AddrPortFrom(router, bfd.Port), local, bfd.LinkTTL)
	if err != nil {
		return fmt.Errorf("send BFD AdminDown to %s: %w", router, err)
	}
	defer conn.Close()
	for range bfdPacketsToSend {
		if _, err := conn.Write(packet); err != nil {
			return fmt.Errorf("send BFD AdminDown to %s: %w", router, err)
		}
	}
	return nil
}
