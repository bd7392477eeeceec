package daemon

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
	"weir/k8ssync"
	"weir/k8ssync/ipam"
	"weir/lb"
)

// giver is a provider of a test.
type giver struct {
	run      func(ctx context.Context, n int32) error // of the nth time
	runs     atomic.Int32
	notes    []lb.Note
	stranded []ipam.Note
	status   k8ssync.ProviderStatus
	followed []map[string]*k8ssync.Cluster
	cfg      k8ssync.ProviderConfig
	asked    int // how often for its Status
}

func (g *giver) Configure(cfg k8ssync.ProviderConfig) { g.cfg = cfg }

func (g *giver) Follow(clusters map[string]*k8ssync.Cluster) {
	g.followed = append(g.followed, clusters)
}

func (g *giver) Run(ctx context.Context) error {
	return g.run(ctx, g.runs.Add(1))
}

func (g *giver) Changed() <-chan struct{} { return nil }

func (g *giver) Notes() []lb.Note { return g.notes }

func (g *giver) Status() k8ssync.ProviderStatus {
	g.asked++
	return g.status
}

func (g *giver) Stranded(ipam.Config) []ipam.Note { return g.stranded }

func (g *giver) TakeLatencies() []time.Duration { return nil }

func TestGivingAddressesBeginsWithThemAndAnewAfterAPanic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &giver{run: func(ctx context.Context, n int32) error {
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
		toGive := make(chan struct{})
		done := make(chan error)
		go func() { done <- provide(ctx, toGive, g, slog.New(slog.DiscardHandler)) }()
		time.Sleep(time.Hour)
		if n := g.runs.Load(); n != 0 {
			t.Errorf("without pools it has begun %d times", n)
		}
		close(toGive)
		time.Sleep(2*panicPause + time.Millisecond)
		if n := g.runs.Load(); n != 3 {
			t.Errorf("it has begun %d times", n)
		}
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

func TestNotesOfTheProviderAreShownAndNotToldTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, l := fakeBox(t, nil)
		b.probes = newHealthPorts(b.log, func() bool { return true })
		b.provider = &giver{notes: []lb.Note{{Service: shop("web"), Reason: lb.AddressPending, Text: "pool public is full"}}}
		want := []status.Note{{Service: "prod/shop/web", Reason: "address-pending", Text: "pool public is full"}}
		if diff := cmp.Diff(want, b.note()); diff != "" {
			t.Errorf("-want +got:\n%s", diff)
		}
		if told := l.towns[0].reported; len(told) != 0 {
			t.Errorf("the cluster is told %v", told)
		}
	})
}

func TestTheProviderIsAskedForNewsAloneAndNotOften(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, _ := fakeBox(t, nil)
		g := &giver{}
		b.provider, b.pooled = g, true
		b.ask(time.Now())
		time.Sleep(time.Hour)
		if b.ask(time.Now()); g.asked != 1 || !b.provided.next().IsZero() {
			t.Errorf("without news it is asked %d times, and again at %s", g.asked, b.provided.next())
		}
		began := time.Now()
		for time.Since(began) < time.Minute { // as while very many are given addresses
			b.given()
			b.ask(time.Now())
			time.Sleep(50 * time.Millisecond)
		}
		if most := 2 + int(time.Minute/askAgain); g.asked < most-1 || g.asked > most {
			t.Errorf("it is asked %d times in a minute", g.asked-1)
		}
		// What came last is not forgotten: the loop wakes for it.
		g.status.Home = "prod"
		b.given()
		time.Sleep(time.Until(b.provided.next()))
		if got := b.ask(time.Now()).addresses.Writer.Home; got != "prod" || !b.provided.next().IsZero() {
			t.Errorf("home %q, asked again at %s", got, b.provided.next())
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
	cfg := k8ssync.ProviderConfig{Home: "prod", Namespace: "weir-system", IPAM: ipam.Config{
		Pools:        []ipam.Pool{{Name: "public", Ranges: []ipam.Range{public}, Priority: 7, AutoAssign: true}},
		Reservations: []ipam.Reservation{{Service: shop("kept"), Addrs: []netip.Addr{addr("192.0.2.9")}}},
		ReleaseAfter: time.Minute,
	}}
	s := k8ssync.ProviderStatus{
		Home: "prod", Writer: "box1_a", Writing: true, Since: drainTime,
		Usage: ipam.Usage{
			Pools:   []ipam.PoolUsage{{Name: "public", Used: 2, Held: 1, Reserved: 1, Pending: map[ipam.Reason]int{ipam.PoolExhausted: 1}, Stranded: 1}},
			Pending: map[ipam.Reason]int{ipam.PoolExhausted: 1},
		},
		Claims: []ipam.Claim{
			{Addr: addr("192.0.2.1"), Holders: []ipam.Holder{{Service: shop("a")}, {Service: shop("b"), Released: drainTime}}},
			{Addr: addr("192.0.2.2"), Holders: []ipam.Holder{{Service: shop("c"), Released: drainTime}}},
			{Addr: addr("198.51.100.1"), Holders: []ipam.Holder{{Service: shop("d")}}},
		},
		Decisions: []k8ssync.Decision{
			{Service: shop("d"), Notes: []ipam.Note{{Service: shop("d"), Addr: addr("198.51.100.1"), Reason: ipam.PoolStranded, Text: "no pool has it"}}},
			{Service: shop("e"), Pending: ipam.Pending{Reason: ipam.PoolExhausted, Pool: "public", Text: "pool public is full"}},
		},
	}
	want := status.Pools{
		Pools: []status.Pool{{
			Name: "public", Ranges: []string{"192.0.2.0/24"}, Priority: 7, AutoAssign: true, Used: 2, Held: 1, Reserved: 1, Stranded: 1,
			Pending: map[string]int{"pool-exhausted": 1},
		}},
		Addresses: []status.PoolAddress{
			{Address: "192.0.2.1", Pool: "public", Services: []string{"prod/shop/a", "prod/shop/b"}, State: status.AddressUsed},
			{Address: "192.0.2.2", Pool: "public", Services: []string{"prod/shop/c"}, State: status.AddressHeld, Until: drainTime.Add(time.Minute)},
			{Address: "192.0.2.9", Pool: "public", Services: []string{"prod/shop/kept"}, State: status.AddressReserved},
			{Address: "198.51.100.1", Services: []string{"prod/shop/d"}, State: status.AddressUsed, Stranded: "no pool has it"},
		},
		Pending: []status.Pending{{Service: "prod/shop/e", Reason: "pool-exhausted", Text: "pool public is full"}},
		Writer:  status.Writer{Home: "prod", Holder: "box1_a", Me: true, Since: drainTime},
	}
	if diff := cmp.Diff(want, poolsDoc(cfg, s)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}

	b := &box{provider: &giver{status: s}}
	b.published.Store(&view{pooled: true, pools: cfg})
	var doc status.Explanation
	b.explainGiven(&doc, addr("192.0.2.1"))
	given := &status.Given{Pool: "public", Claim: "lease weir-system/weir-192.0.2.1 of cluster prod", State: status.AddressUsed, Services: []string{"prod/shop/a", "prod/shop/b"}}
	if diff := cmp.Diff(given, doc.Address); diff != "" {
		t.Errorf("explained (-want +got):\n%s", diff)
	}
	doc = status.Explanation{}
	if b.explainGiven(&doc, addr("203.0.113.1")); doc.Address != nil {
		t.Errorf("an address of nobody's: %+v", doc.Address)
	}
}
