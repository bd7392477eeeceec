package lb

import (
	"errors"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
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

// The kernel deletes a virtual server and a set with all they have, though it refused to delete that
// by itself. A Service that returns then gets all of it again.
func TestObjectsGoWithTheirContainer(t *testing.T) {
	for _, refused := range []kind{kindRealServer, kindMember} {
		t.Run(refused.String(), func(t *testing.T) {
			svc := web(be1, be2)
			svc.Drain = 0
			k := &Fake{}
			r := NewReconciler(k, Options{Base: base}, "static")
			r.Update(put(svc))
			mustSync(t, r, testNow)
			want := k.Objects()
			k.Fail = refuseDeletion(refused)
			r.Update(put())
			r.Configure(Options{Base: Base{Device: base.Device}})
			mustSync(t, r, testNow)
			if d := cmp.Diff(k.Objects(), r.Have().Snapshot(), exact); d != "" {
				t.Errorf("recorded (-kernel +recorded):\n%s", d)
			}
			k.Fail = nil
			r.Update(put(svc))
			r.Configure(Options{Base: base})
			mustSync(t, r, testNow)
			if d := cmp.Diff(want, k.Objects(), exact); d != "" {
				t.Errorf("after the return of the Service (-want +got):\n%s", d)
			}
		})
	}
}

func TestAddressesGoWithTheDevice(t *testing.T) {
	k := &Fake{}
	r := NewReconciler(k, Options{Base: base}, "static")
	r.Update(put(web(be1)))
	mustSync(t, r, testNow)
	k.Fail = refuseDeletion(kindAddress)
	if rep, err := r.Cleanup(t.Context(), testNow); err != nil || rep.Failed == 0 {
		t.Fatal(rep, err)
	}
	if d := cmp.Diff(k.Objects(), r.Have().Snapshot(), exact); d != "" {
		t.Errorf("recorded (-kernel +recorded):\n%s", d)
	}
}

// refuseDeletion lets deletions of a kind fail.
func refuseDeletion(of kind) func(Op) error {
	return func(op Op) error {
		if op.Verb == Delete && op.Object.kind() == of {
			return errors.New("no reply from the kernel")
		}
		return nil
	}
}
