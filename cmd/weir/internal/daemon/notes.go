package daemon

import (
	"cmp"
	"slices"
	"time"

	"weir/cmd/weir/internal/config"
	"weir/cmd/weir/internal/status"
	"weir/lb"
)

// noted is what Notes there are, in the forms that others want. It is made anew
// only if it has changed: with 10,000 Services that have Notes it would be most of
// the work of a pass.
type noted struct {
	version uint64    // of those of the Reconciler
	own     []lb.Note // those of the daemon's own parts
	given   []lb.Note // those of the provider, which tells the clusters itself
	known   bool
	status  []status.Note // all
	events  []lb.Note     // those that clusters are told
}

// note looks what Notes there are, and tells the clusters theirs.
func (b *box) note() []status.Note {
	n := &b.noted
	own := sortNotes(slices.Concat(b.probes.Notes(), b.cant.notes(b.rec.Catalog()), b.fleet.notes(time.Now())))
	given := b.ask(time.Now()).notes
	changed := !n.known || n.version != b.rec.NotesVersion() || !slices.Equal(n.own, own) || !slices.Equal(n.given, given)
	if changed {
		all := append(b.rec.Notes(), own...)
		*n = noted{version: b.rec.NotesVersion(), own: own, given: given, known: true}
		n.status = statusNotes(sortNotes(slices.Concat(all, given)))
		n.events = slices.DeleteFunc(sortNotes(all), informational)
	}
	if changed || b.clusters.untold() {
		b.clusters.report(n.events)
	}
	return n.status
}

// untold tells whether a cluster has not been told any Notes since it began.
func (c *clusters) untold() bool {
	for _, f := range c.all {
		if f.now() != f.toldTo {
			return true
		}
	}
	return false
}

func sortNotes(notes []lb.Note) []lb.Note {
	slices.SortStableFunc(notes, func(a, b lb.Note) int {
		return cmp.Or(a.Service.Compare(b.Service), cmp.Compare(a.Reason, b.Reason), cmp.Compare(a.Text, b.Text))
	})
	return notes
}

// informational tells that a Note is for those who look and nothing that anybody
// must put right. A cluster's Service without backends, or with none on this node,
// is an ordinary thing there: a box that called itself degraded for it would always
// be, and each node of a big cluster would write an Event for each of them. In a
// file a service without backends is a mistake.
func informational(n lb.Note) bool {
	switch n.Reason {
	case lb.HostAddress, lb.FamilyLeft, lb.FleetOpen:
		return true
	case lb.NoBackends, lb.NoLocal:
		return n.Service.Source != config.Source
	}
	return false
}

// statusNotes gives Notes as the command line has them.
func statusNotes(notes []lb.Note) []status.Note {
	out := make([]status.Note, len(notes))
	for i, n := range notes {
		out[i] = status.Note{Service: n.Service.String(), Reason: string(n.Reason), Text: n.Text, Informational: informational(n)}
	}
	return out
}
