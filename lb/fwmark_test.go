package lb

import (
	"net/netip"
	"slices"
	"testing"
)

// media is a Service of packets with firewall mark 7.
func media() Service {
	return Service{
		ID: ServiceID{Source: "prod", Name: "media"}, Scheduler: Scheduler{Name: "mh"}, FWMark: 7, Keep: true, VIPs: []VIP{{Addr: vip}},
		Ports: []Port{{Proto: TCP, Backends: []Backend{{Addr: netip.MustParseAddrPort("10.0.0.1:0"), Weight: 1}}}},
	}
}

func TestGivenMarkServesItsVIPs(t *testing.T) {
	t.Parallel()
	svc, face := media(), GivenFrontend(IPv4, 7)
	s := newLocalStory(t, svc)
	if got := s.k.Connect(outside, face); got.Fate != Served || got.Masqueraded {
		t.Errorf("a packet with the mark: %+v", got)
	}
	if got := s.k.Connect(outside, Frontend{Addr: vip, Port: 80, Proto: TCP}); got.Fate != Refused {
		t.Errorf("a packet without the mark: %+v", got)
	}
	if r := s.Route(vip); len(r.Serves) != 1 {
		t.Errorf("no client is routed to %+v", r)
	}
	if e := s.Explain(Query{Frontend: face}); e.Fate != Served || len(e.Claims) != 1 || !e.Claims[0].Wins || len(e.Candidates) != 1 {
		t.Errorf("%s", e)
	}
	calls := s.k.Calls()
	if mustSync(t, s.again(svc).Reconciler, s.now); s.k.Calls() != calls {
		t.Errorf("a restart wrote %d ops", s.k.Calls()-calls)
	}
	down := map[netip.AddrPort]bool{svc.Ports[0].Backends[0].Addr: true}
	s.SetHealth(map[ServiceID]Health{svc.ID: {Down: down}})
	mustSync(t, s.Reconciler, s.now)
	if r := s.Route(vip); r.Withheld != NoLiveBackend {
		t.Errorf("without a backend: %+v", r)
	}
	s.send()
	mustSync(t, s.Reconciler, s.now)
	if s.have.Has(VirtualServer{Frontend: face}) || s.have.Has(markMember(face)) || s.have.Has(Address{vip}) {
		t.Error("objects of the removed Service are left")
	}
}

// TestForeignVirtualServerHasItsMark shows that weir changes no virtual server that another program made.
func TestForeignVirtualServerHasItsMark(t *testing.T) {
	t.Parallel()
	face := GivenFrontend(IPv4, 7)
	s := newLocalStory(t, kube(nil, VIP{Addr: vip}))
	foreign := VirtualServer{Frontend: face, Scheduler: Scheduler{Name: "wlc"}}
	s.k.Put(foreign)
	if _, err := s.Audit(t.Context(), s.now); err != nil {
		t.Fatal(err)
	}
	s.send(media())
	mustSync(t, s.Reconciler, s.now)
	if !slices.ContainsFunc(s.Notes(), func(n Note) bool { return n.Reason == ForeignFrontend }) || s.k.Objects()[foreign.ID()] != foreign {
		t.Errorf("notes %v, virtual server %v", s.Notes(), s.k.Objects()[foreign.ID()])
	}
}
