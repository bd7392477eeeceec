package lb

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// The laws in trouble: while drains run, and when Ops fail.

// busy returns some real servers connections that do not end.
func (g *gen) busy(k *Fake) {
	for _, o := range k.Objects() {
		if rs, ok := o.(RealServer); ok && g.chance(60) {
			k.SetConns(rs, Conns{Active: 1})
		}
	}
}

func TestLawDrainsDoNotChangeWhatNewConnectionsMeet(t *testing.T) {
	seeds(t, 50, func(t *testing.T, g *gen) {
		opts := g.options()
		k := g.kernel()
		r := NewReconciler(k, opts, "static")
		now := testNow
		for range 5 {
			services := g.services()
			health := g.health(services)
			r.Update(put(services...))
			r.SetHealth(health, true)
			mustSync(t, r, now)
			now = now.Add(10 * time.Second)
			anew := like(k)
			anew.Apply(context.Background(), Diff(nil, wantOf(k, services, opts, health)))
			frontends := k.allFrontends(services)
			want, got := outcomes(anew, frontends), outcomes(k, frontends)
			late := r.late()
			for f := range want {
				// A backend may wait for the end of an address that drains.
				if late[f.to] {
					delete(want, f)
					delete(got, f)
				}
				// A drain may keep an address that no other Service wants, and a port of
				// one that the box has anyway.
				if (want[f].Fate == Unrouted || want[f].Fate == HostPort) && got[f].Fate == Refused {
					delete(want, f)
					delete(got, f)
				}
			}
			if d := cmp.Diff(want, got, exact); d != "" {
				t.Fatalf("while drains run (-anew +drains):\n%s\ndrains: %v", d, r.Drains())
			}
			g.busy(k)
			if g.chance(30) { // a restart in between changes nothing of it
				r = NewReconciler(k, opts, "static")
			}
		}
	})
}

// late returns the frontends with backends that are not applied yet.
func (r *Reconciler) late() map[Frontend]bool {
	out := map[Frontend]bool{}
	for id := range r.failed.of {
		if rs, ok := id.(RealServer); ok {
			out[rs.Frontend] = true
			for _, f := range r.marks.byMark[rs.Frontend.Mark].vips {
				out[f] = true
			}
		}
	}
	return out
}

func TestLawAnErrorNeverTakesServiceAway(t *testing.T) {
	seeds(t, 75, func(t *testing.T, g *gen) {
		opts := g.options()
		k := g.kernel()
		a, b := g.services(), g.services()
		r := NewReconciler(k, opts, "static")
		r.Update(put(a...))
		mustSync(t, r, testNow)
		frontends := k.allFrontends(a, b)
		before := outcomes(k, frontends)
		anew := like(k)
		anew.Apply(context.Background(), Diff(nil, wantOf(k, b, opts, nil)))
		after := outcomes(anew, frontends)

		k.Fail = func(Op) error {
			if g.chance(25) {
				return context.DeadlineExceeded
			}
			return nil
		}
		now := testNow
		r.Update(put(b...))
		for range 4 {
			mustSync(t, r, now)
			now = now.Add(5 * time.Second)
			for f, got := range outcomes(k, frontends) {
				if before[f].Fate == Served && after[f].Fate == Served && got.Fate != Served && !restricted(b, f) {
					t.Errorf("%s to %s: was and will be served, and is %s", f.client, f.to, got.Fate)
				}
				if got.Fate == HostPort && before[f].Fate != HostPort && after[f].Fate != HostPort {
					t.Errorf("%s to %s: a daemon of the host gets it", f.client, f.to)
				}
			}
		}
		again := NewReconciler(k, opts, "static")
		must(t, again.Adopt(context.Background()))
		if n := len(again.Facts().Foreign); n > 0 {
			t.Errorf("after a restart %d virtual servers are taken for foreign ones", n)
		}
		k.Fail = nil
		for range 5 {
			now = now.Add(2 * time.Minute)
			mustSync(t, r, now)
		}
		if d := cmp.Diff(canonical(wantOf(k, b, opts, nil).Snapshot()), canonical(k.Objects()), exact); d != "" {
			t.Errorf("without errors (-want +got):\n%s", d)
		}
	})
}

// restricted reports whether a flow goes to a frontend that is restricted in
// services: its ranges fail closed, as they should.
func restricted(services []Service, f flow) bool {
	return slices.ContainsFunc(services, func(s Service) bool {
		return s.Restricted && slices.Contains(s.Frontends(), f.to)
	})
}

