package lb

import (
	"errors"
	"maps"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// checked is a Service of two ports with checks of its VIP.
func checked(method Forwarding, backends ...string) Service {
	svc := group(method, backends...)
	svc.Group, svc.CheckVIPs = false, true
	return svc
}

// reportedMarks are the marks of checks by the results of CheckMarks, by Reconciler.
var reportedMarks sync.Map

// checkMarks returns all marks of checks, by the results of CheckMarks so far.
func checkMarks(t *testing.T, r *Reconciler) map[CheckTarget]uint32 {
	t.Helper()
	v, known := reportedMarks.LoadOrStore(r, map[ServiceID]map[netip.Addr]uint32{})
	if !known {
		t.Cleanup(func() { reportedMarks.Delete(r) })
	}
	all := v.(map[ServiceID]map[netip.Addr]uint32) //nolint:forcetypeassert // as stored
	maps.Copy(all, CheckMarks(r))
	out := map[CheckTarget]uint32{}
	for id, marks := range all {
		for a, mark := range marks {
			out[CheckTarget{id, a}] = mark
		}
	}
	return out
}

// checkServers returns the real servers by which checks reach VIPs.
func (s *story) checkServers() map[string]string {
	out := map[string]string{}
	for to, mark := range checkMarks(s.T, s.Reconciler) {
		for o := range s.have.Of(MarkFrontend(FamilyOf(to.Backend), mark)) {
			if rs, ok := o.(RealServer); ok {
				out[to.Backend.String()] += rs.Addr.String() + " " + rs.method()
			}
		}
	}
	return out
}

func TestChecksOfVIPsHaveAVirtualServerEach(t *testing.T) {
	t.Parallel()
	svc := checked(DirectRouting, "10.0.0.1", "10.0.0.2")
	for i := range svc.Ports {
		svc.Ports[i].Backends = append(svc.Ports[i].Backends, Backend{Addr: netip.AddrPortFrom(netip.MustParseAddr("10.0.0.3"), svc.Ports[i].Port), Weight: 1})
	}
	s := newLocalStory(t, svc)
	want := map[string]string{"10.0.0.1": "10.0.0.1:0 direct routing", "10.0.0.2": "10.0.0.2:0 direct routing"}
	if d := cmp.Diff(want, s.checkServers()); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	marks := checkMarks(t, s.Reconciler)
	if calls := s.k.Calls(); mustSync(t, s.again(svc).Reconciler, s.now).Failed != 0 || s.k.Calls() != calls {
		t.Errorf("a restart wrote %d ops", s.k.Calls()-calls)
	}

	// A backend that is down is still checked.
	s.SetHealth(map[ServiceID]Health{svc.ID: {Down: map[netip.AddrPort]bool{netip.MustParseAddrPort("10.0.0.2:80"): true}}}, true)
	mustSync(t, s.Reconciler, s.now)
	if d := cmp.Diff(marks, checkMarks(t, s.Reconciler)); d != "" {
		t.Errorf("after a failed check (-want +got):\n%s", d)
	}

	// Another program removes one. Nothing may be dialed by its mark meanwhile.
	gone := VirtualServer{Frontend: MarkFrontend(IPv4, marks[CheckTarget{svc.ID, netip.MustParseAddr("10.0.0.2")}])}
	s.Lost([]Object{gone, RealServer{Frontend: gone.Frontend, Addr: netip.MustParseAddrPort("10.0.0.2:0")}})
	if _, ok := checkMarks(t, s.Reconciler)[CheckTarget{svc.ID, netip.MustParseAddr("10.0.0.2")}]; ok {
		t.Error("a lost virtual server is used")
	}
	mustSync(t, s.Reconciler, s.now)
	if d := cmp.Diff(marks, checkMarks(t, s.Reconciler)); d != "" {
		t.Errorf("after the repair (-want +got):\n%s", d)
	}

	s.send(checked(Tunnel, "10.0.0.1"))
	mustSync(t, s.Reconciler, s.now)
	if d := cmp.Diff(map[string]string{"10.0.0.1": "10.0.0.1:0 tunnel ipip"}, s.checkServers()); d != "" {
		t.Errorf("with another method (-want +got):\n%s", d)
	}
	plain := checked(Tunnel, "10.0.0.1")
	plain.CheckVIPs = false
	s.send(plain)
	mustSync(t, s.Reconciler, s.now)
	for o := range s.have.All() {
		if vs, ok := o.(VirtualServer); ok && vs.Frontend.Mark != 0 {
			t.Errorf("%s is left without checks of VIPs", vs)
		}
	}
}

// TestOwnSourceNeedsTheRules shows that the box admits packets with its own addresses only with the
// current rules.
func TestOwnSourceNeedsTheRules(t *testing.T) {
	t.Parallel()
	s := newLocalStory(t, checked(DirectRouting, "10.0.0.1"))
	s.k.Put(Rules{Family: IPv4, Outdated: true})
	s.want.Replace(Owner{}, append(s.want.Objects(Owner{}), OwnSourceSysctl()), s.touched)
	refused := errors.New("refused")
	s.k.Fail = func(op Op) error {
		if _, ok := op.Object.(Rules); ok {
			return refused
		}
		return nil
	}
	audit := func(have bool) {
		t.Helper()
		if _, err := s.Audit(t.Context(), s.now); err != nil {
			t.Fatal(err)
		}
		if s.have.Has(OwnSourceSysctl().ID()) != have {
			t.Errorf("accept_local is set: %v, want %v", !have, have)
		}
	}
	audit(false)
	s.k.Fail = nil
	s.now = s.now.Add(time.Hour)
	audit(true)
}
