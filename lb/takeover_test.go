package lb

import (
	"errors"
	"testing"
	"time"
)

// What an earlier run has left in another place goes frontend by frontend: one that
// the kernel would not take keeps its own, and no other.
func TestTakenOverByFrontend(t *testing.T) {
	at := func(port uint16) Frontend { return Frontend{Addr: vip, Port: port, Proto: TCP} }
	refused, nobody, half := errors.New("no such scheduler"), errors.New("no buffer space"), error(nil)
	s := newStory(t)
	s.sets()
	s.k.Fail = func(op Op) error {
		switch o := op.Object.(type) {
		case VirtualServer:
			if o.Frontend == at(81) {
				return refused
			}
		case RealServer:
			if o.Frontend == at(82) {
				return nobody
			}
			if o.Frontend == at(83) && o.Addr == be2 {
				half = errors.New("no buffer space")
				return half
			}
		}
		return nil
	}
	svc := web(be1, be2)
	for _, port := range []uint16{81, 82, 83} {
		svc.Ports = append(svc.Ports, Port{Proto: TCP, Port: port, Backends: svc.Ports[0].Backends})
	}
	s.Update(put(svc))
	mustSync(t, s.Reconciler, s.now)
	if half == nil || s.Pending() < 3 {
		t.Fatalf("%d operations have failed: the test has no teeth", s.Pending())
	}
	check := func(want map[Frontend]bool) {
		t.Helper()
		taken := s.TakenOver()
		for f, may := range want {
			if taken(f) != may {
				t.Errorf("%s may go: %v, want %v", f, taken(f), may)
			}
		}
	}
	want := map[Frontend]bool{front: true, at(81): false, at(82): false, at(83): true, at(99): true}
	check(want)
	s.SetSources("static", "slow") // which has sent nothing yet
	want[at(99)] = false
	check(want)
	s.Update(Update{Source: "slow", Synced: true})
	s.k.Fail = nil
	s.now = s.now.Add(time.Hour)
	mustSync(t, s.Reconciler, s.now)
	check(map[Frontend]bool{front: true, at(81): true, at(82): true, at(83): true, at(99): true})
}
