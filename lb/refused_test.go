package lb

import (
	"errors"
	"fmt"
	"net/netip"
	"testing"
	"time"
)

// TestManyRefusedServices: a kernel that refuses every virtual server, for instance because
// a module is missing, costs each service once. If it cost each service a scan of all others,
// these would take minutes.
func TestManyRefusedServices(t *testing.T) {
	const services = 20_000
	k := &Fake{Fail: func(op Op) error {
		if _, ok := op.Object.(VirtualServer); ok {
			return errors.New("no such scheduler")
		}
		return nil
	}}
	r := NewReconciler(k, Options{Drain: time.Minute}, "static")
	u := Update{Source: "static", Synced: true}
	for i := range services {
		s := web(netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 1, byte(i >> 8), byte(i)}), 8080))
		s.ID.Name = fmt.Sprintf("web%d", i)
		s.VIPs = []VIP{{Addr: netip.AddrFrom4([4]byte{198, 18, byte(i >> 8), byte(i)})}}
		u.Put = append(u.Put, s)
	}
	r.Update(u)
	done := make(chan Report)
	go func() {
		rep, err := r.Sync(t.Context(), testNow)
		if err != nil {
			t.Error(err)
		}
		done <- rep
	}()
	select {
	case rep := <-done:
		if rep.Failed < services {
			t.Errorf("%d operations failed, want one of each service at least", rep.Failed)
		}
	case <-time.After(time.Minute):
		t.Fatal("the first pass hangs")
	}
}
