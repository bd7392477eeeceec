package advertise

import (
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"weir/cmd/weirlab/histories"
	"weir/lb"
)

var (
	exact   = cmp.Options{cmp.Comparer(func(a, b netip.Addr) bool { return a == b }), cmp.Comparer(func(a, b netip.Prefix) bool { return a == b }), cmpopts.EquateEmpty()}
	testNow = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
)

// history drives an Advertiser, another one with the same input in another order,
// the model, and what a Speaker has by now.
type history struct {
	*testing.T
	g          *gen
	adv, other *Advertiser
	model      *model
	speaker    map[netip.Prefix][]Path
	now        time.Time
	labels     map[lb.ServiceID]map[string]string
	ever       map[string]bool // what has happened at all
}

func (h *history) labelsOf(id lb.ServiceID) map[string]string { return h.labels[id] }

// event makes one random thing happen, and gives what it was.
func (h *history) event() string {
	h.now = h.now.Add(pick(h.g, 0, 0, time.Second, 5*time.Second, 20*time.Second, 70*time.Second))
	if h.g.chance(5) {
		h.now = h.now.Add(-time.Minute) // a clock may be put back
	}
	var changes, again map[netip.Prefix][]Path
	var what string
	switch n := h.g.IntN(100); {
	case n < 60:
		// Of two that lose their backends in the same instant, but not in one call, it
		// does not matter which is kept.
		h.now = h.adv.now.Add(pick(h.g, time.Millisecond, 5*time.Second))
		routes := h.g.routes()
		what = fmt.Sprint("take ", routes)
		changes = h.adv.Take(routes, h.labelsOf, h.now)
		h.g.Shuffle(len(routes), func(i, j int) { routes[i], routes[j] = routes[j], routes[i] })
		again = h.other.Take(routes, h.labelsOf, h.now)
		h.model.step(h.now)
		h.model.take(routes)
	case n < 75:
		d := h.g.drains()
		what = fmt.Sprint("drain ", d)
		changes, again = h.adv.Drain(d, h.now), h.other.Drain(d, h.now)
		h.model.step(h.now)
		h.model.drain(d)
	case n < 85:
		roles := h.g.roles()
		what = fmt.Sprint("assign ", roles)
		changes, again = h.adv.Assign(roles, h.now), h.other.Assign(roles, h.now)
		h.model.step(h.now)
		h.model.assign(roles)
	case n < 90:
		p := h.g.policy()
		what = fmt.Sprintf("configure %+v", p)
		changes, again = h.adv.Configure(p, h.now), h.other.Configure(p, h.now)
		h.model.configure(p, h.now)
	default:
		what = "advance"
		if due := h.adv.Next(); !due.IsZero() && h.g.chance(50) {
			h.nothingBefore(due)
			h.now = due
		}
		changes, again = h.adv.Advance(h.now), h.other.Advance(h.now)
		h.model.step(h.now)
		h.model.release()
	}
	h.same("the same in another order: "+what, changes, again)
	h.apply(what, changes)
	return what
}

func (h *history) same(what string, want, got map[netip.Prefix][]Path) {
	h.Helper()
	if !maps.EqualFunc(want, got, func(x, y []Path) bool { return slices.EqualFunc(x, y, Path.Equal) }) {
		h.Fatalf("%s (-want +got):\n%s", what, cmp.Diff(want, got, exact))
	}
}

// nothingBefore checks that Next is not too late.
func (h *history) nothingBefore(due time.Time) {
	if just := due.Add(-time.Nanosecond); just.After(h.adv.now) {
		if changes := h.adv.Advance(just); changes != nil {
			h.Fatalf("something was due before Next: %v", changes)
		}
		h.other.Advance(just)
		h.model.step(just)
	}
}

// apply gives the changes to the Speaker. They must be just the differences.
func (h *history) apply(what string, changes map[netip.Prefix][]Path) {
	for prefix, paths := range changes {
		if slices.EqualFunc(paths, h.speaker[prefix], Path.Equal) {
			h.Fatalf("after %s: told of %s, which has not changed", what, prefix)
		}
		if len(paths) == 0 {
			delete(h.speaker, prefix)
			continue
		}
		h.speaker[prefix] = paths
	}
}

