package lb

import (
	"context"
	"maps"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestLawNotesOfOneVersionAreTheSame(t *testing.T) {
	var kept atomic.Int64
	t.Cleanup(func() { // after all seeds
		if kept.Load() == 0 {
			t.Error("every Sync makes a new version")
		}
	})
	seeds(t, 25, func(t *testing.T, g *gen) {
		opts := g.options()
		opts.Guards = map[string]GuardOptions{"static": {Share: 0.5, Least: 1, Window: time.Minute, Timeout: 10 * time.Second}}
		k := g.kernel()
		r := NewReconciler(k, opts, "static")
		fails := 0
		k.Fail = func(Op) error {
			if g.chance(fails) {
				return context.DeadlineExceeded
			}
			return nil
		}
		var notes []Note
		version := r.NotesVersion()
		now := testNow
		for range 12 {
			now = now.Add(time.Duration(g.IntN(8)) * time.Second)
			fails = 25 * g.IntN(2)
			switch g.IntN(4) {
			case 0:
				services := g.services()
				r.Update(put(services...))
				r.SetHealth(g.health(services), true)
			case 1:
				r.Release("static")
			}
			mustSync(t, r, now)
			got := r.Notes()
			if r.NotesVersion() == version {
				kept.Add(1)
				if d := cmp.Diff(notes, got, exact); d != "" {
					t.Fatalf("other notes of the same version (-before +after):\n%s", d)
				}
			}
			notes, version = got, r.NotesVersion()
		}
	})
}

func TestPlannedNotesAreSorted(t *testing.T) {
	seeds(t, 25, func(t *testing.T, g *gen) {
		kept := newPlannedNotes()
		for range 200 {
			id := ServiceID{Source: "static", Name: string(rune('a' + g.IntN(9)))}
			var notes []Note
			for range g.IntN(3) {
				notes = append(notes, Note{id, Reason(string(rune('x' + g.IntN(3)))), "text"})
			}
			before := slices.Clone(kept.of[id])
			changed := kept.set(id, sortNotes(notes))
			if now := kept.of[id]; changed == slices.Equal(before, now) {
				t.Fatalf("%v became %v, changed is %v", before, now, changed)
			}
			if g.IntN(3) > 0 {
				continue
			}
			want := sortNotes(slices.Concat(slices.Collect(maps.Values(kept.of))...))
			if d := cmp.Diff(want, kept.all(0), exact); d != "" {
				t.Fatalf("(-want +got):\n%s", d)
			}
		}
	})
}
