package lb

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"testing"
	"time"
)

// onTheBox returns the real servers in a kernel that send packets to the box itself,
// by an address that weir has added.
func onTheBox(k *Fake) []Object {
	var out []Object
	for _, o := range k.Objects() {
		rs, ok := o.(RealServer)
		if _, host := k.HostAddrs[rs.Addr.Addr()]; ok && !host && k.local(rs.Addr.Addr()) {
			out = append(out, rs)
		}
	}
	slices.SortFunc(out, Compare)
	return out
}

// However VIPs and backends come and go, and whatever fails or drains, no packet is
// given to a backend that is a VIP of the box: it would reach what listens there.
func TestLawNoBackendIsAVIP(t *testing.T) {
	seeds(t, 75, func(t *testing.T, g *gen) {
		opts := g.options()
		k := g.kernel()
		sources := []string{"static", "prod"}
		r := NewReconciler(k, opts, sources...)
		failing := g.chance(30)
		k.Fail = func(Op) error {
			if failing && g.chance(15) {
				return context.DeadlineExceeded
			}
			return nil
		}
		k.After = func(op Op) {
			if wrong := onTheBox(k); len(wrong) > 0 {
				t.Fatalf("after %s the box is its own backend: %v", op, wrong)
			}
		}
		now := testNow
		for range 6 {
			for _, source := range sources {
				if g.chance(30) {
					continue
				}
				services := g.services()
				for i := range services {
					services[i].ID.Source = source
				}
				r.Update(Update{Source: source, Put: services, Synced: true})
			}
			mustSync(t, r, now)
			now = now.Add(time.Duration(1+g.IntN(30)) * time.Second)
			g.busy(k)
			switch g.IntN(6) {
			case 0: // a restart: one of them may be silent for a while
				r = NewReconciler(k, opts, sources...)
			case 1:
				delete(k.HostAddrs, netip.MustParseAddr("192.0.2.3"))
				mustAudit(t, r, now)
			case 2: // other pools, and other addresses unchanged
				opts = g.options()
				r.Configure(opts)
			case 3:
				hosts := maps.Clone(k.HostAddrs)
				hosts[netip.MustParseAddr("192.0.2.3")] = "eth1"
				k.HostAddrs = hosts
			}
		}
	})
}

// lender is a Service with a VIP that web may have as a backend.
func lender() Service {
	s := web(be1)
	s.ID.Name, s.VIPs = "lender", []VIP{{Addr: be2.Addr()}}
	return s
}

func TestBackendThatIsAVIPIsRefused(t *testing.T) {
	addr := func(s string) netip.AddrPort { return netip.MustParseAddrPort(s) }
	facts := &Facts{
		HostAddrs: map[netip.Addr]string{box: "eth0", netip.MustParseAddr("172.16.0.1"): "eth1"},
		Exclude:   []netip.Prefix{netip.MustParsePrefix("192.0.2.200/32")},
		Pools:     []PoolRoute{{Prefix: netip.MustParsePrefix("198.51.100.0/24")}, {Prefix: netip.MustParsePrefix("172.16.0.0/24")}},
		vips:      map[netip.Addr]int{be2.Addr(): 1, box: 1, netip.MustParseAddr("192.0.2.200"): 1},
	}
	for _, tt := range []struct {
		name, note string
		backend    netip.AddrPort
	}{
		{"a VIP", "backend 10.0.0.2:8080 is a VIP of this box and is not used: it would be reached past the box's firewall", be2},
		{"the anchor's address", "backend 192.0.0.8:22 is an address that weir has for itself and is not used: it would be reached past the box's firewall", addr("192.0.0.8:22")},
		{"in a pool", "backend 198.51.100.9:22 is in pool 198.51.100.0/24 of this box and is not used: it would be reached past the box's firewall", addr("198.51.100.9:22")},
		{"in a pool that is no route, as the box is in it", "", addr("172.16.0.9:22")},
		{"excluded, so the VIP is not on the box", "", addr("192.0.2.200:22")},
		{"the node itself, whoever wants its address as a VIP", "", addr("10.9.9.1:22")},
		{"another host", "", be1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			objects, notes := Plan(web(tt.backend), facts)
			if got := has[RealServer](objects); got != (tt.note == "") {
				t.Errorf("it is a backend: %v", got)
			}
			var got string
			if i := slices.IndexFunc(notes, func(n Note) bool { return n.Reason == NotAllowed }); i >= 0 {
				got = notes[i].Text
			}
			if got != tt.note {
				t.Errorf("note %q, want %q", got, tt.note)
			}
		})
	}
}

