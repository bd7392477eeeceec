package fleet

import (
	"fmt"
	"net/netip"
	"testing"

	"weir/bgp/advertise"
	"weir/cluster/l2"
	"weir/cluster/owner"
	"weir/cmd/weir/internal/fleet/message"
	"weir/lb"
)

// crowd returns an Engine in a fleet of three with so many VIPs, all of which it serves.
func crowd(vips int) *Engine {
	e := newTestEngine(inFleet(owner.Rules{Mode: owner.ActiveStandby}))
	e.self.joined, e.self.now.Effective = true, owner.Stable
	m := serving()
	for i := range vips {
		a := netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)})
		e.local.routes[a] = []lb.Serving{{}}
		m.VIPs[a] = message.Serves
	}
	for _, name := range []string{"b", "c"} {
		e.members.byName[name] = &member{state: owner.Stable, message: m}
	}
	electOnce(e)
	return e
}

func electOnce(e *Engine) {
	e.elect(startTime, &Decision{Roles: map[netip.Addr]advertise.Role{}, Late: map[netip.Addr]advertise.Role{}, Claims: map[netip.Addr]*l2.Claim{}})
}

func BenchmarkDecide(b *testing.B) {
	for _, vips := range []int{100, 10_000} {
		e := crowd(vips)
		b.Run(fmt.Sprintf("all of %d", vips), func(b *testing.B) {
			for b.Loop() {
				e.gen.members++
				electOnce(e)
			}
		})
		b.Run(fmt.Sprintf("one of %d", vips), func(b *testing.B) {
			for b.Loop() {
				e.ownership.touch(netip.MustParseAddr("10.0.0.7"))
				electOnce(e)
			}
		})
		b.Run(fmt.Sprintf("a message of %d", vips), func(b *testing.B) {
			for b.Loop() {
				text, err := e.message(nil).Encode()
				if err != nil {
					b.Fatal(err)
				}
				if _, err := message.Parse(text); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
