package lb

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
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

// A change costs no marks of Services that it does not concern.
func TestMarksOfChecksAreOfChangedServices(t *testing.T) {
	t.Parallel()
	r, _ := many(t, 10, 1)
	svc, two := checked(DirectRouting, "10.0.0.1"), checked(DirectRouting, "10.0.0.1", "10.0.0.2")
	other := web()
	other.ID.Name, other.VIPs = "other", []VIP{{Addr: netip.MustParseAddr("100.127.0.9")}}
	other.Ports[0].Backends = []Backend{{Addr: be1, Weight: 1}}
	for _, tt := range []struct {
		name   string
		change Update
		want   map[ServiceID]int
	}{
		{"checks of VIPs", put(two), map[ServiceID]int{two.ID: 2}},
		{"another Service", Update{Source: "static", Put: []Service{other}}, map[ServiceID]int{}},
		{"a backend less", Update{Source: "static", Put: []Service{svc}}, map[ServiceID]int{svc.ID: 1}},
		{"no Service", Update{Source: "static", Delete: []ServiceID{svc.ID}}, map[ServiceID]int{svc.ID: 0}},
	} {
		r.Update(tt.change)
		if rep, err := r.Sync(t.Context(), testNow); err != nil || len(rep.Ops) == 0 {
			t.Fatalf("%s: %v %v", tt.name, rep, err)
		}
		got := map[ServiceID]int{}
		for id, marks := range CheckMarks(r) {
			got[id] = len(marks)
		}
		if !maps.Equal(got, tt.want) {
			t.Errorf("%s: marks of %v, want %v", tt.name, got, tt.want)
		}
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

// benchmarked is n, or with -short a tenth of it: all of the code, and no figure that means much.
func benchmarked(n int) int {
	if testing.Short() {
		return n / 10
	}
	return n
}

func BenchmarkReconciler(b *testing.B) {
	b.Run("first_sync_of_1000_services", func(b *testing.B) {
		for b.Loop() {
			many(b, 1000, 10)
		}
	})
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
	n := benchmarked(10_000)
	b.Run(fmt.Sprintf("marks_of_%d_checked_backends", 10*n), func(b *testing.B) {
		r, services := many(b, 1, 0)
		for i := range n {
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
		if marked := len(CheckMarks(r)); marked != n {
			b.Fatalf("%d Services", marked)
		}
		svc, _ := r.catalog.Get(ServiceID{Source: "static", Name: "checked0"})
		all := svc.Ports[0].Backends
		for i := 0; b.Loop(); i++ {
			svc.Ports = []Port{{Proto: TCP, Port: 80, Backends: all[i%2:]}}
			r.Update(Update{Source: "static", Put: []Service{svc}})
			if _, err := r.Sync(context.Background(), testNow); err != nil {
				b.Fatal(err)
			}
			if n := len(CheckMarks(r)); n > 1 {
				b.Fatalf("%d Services", n)
			}
		}
	})
	b.Run(fmt.Sprintf("plan_and_diff_%dx10", n), func(b *testing.B) {
		for b.Loop() {
			many(b, n, 10)
		}
	})
}