// check holds the laws.
func (h *history) check(what string) {
	h.same("from nothing, after "+what, h.model.announced(), h.speaker)
	h.same("Announced, after "+what, h.adv.Announced(), h.speaker)
	var wide []netip.Prefix
	for prefix, paths := range h.speaker {
		seen := map[string]bool{}
		for _, p := range paths {
			for _, peer := range p.Peers {
				if seen[peer] {
					h.Fatalf("after %s: two paths of %s for %s: %v", what, prefix, peer, paths)
				}
				seen[peer] = true
			}
		}
		if !prefix.IsSingleIP() {
			wide = append(wide, prefix)
		}
	}
	slices.SortFunc(wide, netip.Prefix.Compare)
	if diff := cmp.Diff(wide, h.adv.Aggregates(), exact); diff != "" {
		h.Fatalf("after %s: aggregates (-announced +told):\n%s", what, diff)
	}
	h.checkExplained(what)
}

// checkExplained holds that the explanation of each VIP is what the peers receive.
func (h *history) checkExplained(what string) {
	covered := map[netip.Prefix]map[string]bool{} // by VIPs that are announced
	for _, x := range h.adv.All() {
		h.ever[string(x.Reason)] = true
		v := h.model.vips[x.Addr]
		if announces(x.Reason) != h.model.onAir(x.Addr, v) {
			h.Fatalf("after %s: %s is said to be %s", what, x.Addr, x.Reason)
		}
		if (x.Reason == MinAnnounced) != (announces(x.Reason) && v.withheld != "") {
			h.Fatalf("after %s: %s has no backends and is %s", what, x.Addr, x.Reason)
		}
		if (x.Reason == ReannounceDelay) && !x.Until.After(h.adv.now) {
			h.Fatalf("after %s: %s is held down until %s", what, x.Addr, x.Until)
		}
		for _, p := range x.Peers {
			if p.Prefix.IsValid() != slices.ContainsFunc(h.speaker[p.Prefix], func(path Path) bool { return slices.Contains(path.Peers, p.Peer) }) {
				h.Fatalf("after %s: %s hears of %s by %s, it is said", what, p.Peer, x.Addr, p.Prefix)
			}
			if announces(p.Reason) {
				if covered[p.Prefix] == nil {
					covered[p.Prefix] = map[string]bool{}
				}
				covered[p.Prefix][p.Peer] = true
			}
		}
	}
	for prefix, paths := range h.speaker {
		for _, path := range paths {
			for _, peer := range path.Peers {
				if !covered[prefix][peer] {
					h.Fatalf("after %s: %s hears of %s for no VIP's sake", what, peer, prefix)
				}
			}
		}
	}
}

// At every moment of any history, the announcements are those that a computation from
// scratch would give, and the Speaker has received only the differences.
func TestLawsOfAnyHistory(t *testing.T) {
	const n = 80
	ever := make([]map[string]bool, histories.Times(n))
	t.Run("histories", func(t *testing.T) {
		seeds(t, n, func(t *testing.T, g *gen) {
			h := &history{
				T: t, g: g, adv: New(), other: New(), model: newModel(),
				speaker: map[netip.Prefix][]Path{}, now: testNow, ever: map[string]bool{},
				labels: map[lb.ServiceID]map[string]string{{Source: "prod", Namespace: "shop", Name: "web"}: {"tier": "gold"}},
			}
			h.model.labels = h.labels
			p := g.policy()
			h.apply("the start", h.adv.Configure(p, h.now))
			h.other.Configure(p, h.now)
			h.model.configure(p, h.now)
			for range 80 {
				h.check(h.event())
			}
			var seed int
			_, _ = fmt.Sscanf(t.Name()[len("TestLawsOfAnyHistory/histories/"):], "seed=%d", &seed)
			ever[seed] = h.ever
		})
	})
	all := map[string]bool{}
	for _, e := range ever {
		maps.Copy(all, e)
	}
	for _, r := range []Reason{Announced, OnStandby, MinAnnounced, Draining, ReannounceDelay, Withdrawn, ServedElsewhere, NoBackend, NotProgrammed, NotServed, NoRule, Refused, NoFamily, NobodyThere} {
		if !all[string(r)] {
			t.Errorf("no history has come to %s: it proves nothing of that", r)
		}
	}
}

