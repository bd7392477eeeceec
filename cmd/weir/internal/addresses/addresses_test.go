package addresses

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"weir/cmd/weir/internal/status"
	"weir/cmd/weir/internal/status/explain"
	"weir/cmd/weir/internal/supervise"
	"weir/k8ssync"
	"weir/k8ssync/ipam"
	"weir/lb"
)

// fakeAllocator is an allocator of a test.
type fakeAllocator struct {
	run      func(ctx context.Context, n int32) error // of the nth time
	runs     atomic.Int32
	notes    []lb.Note
	outside  []ipam.Note
	status   k8ssync.ProviderStatus
	followed []map[string]*k8ssync.Cluster
	asked    int // how often for its Summary
}

func (g *fakeAllocator) Configure(k8ssync.ProviderConfig) {}

func (g *fakeAllocator) Follow(clusters map[string]*k8ssync.Cluster) {
	g.followed = append(g.followed, clusters)
}

func (g *fakeAllocator) Run(ctx context.Context) error {
	return g.run(ctx, g.runs.Add(1))
}

func (g *fakeAllocator) Changed() <-chan struct{} { return nil }

func (g *fakeAllocator) Summary() (k8ssync.ProviderStatus, []lb.Note) {
	g.asked++
	return g.status, g.notes
}

func (g *fakeAllocator) Status() k8ssync.ProviderStatus { return g.status }

func (g *fakeAllocator) Counters() k8ssync.ProviderCounters { return g.status.Counters }

func (g *fakeAllocator) OutsidePool(ipam.Config) []ipam.Note { return g.outside }

func (g *fakeAllocator) TakeLatencies() []time.Duration { return nil }

// poolsOf returns pools with an allocator of a test.
func poolsOf(a Allocator, cfg k8ssync.ProviderConfig) *Pools {
	return New(cfg, slog.New(slog.DiscardHandler), func(k8ssync.ProviderConfig, *slog.Logger) Allocator { return a })
}

// onePool is a configuration with a pool.
func onePool(t *testing.T) k8ssync.ProviderConfig {
	t.Helper()
	r, err := ipam.ParseRange("198.51.100.0/28")
	if err != nil {
		t.Fatal(err)
	}
	return k8ssync.ProviderConfig{IPAM: ipam.Config{Pools: []ipam.Pool{{Name: "public", Ranges: []ipam.Range{r}}}}}
}

func shop(name string) lb.ServiceID {
	return lb.ServiceID{Source: "prod", Namespace: "shop", Name: name}
}

var drainTime = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func TestRunBeginsWithPoolsAndRestartsAfterAPanic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &fakeAllocator{run: func(ctx context.Context, n int32) error {
			switch n {
			case 1:
				panic("nil map")
			case 2:
				return errors.New("no way")
			}
			<-ctx.Done()
			return nil
		}}
		ctx, stop := context.WithCancel(t.Context())
		p := poolsOf(g, k8ssync.ProviderConfig{})
		done := make(chan error)
		go func() { done <- p.Run(ctx) }()
		time.Sleep(time.Hour)
		if n := g.runs.Load(); n != 0 {
			t.Errorf("without pools it has begun %d times", n)
		}
		p.Configure(onePool(t))
		time.Sleep(2*supervise.Pause + time.Millisecond)
		if n := g.runs.Load(); n != 3 {
			t.Errorf("it has begun %d times", n)
		}
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

func TestTheAllocatorIsAskedAfterChangesAndNotOften(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &fakeAllocator{}
		p := poolsOf(g, onePool(t))
		// The first one has an error, as nothing has been read: the next one comes soon.
		p.Summary(time.Now())
		p.Receive()
		if in := time.Until(p.Next()); in != errorInterval {
			t.Errorf("after an error it is asked in %s", in)
		}
		g.status.LeaseCluster = "first"
		time.Sleep(errorInterval)
		p.Summary(time.Now())
		g.asked = 1
		time.Sleep(time.Hour)
		if p.Summary(time.Now()); g.asked != 1 || !p.Next().IsZero() {
			t.Errorf("without news it is asked %d times, and again at %s", g.asked, p.Next())
		}
		began := time.Now()
		for time.Since(began) < time.Minute { // as while very many are given addresses
			p.Receive()
			p.Summary(time.Now())
			time.Sleep(50 * time.Millisecond)
		}
		if most := 2 + int(time.Minute/askInterval); g.asked < most-1 || g.asked > most {
			t.Errorf("it is asked %d times in a minute", g.asked-1)
		}
		// What came last is not forgotten: the loop wakes for it.
		g.status.LeaseCluster = "prod"
		p.Receive()
		time.Sleep(time.Until(p.Next()))
		if got := p.Summary(time.Now()).Addresses.Writer.Cluster; got != "prod" || !p.Next().IsZero() {
			t.Errorf("home %q, asked again at %s", got, p.Next())
		}
	})
}

