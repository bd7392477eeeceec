package lb

import (
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// group is a Service with one virtual server for two ports.
func group(method Forwarding, backends ...string) Service {
	svc := Service{
		ID: ServiceID{Source: "prod", Name: "web"}, Scheduler: Scheduler{Name: "rr"}, Affinity: time.Minute, Drain: time.Minute,
		Group: true, Keep: method.Direct(), VIPs: []VIP{{Addr: vip}}, Ports: []Port{{Proto: TCP, Port: 80}, {Proto: TCP, Port: 443}},
	}
	for i := range svc.Ports {
		for _, a := range backends {
			at := netip.AddrPortFrom(netip.MustParseAddr(a), svc.Ports[i].Port)
			svc.Ports[i].Backends = append(svc.Ports[i].Backends, Backend{Addr: at, Weight: 1, Forward: method})
		}
	}
	return svc
}

// groupFace returns the virtual server of a group.
func (s *story) groupFace() Frontend {
	m, _ := s.have.mapping(SetGroup, Frontend{Addr: vip, Port: 443, Proto: TCP})
	return MarkFrontend(IPv4, m.Mark)
}

func TestGroupHasOneVirtualServer(t *testing.T) {
	t.Parallel()
	for _, method := range []Forwarding{Masquerading, DirectRouting} {
		s := newLocalStory(t, group(method, "10.0.0.1", "10.0.0.2"))
		var got []string
		for o := range s.have.Of(s.groupFace()) {
			if rs, ok := o.(RealServer); ok {
				got = append(got, rs.Addr.String())
			}
		}
		if d := cmp.Diff([]string{"10.0.0.1:0", "10.0.0.2:0"}, got); d != "" {
			t.Errorf("%s: real servers (-want +got):\n%s", method, d)
		}
		for _, port := range []uint16{80, 443} {
			want := Outcome{Fate: Served, Masqueraded: method == Masquerading}
			for _, a := range []string{"10.0.0.1", "10.0.0.2"} {
				want.Backends = append(want.Backends, netip.AddrPortFrom(netip.MustParseAddr(a), port))
			}
			if method == DirectRouting {
				want.Direct = want.Backends
			}
			if d := cmp.Diff(want, s.k.Connect(outside, Frontend{Addr: vip, Port: port, Proto: TCP}), exact); d != "" {
				t.Errorf("%s, port %d (-want +got):\n%s", method, port, d)
			}
		}
		if calls := s.k.Calls(); mustSync(t, s.again(group(method, "10.0.0.1", "10.0.0.2")).Reconciler, s.now).Failed != 0 || s.k.Calls() != calls {
			t.Errorf("%s: a restart wrote %d ops", method, s.k.Calls()-calls)
		}
	}
}

// TestBoxesChooseTheSameMarkForAGroup shows that a synced connection finds the virtual server of its group.
func TestBoxesChooseTheSameMarkForAGroup(t *testing.T) {
	t.Parallel()
	first := newLocalStory(t, group(Masquerading, "10.0.0.1"))
	other := newLocalStory(t, numbered(1))
	other.send(group(Masquerading, "10.0.0.1"))
	mustSync(t, other.Reconciler, other.now)
	if a, b := first.groupFace(), other.groupFace(); a != b || a.Mark&MasqueradedMark == 0 {
		t.Errorf("%s on one box, %s on the other", a, b)
	}
	kept := group(Masquerading, "10.0.0.1")
	kept.Keep = true
	first.send(kept)
	mustSync(t, first.Reconciler, first.now)
	if f := first.groupFace(); f.Mark == 0 || f.Mark&MasqueradedMark != 0 {
		t.Errorf("%s masquerades the clients of a group that keeps their addresses", f)
	}
}

func TestGroupBackendIsUpOnAllPorts(t *testing.T) {
	t.Parallel()
	svc := group(Masquerading, "10.0.0.1", "10.0.0.2")
	s := newLocalStory(t, svc)
	face := s.groupFace()
	s.SetHealth(map[ServiceID]Health{svc.ID: {Down: map[netip.AddrPort]bool{netip.MustParseAddrPort("10.0.0.2:443"): true}}}, true)
	mustSync(t, s.Reconciler, s.now)
	if rs, ok := s.have.RealServer(face, netip.MustParseAddrPort("10.0.0.2:0")); !ok || rs.Weight != 0 {
		t.Errorf("%s takes clients of port 80", rs)
	}
	e := s.Explain(Query{Frontend: Frontend{Addr: vip, Port: 80, Proto: TCP}, Client: outside})
	i := slices.IndexFunc(e.Candidates, func(c Candidate) bool { return c.Addr == netip.MustParseAddrPort("10.0.0.2:80") })
	if i < 0 || e.Candidates[i].State != Closed || e.Candidates[i].Reason != "its health check failed" || len(e.Candidates) != 2 {
		t.Errorf("candidates %+v", e.Candidates)
	}
	svc.WhenDown, svc.Fallback = UseFallback, []netip.AddrPort{netip.AddrPortFrom(netip.MustParseAddr("10.0.0.9"), 0)}
	s.send(svc)
	s.SetHealth(map[ServiceID]Health{svc.ID: {Lost: map[FamilyPort]bool{{PortKey{443, TCP}, IPv4}: true}}}, true)
	mustSync(t, s.Reconciler, s.now)
	if got := s.k.Connect(outside, Frontend{Addr: vip, Port: 80, Proto: TCP}); !slices.Equal(got.Backends, []netip.AddrPort{netip.MustParseAddrPort("10.0.0.9:80")}) {
		t.Errorf("without a quorum clients reach %v", got.Backends)
	}
}

// TestMarkOfAGroupDrains shows that connections of a removed group keep their virtual server.
func TestMarkOfAGroupDrains(t *testing.T) {
	t.Parallel()
	s := newLocalStory(t, group(Masquerading, "10.0.0.1"))
	face := s.groupFace()
	s.k.SetConns(RealServer{Frontend: face, Addr: netip.MustParseAddrPort("10.0.0.1:0")}, Conns{Active: 1})
	ordinary := group(Masquerading, "10.0.0.1")
	ordinary.Group = false
	s.send(ordinary)
	for range 3 {
		s.now = s.now.Add(2 * time.Second)
		mustSync(t, s.Reconciler, s.now)
	}
	if !s.have.Has(VirtualServer{Frontend: face}) {
		t.Error("the virtual server of open connections is gone")
	}
	if out := s.k.Connect(outside, Frontend{Addr: vip, Port: 80, Proto: TCP}); out.Fate != Served {
		t.Errorf("new connections are %s", out.Fate)
	}
	s.now = s.now.Add(2 * time.Minute)
	mustSync(t, s.Reconciler, s.now)
	mustSync(t, s.Reconciler, s.now)
	if s.have.Has(VirtualServer{Frontend: face}) || len(s.marks.of) > 0 {
		t.Errorf("the mark is left: %v", s.marks.of)
	}
}
