package kube

import (
	"fmt"
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
		if got := n.Update(kernel, pools, own[:1], own[1:]); got != want {
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
	events := &n.Events[0]
	pools = pools[:2]
	update(false) // the allocator writes its own Events
	if len(n.Status) != 4 || &n.Events[0] != events {
		t.Errorf("status %v", n.Status)
	}
	made := &n.Status[0]
	own = slices.Clone(own)
	pools = slices.Clone(pools)
	if update(false); &n.Status[0] != made {
		t.Error("equal lists make it again")
	}
}

// BenchmarkNotes is a pass with 10,000 Notes of each part: if nothing differs, and if only those of the pools do.
func BenchmarkNotes(b *testing.B) {
	var lists [3][]lb.Note
	for part, reason := range []lb.Reason{lb.Conflict, lb.NeedsIPVS, lb.AddressPending} {
		for i := range 10_000 {
			id := lb.ServiceID{Source: "prod", Namespace: "shop", Name: fmt.Sprintf("s%05d", i)}
			lists[part] = append(lists[part], lb.Note{Service: id, Reason: reason, Text: "text"})
		}
	}
	kernel, own, pools := &kernelNotes{notes: lists[0]}, lists[1], lists[2]
	for name, differ := range map[string]bool{"idle": false, "pools": true} {
		b.Run(name, func(b *testing.B) {
			var n Notes
			n.Update(kernel, pools, own)
			for i := 0; b.Loop(); i++ {
				now := pools
				if differ {
					now = pools[:len(pools)-1-i%2]
				}
				if n.Update(kernel, now, own) {
					b.Fatal("other Events")
				}
			}
		})
	}
}
