package lb

import (
	"net/netip"
	"slices"
	"testing"
	"time"
)

// What a reading finds missing is repaired at once. A repair that is in vain is repeated with growing pauses, which do not
// delay the repair of another frontend.
func TestAMissingObjectIsRepairedAtOnce(t *testing.T) {
	t.Parallel()
	s := newStory(t)
	s.Configure(Options{Base: base})
	lost := map[Object]int{RealServer{Frontend: front, Addr: be1}: 8} // times that the kernel loses it when it is written
	s.k.After = func(op Op) {
		if id := op.Object.ID(); op.Verb == Add && lost[id] > 0 {
			lost[id]--
			s.k.Remove(id) // without an event
		}
	}
	repaired := func(want time.Duration) {
		t.Helper()
		mustSync(t, s.Reconciler, s.now)
		if next := s.Next(); !next.IsZero() {
			t.Errorf("a repair is due at %v though a Sync has repaired everything", next)
		}
		if _, err := s.Routes(t.Context()); err != nil {
			t.Fatal(err)
		}
		next := s.Next()
		if got := next.Sub(s.now); next.IsZero() || got != want {
			t.Errorf("the next repair is due after %v, want %v", got, want)
		}
	}
	svc, other := web(be1), web(be2)
	svc.Drain = 0
	s.Update(put(svc))
	for _, pause := range []time.Duration{0, 1, 2, 4, 8, 10} {
		repaired(pause * time.Second)
		s.now = s.Next()
	}
	at := Frontend{Addr: netip.MustParseAddr("192.0.2.77"), Port: 80, Proto: TCP}
	other.ID.Name, other.VIPs[0].Addr = "other", at.Addr
	lost[RealServer{Frontend: at, Addr: be2}] = 1
	s.Update(put(svc, other))
	repaired(0) // that of the other
	repaired(10 * time.Second)
	s.now = s.Next()
	for _, backends := range [][]Backend{svc.Ports[0].Backends, nil} { // repaired, and then withdrawn
		svc.Ports = slices.Clone(svc.Ports)
		svc.Ports[0].Backends = backends
		s.Update(put(svc, other))
		mustSync(t, s.Reconciler, s.now)
		if _, err := s.Routes(t.Context()); err != nil || !s.Next().IsZero() || len(s.Route(vip).Serves) != len(backends) {
			t.Errorf("%v; a repair is due at %v; %+v", err, s.Next(), s.Route(vip))
		}
	}
	svc.Ports = web(be2).Ports
	lost[RealServer{Frontend: front, Addr: be2}] = 1
	s.Update(put(svc, other))
	repaired(0)
}