func TestBackendFollowsAVIPThatComesAndGoes(t *testing.T) {
	s := newStory(t)
	s.create()
	s.conns(be2, 1)
	s.Update(put(web(be1, be2), lender()))
	rep := mustSync(t, s.Reconciler, s.now)
	gone := slices.IndexFunc(rep.Ops, func(op Op) bool {
		return op.String() == "delete real server 10.0.0.2:8080 of 192.0.2.1:80/tcp weight 1"
	})
	come := slices.IndexFunc(rep.Ops, func(op Op) bool { return op.String() == "add address 10.0.0.2" })
	if gone < 0 || gone > come {
		t.Errorf("the backend does not go before the address comes: %v", rep.Ops)
	}
	if n := s.Notes(); len(n) != 1 || n[0].Reason != NotAllowed || n[0].Service != web().ID {
		t.Errorf("notes %v", n)
	}
	if e := s.Explain(Query{Frontend: front}); len(e.Candidates) != 2 || e.Candidates[1].Reason != "it is a VIP of this box" {
		t.Errorf("explained as\n%s", e)
	}
	// Its connections are worth an address that stays: web gets its backend back
	// when that goes.
	s.k.SetConns(RealServer{Frontend: Frontend{Addr: be2.Addr(), Port: 80, Proto: TCP}, Addr: be1}, Conns{Active: 1})
	s.Update(put(web(be1, be2)))
	rep = mustSync(t, s.Reconciler, s.now)
	if rep.Failed != 1 || !s.held(Address{be2.Addr()}) || len(onTheBox(s.k)) > 0 {
		t.Errorf("the address drains, and %d ops wait: %v", rep.Failed, rep.Ops)
	}
	s.k.SetConns(RealServer{Frontend: Frontend{Addr: be2.Addr(), Port: 80, Proto: TCP}, Addr: be1}, Conns{})
	for range 3 {
		s.now = s.now.Add(5 * time.Second)
		mustSync(t, s.Reconciler, s.now)
	}
	if got := s.k.Connect(clients[0], front); !slices.Equal(got.Backends, []netip.AddrPort{be1, be2}) || len(s.Notes()) > 0 {
		t.Errorf("in the end %v, notes %v", got, s.Notes())
	}
}

// What cannot be cut keeps the address away.
func TestVIPWaitsForABackendThatDoesNotGo(t *testing.T) {
	s := newStory(t)
	s.create()
	s.k.Fail = func(op Op) error {
		if rs, ok := op.Object.(RealServer); ok && op.Verb == Delete && rs.Addr == be2 {
			return context.DeadlineExceeded
		}
		return nil
	}
	s.Update(put(web(be1, be2), lender()))
	mustSync(t, s.Reconciler, s.now)
	if s.held(Address{be2.Addr()}) {
		t.Error("the address is there, and the backend too")
	}
	s.k.Fail = nil
	s.now = s.now.Add(5 * time.Second)
	mustSync(t, s.Reconciler, s.now)
	if !s.held(Address{be2.Addr()}) || len(onTheBox(s.k)) > 0 {
		t.Error("the address does not come when the backend has gone")
	}
}

