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
	version uint64    // of the Reconciler's
	own     []lb.Note // of the parts of the daemon
	pools   []lb.Note // of the address allocator, which writes its own Events
}

// Reconciler has the Notes of the kernel's Services.
type Reconciler interface {
	Notes() []lb.Note
	NotesVersion() uint64
}

// Update makes the Notes, and reports whether they have changed. It sorts own in place; the caller passes pools sorted.
func (n *Notes) Update(rec Reconciler, own, pools []lb.Note) bool {
	slices.SortFunc(own, lb.Note.Compare)
	if n.known && n.version == rec.NotesVersion() && slices.Equal(n.own, own) && slices.Equal(n.pools, pools) {
		return false
	}
	*n = Notes{version: rec.NotesVersion(), own: own, pools: pools, known: true}
	all := merged(rec.Notes(), own)
	n.Status = statusNotes(merged(all, pools))
	n.Events = slices.DeleteFunc(all, Informational)
	return true
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
