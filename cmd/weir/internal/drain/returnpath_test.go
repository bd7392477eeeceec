package drain

import (
	"testing"
	"time"

	"weir/bgp/advertise"
	"weir/cmd/weir/internal/fleet"
)

func TestADrainWaitsForTheReturnPath(t *testing.T) {
	now := time.Unix(1000, 0)
	here := true // the return path, or it is nowhere
	d := State{Fleet: Fleet{HandsOver: func() bool { return here }}}
	d.Replace(Set{}.With(now))
	stage := func(name string, after time.Duration, want advertise.Stage) {
		t.Helper()
		if d.Advance(now.Add(after), 10*time.Second, nil); d.All() != want {
			t.Errorf("%s: stage %d, want %d", name, d.All(), want)
		}
	}
	stage("the gateway is here", 0, advertise.NotDrained)
	if !d.Due().Equal(now.Add(fleet.ReturnPathPatience)) {
		t.Errorf("due %s", d.Due())
	}
	stage("it is on its way", time.Second, advertise.NotDrained)
	here = false
	stage("it is there", 2*time.Second, advertise.Shutting)
	here = true
	stage("it is nowhere for too long", fleet.ReturnPathPatience, advertise.Shutting)
	stage("the end", 10*time.Second, advertise.Drained)
}