// A backend found at the start, of a source that is silent as yet, stays; but not
// where another source has a VIP now.
func TestVIPOfOneSourceEndsABackendOfAnUnsyncedOne(t *testing.T) {
	s := newStory(t)
	s.create()
	r := NewReconciler(s.k, Options{Drain: time.Minute}, "static", "prod")
	s.Reconciler = r
	s.sets()
	mustSync(t, r, s.now)
	old := RealServer{Frontend: front, Addr: be2}
	if !s.held(old) {
		t.Fatal("it is not held for the source that is silent")
	}
	vips := lender()
	vips.ID.Source = "prod"
	r.Update(Update{Source: "prod", Put: []Service{vips}, Synced: true})
	mustSync(t, r, s.now)
	if s.held(old) || !s.held(Address{be2.Addr()}) || !s.held(RealServer{Frontend: front, Addr: be1}) {
		t.Error("the backend that is a VIP stays, or the other one goes")
	}
	// Later, too: the VIP comes after the source's first word.
	again := NewReconciler(s.k, Options{Drain: time.Minute}, "static", "prod")
	s.Reconciler = again
	s.sets()
	again.Update(Update{Source: "prod", Synced: true, Put: []Service{vips}})
	mustSync(t, again, s.now)
	vips.VIPs = append(vips.VIPs, VIP{Addr: be1.Addr()})
	again.Update(Update{Source: "prod", Put: []Service{vips}})
	mustSync(t, again, s.now)
	if got := onTheBox(s.k); len(got) > 0 || !s.held(Address{be1.Addr()}) {
		t.Errorf("the box is its own backend: %v", got)
	}
}

// The node's own pods may have its addresses, so a VIP there takes none of them away
// as long as the node has the address.
func TestBackendThatIsAVIPAndTheNodeItself(t *testing.T) {
	s := newStory(t)
	s.sets()
	s.k.HostAddrs = map[netip.Addr]string{be2.Addr(): "eth0"}
	s.Update(put(web(be1, be2), lender()))
	mustSync(t, s.Reconciler, s.now)
	for _, step := range []struct {
		hosts map[netip.Addr]string
		want  []netip.AddrPort
	}{
		{map[netip.Addr]string{be2.Addr(): "eth0"}, []netip.AddrPort{be1, be2}},
		{nil, []netip.AddrPort{be1}},
		{map[netip.Addr]string{be2.Addr(): "eth0"}, []netip.AddrPort{be1, be2}},
	} {
		s.k.HostAddrs = step.hosts
		for range 3 {
			s.now = s.now.Add(5 * time.Second)
			mustAudit(t, s.Reconciler, s.now)
		}
		if got := s.k.Connect(clients[0], front).Backends; !slices.Equal(got, step.want) {
			t.Errorf("with %v: %v, want %v", step.hosts, got, step.want)
		}
	}
}

// A backend that is refused is none on another node either: clients are refused, as
// where there are none, and not dropped so that they may ask another node.
func TestRefusedBackendIsNotOneOfAnotherNode(t *testing.T) {
	svc := web()
	svc.VIPs[0].Local = true
	svc.Ports[0].Backends = []Backend{{Addr: be2, Weight: 1}}
	_, notes := Plan(svc, &Facts{vips: map[netip.Addr]int{be2.Addr(): 1}})
	if got := reasons(notes); slices.Contains(got, NoLocal) || !slices.Contains(got, NoBackends) {
		t.Errorf("notes %v", notes)
	}
}

// Only Services that have the address are planned again, and only when it comes or
// goes.
func TestVIPThatStaysReplansNoService(t *testing.T) {
	s := newStory(t)
	s.create()
	s.Update(Update{Source: "static", Put: []Service{lender()}})
	if got := slices.Collect(maps.Keys(s.catalog.changedVIPs)); !slices.Equal(got, []netip.Addr{be2.Addr()}) {
		t.Errorf("moved %v", got)
	}
	mustSync(t, s.Reconciler, s.now)
	changed := lender()
	changed.Keep = true
	s.Update(Update{Source: "static", Put: []Service{changed}})
	if len(s.catalog.changedVIPs) > 0 {
		t.Errorf("moved %v, and the Service has just another policy", s.catalog.changedVIPs)
	}
}

