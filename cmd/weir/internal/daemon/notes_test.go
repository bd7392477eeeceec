package daemon

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"weir/cmd/weir/internal/kube"
	"weir/cmd/weir/internal/status"
	"weir/lb"
)

// A pass that changes no Notes costs nothing for them, however many there are.
func TestNotesAreUpdatedWhenTheyChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, l := fakeBox(t, nil)
		b.sources.probes = kube.NewHealthPorts(b.log, func() bool { return true })
		say := func(services ...lb.Service) []status.Note {
			b.target.rec.Update(lb.Update{Source: "prod", Put: services})
			b.sync(t)
			return b.sources.note(nil)
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
		b.sources.probes.Set(1, map[lb.ServiceID]lb.HealthCheck{odd.ID: {Port: 30000}}, nil, time.Now()) // on no address
		if later := b.sources.note(nil); len(later) != 2 || len(l.towns[0].reported) != 2 {
			t.Errorf("with one of the daemon's own: %+v, told %v", later, l.towns[0].reported)
		}
		changed := blocks("prod")
		changed[0].Zone = "a"
		l.Set(t.Context(), changed)
		synctest.Wait()
		anew := l.towns[1]
		if b.sources.note(nil); len(anew.reported) != 1 || !slices.Equal(anew.reported[0], l.towns[0].reported[1]) {
			t.Error("a cluster that began anew is not told")
		}
	})
}
