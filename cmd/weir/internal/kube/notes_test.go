package kube

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"weir/cmd/weir/internal/status"
	"weir/lb"
)

// kernelNotes are the Notes of a Reconciler.
type kernelNotes struct {
	notes   []lb.Note
	version uint64
}

func (k *kernelNotes) Notes() []lb.Note     { return slices.Clone(k.notes) }
func (k *kernelNotes) NotesVersion() uint64 { return k.version }

func TestNotesOfAllParts(t *testing.T) {
	note := func(name string, reason lb.Reason) lb.Note {
		return lb.Note{Service: lb.ServiceID{Source: "prod", Namespace: "shop", Name: name}, Reason: reason, Text: "text"}
	}
	kernel := &kernelNotes{notes: []lb.Note{note("b", lb.Conflict), note("c", lb.NoBackends), note("e", lb.Failed)}}
	own := []lb.Note{note("f", lb.Failed), note("a", lb.Failed)}
	pools := []lb.Note{note("b", lb.AddressPending), note("d", lb.AddressPending), note("g", lb.AddressPending)}
	var n Notes
	update := func(want bool) {
		t.Helper()
		if got := n.Update(kernel, slices.Clone(own), pools); got != want {
			t.Errorf("changed: %v, want %v", got, want)
		}
	}
	update(true)
	shown := func(notes ...lb.Note) (out []status.Note) {
		for _, n := range notes {
			out = append(out, status.Note{Service: n.Service.String(), Reason: string(n.Reason), Text: n.Text, Informational: n.Reason == lb.NoBackends})
		}
		return out
	}
	want := shown(note("a", lb.Failed), note("b", lb.AddressPending), note("b", lb.Conflict), note("c", lb.NoBackends), note("d", lb.AddressPending),
		note("e", lb.Failed), note("f", lb.Failed), note("g", lb.AddressPending))
	if d := cmp.Diff(want, n.Status); d != "" {
		t.Errorf("status (-want +got):\n%s", d)
	}
	// Informational Notes are no Events, and the allocator writes its own.
	if d := cmp.Diff([]lb.Note{note("a", lb.Failed), note("b", lb.Conflict), note("e", lb.Failed), note("f", lb.Failed)}, n.Events); d != "" {
		t.Errorf("Events (-want +got):\n%s", d)
	}
	update(false)
	if want := []lb.Note{note("b", lb.AddressPending), note("d", lb.AddressPending), note("g", lb.AddressPending)}; !slices.Equal(pools, want) {
		t.Errorf("the Notes of the pools became %v", pools)
	}
	kernel.notes, kernel.version = kernel.notes[:1], 1
	update(true)
	own = own[:1]
	update(true)
	pools = pools[:2]
	update(true)
	if len(n.Status) != 4 {
		t.Errorf("status %v", n.Status)
	}
}
