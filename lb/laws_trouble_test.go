package lb

import (
	"context"
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
			r.SetHealth(health)
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
		if err := again.Adopt(context.Background()); err != nil {
			t.Fatal(err)
		}
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
