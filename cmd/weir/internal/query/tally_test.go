package query

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"weir/lb"
)

// Counts that follow the ops are those of walking through all that is held.
func TestTallyFollowsTheOps(t *testing.T) {
	g := rand.New(rand.NewPCG(1, 2))
	base := lb.Base{Device: "kube-ipvs0", Families: []lb.Family{lb.IPv4}}
	rec := lb.NewReconciler(&lb.Fake{}, lb.Options{Base: base}, "static")
	held, now := Tally{}, time.Now()
	for range 100 {
		var services []lb.Service
		for i := range g.IntN(4) {
			s := lb.Service{ID: lb.ServiceID{Source: "static", Name: fmt.Sprint(i)}, Drain: time.Duration(g.IntN(2)) * time.Second}
			s.VIPs = []lb.VIP{{Addr: netip.AddrFrom4([4]byte{192, 0, 2, byte(g.IntN(3))})}}
			s.Ports = []lb.Port{{Proto: lb.TCP, Port: 80}}
			for j := range g.IntN(4) {
				a := netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, 0, byte(j)}), 80)
				s.Ports[0].Backends = append(s.Ports[0].Backends, lb.Backend{Addr: a, Weight: uint32(g.IntN(2))})
			}
			services = append(services, s)
		}
		rec.Update(lb.Update{Source: "static", Put: services, Synced: true})
		if g.IntN(3) == 0 {
			held.Lose(rec.Lost([]lb.Object{lb.Rules{Family: lb.IPv4}, lb.Address{Addr: netip.AddrFrom4([4]byte{192, 0, 2, 1})}}))
		}
		now = now.Add(time.Second)
		rep, err := rec.Sync(context.Background(), now)
		if err != nil {
			t.Fatal(err)
		}
		held.Apply(rep.Ops)
		if d := cmp.Diff(nonZero(NewTally(rec.Have()).Without(base, rec.Have())), nonZero(held.Without(base, rec.Have()))); d != "" {
			t.Fatalf("(-walked +followed):\n%s", d)
		}
	}
}

func nonZero(counts map[string]int) map[string]int {
	maps.DeleteFunc(counts, func(_ string, n int) bool { return n == 0 })
	return counts
}
