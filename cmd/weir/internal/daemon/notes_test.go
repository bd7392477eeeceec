package daemon

import (
	"slices"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	"weir/cmd/weir/internal/status"
	"weir/lb"
)

func TestOrdinaryStatesOfAClusterAreInformational(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		id     lb.ServiceID
		reason lb.Reason
		want   bool
	}{
		{shop("web"), lb.NoLocal, true},
		{shop("web"), lb.NoBackends, true},
		{static("web"), lb.NoBackends, false},
		{static("web"), lb.HostAddress, true},
		{shop("web"), lb.Conflict, false},
		{lb.ServiceID{}, lb.Failed, false},
	} {
		note := lb.Note{Service: tt.id, Reason: tt.reason}
		s := status.Status{Notes: statusNotes([]lb.Note{note})}
		s.Judge(s.Started)
		if ok := s.State == status.OK; informational(note) != tt.want || ok != tt.want || len(s.Notes) != 1 {
			t.Errorf("%s: informational %v, status %s", note, informational(note), s.State)
		}
	}
}

// A pass that changes no Notes costs nothing for them, however many there are.
func TestNotesAreMadeAnewWhenTheyChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, l := fakeBox(t, nil)
		b.probes = newHealthPorts(b.log, func() bool { return true })
		say := func(services ...lb.Service) []status.Note {
			b.rec.Update(lb.Update{Source: "prod", Put: services})
			b.sync(t)
			return b.note()
		}
		none, odd := served(1), served(2)
		none.Ports[0].Backends = nil
		odd.Notes = []lb.Note{{Service: odd.ID, Reason: lb.BadObject, Text: "x"}}
		first := say(none, odd)
		if len(first) != 2 || !first[1].Informational && !first[0].Informational {
			t.Fatalf("notes: %+v", first)
		}
		if again := say(served(3)); &again[0] != &first[0] {
			t.Error("they are made anew for a Service without any")
		}
		if d := cmp.Diff([][]lb.Note{odd.Notes}, l.towns[0].reported); d != "" {
			t.Errorf("told for Events (-want +got):\n%s", d)
		}
		if later := say(served(1)); len(later) != 1 || later[0].Text != "x" {
			t.Errorf("after the first has a backend: %+v", later)
		}
		b.probes.notes = []lb.Note{{Service: odd.ID, Reason: lb.HealthPort, Text: "y"}}
		if later := b.note(); len(later) != 2 || len(l.towns[0].reported) != 2 {
			t.Errorf("with one of the daemon's own: %+v, told %v", later, l.towns[0].reported)
		}
		anew, f := &town{}, l.all["prod"]
		f.mu.Lock()
		f.current = anew
		f.mu.Unlock()
		if b.note(); len(anew.reported) != 1 || !slices.Equal(anew.reported[0], l.towns[0].reported[1]) {
			t.Error("a cluster that began anew is not told")
		}
	})
}
