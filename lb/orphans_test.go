package lb

import (
	"net/netip"
	"testing"
	"time"
)

var (
	away    = netip.MustParseAddr("192.0.2.9")
	awayWeb = Frontend{Addr: away, Port: 80, Proto: TCP}
)

// elsewhere is a Service of a cluster that shares a VIP with web.
func elsewhere(source string) Service {
	s := web(be1)
	s.ID = ServiceID{Source: source, Namespace: "shop", Name: "web"}
	s.Created = testNow
	s.VIPs = []VIP{{Addr: away}}
	shared := Port{Proto: TCP, Port: 443, Backends: s.Ports[0].Backends}
	s.Ports = append(s.Ports, shared)
	return s
}

// restarted is a new process on the kernel of s that knows the given sources.
func (s *story) restarted(sources ...string) *story {
	r := &story{s.T, NewReconciler(s.k, Options{Drain: time.Minute}, sources...), s.k, s.now}
	r.sets()
	return r
}

func (s *story) held(id Object) bool { return s.k.Objects()[id] != nil }

func TestUnreachableClusterKeepsOnlyItsOwnServices(t *testing.T) {
	s := newStory(t)
	s.sets()
	s.SetSources("static", "away", "near")
	s.Update(put(web(be1, be2)))
	both := elsewhere("away")
	both.VIPs = append(both.VIPs, VIP{Addr: vip}) // port 443 beside web's 80
	s.Update(Update{Source: "away", Put: []Service{both}, Synced: true})
	s.Update(Update{Source: "near", Synced: true})
	mustSync(t, s.Reconciler, s.now)

	r := s.restarted("static", "away", "near")
	r.Update(put(web(be1, be2)))
	r.Update(Update{Source: "near", Synced: true})
	if rep := mustSync(t, r.Reconciler, r.now); rep.Deferred == 0 || len(rep.Ops) > 0 {
		t.Errorf("%d objects are held, ops %v", rep.Deferred, rep.Ops)
	}
	// What is static comes and goes as ever.
	r.Update(put(web(be1)))
	r.sync(0, "change real server 10.0.0.2:8080 of 192.0.2.1:80/tcp weight 0")
	r.sync(2*time.Second, "delete real server 10.0.0.2:8080 of 192.0.2.1:80/tcp weight 0")
	r.Update(put())
	mustSync(t, r.Reconciler, r.now)
	mustSync(t, r.Reconciler, r.now.Add(2*time.Second))
	for _, x := range []struct {
		id   Object
		want bool
	}{
		{VirtualServer{Frontend: front}, false},
		{tuple(SetIPVSPorts, front), false},
		{VirtualServer{Frontend: awayWeb}, true},
		{RealServer{Frontend: awayWeb, Addr: be1}, true},
		{Address{away}, true},
		{Address{vip}, true}, // the cluster's port 443 needs it, too
	} {
		if got := r.held(x.id); got != x.want {
			t.Errorf("%s is held: %v, want %v", x.id, got, x.want)
		}
	}
	if got := s.k.Connect(netip.MustParseAddr("10.1.0.2"), awayWeb); got.Fate != Served {
		t.Errorf("clients of the cluster that is away: %v", got)
	}
	// At last it sends its Services, without the first VIP.
	both.VIPs = both.VIPs[1:]
	r.now = r.now.Add(3 * time.Second)
	r.Update(Update{Source: "away", Put: []Service{both}, Synced: true})
	mustSync(t, r.Reconciler, r.now)
	mustSync(t, r.Reconciler, r.now.Add(2*time.Second))
	if r.held(Address{away}) || !r.held(Address{vip}) {
		t.Errorf("after it has synced the kernel holds %v", r.k.Objects())
	}
}

func TestRemovedSourceLosesItsServices(t *testing.T) {
	s := newStory(t)
	s.SetSources("static", "away")
	s.sets()
	s.Update(put())
	s.Update(Update{Source: "away", Put: []Service{elsewhere("away")}, Synced: true})
	mustSync(t, s.Reconciler, s.now)

	// While it was unreachable, the operator removed it from the configuration.
	r := s.restarted("static", "away")
	r.Update(put())
	mustSync(t, r.Reconciler, r.now)
	if !r.held(VirtualServer{Frontend: awayWeb}) {
		t.Error("it is gone before its source has synced")
	}
	r.SetSources("static")
	mustSync(t, r.Reconciler, r.now)
	mustSync(t, r.Reconciler, r.now.Add(2*time.Second))
	if r.held(VirtualServer{Frontend: awayWeb}) {
		t.Error("it is still there")
	}

	// A source that comes later holds nothing of what others are known to have.
	s.SetSources("static", "away", "new")
	s.Update(Update{Source: "away", Synced: true})
	mustSync(t, s.Reconciler, s.now)
	mustSync(t, s.Reconciler, s.now.Add(2*time.Second))
	if s.catalog.Synced() || s.held(Address{away}) {
		t.Error("a new source holds what another one lets go")
	}
	s.SetSources("static")
	if s.catalog.Len() != 0 || !s.catalog.Synced() {
		t.Errorf("%d services are left of sources that are gone", s.catalog.Len())
	}
}

// A frontend of an unsynced source gets a Service of another source: its clients must not
// reach the backends that an earlier run left there.
func TestClaimedOrphanLosesItsOtherBackends(t *testing.T) {
	s := newStory(t)
	s.create()
	s.Reconciler = NewReconciler(s.k, Options{Drain: time.Minute}, "static", "prod")
	s.sets()
	s.Update(Update{Source: "prod", Synced: true})
	if rep := mustSync(t, s.Reconciler, s.now); rep.Deferred == 0 {
		t.Fatal("no deletion is deferred")
	}
	svc := web(be1)
	svc.ID.Source = "prod"
	s.Update(Update{Source: "prod", Put: []Service{svc}})
	rep := mustSync(t, s.Reconciler, s.now)
	if got := s.k.Connect(clients[0], front).Backends; len(got) != 1 || got[0] != be1 {
		t.Errorf("clients reach %v, want %v", got, be1)
	}
	if rep.Deferred != 0 {
		t.Errorf("%d deletions are deferred, and all that was there has an owner", rep.Deferred)
	}
}
