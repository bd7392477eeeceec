package kube

import (
	"slices"

	"weir/cmd/weir/internal/config"
	"weir/cmd/weir/internal/status"
	"weir/lb"
)

// Notes are all Notes, in the forms of the status and of the Events of clusters. They are made only when an input has
// changed: for 10,000 Services with Notes that is most of the work of a pass. The zero value has none.
type Notes struct {
	Status []status.Note // all, sorted
	Events []lb.Note     // those that clusters are sent

	known   bool
	version uint64      // of the Reconciler's
	own     [][]lb.Note // of the parts of the daemon
	all     []lb.Note   // those of the Reconciler and of the daemon, sorted
	pools   []lb.Note   // of the address allocator, which writes its own Events
}

// Reconciler has the Notes of the kernel's Services.
type Reconciler interface {
	Notes() []lb.Note
	NotesVersion() uint64
}

// Update makes the Notes that have changed, and reports whether those for Events have. The caller passes pools sorted, and
// changes no list later. A list that is the same slice as before costs nothing.
func (n *Notes) Update(rec Reconciler, pools []lb.Note, own ...[]lb.Note) bool {
	changed := !n.known || n.version != rec.NotesVersion() || !slices.EqualFunc(n.own, own, same)
	if changed {
		n.known, n.version, n.own = true, rec.NotesVersion(), own
		others := slices.Concat(own...)
		slices.SortFunc(others, lb.Note.Compare)
		n.all = merged(rec.Notes(), others)
		n.Events = slices.DeleteFunc(slices.Clone(n.all), Informational)
	}
	if changed || !same(n.pools, pools) {
		n.pools = pools
		n.Status = statusNotes(merged(n.all, pools))
	}
	return changed
}

// same reports whether two lists are equal. It compares those that do not share their memory.
func same(a, b []lb.Note) bool {
	return len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0] || slices.Equal(a, b))
}

// merged returns the Notes of two sorted lists, sorted.
func merged(a, b []lb.Note) []lb.Note {
	out := make([]lb.Note, 0, len(a)+len(b))
	for len(a) > 0 && len(b) > 0 {
		if a[0].Compare(b[0]) <= 0 {
			out, a = append(out, a[0]), a[1:]
		} else {
			out, b = append(out, b[0]), b[1:]
		}
	}
	return append(append(out, a...), b...)
}

// Informational reports whether a Note needs no repair. A cluster's Service without backends, or with none on this
// node, is an ordinary state: otherwise every box would always be degraded, and every node of a big cluster would
// write an Event for each such Service. In a file a service without backends is a mistake.
func Informational(n lb.Note) bool {
	switch n.Reason {
	case lb.HostAddress, lb.FamilyLeft, lb.FleetOpen:
		return true
	case lb.NoBackends, lb.NoLocal:
		return n.Service.Source != config.Source
	}
	return false
}

// statusNotes returns Notes in the form of the status.
func statusNotes(notes []lb.Note) []status.Note {
	out := make([]status.Note, len(notes))
	for i, n := range notes {
		out[i] = status.Note{Service: n.Service.String(), Reason: string(n.Reason), Text: n.Text, Informational: Informational(n)}
	}
	return out
}
