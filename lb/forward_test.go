package lb

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// direct is a Service with backends that reply to clients themselves.
func direct(method Forwarding) Service {
	encap := Encap{}
	if method == Tunnel {
		encap = Encap{GUE, 6080, RemoteChecksum}
	}
	return Service{
		ID: ServiceID{Source: "static", Name: "web"}, Scheduler: Scheduler{Name: "mh"}, Keep: true, Forward: method, Encap: encap, Drain: time.Minute,
		VIPs: []VIP{{Addr: vip}},
		Ports: []Port{{Proto: TCP, Port: 80, Backends: []Backend{
			{Addr: netip.MustParseAddrPort("10.0.0.1:80"), Weight: 1, Forward: method, Encap: encap},
			{Addr: netip.MustParseAddrPort("10.0.0.2:80"), Weight: 1, Forward: method, Encap: encap},
		}}},
	}
}

func TestPlanOfDirectBackends(t *testing.T) {
	t.Parallel()
	for _, method := range []Forwarding{DirectRouting, Tunnel} {
		svc := direct(method)
		svc.Ports[0].Backends[1].Addr = netip.MustParseAddrPort("10.9.9.1:80")
		objects, notes := Plan(svc, &Facts{HostAddrs: map[netip.Addr]string{netip.MustParseAddr("10.9.9.1"): "eth0"}})
		var got []string
		for _, o := range objects {
			if rs, ok := o.(RealServer); ok {
				got = append(got, rs.String())
			}
			if m, ok := o.(Member); ok && m.Set == SetLoopBack {
				t.Errorf("%s: a direct backend is never masqueraded", m)
			}
		}
		want := []string{"real server 10.0.0.1:80 of 192.0.2.1:80/tcp weight 1 by direct routing"}
		if method == Tunnel {
			want = []string{"real server 10.0.0.1:80 of 192.0.2.1:80/tcp weight 1 by tunnel gue port 6080 checksum remote"}
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("%s: real servers (-want +got):\n%s", method, d)
		}
		if len(notes) != 1 || notes[0].Reason != NotAllowed {
			t.Errorf("%s: notes for a backend that is the box: %v", method, notes)
		}
		if !slices.Contains(objects, Object(tuple(SetLoadBalancerLocal, Frontend{Addr: vip, Port: 80, Proto: TCP}))) {
			t.Errorf("%s: clients are masqueraded", method)
		}
	}
}

func TestFallbackHasTheMethodOfTheService(t *testing.T) {
	t.Parallel()
	svc := direct(Tunnel)
	svc.WhenDown, svc.Fallback = UseFallback, []netip.AddrPort{netip.MustParseAddrPort("10.0.0.9:80")}
	objects, _ := Plan(svc, &Facts{Health: map[ServiceID]Health{svc.ID: {Lost: map[FamilyPort]bool{{PortKey{80, TCP}, IPv4}: true}}}})
	want := RealServer{Frontend: Frontend{Addr: vip, Port: 80, Proto: TCP}, Addr: svc.Fallback[0], Weight: 1, Forward: Tunnel, Encap: svc.Encap}
	if !slices.Contains(objects, Object(want)) {
		t.Errorf("%v, want %s", objects, want)
	}
}

// TestChangeOfTheMethodAndDrain shows that a new method is one operation for each backend, and that a
// drain does not change it.
func TestChangeOfTheMethodAndDrain(t *testing.T) {
	t.Parallel()
	s := newStory(t)
	s.Configure(Options{Base: base, Drain: time.Minute})
	s.Update(put(direct(Masquerading)))
	mustSync(t, s.Reconciler, s.now)
	s.Update(put(direct(DirectRouting)))
	rep := mustSync(t, s.Reconciler, s.now)
	if len(rep.Ops) < 2 || rep.Ops[0].Verb != Change || rep.Ops[1].Verb != Change {
		t.Errorf("operations: %v", rep.Ops)
	}
	svc := direct(DirectRouting)
	svc.Ports[0].Backends = svc.Ports[0].Backends[:1]
	s.Update(put(svc))
	mustSync(t, s.Reconciler, s.now)
	drains := RealServer{Frontend: Frontend{Addr: vip, Port: 80, Proto: TCP}, Addr: netip.MustParseAddrPort("10.0.0.2:80"), Forward: DirectRouting}
	if got := s.k.Objects()[drains.ID()]; got != Object(drains) {
		t.Errorf("%v, want %s", got, drains)
	}
}

func TestExplainOfDirectBackends(t *testing.T) {
	t.Parallel()
	s := newStory(t)
	s.Configure(Options{Base: base, Drain: time.Minute})
	s.k.HostAddrs = map[netip.Addr]string{box: "eth0"}
	s.Update(put(direct(DirectRouting)))
	mustSync(t, s.Reconciler, s.now)
	q := Query{Frontend: Frontend{Addr: vip, Port: 80, Proto: TCP}, Client: outside, Fleet: &Fleet{Others: 1, SloppyTCP: true}}
	e := s.Explain(q)
	if e.Fate != Served || e.Source != SourceKept || !e.Survival.Survives || slices.Contains(e.Survival.Needs, NeedsReplies) {
		t.Errorf("a client outside:\n%s", e)
	}
	if text := e.String(); !strings.Contains(text, "backend     10.0.0.1:80 in use, weight 1, by direct routing\n") {
		t.Error(text)
	}
	q.Client = box
	if e := s.Explain(q); e.Fate != Dropped || !strings.Contains(e.Reason, "it can't be a client of direct routing") {
		t.Errorf("the box as a client:\n%s", e)
	}
}

