package daemon

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"weir/cluster"
	"weir/cmd/weir/internal/status"
	"weir/lb"
)

// What is not as it should be between members.

// differAfter is for how long members may have heard different things before that is
// said: clusters and files don't change everywhere at once.
var differAfter = faster(30*time.Second, hurry)

// hurry divides differAfter, where the linker of a test has set it: a test of the whole
// program has no other way to be impatient. What is released has none.
var hurry string

func faster(d time.Duration, hurry string) time.Duration {
	if n, err := strconv.Atoi(hurry); err == nil && n > 1 {
		return d / time.Duration(n)
	}
	return d
}

// differences are what this box and others disagree about, and since when.
type differences struct {
	stale   bool // somebody has said something new
	sources map[string]status.Differing
	// orders are the frontends whose backends a member has in another order.
	orders map[string]disorder
	// unjoined are the names to join that can't be reached.
	unjoined map[string]time.Time
	due      time.Time // when one of them has lasted long enough
}

// disorder is what a member has in another order: so many frontends, the first of them.
type disorder struct {
	since     time.Time
	frontends int
	first     string
}

func newDifferences() differences {
	return differences{sources: map[string]status.Differing{}, orders: map[string]disorder{}, unjoined: map[string]time.Time{}}
}

// compare looks what this box and the others disagree about now.
func (f *fleet) compare(now time.Time) {
	d := &f.differ
	if d.stale || len(d.sources)+len(d.orders) > 0 {
		d.stale = false
		d.sources, d.orders = f.differing(now), f.disorders(now)
	}
	for name := range f.heard.Unjoined {
		if _, known := d.unjoined[name]; !known {
			d.unjoined[name] = now
		}
	}
	maps.DeleteFunc(d.unjoined, func(name string, _ time.Time) bool { _, still := f.heard.Unjoined[name]; return !still })
	d.due = time.Time{}
	lasts := func(since time.Time) {
		if at := since.Add(differAfter); at.After(now) {
			d.due = soonest(d.due, at)
		}
	}
	for _, x := range d.sources {
		lasts(x.Since)
	}
	for _, x := range d.orders {
		lasts(x.since)
	}
	for _, since := range d.unjoined {
		lasts(since)
	}
}

// comparable tells whether a member's sources should be those of this box: it is fit,
// and has said what they are.
func (v *fellow) comparable() bool {
	return v.standing.Fit() && v.member.Life == cluster.Alive && len(v.word.sources) > 0
}

// differing are the sources of which another member has another digest.
func (f *fleet) differing(now time.Time) map[string]status.Differing {
	out := map[string]status.Differing{}
	mine := f.say.word.sources
	if !f.stand.joined || !f.stand.now.Said.Fit() {
		return out
	}
	names := map[string]bool{}
	for name := range mine {
		names[name] = true
	}
	for _, v := range f.fellows {
		if v.comparable() {
			for name := range v.word.sources {
				names[name] = true
			}
		}
	}
	for source := range names {
		digests, differ := map[string]string{f.name(): string(mine[source])}, false
		for name, v := range f.fellows {
			if v.comparable() {
				digests[name] = string(v.word.sources[source])
				differ = differ || v.word.sources[source] != mine[source]
			}
		}
		if differ {
			since := now
			if before, known := f.differ.sources[source]; known {
				since = before.Since
			}
			out[source] = status.Differing{Source: source, Since: since, Digests: digests}
		}
	}
	return out
}

// disorders are the frontends with scheduler mh of which another member has the same
// backends, as far as can be told, in another order.
func (f *fleet) disorders(now time.Time) map[string]disorder {
	out := map[string]disorder{}
	for name, v := range f.fellows {
		if !v.comparable() || !maps.Equal(v.word.sources, f.say.word.sources) {
			continue
		}
		x := disorder{since: now}
		if before, known := f.differ.orders[name]; known {
			x.since = before.since
		}
		for frontend, order := range f.say.word.orders {
			if other, both := v.word.orders[frontend]; both && other != order {
				if x.frontends++; x.first == "" || frontend < x.first {
					x.first = frontend
				}
			}
		}
		if x.frontends > 0 {
			out[name] = x
		}
	}
	return out
}

// lasting are the sources that differ for long enough to say so, by name.
func (f *fleet) lasting(now time.Time) []status.Differing {
	out := []status.Differing{}
	for _, source := range slices.Sorted(maps.Keys(f.differ.sources)) {
		if x := f.differ.sources[source]; now.Sub(x.Since) >= differAfter {
			out = append(out, x)
		}
	}
	return out
}

// notes says what is not as it should be.
func (f *fleet) notes(now time.Time) []lb.Note {
	if !f.on() {
		return nil
	}
	out := f.duplicates()
	if f.cfg == nil {
		return out
	}
	add := func(why lb.Reason, format string, args ...any) {
		out = append(out, lb.Note{Reason: why, Text: fmt.Sprintf(format, args...)})
	}
	if f.cfg.Gossip.Open {
		add(lb.FleetOpen, "the fleet has no key: whoever can send this box a datagram is a member of it")
	}
	for _, name := range slices.Sorted(maps.Keys(f.differ.unjoined)) {
		if now.Sub(f.differ.unjoined[name]) >= differAfter {
			add(lb.FleetAlone, "%s can't be joined: %s", name, f.heard.Unjoined[name])
		}
	}
	for _, x := range f.lasting(now) {
		var others []string
		for _, name := range slices.Sorted(maps.Keys(x.Digests)) {
			if x.Digests[name] != x.Digests[f.name()] {
				others = append(others, name)
			}
		}
		what := "says other things on " + strings.Join(others, ", ") + " than here: see weir services on both"
		switch {
		case x.Source == rulesSource:
			what = "is not alike on " + strings.Join(others, ", ") + " and here: mode, owners, take_back = \"never\" and what is answered for must be, or two boxes own one VIP"
		case x.Digests[f.name()] == "":
			what = "is known to " + strings.Join(others, ", ") + ", and not here"
		}
		add(lb.FleetDiffers, "source %s %s", x.Source, what)
	}
	for _, name := range slices.Sorted(maps.Keys(f.differ.orders)) {
		if x := f.differ.orders[name]; now.Sub(x.since) >= differAfter {
			add(lb.OrderDiffers, "%s has the backends of %d frontends in another order or with other weights, %s for instance: their connections would not survive a takeover", name, x.frontends, x.first)
		}
	}
	return out
}