// However many VIPs lose their backends, in whatever order and company, the share of
// the floor stays announced.
func TestLawFloor(t *testing.T) {
	seeds(t, 50, func(t *testing.T, g *gen) {
		share := float64(1+g.IntN(100)) / 100
		n := 4 + g.IntN(60)
		a := New()
		a.Configure(Policy{Rules: []Rule{DefaultRule()}, Peers: []Peer{{Name: "tor"}}, MinAnnounced: share, ReannounceDelay: 5 * time.Second}, testNow)
		var routes []lb.Route
		for i := range n {
			routes = append(routes, good(i))
		}
		a.Take(routes, nil, testNow)
		now := testNow
		for _, i := range g.Perm(n) {
			now = now.Add(time.Duration(g.IntN(int(time.Minute) / n))) // all within the window
			a.Take([]lb.Route{bad(i)}, nil, now)
		}
		want := int(math.Ceil(share*float64(n) - 1e-9))
		if got := len(a.Announced()); got != want {
			t.Fatalf("%d of %d VIPs are announced with a floor of %g, want %d", got, n, share, want)
		}
		// And so it is hours later.
		a.Advance(now.Add(5 * time.Hour))
		a.Take([]lb.Route{bad(0)}, nil, now.Add(5*time.Hour))
		if got := len(a.Announced()); got != want {
			t.Fatalf("five hours later: %d of %d VIPs, want %d", got, n, want)
		}
	})
}

// vipOf gives the nth VIP of a test.
func vipOf(i int) netip.Addr {
	return netip.AddrFrom4([4]byte{192, 0, byte(2 + i>>8), byte(i)})
}

func good(i int) lb.Route {
	return lb.Route{Addr: vipOf(i), Serves: []lb.Serving{{Service: lb.ServiceID{Source: "prod", Namespace: "shop", Name: "web"}, Kind: lb.LoadBalancer}}}
}

func bad(i int) lb.Route { return lb.Route{Addr: vipOf(i), Withheld: lb.NoLiveBackend} }

// One VIP that comes or goes changes one prefix, with ten VIPs as with ten thousand.
func TestOneVIPIsOneChange(t *testing.T) {
	allocs := map[int]float64{}
	for _, n := range []int{10, 10_000} {
		a := many(n)
		allocs[n] = testing.AllocsPerRun(100, func() {
			a.Take([]lb.Route{{Addr: vipOf(7), Withheld: lb.Gone}}, nil, testNow)
			a.Take([]lb.Route{good(7)}, nil, testNow)
		})
		for _, routes := range [][]lb.Route{{{Addr: vipOf(7), Withheld: lb.Gone}}, {good(7)}} {
			if changes := a.Take(routes, nil, testNow); len(changes) != 1 {
				t.Errorf("%d VIPs: %d changes", n, len(changes))
			}
		}
		if changes := a.Take([]lb.Route{good(7)}, nil, testNow); changes != nil {
			t.Errorf("%d VIPs: nothing new changes %v", n, changes)
		}
	}
	if allocs[10_000] > allocs[10]+2 {
		t.Errorf("the same change costs %g allocations of ten VIPs, %g of ten thousand", allocs[10], allocs[10_000])
	}
}

// many makes an Advertiser of n VIPs.
func many(n int) *Advertiser {
	a := New()
	rule := DefaultRule()
	rule.Communities = []Community{NoExport}
	a.Configure(Policy{Rules: []Rule{rule}, Peers: []Peer{{Name: "tor1"}, {Name: "tor2"}}, ReannounceDelay: 5 * time.Second, MinAnnounced: 0.5}, testNow)
	routes := make([]lb.Route, n)
	for i := range routes {
		routes[i] = good(i)
	}
	a.Take(routes, nil, testNow)
	return a
}

func BenchmarkAdvertiser(b *testing.B) {
	for _, n := range []int{10, 1_000, 10_000} {
		b.Run(fmt.Sprintf("one_gone_and_back_of_%d_vips", n), func(b *testing.B) {
			a := many(n)
			for b.Loop() {
				a.Take([]lb.Route{{Addr: vipOf(n / 2), Withheld: lb.Gone}}, nil, testNow)
				a.Take([]lb.Route{good(n / 2)}, nil, testNow)
			}
		})
		b.Run(fmt.Sprintf("one_flap_of_%d_vips", n), func(b *testing.B) {
			a, now := many(n), testNow
			for b.Loop() {
				a.Take([]lb.Route{bad(n / 2)}, nil, now)
				a.Take([]lb.Route{good(n / 2)}, nil, now)
				now = now.Add(5 * time.Second)
				if a.Advance(now) == nil {
					b.Fatal("nothing came back")
				}
			}
		})
	}
	b.Run("all_of_10000_vips_anew", func(b *testing.B) {
		rnd := rand.New(rand.NewPCG(1, 1))
		routes := make([]lb.Route, 10_000)
		for i, j := range rnd.Perm(len(routes)) {
			routes[i] = good(j)
		}
		for b.Loop() {
			a := many(0)
			a.Take(routes, nil, testNow)
		}
	})
}