// What keeps a frontend its last backend when the next one fails does not keep it one
// that is about to be the box.
func TestLastBackendThatBecomesAVIPIsRemoved(t *testing.T) {
	s := newStory(t)
	s.sets()
	s.Update(put(web(be2)))
	mustSync(t, s.Reconciler, s.now)
	s.k.Fail = func(op Op) error {
		if rs, ok := op.Object.(RealServer); ok && op.Verb == Add && rs.Frontend == front {
			return context.DeadlineExceeded
		}
		return nil
	}
	s.Update(put(web(be1, be2), lender()))
	mustSync(t, s.Reconciler, s.now)
	if s.held(RealServer{Frontend: front, Addr: be2}) || !s.held(Address{be2.Addr()}) {
		t.Error("the backend stays, and the VIP waits for it")
	}
}

// A pool that becomes a route ends what drains in it, whether the pool is new or the
// box has lost the address that kept it from being one.
func TestPoolEndsDrainsOfItsAddresses(t *testing.T) {
	pools := []PoolRoute{{Prefix: netip.MustParsePrefix("10.0.0.2/31")}}
	inPool := web(be1)
	inPool.ID.Name, inPool.VIPs = "pooled", []VIP{{Addr: netip.MustParseAddr("10.0.0.3")}}
	for _, tt := range []struct {
		name   string
		before []PoolRoute
		hosts  map[netip.Addr]string
	}{
		{"a new pool", nil, nil},
		{"the box's own address goes", pools, map[netip.Addr]string{be2.Addr(): "eth0"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := newStory(t)
			s.k.HostAddrs = tt.hosts
			opts := s.opts
			opts.Base, opts.Pools = base, tt.before
			s.Configure(opts)
			s.Update(put(web(be1, be2), inPool))
			mustSync(t, s.Reconciler, s.now)
			s.conns(be2, 1)
			s.Update(put(web(be1), inPool))
			mustSync(t, s.Reconciler, s.now)
			if len(s.Drains()) != 1 {
				t.Fatalf("drains %v", s.Drains())
			}
			s.k.After = func(op Op) {
				if wrong := onTheBox(s.k); len(wrong) > 0 {
					t.Errorf("after %s the box is its own backend: %v", op, wrong)
				}
			}
			opts.Pools = pools
			s.Configure(opts)
			s.k.HostAddrs = nil
			mustAudit(t, s.Reconciler, s.now)
			if !s.held(pools[0].ID()) || len(s.Drains()) > 0 {
				t.Errorf("the pool is a route: %v; drains %v", s.held(pools[0].ID()), s.Drains())
			}
		})
	}
}

// The box can't reply in place of a host with direct routing, so it is no such backend while it has the address.
func TestDirectBackendFollowsTheBoxsAddresses(t *testing.T) {
	host := map[netip.Addr]string{be2.Addr(): "eth0"}
	backends := web(be1, be2)
	backends.Keep = true
	for i := range backends.Ports[0].Backends {
		backends.Ports[0].Backends[i].Forward = DirectRouting
	}
	fallback := web()
	fallback.Keep, fallback.Forward = true, DirectRouting
	fallback.WhenDown, fallback.Fallback = UseFallback, []netip.AddrPort{be1, be2}
	for name, svc := range map[string]Service{"backends": backends, "fallbacks": fallback} {
		for _, hosts := range [][]map[netip.Addr]string{{host, nil}, {nil, host}} {
			t.Run(fmt.Sprint(name, hosts), func(t *testing.T) {
				s := newStory(t)
				s.sets()
				s.Update(put(svc))
				if svc.WhenDown == UseFallback {
					s.SetHealth(map[ServiceID]Health{svc.ID: {Lost: map[FamilyPort]bool{{svc.Ports[0].Key(), IPv4}: true}}}, true)
				}
				for _, s.k.HostAddrs = range hosts {
					mustAudit(t, s.Reconciler, s.now)
					_, own := s.k.HostAddrs[be2.Addr()]
					if rs, ok := s.want.wanted.RealServer(front, be2); own == (ok && rs.Weight > 0) {
						t.Errorf("the box has %v: %v, notes %v", s.k.HostAddrs, rs, s.Notes())
					}
				}
			})
		}
	}
}
