package lb

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// table has the routes that routers have: those of Routes, without those that are Leaving.
type table map[netip.Addr][]Serving

func (tab table) take(t *testing.T, r *Reconciler) {
	t.Helper()
	routes, err := r.Routes(context.Background())
	must(t, err)
	for _, route := range routes {
		if (len(route.Serves) > 0) != (route.Withheld == "") {
			t.Errorf("%+v: somebody serves, or there is a reason", route)
		}
		delete(tab, route.Addr)
		if len(route.Serves) > 0 {
			tab[route.Addr] = route.Serves
		}
	}
}

// answering returns the frontends at which a client outside is answered, or at which
// the operator has shut some clients out.
func answering(k *Fake, frontends []Frontend) map[Frontend]bool {
	out := map[Frontend]bool{}
	for _, f := range frontends {
		if k.has(tuple(SetFirewall, f)) {
			out[f] = true
		}
		for _, c := range clients {
			if c.Is4() == f.Addr.Is4() && !k.inside(c) && k.Connect(c, f).Fate == Served {
				out[f] = true
			}
		}
	}
	return out
}

// dead returns the addresses that clients are routed to and where no backend answers.
func (tab table) dead(answers map[Frontend]bool) []netip.Addr {
	alive := map[netip.Addr]bool{}
	for f := range answers {
		alive[f.Addr] = true
		for a := range tab {
			if f.Given && FamilyOf(a) == FamilyOf(f.Addr) { // any address may have the mark
				alive[a] = true
			}
		}
	}
	var out []netip.Addr
	for a := range tab {
		if !alive[a] {
			out = append(out, a)
		}
	}
	return out
}

// A Service that changes all the ports of a VIP at once cuts its clients anyway;
// its route may stay meanwhile.
func TestLawRoutesOnlyToAddressesThatAnswer(t *testing.T) {
	seeds(t, 75, func(t *testing.T, g *gen) {
		k := g.kernel()
		opts := g.options()
		told := table{}
		opts.Leaving = func(addrs []netip.Addr) {
			for _, a := range addrs {
				if told[a] == nil {
					t.Errorf("%s leaves, and nobody was sent there", a)
				}
				delete(told, a)
			}
		}
		r := NewReconciler(k, opts, "static")
		var frontends []Frontend
		gaps := map[netip.Addr]string{}
		k.After = func(op Op) {
			for _, a := range told.dead(answering(k, frontends)) {
				gaps[a] = op.String()
			}
		}
		now := testNow
		var before []Service
		for range 6 {
			services := g.services()
			frontends = k.allFrontends(before, services)
			was := answering(k, frontends)
			r.Update(Update{Source: "static", Put: services, Delete: goneFrom(before, services), Synced: true})
			r.SetHealth(g.health(services), true)
			before = services
			for range 2 {
				mustSync(t, r, now)
				told.take(t, r)
				now = now.Add(2 * time.Minute)
			}
			is := answering(k, frontends)
			for a, after := range gaps {
				at := func(f Frontend) bool { return f.Addr == a && is[f] }
				stays := slices.ContainsFunc(frontends, func(f Frontend) bool { return at(f) && was[f] })
				if stays || !slices.ContainsFunc(frontends, at) {
					t.Errorf("after %s clients are sent to %s, and nobody answers", after, a)
				}
			}
			clear(gaps)
			if dead := told.dead(is); len(dead) > 0 {
				t.Errorf("clients are sent to %s, and nobody answers", dead)
			}
			told.wantWhole(t, r)
		}
	})
}

// goneFrom returns the Services that are not among others.
func goneFrom(services, others []Service) []ServiceID {
	var out []ServiceID
	for _, s := range services {
		if !slices.ContainsFunc(others, func(x Service) bool { return x.ID == s.ID }) {
			out = append(out, s.ID)
		}
	}
	return out
}