// outdate gives the rules of both families another configuration: the kernel has those of the
// earlier one.
func outdate(k *Fake, r *Reconciler) {
	for _, f := range base.Families {
		if k.has(Rules{Family: f}) {
			k.put(Rules{f, true})
		}
	}
	opts := r.opts
	opts.RulesVersion++
	r.Configure(opts)
}

// failRules makes the kernel refuse the rules with an error.
func failRules(k *Fake, err error) {
	k.Fail = func(op Op) error {
		if op.Object.kind() == kindRules {
			return err
		}
		return nil
	}
}

// TestLawOutdatedRulesTakeNoRouteAway: while another program prevents a change of the rules,
// VIPs are announced as without that change, and they answer.
func TestLawOutdatedRulesTakeNoRouteAway(t *testing.T) {
	seeds(t, 75, func(t *testing.T, g *gen) {
		opts := g.options()
		k := g.kernel()
		calm := like(k)
		r, twin := NewReconciler(k, opts, "static"), NewReconciler(calm, opts, "static")
		told, want := table{}, table{}
		now := testNow
		var before []Service
		for range 5 {
			services := g.services()
			u := Update{Source: "static", Put: services, Delete: goneFrom(before, services), Synced: true}
			r.Update(u)
			twin.Update(u)
			for range 2 {
				mustSync(t, r, now)
				mustSync(t, twin, now)
				if g.chance(30) {
					if rep, err := r.Audit(context.Background(), now); err != nil || len(rep.Drift) > 0 {
						t.Fatalf("an audit: drift %v, error %v", rep.Drift, err)
					}
				}
				told.take(t, r)
				want.take(t, twin)
				if d := cmp.Diff(want, told, exact); d != "" {
					t.Fatalf("with outdated rules (-without +with):\n%s", d)
				}
				now = now.Add(2 * time.Minute)
			}
			if dead := told.dead(answering(k, k.allFrontends(before, services))); len(dead) > 0 {
				t.Errorf("clients are sent to %s, and nothing answers", dead)
			}
			before = services
			failRules(k, fmt.Errorf("%w: locked", ErrEarlier))
			outdate(k, r)
		}
		k.Fail = nil
		mustSync(t, r, now)
		for _, f := range base.Families {
			if o, _ := r.Have().Get(Rules{Family: f}); o != (Rules{Family: f}) {
				t.Errorf("without errors the kernel has %v", o)
			}
		}
	})
}

// TestRulesThatAreNotInForceWithdrawTheirVIPs: the rules of an earlier configuration serve only
// while the kernel has all of them.
func TestRulesThatAreNotInForceWithdrawTheirVIPs(t *testing.T) {
	for _, test := range []struct {
		name string
		fail error
		lose func(*testing.T, *story)
	}{
		{"a write that may have changed some tables", errors.New("no memory"), func(*testing.T, *story) {}},
		{"an audit finds them flushed", fmt.Errorf("%w: locked", ErrEarlier), func(t *testing.T, s *story) {
			s.k.Remove(Rules{Family: IPv4})
			s.k.Fail = nil
			failRules(s.k, errors.New("locked"))
			mustAudit(t, s.Reconciler, s.now)
		}},
		{"another program changes them", fmt.Errorf("%w: locked", ErrEarlier), func(t *testing.T, s *story) {
			s.k.Remove(Rules{Family: IPv4})
			failRules(s.k, errors.New("locked"))
			s.Lost([]Object{Rules{Family: IPv4}})
			mustSync(t, s.Reconciler, s.now)
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := newStory(t)
			s.Configure(Options{Base: base, Drain: time.Minute})
			s.Update(put(web(be1)))
			mustSync(t, s.Reconciler, s.now)
			told := table{}
			if told.take(t, s.Reconciler); len(told[vip]) != 1 {
				t.Fatalf("the VIP is not announced: %v", told)
			}
			failRules(s.k, test.fail)
			outdate(s.k, s.Reconciler)
			mustSync(t, s.Reconciler, s.now)
			test.lose(t, s)
			if told.take(t, s.Reconciler); len(told) > 0 {
				t.Errorf("announced without its rules: %v", told)
			}
			s.k.Fail = nil
			mustSync(t, s.Reconciler, s.now.Add(time.Hour))
			if told.take(t, s.Reconciler); len(told[vip]) != 1 {
				t.Errorf("not announced with its rules: %v", told)
			}
		})
	}
}
