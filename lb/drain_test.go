package lb

import (
	"context"
	"net/netip"
	"slices"
	"testing"
	"time"
)

func TestRemovedBackendDrainsUntilItsConnectionsEnd(t *testing.T) {
	s := newStory(t)
	s.create()
	s.conns(be2, 3)
	s.Update(put(web(be1)))
	s.sync(0, "change real server 10.0.0.2:8080 of 192.0.2.1:80/tcp weight 0")
	s.sync(2 * time.Second)
	if want := []Drain{{front, be2, testNow.Add(time.Minute)}}; !slices.Equal(s.Drains(), want) {
		t.Errorf("drains %v, want %v", s.Drains(), want)
	}
	s.conns(be2, 0)
	s.sync(2*time.Second, "delete real server 10.0.0.2:8080 of 192.0.2.1:80/tcp weight 0")
	if next := s.Next(); !next.IsZero() && len(s.Drains()) > 0 {
		t.Errorf("nothing drains, and yet next is %s", next)
	}
}

func TestDrainEndsAtItsDeadline(t *testing.T) {
	s := newStory(t)
	s.create()
	s.conns(be2, 3)
	s.Update(put(web(be1)))
	s.sync(0, "change real server 10.0.0.2:8080 of 192.0.2.1:80/tcp weight 0")
	s.sync(59 * time.Second)
	s.sync(time.Second, "delete real server 10.0.0.2:8080 of 192.0.2.1:80/tcp weight 0")
	if rep, err := s.Audit(context.Background(), s.now); err != nil || len(rep.Ops) > 0 {
		t.Errorf("audit after the drain: %v %v", rep.Ops, err)
	}
}

func TestBackendThatComesBackWhileDrainingIsChangedInPlace(t *testing.T) {
	s := newStory(t)
	s.create()
	s.conns(be2, 3)
	s.Update(put(web(be1)))
	s.sync(0, "change real server 10.0.0.2:8080 of 192.0.2.1:80/tcp weight 0")
	s.Update(put(web(be1, be2)))
	s.sync(time.Millisecond, "change real server 10.0.0.2:8080 of 192.0.2.1:80/tcp weight 1")
	if drains := s.Drains(); len(drains) > 0 {
		t.Errorf("a backend that is back drains: %v", drains)
	}
	s.sync(time.Minute)
	s.Update(put(web(be1))) // and it can drain once more
	s.sync(time.Second, "change real server 10.0.0.2:8080 of 192.0.2.1:80/tcp weight 0")
}

func TestRemovedServiceDrainsAndThenGoesInReverse(t *testing.T) {
	s := newStory(t)
	s.create()
	s.conns(be1, 1)
	s.Update(put())
	s.sync(0,
		"change real server 10.0.0.1:8080 of 192.0.2.1:80/tcp weight 0",
		"change real server 10.0.0.2:8080 of 192.0.2.1:80/tcp weight 0")
	if got := s.k.Connect(clients[0], front); got.Fate != Refused {
		t.Errorf("a new client is %s", got.Fate)
	}
	s.sync(2*time.Second, "delete real server 10.0.0.2:8080 of 192.0.2.1:80/tcp weight 0")
	s.conns(be1, 0)
	s.sync(2*time.Second,
		"delete address 192.0.2.1",
		"delete member IPVS-PORTS 192.0.2.1,tcp:80",
		"delete real server 10.0.0.1:8080 of 192.0.2.1:80/tcp weight 0",
		"delete virtual server 192.0.2.1:80/tcp rr",
		"delete member LOAD-BALANCER 192.0.2.1,tcp:80",
		"delete member IPVS-IPS 192.0.2.1")
}

func TestRestartContinuesDrains(t *testing.T) {
	s := newStory(t)
	s.create()
	s.conns(be2, 1)
	s.Update(put(web(be1)))
	s.sync(0, "change real server 10.0.0.2:8080 of 192.0.2.1:80/tcp weight 0")
	r := newStory(t)
	r.k, r.kernel = s.k, s.k
	r.sets()
	r.Update(put(web(be1)))
	r.sync(0)
	s.conns(be2, 0)
	r.sync(2*time.Second, "delete real server 10.0.0.2:8080 of 192.0.2.1:80/tcp weight 0")
}

func TestRestartDrainsAsLongAsTheServiceSays(t *testing.T) {
	s := newStory(t)
	s.create()
	s.conns(be2, 1)
	r := newStory(t)
	r.k, r.kernel = s.k, s.k
	r.sets()
	svc := web(be1)
	svc.Drain = 10 * time.Minute
	r.Update(put(svc))
	r.sync(0, "change real server 10.0.0.2:8080 of 192.0.2.1:80/tcp weight 0")
	if want := []Drain{{front, be2, testNow.Add(10 * time.Minute)}}; !slices.Equal(r.Drains(), want) {
		t.Errorf("drains %v, want %v", r.Drains(), want)
	}
}

func TestServerThatChangesItsServiceDrainsAsTheNewOneSays(t *testing.T) {
	s := newStory(t)
	s.sets()
	svc := web(be1, be2)
	svc.Drain = 0
	s.Update(put(svc))
	s.sync(0, created...)
	s.conns(be2, 1)
	svc.ID.Name, svc.Drain = "renamed", time.Minute
	s.Update(put(svc))
	s.sync(0)
	svc.Ports = web(be1).Ports
	s.Update(put(svc))
	s.sync(0, "change real server 10.0.0.2:8080 of 192.0.2.1:80/tcp weight 0")
}

func TestDrainUnderAPoolThatIsNoMoreKeepsItsRoute(t *testing.T) {
	s := newStory(t)
	pool := PoolRoute{Prefix: netip.MustParsePrefix("192.0.2.0/24")}
	s.Configure(Options{Drain: time.Minute, Pools: []PoolRoute{pool}})
	s.sets()
	s.Update(put(web(be1)))
	mustSync(t, s.Reconciler, s.now)
	s.conns(be1, 1)
	s.Configure(Options{Drain: time.Minute})
	s.sets()
	s.Update(put())
	s.sync(0, "change real server 10.0.0.1:8080 of 192.0.2.1:80/tcp weight 0")
	if !s.k.local(vip) {
		t.Error("the draining VIP is not local any more")
	}
}

func TestUDPBackendGoesAtOnce(t *testing.T) {
	s := newStory(t)
	s.sets()
	svc := web(be1, be2)
	svc.Ports[0].Proto = UDP
	s.Update(put(svc))
	mustSync(t, s.Reconciler, s.now)
	svc = web(be1)
	svc.Ports[0].Proto = UDP
	s.Update(put(svc))
	s.sync(0, "delete real server 10.0.0.2:8080 of 192.0.2.1:80/udp weight 1")
}