// wantWhole checks that all changes together give the whole list.
func (tab table) wantWhole(t *testing.T, r *Reconciler) {
	t.Helper()
	whole := table{}
	for a := range r.routes.claimed {
		if route := r.Route(a); len(route.Serves) > 0 {
			whole[a] = route.Serves
		}
	}
	if d := cmp.Diff(whole, tab, exact); d != "" {
		t.Errorf("what was told does not add up to the whole (-whole +told):\n%s", d)
	}
}

func TestLawAnsweringAddressesAreReported(t *testing.T) {
	seeds(t, 50, func(t *testing.T, g *gen) {
		k := g.kernel()
		r := NewReconciler(k, g.options(), "static")
		services := g.services()
		r.Update(put(services...))
		r.SetHealth(g.health(services), true)
		mustSync(t, r, testNow)
		told := table{}
		told.take(t, r)
		for _, s := range services {
			for _, v := range s.VIPs {
				if v.Kind == NodePort {
					continue
				}
				for _, p := range s.Ports {
					f := Frontend{Addr: v.Addr, Port: p.Port, Proto: p.Proto}
					owner := r.want.first(VirtualServer{Frontend: f})
					if owner == nil || owner.Service != s.ID {
						continue // of another Service, or of none
					}
					for _, c := range clients {
						if c.Is4() == v.Addr.Is4() && !k.inside(c) && k.Connect(c, f).Fate == Served && told[v.Addr] == nil {
							t.Errorf("%s answers %s, and nobody is told: %+v", f, c, r.Route(v.Addr))
						}
					}
				}
			}
		}
	})
}

func TestRoutes(t *testing.T) {
	s := newStory(t)
	s.Configure(Options{Base: base, Drain: time.Minute})
	tell := func(what string, want ...string) {
		t.Helper()
		mustSync(t, s.Reconciler, s.now)
		routes, err := s.Routes(context.Background())
		must(t, err)
		got := []string{}
		for _, r := range routes {
			got = append(got, fmt.Sprint(r.Addr, r.Serves, " ", r.Withheld))
		}
		if d := cmp.Diff(want, got, exact); d != "" {
			t.Errorf("%s (-want +got):\n%s", what, d)
		}
	}
	const served = "192.0.2.1 [{static/web LoadBalancer}] "
	s.Update(put(web()))
	tell("no backend", "192.0.2.1 [] no-backend")
	tell("nothing new")
	s.Update(put(web(be1)))
	tell("a backend", served)
	s.Update(put(web(be1, be2)))
	tell("another one", served)
	s.k.Remove(Address{vip})
	s.Lost([]Object{Address{vip}})
	s.k.Fail = func(op Op) error {
		if op.Object.kind() == kindAddress {
			return errors.New("no room")
		}
		return nil
	}
	tell("the address is lost", "192.0.2.1 [] not-programmed")
	s.k.Fail = nil
	s.now = s.now.Add(time.Hour)
	tell("and comes back", served)
	s.SetHealth(map[ServiceID]Health{web().ID: {Down: map[netip.AddrPort]bool{be1: true, be2: true}}}, true)
	tell("all are down", "192.0.2.1 [] no-backend")
	s.SetHealth(nil, true)
	tell("and up", served)
	labelled := web(be1, be2)
	labelled.Labels = map[string]string{"tier": "gold"}
	s.Update(put(labelled))
	tell("a label is news to who chooses by it", served)
	s.Update(Update{Source: "static", Delete: []ServiceID{web().ID}, Synced: true})
	tell("deleted", "192.0.2.1 [] gone")
}

func TestRoutesAreReadBack(t *testing.T) {
	s := newStory(t)
	s.Configure(Options{Base: base, Drain: time.Minute})
	s.Update(put(web(be1)))
	mustSync(t, s.Reconciler, s.now)
	s.k.Remove(RealServer{Frontend: front, Addr: be1}) // without an event
	told := table{}
	told.take(t, s.Reconciler)
	if len(told) > 0 {
		t.Errorf("the kernel has no backend, and yet: %v", told)
	}
	rep := mustSync(t, s.Reconciler, s.now)
	if len(rep.Ops) != 1 {
		t.Errorf("the next sync mends it: %v", rep.Ops)
	}
	told.take(t, s.Reconciler)
	if len(told[vip]) != 1 {
		t.Errorf("then it is told: %v", told)
	}
}