// Readers get the result of the last pass, and new counters. A reload does not wait for the interval.
func TestReadersDoNotAskTheAllocator(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &fakeAllocator{}
		p := poolsOf(g, k8ssync.ProviderConfig{})
		p.Summary(time.Now())
		if v := p.View(); v.Summary() != nil || v.Numbers() != nil {
			t.Errorf("without pools: %+v, %+v", v.Summary(), v.Numbers())
		}
		p.Configure(onePool(t))
		g.status.Usage.Pools = []ipam.PoolUsage{{Name: "public", Used: 7}}
		p.Summary(time.Now())
		g.status.Counters.Errors = 3
		for range 100 {
			v := p.View()
			if s, n := v.Summary(), v.Numbers(); s.Used != 7 || n.Usage.Pools[0].Used != 7 || n.Counters.Errors != 3 {
				t.Fatalf("%+v, %+v", s, n)
			}
		}
		if g.asked != 2 {
			t.Errorf("the allocator is asked %d times for two passes", g.asked)
		}
	})
}

func TestPoolsAreShown(t *testing.T) {
	t.Parallel()
	addr := netip.MustParseAddr
	public, err := ipam.ParseRange("192.0.2.0/24")
	if err != nil {
		t.Fatal(err)
	}
	cfg := k8ssync.ProviderConfig{LeaseCluster: "prod", Namespace: "weir-system", IPAM: ipam.Config{
		Pools:        []ipam.Pool{{Name: "public", Ranges: []ipam.Range{public}, Priority: 7, AutoAssign: true}},
		Reservations: []ipam.Reservation{{Service: shop("kept"), Addrs: []netip.Addr{addr("192.0.2.9")}}},
		Retention:    time.Minute,
	}}
	s := k8ssync.ProviderStatus{
		LeaseCluster: "prod", Writer: "box1_a", Writing: true, Since: drainTime,
		Usage: ipam.Usage{
			Pools:   []ipam.PoolUsage{{Name: "public", Used: 2, Retained: 1, Reserved: 1, Pending: map[ipam.Reason]int{ipam.PoolExhausted: 1}, OutsidePool: 1}},
			Pending: map[ipam.Reason]int{ipam.PoolExhausted: 1}, OutsidePool: 2,
		},
		Claims: []ipam.Claim{
			{Addr: addr("192.0.2.1"), Holders: []ipam.Holder{{Service: shop("a")}, {Service: shop("b"), Released: drainTime}}},
			{Addr: addr("192.0.2.2"), Holders: []ipam.Holder{{Service: shop("c"), Released: drainTime}}},
			{Addr: addr("198.51.100.1"), Holders: []ipam.Holder{{Service: shop("d")}}},
		},
		Decisions: []k8ssync.Decision{
			{Service: shop("d"), Notes: []ipam.Note{{Service: shop("d"), Addr: addr("198.51.100.1"), Reason: ipam.OutsidePool, Text: "no pool has it"}}},
			{Service: shop("e"), Pending: ipam.Pending{Reason: ipam.PoolExhausted, Pool: "public", Rule: "pool public is full"}},
		},
		IgnoredNodes: map[string]k8ssync.IgnoredNodes{"trial": {Count: 1, First: []netip.Addr{addr("192.0.2.8")}}, "prod": {}, "test": {Count: 9, First: []netip.Addr{addr("192.0.2.7")}}},
	}
	want := status.Pools{
		Pools: []status.Pool{{
			Name: "public", Ranges: []string{"192.0.2.0/24"}, Priority: 7, AutoAssign: true, Used: 2, Retained: 1, Reserved: 1, OutsidePool: 1,
			Pending: map[string]int{"pool-exhausted": 1},
		}},
		Addresses: []status.PoolAddress{
			{Address: "192.0.2.1", Pool: "public", Services: []string{"prod/shop/a", "prod/shop/b"}, State: status.AddressUsed},
			{Address: "192.0.2.2", Pool: "public", Services: []string{"prod/shop/c"}, State: status.AddressRetained, Until: drainTime.Add(time.Minute)},
			{Address: "192.0.2.9", Pool: "public", Services: []string{"prod/shop/kept"}, State: status.AddressReserved},
			{Address: "198.51.100.1", Services: []string{"prod/shop/d"}, State: status.AddressUsed, OutsidePool: "no pool has it"},
		},
		Pending: []status.Pending{{Service: "prod/shop/e", Reason: "pool-exhausted", Text: "pool public is full"}},
		Writer:  status.Writer{Cluster: "prod", Holder: "box1_a", Self: true, Since: drainTime},
		IgnoredNodes: []status.IgnoredNodes{
			{Cluster: "test", Count: 9, Addresses: []string{"192.0.2.7"}}, {Cluster: "trial", Count: 1, Addresses: []string{"192.0.2.8"}},
		},
	}
	if diff := cmp.Diff(want, poolsDoc(cfg, s)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}

	view := View{&fakeAllocator{status: s}, cfg, true, Summary{}}
	given := &explain.Assigned{Pool: "public", Claim: "lease weir-system/weir-192.0.2.1 of cluster prod", State: status.AddressUsed, Services: []string{"prod/shop/a", "prod/shop/b"}}
	if diff := cmp.Diff(given, view.Explain(addr("192.0.2.1"))); diff != "" {
		t.Errorf("explained (-want +got):\n%s", diff)
	}
	if got := view.Explain(addr("203.0.113.1")); got != nil {
		t.Errorf("an address of no pool: %+v", got)
	}
}
