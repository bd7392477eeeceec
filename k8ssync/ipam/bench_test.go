package ipam

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"weir/lb"
)

// allocate gives n Services of one family an address each, and nothing goes wrong.
func allocate(tb testing.TB, a *Allocator, from, n int, f lb.Family) {
	tb.Helper()
	for i := from; i < from+n; i++ {
		r := Request{
			ID: lb.ServiceID{Source: "prod", Namespace: "shop", Name: fmt.Sprint("s", i)}, UID: "u", Version: "1",
			Created: start.Add(time.Duration(i) * time.Second), Required: []lb.Family{f},
		}
		a.Put(r)
		confirm(tb, a)
	}
}

// confirm carries out the decisions, as the writer does.
func confirm(tb testing.TB, a *Allocator) {
	tb.Helper()
	var version uint64 = 1
	for {
		d, ok := a.Next(start)
		if !ok {
			return
		}
		if d.Pending.Reason != "" {
			tb.Fatalf("%+v", d.Pending)
		}
		for _, w := range d.Writes {
			w.Claim.Version = version
			a.Learn(w.Claim)
			a.Done(w.Claim.Addr)
		}
		if r := a.requests[d.Service]; len(d.Writes) == 0 && len(r.Status) == 0 {
			next := *r
			next.Status, next.Version = d.Addrs, "2"
			a.Put(next)
		}
	}
}

func benchPool(tb testing.TB, text string) *Allocator {
	a := New(Config{Pools: []Pool{{Name: "p", Ranges: ranges(tb, text), AutoAssign: true, AvoidFirstLast: true}}, Retention: after})
	a.Synced("prod", true)
	return a
}

// BenchmarkAllocate is one allocation, from the Service's creation to its status, with so
// many claims before it.
func BenchmarkAllocate(b *testing.B) {
	for _, bench := range []struct {
		pool   string
		f      lb.Family
		before int
	}{
		{"10.0.0.0/8", lb.IPv4, 0}, {"10.0.0.0/8", lb.IPv4, 10_000}, {"10.0.0.0/8", lb.IPv4, 60_000},
		{"2001:db8::/64", lb.IPv6, 0}, {"2001:db8::/64", lb.IPv6, 10_000}, {"2001:db8::/64", lb.IPv6, 60_000},
	} {
		b.Run(fmt.Sprintf("%v/before=%d", bench.f, bench.before), func(b *testing.B) {
			a := benchPool(b, bench.pool)
			allocate(b, a, 0, bench.before, bench.f)
			b.ReportAllocs()
			b.ResetTimer()
			allocate(b, a, bench.before, b.N, bench.f)
		})
	}
}

// Benchmark10000 is the first ten thousand Services of a cluster.
func Benchmark10000(b *testing.B) {
	for _, bench := range []struct {
		pool string
		f    lb.Family
	}{{"10.1.0.0/16", lb.IPv4}, {"2001:db8::/64", lb.IPv6}} {
		b.Run(bench.pool, func(b *testing.B) {
			for range b.N {
				allocate(b, benchPool(b, bench.pool), 0, 10_000, bench.f)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/10_000, "ns/address")
		})
	}
}

// nearlyFull has one free address, somewhere in the middle of a /16.
func nearlyFull(tb testing.TB) (*Allocator, netip.Addr) {
	a := benchPool(tb, "10.1.0.0/16")
	free := addr("10.1.128.7")
	var claims []Claim
	for x := addr("10.1.0.1"); x != addr("10.1.255.255"); x = x.Next() {
		if x != free {
			claims = append(claims, Claim{Addr: x, Version: 1})
		}
	}
	a.Relist(1, claims, Intake{})
	return a, free
}

// BenchmarkNearlyFull takes the one free address of a /16 and gives it back, over and
// over.
func BenchmarkNearlyFull(b *testing.B) {
	a, free := nearlyFull(b)
	a.Retention = 0
	id := lb.ServiceID{Source: "prod", Namespace: "shop", Name: "web"}
	version := uint64(2)
	b.ReportAllocs()
	for range b.N {
		a.Put(Request{ID: id, UID: "u", Version: "1", Required: []lb.Family{lb.IPv4}})
		d := a.Decide(id, start)
		if len(d.Writes) != 1 || d.Writes[0].Claim.Addr != free {
			b.Fatalf("%+v", d)
		}
		c := d.Writes[0].Claim
		c.Version = version
		a.Learn(c)
		a.Done(free)
		a.Delete(id)
		a.Gone(free, version)
		version++
	}
}

// TestTheCostOfAnAllocationIsFlat counts steps, not time, which a machine under load
// disturbs.
func TestTheCostOfAnAllocationIsFlat(t *testing.T) {
	for _, before := range []int{100, 20_000} {
		a := benchPool(t, "10.1.0.0/16")
		allocate(t, a, 0, before, lb.IPv4)
		i := before
		got := testing.AllocsPerRun(100, func() { allocate(t, a, i, 1, lb.IPv4); i++ })
		if s := a.spans[0]; got > 120 || s.next != a.lowest(s) || len(s.freed.items) > 0 {
			t.Errorf("with %d before: %v allocations, at %v", before, got, s.next)
		}
	}
	a, free := nearlyFull(t)
	r := request("web")
	a.Put(r)
	if d, _ := a.Next(start); len(d.Writes) != 1 || d.Writes[0].Claim.Addr != free {
		t.Errorf("%+v", d)
	}
	r = request("next")
	a.Put(r)
	if d, _ := a.Next(start); d.Pending.Reason != PoolExhausted {
		t.Errorf("%+v", d)
	}
	// All of them have been decided by now, and are not again.
	if s := a.spans[0]; !s.Last.Less(s.next) || a.lowest(s).IsValid() {
		t.Errorf("the search is at %v", s.next)
	}
}
