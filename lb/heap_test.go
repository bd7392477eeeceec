package lb

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"runtime"
	"slices"
	"testing"
	"time"
)

// heap returns the bytes in use, and garbage those allocated so far.
func heap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

func garbage() uint64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.TotalAlloc
}

// manyOf returns n Services with a VIP of a kind and so many backends each.
func manyOf(n, backends int, kind VIPKind) []Service {
	services := make([]Service, n)
	for i := range services {
		s := web()
		s.ID.Name = fmt.Sprintf("s%d", i)
		s.VIPs = []VIP{{Addr: netip.AddrFrom4([4]byte{100, 64 + byte(i>>16), byte(i >> 8), byte(i)}), Kind: kind}}
		for j := range backends {
			a := netip.AddrFrom4([4]byte{10, byte(j), byte(i >> 8), byte(i)})
			s.Ports[0].Backends = append(s.Ports[0].Backends, Backend{Addr: netip.AddrPortFrom(a, 8080), Weight: 1})
		}
		services[i] = s
	}
	return services
}

// BenchmarkHeap reports the memory of Services with ten backends: the heap of the State,
// which includes all that is kept of a plan; of have, beside it; the time and the
// garbage of an audit that finds no drift, how much of the time no change is possible, and how much
// of the garbage is the Observation. ClusterIPs have a member of SetLoopBack for each backend.
func BenchmarkHeap(b *testing.B) {
	const mib = 1 << 20
	for _, n := range []int{benchmarked(1_000), benchmarked(10_000)} {
		for _, kind := range []VIPKind{LoadBalancer, ClusterIP} {
			b.Run(fmt.Sprintf("%s=%d", kind, n), func(b *testing.B) {
				ctx := b.Context()
				for b.Loop() {
					k := &Fake{}
					r := NewReconciler(k, Options{Base: base}, "static")
					if err := r.Adopt(ctx); err != nil {
						b.Fatal(err)
					}
					r.Update(put(manyOf(n, 10, kind)...))
					empty := heap()
					r.due(testNow)
					state := heap() - empty
					if _, err := r.Sync(ctx, testNow); err != nil {
						b.Fatal(err)
					}
					k.held, k.of = nil, nil
					have := heap() - empty - state
					k.Put(slices.Collect(r.have.All())...)
					before := garbage()
					if _, err := k.Observe(ctx, &r.have.Table); err != nil {
						b.Fatal(err)
					}
					observed := garbage() - before
					before = garbage()
					start := time.Now()
					audit := r.BeginAudit()
					begun := time.Since(start)
					audit.Read(ctx, k)
					read := time.Since(start)
					if rep, err := r.EndAudit(ctx, testNow, audit); err != nil || len(rep.Ops)+len(rep.Drift) > 0 {
						b.Fatal(rep, err)
					}
					b.ReportMetric(float64(time.Since(start).Microseconds())/1000, "ms/audit")
					b.ReportMetric(float64((begun+time.Since(start)-read).Microseconds())/1000, "ms/blocked")
					b.ReportMetric(float64(garbage()-before)/mib, "MiB/audit")
					b.ReportMetric(float64(observed)/mib, "MiB/observation")
					b.ReportMetric(float64(state)/mib, "MiB/state")
					b.ReportMetric(float64(int64(have))/mib, "MiB/have")
					b.ReportMetric(float64(state)/float64(n), "B/frontend")
				}
			})
		}
	}
}

// TestHeapOfAState takes ClusterIPs, which have most objects: a member of SetLoopBack for each backend.
func TestHeapOfAState(t *testing.T) {
	const services, most = 10_000, 25 << 20
	r := NewReconciler(&Fake{}, Options{Base: base}, "static")
	if err := r.Adopt(t.Context()); err != nil {
		t.Fatal(err)
	}
	r.Update(put(manyOf(services, 10, ClusterIP)...))
	empty := heap()
	r.due(testNow)
	state := int64(heap() - empty)
	if n := len(r.want.wanted.fronts); n < services || state > most {
		t.Errorf("the State of %d frontends takes %d bytes, want %d frontends in at most %d", n, state, services, most)
	}
	t.Logf("%.1f MiB", float64(state)/(1<<20))
}

// BenchmarkRefused is the first Sync where the kernel has no scheduler module.
func BenchmarkRefused(b *testing.B) {
	for _, n := range []int{benchmarked(1_000), benchmarked(4_000)} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			services := manyOf(n, 10, ClusterIP)
			for b.Loop() {
				k := &Fake{Fail: func(op Op) error {
					if _, ok := op.Object.(VirtualServer); ok {
						return errors.New("there is no such scheduler")
					}
					return nil
				}}
				r := NewReconciler(k, Options{Base: base}, "static")
				r.Update(put(services...))
				if _, err := r.Sync(context.Background(), testNow); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func values(s Snapshot) []Object {
	out := make([]Object, 0, len(s))
	for _, o := range s {
		out = append(out, o)
	}
	return out
}