// TestALostPoolRouteWithdrawsItsVIPs: a VIP is not announced while the route that makes it
// the box's own is gone and can't be added.
func TestALostPoolRouteWithdrawsItsVIPs(t *testing.T) {
	s := newStory(t)
	pool := PoolRoute{Prefix: netip.MustParsePrefix("192.0.2.0/24")}
	s.Configure(Options{Base: base, Drain: time.Minute, Pools: []PoolRoute{pool}})
	s.Update(put(web(be1)))
	mustSync(t, s.Reconciler, s.now)
	told := table{}
	told.take(t, s.Reconciler)
	if len(told[vip]) != 1 {
		t.Fatalf("the VIP is not announced: %v", told)
	}
	s.k.Remove(pool)
	s.k.Fail = func(op Op) error {
		if op.Object.ID() == pool.ID() {
			return errors.New("no")
		}
		return nil
	}
	s.Lost([]Object{pool.ID()})
	if _, err := s.Sync(t.Context(), s.now); err != nil {
		t.Fatal(err)
	}
	if r := s.Route(vip); len(r.Serves) != 0 || r.Withheld != NotProgrammed {
		t.Errorf("without its pool's route the VIP is %+v", r)
	}
	s.k.Fail = nil
	s.now = s.now.Add(time.Minute)
	mustSync(t, s.Reconciler, s.now)
	if r := s.Route(vip); len(r.Serves) != 1 {
		t.Errorf("with it again the VIP is %+v", r)
	}
}

func TestRoutesAreWithdrawnFirst(t *testing.T) {
	s := newStory(t)
	var story []string
	opts := Options{Base: base, Drain: time.Minute, Leaving: func(a []netip.Addr) { story = append(story, fmt.Sprint("leaving ", a)) }}
	s.Configure(opts)
	s.Update(put(web(be1)))
	mustSync(t, s.Reconciler, s.now)
	if _, err := s.Routes(context.Background()); err != nil {
		t.Fatal(err)
	}
	s.k.After = func(op Op) { story = append(story, op.String()) }
	s.Update(put(web()))
	mustSync(t, s.Reconciler, s.now)
	if len(story) < 2 || story[0] != "leaving [192.0.2.1]" {
		t.Errorf("%q", story)
	}
}

func TestUnreadRoutesDoNotAccumulate(t *testing.T) {
	s := newStory(t)
	s.Configure(Options{Base: base})
	for i := range 200 {
		svc := web(be1)
		svc.VIPs[0].Addr = netip.AddrFrom4([4]byte{192, 0, 2, byte(i)})
		s.Update(put(svc))
		mustSync(t, s.Reconciler, s.now)
		s.Update(Update{Source: "static", Delete: []ServiceID{svc.ID}, Synced: true})
		mustSync(t, s.Reconciler, s.now)
	}
	if n := len(s.routes.dirty) + len(s.routes.claimed) + len(s.routes.reported); n != 0 {
		t.Errorf("%d addresses of Services that are gone", n)
	}
}

// A Service that another program takes a backend from does not withhold the address of
// another Service.
func TestAddressOfTwoServicesIsReadBackForEach(t *testing.T) {
	s := newStory(t)
	s.Configure(Options{Base: base})
	other := web(be2)
	other.ID.Name, other.Ports[0].Port = "other", 81
	s.Update(put(web(be1), other))
	mustSync(t, s.Reconciler, s.now)
	s.k.Remove(RealServer{Frontend: front, Addr: be1})
	got, err := s.Routes(context.Background())
	want := []Route{{Addr: vip, Serves: []Serving{{other.ID, LoadBalancer}}}}
	if d := cmp.Diff(want, got, exact); d != "" || err != nil {
		t.Errorf("routes (-want +got): %v\n%s", err, d)
	}
}