func TestOnePacketIsForUDP(t *testing.T) {
	t.Parallel()
	svc := direct(DirectRouting)
	svc.OnePacket = true
	svc.Ports = append(svc.Ports, Port{Proto: UDP, Port: 53, Backends: []Backend{{Addr: netip.MustParseAddrPort("10.0.0.1:53"), Weight: 1, Forward: DirectRouting}}})
	objects, _ := Plan(svc, &Facts{})
	var got []string
	for _, o := range objects {
		if vs, ok := o.(VirtualServer); ok {
			got = append(got, vs.String())
		}
	}
	if d := cmp.Diff([]string{"virtual server 192.0.2.1:53/udp mh (one-packet)", "virtual server 192.0.2.1:80/tcp mh"}, got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

// TestMixedFamilies shows that a VIP without backends of its family has tunnels to those of the other.
func TestMixedFamilies(t *testing.T) {
	t.Parallel()
	vip6, be6 := netip.MustParseAddr("2001:db8::1"), netip.MustParseAddrPort("[fd00::1]:80")
	for _, c := range []struct {
		name   string
		change func(*Service)
		mixed  bool
		want   []string
	}{
		{"tunnels", func(s *Service) { s.VIPs = []VIP{{Addr: vip6}} }, true, []string{"10.0.0.1:80 of [2001:db8::1]:80/tcp", "10.0.0.2:80 of [2001:db8::1]:80/tcp"}},
		{"the other way", func(s *Service) { s.Ports[0].Backends = []Backend{{Addr: be6, Weight: 1, Forward: Tunnel}} }, true, []string{"[fd00::1]:80 of 192.0.2.1:80/tcp"}},
		{"its own family has one", func(s *Service) {
			s.VIPs = append(s.VIPs, VIP{Addr: vip6})
			s.Ports[0].Backends = []Backend{{Addr: be6, Weight: 1, Forward: Tunnel}, {Addr: netip.MustParseAddrPort("10.0.0.1:80"), Weight: 1, Forward: Tunnel}}
		}, false, []string{"10.0.0.1:80 of 192.0.2.1:80/tcp", "[fd00::1]:80 of [2001:db8::1]:80/tcp"}},
		{"direct routing", func(s *Service) {
			s.VIPs = []VIP{{Addr: vip6}}
			s.Ports[0].Backends[0].Forward, s.Ports[0].Backends[1].Forward = DirectRouting, Masquerading
		}, false, nil},
		{"one of them by a tunnel", func(s *Service) {
			s.VIPs = []VIP{{Addr: vip6}}
			s.Ports[0].Backends[0].Forward = Masquerading
		}, true, []string{"10.0.0.2:80 of [2001:db8::1]:80/tcp"}},
		{"a group", func(s *Service) { s.VIPs, s.Group = []VIP{{Addr: vip6}}, true }, false, nil},
	} {
		svc := direct(Tunnel)
		c.change(&svc)
		objects, notes := Plan(svc, &Facts{})
		var got []string
		for _, o := range objects {
			if rs, ok := o.(RealServer); ok {
				got = append(got, strings.TrimPrefix(rs.ID().String(), "real server "))
			}
		}
		for i := range got {
			got[i], _, _ = strings.Cut(got[i], " weight")
		}
		if d := cmp.Diff(c.want, got); d != "" {
			t.Errorf("%s (-want +got):\n%s\n%v", c.name, d, notes)
		}
		noted := slices.ContainsFunc(notes, func(n Note) bool {
			return n.Reason == BadObject && strings.Contains(n.Text, "backend 10.0.0.1:80 is not used for [2001:db8::1]:80/tcp")
		})
		if noted != (c.name == "one of them by a tunnel") {
			t.Errorf("%s: notes %v", c.name, notes)
		}
		if _, mixed := svc.Mixed(); mixed != c.mixed {
			t.Errorf("%s: mixed: %v", c.name, mixed)
		}
	}
}

// TestQuorumOfMixedFamilies shows that the quorum is that of the backends.
func TestQuorumOfMixedFamilies(t *testing.T) {
	t.Parallel()
	svc := direct(Tunnel)
	svc.VIPs, svc.WhenDown = []VIP{{Addr: netip.MustParseAddr("2001:db8::1")}}, Refuse
	objects, notes := Plan(svc, &Facts{Health: map[ServiceID]Health{svc.ID: {Lost: map[FamilyPort]bool{{PortKey{80, TCP}, IPv4}: true}}}})
	for _, o := range objects {
		if rs, ok := o.(RealServer); ok && rs.Weight != 0 {
			t.Errorf("%s, want weight 0", rs)
		}
	}
	if len(notes) != 1 || notes[0].Reason != QuorumLost {
		t.Errorf("notes: %v", notes)
	}
}

// TestFallbackOfMixedFamilies shows that a fallback of the backends' family serves a VIP of the other one.
func TestFallbackOfMixedFamilies(t *testing.T) {
	t.Parallel()
	vip6 := netip.MustParseAddr("2001:db8::1")
	svc := direct(Tunnel)
	svc.VIPs, svc.WhenDown, svc.Fallback = []VIP{{Addr: vip6}}, UseFallback, []netip.AddrPort{netip.MustParseAddrPort("10.0.0.9:80")}
	objects, _ := Plan(svc, &Facts{Health: map[ServiceID]Health{svc.ID: {Lost: map[FamilyPort]bool{{PortKey{80, TCP}, IPv4}: true}}}})
	want := RealServer{Frontend: Frontend{Addr: vip6, Port: 80, Proto: TCP}, Addr: svc.Fallback[0], Weight: 1, Forward: Tunnel, Encap: svc.Encap}
	if !slices.Contains(objects, Object(want)) {
		t.Errorf("%v, want %s", objects, want)
	}
}
