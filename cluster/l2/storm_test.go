package l2

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"testing"
	"time"

	"weir/cmd/weirlab/histories"
)

// Whatever happens to boxes that all claim the same VIPs, on a network that splits,
// heals, loses cables and frames: when it is over and a box has announced what it holds,
// each VIP that is claimed has exactly one holder, and stays with it.
func TestAnyStormEndsWithOneHolder(t *testing.T) {
	for seed := range histories.Times(20) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			storm(t, rand.New(rand.NewPCG(seed, 5)))
		})
	}
}

func storm(t *testing.T, random *rand.Rand) {
	names := []string{"a", "b", "c"}
	n := newLAN(t, names...)
	vips := []netip.Addr{vip4(1), vip4(2), vip4(3), vip6(1), vip6(2), vip6(3)}
	cable := func(name string, in bool) {
		b := n.boxes[name]
		b.e.setLink("eth0", linkState{index: 7, mac: b.mac, carrier: in}, n.now)
		n.step()
	}
	for range 150 {
		name, vip := names[random.IntN(len(names))], vips[random.IntN(len(vips))]
		switch random.IntN(8) {
		case 0, 1:
			n.set(name, &Claim{Cautious: random.IntN(3) == 0}, vip)
		case 2:
			n.set(name, nil, vip)
		case 3:
			cable(name, random.IntN(2) == 0)
		case 4:
			n.boxes[name].segment = random.IntN(2)
		case 5:
			n.boxes[name].e.announceAll()
		case 6:
			n.air = nil // what is on its way is lost
		}
		n.run(time.Duration(random.IntN(400)) * ms)
	}
	for _, name := range names {
		n.boxes[name].segment = 0
		cable(name, true)
		n.set(name, &Claim{}, vips...)
	}
	n.run(2 * time.Second)
	for _, name := range names {
		n.boxes[name].e.announceAll()
		n.step()
		n.run(10 * ms)
	}
	n.run(3 * time.Second)
	owners := map[netip.Addr]string{}
	for _, vip := range vips {
		holders := n.holders(vip)
		if len(holders) != 1 {
			t.Fatalf("%v is answered by %v", vip, holders)
		}
		owners[vip] = holders[0]
		n.lastAnnouncement(vip)
	}
	n.run(3 * time.Minute)
	for _, vip := range vips {
		n.expect(vip, owners[vip])
	}
	for _, name := range names {
		e := n.boxes[name].e
		if len(e.timers) > len(vips) || e.links["eth0"].count[Answered]+e.links["eth0"].count[Contested] != len(vips) {
			t.Errorf("%s: %d timers, %v seats by state", name, len(e.timers), e.links["eth0"].count)
		}
	}
}

// On a network that loses every third frame, a claim that is wrong about its owner's
// death seldom takes the VIP, and where it does there is mostly one holder again soon.
func TestCautiousClaimsOnALossyNetwork(t *testing.T) {
	both(t, func(t *testing.T, of func(int) netip.Addr) {
		const many = 8000
		random := rand.New(rand.NewPCG(3, 3))
		taken, two := 0, 0
		for i := range many {
			n := newLAN(t, "a", "b")
			vip := of(i)
			n.set("a", &Claim{}, vip)
			n.run(time.Second)
			n.lost = func() bool { return random.IntN(3) == 0 }
			n.set("b", &Claim{Cautious: true}, vip)
			n.run(610 * ms)
			if n.binding("b", vip).state != Answered {
				continue
			}
			taken++
			n.run(12 * time.Second)
			if len(n.holders(vip)) != 1 {
				two++
			}
		}
		t.Logf("%d of %d taken within 0.6 s, %d with two holders 12 s later", taken, many, two)
		if taken == 0 || taken > many/100 {
			t.Errorf("%d of %d VIPs taken from an owner that lives", taken, many)
		}
		if two > taken/4 { // b may have been wrong once more just before
			t.Errorf("%d of them have two holders", two)
		}
	})
}
