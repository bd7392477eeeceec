package bgp

import (
	"errors"
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

// followSources begins BFD sessions again that are not up and have another source address than the box uses towards
// the router now. GoBGP chooses it once, when it adds the peer: with a link that is down then, it is that of another
// link, and the router ignores such packets.
func (e *engine) followSources() error {
	var errs []error
	for _, p := range e.sessions.withoutBFD() {
		now := sourceTo(netip.AddrPortFrom(p.Address, bfd.Port))
		if !now.IsValid() || now == e.known.sources[p.Name] {
			continue
		}
		e.panics.changing = true
		off := p
		off.BFD.Enabled = false
		errs = append(errs, e.updatePeer(off))
		waitForBFD(p)
		errs = append(errs, e.updatePeer(p))
	}
	return errors.Join(errs...)
}

// hasBFD records the source of a new BFD session, and waits.
func (k *peering) hasBFD(p Peer) {
	if p.BFD.Enabled && p.Address.IsValid() {
		k.sources[p.Name] = sourceTo(netip.AddrPortFrom(p.Address, bfd.Port))
	}
	waitForBFD(p)
}
