package daemon

import (
	"cmp"
	"slices"

	"weir/cmd/weir/internal/config"
	"weir/cmd/weir/internal/status"
	"weir/lb"
)

// noted gives the Notes of all parts, sorted.
func (b *box) noted() []lb.Note {
	notes, more := b.rec.Notes(), slices.Concat(b.probes.Notes(), b.cant.notes(b.rec.Catalog()))
	if len(more) == 0 {
		return notes
	}
	notes = append(notes, more...)
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
	case lb.HostAddress:
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
