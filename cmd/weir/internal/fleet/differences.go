package fleet

import (
	"maps"
	"slices"
	"strconv"
	"time"

	"weir/cluster/owner"
	"weir/cmd/weir/internal/fleet/message"
	"weir/cmd/weir/internal/status"
)

// DifferAfter is how long members may have received different things before that is
// reported: clusters and files do not change everywhere at once.
var DifferAfter = faster(30*time.Second, hurry)

// hurry divides DifferAfter where the linker of a test sets it: a test of the whole program
// has no other way. Releases have none.
var hurry string

func faster(d time.Duration, hurry string) time.Duration {
	if n, err := strconv.Atoi(hurry); err == nil && n > 1 {
		return d / time.Duration(n)
	}
	return d
}

// differences are the things in which this box and other members differ, with the begin.
type differences struct {
	seen generations
	// compared are the members of the last comparison; none if this box was not comparable.
	compared []string
	sources  map[string]status.Differing
	// orders are the members with another order of backends.
	orders map[string]disorder
	// unreachable are the names to join that cannot be reached.
	unreachable map[string]time.Time
	due         time.Time // when one of them has lasted long enough
}

// disorder counts the frontends of a member with another order of backends.
type disorder struct {
	since     time.Time
	frontends int
	first     string
}

func newDifferences() differences {
	return differences{sources: map[string]status.Differing{}, orders: map[string]disorder{}, unreachable: map[string]time.Time{}}
}

// compare compares a message of this box with those of the other members.
func (d *differences) compare(me string, mine message.Message, ready bool, m *members, g generations, now time.Time) {
	compared := m.comparable(ready)
	if d.seen != g.comparison() || !slices.Equal(d.compared, compared) || len(d.sources)+len(d.orders) > 0 {
		d.seen, d.compared = g.comparison(), compared
		d.sources, d.orders = d.compareSources(me, mine, ready, m, now), d.compareOrders(mine, m, now)
	}
	for name := range m.status.Unreachable {
		if _, known := d.unreachable[name]; !known {
			d.unreachable[name] = now
		}
	}
	maps.DeleteFunc(d.unreachable, func(name string, _ time.Time) bool { _, still := m.status.Unreachable[name]; return !still })
	d.due = time.Time{}
	lasts := func(since time.Time) {
		if at := since.Add(DifferAfter); at.After(now) {
			d.due = Soonest(d.due, at)
		}
	}
	for _, x := range d.sources {
		lasts(x.Since)
	}
	for _, x := range d.orders {
		lasts(x.since)
	}
	for _, since := range d.unreachable {
		lasts(since)
	}
}

// compareSources returns the sources of which another member has another digest.
func (d *differences) compareSources(me string, mine message.Message, ready bool, m *members, now time.Time) map[string]status.Differing {
	out := map[string]status.Differing{}
	if !ready {
		return out
	}
	names := map[string]bool{}
	for name := range mine.Sources {
		names[name] = true
	}
	for _, v := range m.byName {
		if v.comparable() {
			for name := range v.message.Sources {
				names[name] = true
			}
		}
	}
	for source := range names {
		digests, differ := map[string]string{me: string(mine.Sources[source])}, false
		for name, v := range m.byName {
			if v.comparable() {
				digests[name] = string(v.message.Sources[source])
				differ = differ || v.message.Sources[source] != mine.Sources[source]
			}
		}
		if differ {
			since := now
			if before, known := d.sources[source]; known {
				since = before.Since
			}
			out[source] = status.Differing{Source: source, Since: since, Digests: digests}
		}
	}
	return out
}

// compareOrders returns the members with the same sources that have the backends of a
// frontend with scheduler mh in another order.
func (d *differences) compareOrders(mine message.Message, m *members, now time.Time) map[string]disorder {
	out := map[string]disorder{}
	for name, v := range m.byName {
		if !v.comparable() || !maps.Equal(v.message.Sources, mine.Sources) {
			continue
		}
		x := disorder{since: now}
		if before, known := d.orders[name]; known {
			x.since = before.since
		}
		for frontend, order := range mine.Orders {
			if other, both := v.message.Orders[frontend]; both && other != order {
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

// lasting returns the sources that have differed for long enough to report, by name.
func (d *differences) lasting(now time.Time) []status.Differing {
	out := []status.Differing{}
	for _, source := range slices.Sorted(maps.Keys(d.sources)) {
		if x := d.sources[source]; now.Sub(x.Since) >= DifferAfter {
			out = append(out, x)
		}
	}
	return out
}

// comparableSelf reports whether this box may be compared: it knows the others, and is fit.
func comparableSelf(s *self) bool { return s.joined && s.now.Published >= owner.Fresh }
