package lb

import (
	"context"
	"fmt"
	"net/netip"
	"reflect"
	"slices"
	"testing"
)

// The cost of a change is its size, with ten Services as with a thousand.
func TestOneBackendIsOneOp(t *testing.T) {
	for _, n := range []int{10, 1_000} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			r, _ := many(t, n, 2)
			svc, _ := r.Catalog().Get(ServiceID{Source: "static", Name: "s7"})
			svc.Ports = []Port{{Proto: TCP, Port: 80, Backends: append(slices.Clone(svc.Ports[0].Backends), Backend{Addr: be1, Weight: 1})}}
			r.Update(Update{Source: "static", Put: []Service{svc}})
			rep := mustSync(t, r, testNow)
			if len(rep.Ops) != 1 {
				t.Errorf("ops %v", rep.Ops)
			}
		})
	}
}

// A change of another Service makes no new map of the marks of all checked backends.
func TestMarksOfChecksAreKept(t *testing.T) {
	t.Parallel()
	svc := checked(DirectRouting, "10.0.0.1", "10.0.0.2")
	s := newLocalStory(t, svc)
	same := func(a, b map[CheckTarget]uint32) bool {
		return reflect.ValueOf(a).Pointer() == reflect.ValueOf(b).Pointer()
	}
	before := CheckMarks(s.Reconciler)
	other := web()
	other.ID.Name, other.VIPs = "other", []VIP{{Addr: netip.MustParseAddr("100.64.0.9")}}
	other.Ports[0].Backends = []Backend{{Addr: be1, Weight: 1}}
	s.send(svc, other)
	if rep := mustSync(t, s.Reconciler, s.now); len(rep.Ops) == 0 || !same(before, CheckMarks(s.Reconciler)) {
		t.Errorf("another Service makes a new map; ops %v", rep.Ops)
	}
	s.send(checked(DirectRouting, "10.0.0.1"), other)
	mustSync(t, s.Reconciler, s.now)
	if now := CheckMarks(s.Reconciler); len(before) != 2 || len(now) != 1 {
		t.Errorf("a backend is removed: before %v, now %v", before, now)
	}
	s.send(other)
	mustSync(t, s.Reconciler, s.now)
	if now := CheckMarks(s.Reconciler); len(now) != 0 {
		t.Errorf("without checks of VIPs: %v", now)
	}
}

// many makes a Reconciler with n Services of b backends each.
func many(tb testing.TB, n, b int) (*Reconciler, []Service) {
	tb.Helper()
	services := make([]Service, n)
	for i := range services {
		s := web()
		s.ID.Name = fmt.Sprintf("s%d", i)
		s.VIPs = []VIP{{Addr: netip.AddrFrom4([4]byte{100, 64 + byte(i>>16), byte(i >> 8), byte(i)})}}
		for j := range b {
			a := netip.AddrFrom4([4]byte{10, byte(j), byte(i >> 8), byte(i)})
			s.Ports[0].Backends = append(s.Ports[0].Backends, Backend{Addr: netip.AddrPortFrom(a, 8080), Weight: 1})
		}
		services[i] = s
	}
	r := NewReconciler(&Fake{}, Options{Base: base}, "static")
	r.Update(put(services...))
	if _, err := r.Sync(context.Background(), testNow); err != nil {
		tb.Fatal(err)
	}
	return r, services
}

func BenchmarkReconciler(b *testing.B) {
	for _, n := range []int{10, 1_000, 10_000} {
		b.Run(fmt.Sprintf("one_backend_of_%d_services", n), func(b *testing.B) {
			r, services := many(b, n, 10)
			svc := services[n/2]
			all := svc.Ports[0].Backends
			i := 0
			for b.Loop() {
				i++
				changed := slices.Clone(all)
				changed[0].Weight = uint32(1 + i%2)
				svc.Ports = []Port{{Proto: TCP, Port: 80, Backends: changed}}
				r.Update(Update{Source: "static", Put: []Service{svc}})
				if _, err := r.Sync(context.Background(), testNow); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	b.Run("one_VIP_beside_10000_services", func(b *testing.B) {
		r, _ := many(b, 10_000, 10)
		svc := web()
		for i := 0; b.Loop(); i++ {
			svc.ID.Name, svc.VIPs = fmt.Sprint("new", i), []VIP{{Addr: netip.AddrFrom4([4]byte{100, 127, byte(i >> 8), byte(i)})}}
			r.Update(Update{Source: "static", Put: []Service{svc}})
			if _, err := r.Sync(context.Background(), testNow); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("marks_of_100000_checked_backends", func(b *testing.B) {
		r, services := many(b, 1, 0)
		for i := range 10_000 {
			svc := services[0]
			svc.ID.Name, svc.CheckVIPs = fmt.Sprint("checked", i), true
			svc.VIPs = []VIP{{Addr: netip.AddrFrom4([4]byte{100, 80, byte(i >> 8), byte(i)})}}
			svc.Ports = []Port{{Proto: TCP, Port: 80}}
			for j := range 10 {
				a := netip.AddrFrom4([4]byte{10, byte(j), byte(i >> 8), byte(i)})
				svc.Ports[0].Backends = append(svc.Ports[0].Backends, Backend{Addr: netip.AddrPortFrom(a, 80), Weight: 1, Forward: DirectRouting})
			}
			r.Update(Update{Source: "static", Put: []Service{svc}})
		}
		if _, err := r.Sync(context.Background(), testNow); err != nil {
			b.Fatal(err)
		}
		if n := len(CheckMarks(r)); n != 100_000 {
			b.Fatalf("%d marks", n)
		}
		for b.Loop() {
			CheckMarks(r)
		}
	})
	b.Run("plan_and_diff_10000x10", func(b *testing.B) {
		for b.Loop() {
			many(b, 10_000, 10)
		}
	})
}
