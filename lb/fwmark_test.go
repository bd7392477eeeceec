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
	s.SetHealth(map[ServiceID]Health{svc.ID: {Down: down}}, true)
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

// TestMarkLeavesExcludedVIPs shows that exclude_cidrs count for the VIPs of a mark, too: otherwise such
// an address could be the box's own and a backend of another Service.
func TestMarkLeavesExcludedVIPs(t *testing.T) {
	t.Parallel()
	objects, notes := Plan(media(), &Facts{Exclude: []netip.Prefix{netip.PrefixFrom(vip, 32)}})
	if slices.Contains(objects, Object(Address{vip})) || !slices.ContainsFunc(notes, func(n Note) bool { return n.Reason == Excluded }) {
		t.Errorf("%v\n%v", objects, notes)
	}
}

// TestMarkTouchesItsOwnVIPs shows that a change of one Service by mark makes no VIP of another one dirty.
func TestMarkTouchesItsOwnVIPs(t *testing.T) {
	t.Parallel()
	svc, other := media(), numbered(2)
	s := newLocalStory(t, svc)
	s.send(svc, other)
	mustSync(t, s.Reconciler, s.now)
	if _, err := s.Routes(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.SetHealth(map[ServiceID]Health{svc.ID: {Down: map[netip.AddrPort]bool{svc.Ports[0].Backends[0].Addr: true}}}, true)
	mustSync(t, s.Reconciler, s.now)
	got, err := s.Routes(t.Context())
	if err != nil || len(got) != 1 || got[0].Addr != vip || got[0].Withheld != NoLiveBackend {
		t.Errorf("%+v, %v: want %s only", got, err, vip)
	}
}

// TestMissingBackendOfAMarkWithdrawsAllItsVIPs shows that a reading for one VIP of a mark counts for those that were
// announced before.
func TestMissingBackendOfAMarkWithdrawsAllItsVIPs(t *testing.T) {
	t.Parallel()
	svc, second := media(), netip.MustParseAddr("192.0.2.77")
	s := newLocalStory(t, svc)
	told := table{}
	told.take(t, s.Reconciler)
	if len(told[vip]) != 1 {
		t.Fatalf("the VIP is not announced: %v", told)
	}
	svc.VIPs = append(svc.VIPs, VIP{Addr: second})
	svc.Ports[0].Backends[0].Weight = 2 // so that its real server is written, and then read back
	s.send(svc)
	mustSync(t, s.Reconciler, s.now)
	s.k.Remove(RealServer{Frontend: GivenFrontend(IPv4, 7), Addr: svc.Ports[0].Backends[0].Addr}) // without an event
	told.take(t, s.Reconciler)
	if len(told) > 0 {
		t.Errorf("the kernel has no backend, and yet: %v", told)
	}
	if next := s.Next(); !next.Equal(s.now) {
		t.Errorf("the repair is due at %v, want at once, %v", next, s.now)
	}
	mustSync(t, s.Reconciler, s.now)
	told.take(t, s.Reconciler)
	if len(told[vip]) != 1 || len(told[second]) != 1 {
		t.Errorf("after the repair both are announced: %v", told)
	}
}

// TestNeedsIPVS has Notes instead of objects that only IPVS can have.
func TestNeedsIPVS(t *testing.T) {
	t.Parallel()
	group, checks := group(Masquerading, "10.0.0.1"), checked(DirectRouting, "10.0.0.2")
	for _, tt := range []struct {
		svc  Service
		want []string
	}{
		{media(), []string{"fwmark needs IPVS: packets with firewall mark 7 are not served"}},
		{group, []string{"a group needs IPVS: 192.0.2.1:443/tcp selects backends by itself", "a group needs IPVS: 192.0.2.1:80/tcp selects backends by itself"}},
		{checks, []string{"direct routing needs IPVS: backend 10.0.0.2:443 is not used", "direct routing needs IPVS: backend 10.0.0.2:80 is not used"}},
	} {
		objects, notes := Plan(tt.svc, &Facts{WithoutIPVS: true})
		for _, o := range objects {
			if vs, ok := o.(VirtualServer); ok && vs.Frontend.Mark != 0 {
				t.Errorf("%s: %s is planned", tt.svc.ID, o)
			}
		}
		var got []string
		for _, n := range notes {
			if n.Reason == NeedsIPVS {
				got = append(got, n.Text)
			}
		}
		slices.Sort(got)
		if !slices.Equal(got, tt.want) {
			t.Errorf("%s: notes %q, want %q", tt.svc.ID, got, tt.want)
		}
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

// TestExplainGivenMarks shows why packets with a mark are not served.
func TestExplainGivenMarks(t *testing.T) {
	t.Parallel()
	face, other := GivenFrontend(IPv4, 7), GivenFrontend(IPv4, 8)
	unmarked := "no virtual server with the mark: the packet goes the way of its address"
	for _, tt := range []struct {
		name         string
		about        Frontend
		prepare      func(s *story)
		fate         Fate
		reason, step string
		nearest      int
	}{
		{"all backends are down", face, func(s *story) {
			s.SetHealth(map[ServiceID]Health{media().ID: {Down: map[netip.AddrPort]bool{media().Ports[0].Backends[0].Addr: true}}}, true)
			mustSync(t, s.Reconciler, s.now)
		}, Refused, "none of the 1 backend of prod/media takes new connections", "no backend takes new connections", 0},
		{"unknown, beside another mark", other, nil, Unrouted, "no Service has firewall mark 8 for IPv4", unmarked, 1},
		{"unknown, alone", other, func(s *story) {
			s.send()
			mustSync(t, s.Reconciler, s.now)
		}, Unrouted, "no Service has firewall mark 8 for IPv4", unmarked, 0},
		{"not applied", other, func(s *story) {
			more := media()
			more.ID.Name, more.FWMark, more.VIPs = "more", 8, nil
			s.send(media(), more)
			if _, err := s.Preview(t.Context(), s.now); err != nil {
				t.Fatal(err)
			}
		}, Unrouted, "prod/more has it, but it is not applied yet", unmarked, 0},
		{"foreign", other, func(s *story) {
			s.k.Put(VirtualServer{Frontend: other, Scheduler: Scheduler{Name: "wlc"}})
			if _, err := s.Audit(t.Context(), s.now); err != nil {
				t.Fatal(err)
			}
		}, Foreign, "is a virtual server that weir did not make", "is a virtual server that weir did not make", 1},
		{"foreign, and wanted", other, func(s *story) {
			s.k.Put(VirtualServer{Frontend: other, Scheduler: Scheduler{Name: "wlc"}})
			if _, err := s.Audit(t.Context(), s.now); err != nil {
				t.Fatal(err)
			}
			more := media()
			more.ID.Name, more.FWMark, more.VIPs = "more", 8, nil
			s.send(media(), more)
			mustSync(t, s.Reconciler, s.now)
		}, Foreign, "prod/more wants it, but IPv4 fwmark 8 is a virtual server that weir did not make; remove it (ipvsadm -D) or choose another mark",
			"is a virtual server that weir did not make", 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := newLocalStory(t, media())
			if tt.prepare != nil {
				tt.prepare(s)
			}
			e := s.Explain(Query{Frontend: tt.about})
			if step := e.Steps[len(e.Steps)-1].Result; e.Fate != tt.fate || e.Reason != tt.reason || step != tt.step || len(e.Nearest) != tt.nearest {
				t.Errorf("%s", e)
			}
		})
	}
}

// TestExplainMarkOfTwoServices shows the claims on one mark.
func TestExplainMarkOfTwoServices(t *testing.T) {
	t.Parallel()
	s, late := newLocalStory(t, media()), media()
	late.ID.Name, late.Created = "z", testNow
	s.send(media(), late)
	mustSync(t, s.Reconciler, s.now)
	e := s.Explain(Query{Frontend: GivenFrontend(IPv4, 7)})
	if want := []Claim{{"prod/media", "IPv4 fwmark 7", true}, {"prod/z", "IPv4 fwmark 7", false}}; e.Fate != Served || !slices.Equal(e.Claims, want) {
		t.Errorf("%s", e)
	}
}
