package lb

import (
	"context"
	"net/netip"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
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

func TestRestartDrainsForTheTimeOfTheService(t *testing.T) {
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

func TestServerThatChangesItsServiceDrainsForTheNewTime(t *testing.T) {
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

func TestUDPBackendIsRemovedImmediately(t *testing.T) {
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

// deaf counts the reads of a kernel.
type deaf struct {
	Kernel
	reads int
}

func (k *deaf) Observe(ctx context.Context, expected *Table, only ...Frontend) (Observation, error) {
	k.reads++
	return k.Kernel.Observe(ctx, expected, only...)
}

func TestDrainReadsNothing(t *testing.T) {
	s := newStory(t)
	s.create()
	s.conns(be2, 3)
	s.Update(put(web(be1)))
	k := &deaf{Kernel: s.k}
	s.kernel = k
	for range 100 {
		if _, err := s.Sync(t.Context(), s.now); err != nil {
			t.Fatal(err)
		}
		s.now = s.now.Add(time.Second)
	}
	if drains := s.Drains(); k.reads != 0 || len(drains) > 0 {
		t.Errorf("%d reads of the kernel; after the deadline %v drain", k.reads, drains)
	}
}

func TestDrainEndsByACountThatBeganAfterIt(t *testing.T) {
	s := newStory(t)
	s.create()
	s.Update(put(web(be1)))
	rs := RealServer{Frontend: front, Addr: be2}
	none := map[Object]Conns{rs: {}}
	asks := func(want ...RealServer) {
		t.Helper()
		if got := s.UncountedDrains(s.now); !slices.Equal(got, want) {
			t.Fatalf("to count: %v instead of %v", got, want)
		}
	}
	counted := func(want bool, c Count) {
		t.Helper()
		if s.Counted(c) != want || (len(s.Drains()) == 0) != want {
			t.Fatalf("a count from %s to %s at %s: drains %v", c.Begun, c.Ended, s.now, s.Drains())
		}
	}
	later := func(d time.Duration) {
		t.Helper()
		s.now = s.now.Add(d)
		if rep, err := s.Sync(t.Context(), s.now); err != nil || len(rep.Ops) > 0 {
			t.Fatalf("%v, %v", rep.Ops, err)
		}
	}
	asks() // nothing drains yet
	s.k.Fail = func(Op) error { return context.DeadlineExceeded }
	mustSync(t, s.Reconciler, s.now)
	s.now = s.now.Add(2 * time.Second)
	asks() // it may still get connections
	s.k.Fail = nil
	s.sync(0, "change real server 10.0.0.2:8080 of 192.0.2.1:80/tcp weight 0")
	before := s.now
	counted(false, Count{Begun: before, Ended: before, Conns: none})
	later(time.Second)
	asks(rs)
	later(2 * time.Second)
	asks() // one count at a time
	counted(false, Count{Begun: before, Ended: s.now, Conns: none})
	asks() // it took three seconds, and the next one waits for twelve
	later(12 * time.Second)
	asks(rs)
	counted(false, Count{Begun: s.now, Ended: s.now})
	later(time.Second)
	asks(rs)
	counted(false, Count{Begun: s.now, Ended: s.now, Conns: map[Object]Conns{rs: {Inactive: 1}}})
	later(time.Second)
	asks(rs)
	counted(true, Count{Begun: s.now, Ended: s.now, Conns: none})
	s.sync(0, "delete real server 10.0.0.2:8080 of 192.0.2.1:80/tcp weight 0")
	asks()
}

// Another program removes a draining server: no record of it stays.
func TestDrainOfAServerThatIsRemovedIsForgotten(t *testing.T) {
	s := newStory(t)
	s.create()
	s.conns(be2, 1)
	s.Update(put(web(be1)))
	mustSync(t, s.Reconciler, s.now)
	s.k.Remove(RealServer{Frontend: front, Addr: be2})
	if _, err := s.Audit(t.Context(), s.now.Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	mustSync(t, s.Reconciler, s.now.Add(2*time.Hour))
	if n := len(s.drains.drained); n > 0 {
		t.Errorf("%d drained servers are remembered", n)
	}
}

// A client connects while a backend is back for a moment. The count from before knows nothing of it.
func TestDrainDoesNotEndByACountFromBefore(t *testing.T) {
	s := newStory(t)
	s.create()
	s.Update(put(web(be1)))
	mustSync(t, s.Reconciler, s.now)
	s.now = s.now.Add(time.Second)
	if _, err := s.Sync(t.Context(), s.now); err != nil {
		t.Fatal(err)
	}
	count := Count{Begun: s.now, Conns: map[Object]Conns{}}
	for _, rs := range s.UncountedDrains(s.now) {
		count.Conns[rs] = Conns{}
	}
	for _, svc := range []Service{web(be1, be2), web(be1)} { // before the next poll
		s.Update(put(svc))
		s.now = s.now.Add(time.Millisecond)
		if rep, err := s.Sync(t.Context(), s.now); err != nil || len(rep.Ops) != 1 {
			t.Fatal(rep.Ops, err)
		}
	}
	count.Ended = s.now
	if s.Counted(count) || len(count.Conns) != 1 || len(s.Drains()) != 1 {
		t.Errorf("after the count of %v: drains %v", count.Conns, s.Drains())
	}
}

// The cost of a drain is the number of its backends, when they become unwanted and after a restart.
func TestBackendsOfOneFrontendDrainInOneUpdate(t *testing.T) {
	mallocs := func(r *Reconciler) uint64 {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		rep, err := r.Sync(t.Context(), testNow)
		runtime.ReadMemStats(&after)
		if err != nil || rep.Failed > 0 {
			t.Fatal(rep.Errors, err)
		}
		return after.Mallocs - before.Mallocs
	}
	cost := func(n int, restart bool) uint64 {
		r, services := many(t, 1, 0)
		svc := services[0]
		svc.Drain = time.Minute
		for i := range n {
			a := netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)})
			svc.Ports = []Port{{Proto: TCP, Port: 80, Backends: append(svc.Ports[0].Backends, Backend{Addr: netip.AddrPortFrom(a, 8080), Weight: 1})}}
		}
		r.Update(put(svc))
		mallocs(r)
		if restart {
			r = NewReconciler(r.kernel, Options{Base: base, Drain: time.Minute}, "static")
		}
		r.Update(put())
		cost := mallocs(r)
		if got := len(r.Drains()); got != n {
			t.Fatalf("%d backends drain instead of %d", got, n)
		}
		return cost
	}
	for _, restart := range []bool{false, true} {
		if few, more := cost(100, restart), cost(400, restart); more > 6*few {
			t.Errorf("restart %t: 100 backends take %d allocations, 400 take %d", restart, few, more)
		}
	}
}

// Another program changes what a drain needs: an audit restores it, for the drain of a VIP and of a mark.
func TestDrainRestoresItsPath(t *testing.T) {
	pool := PoolRoute{Prefix: netip.MustParsePrefix("192.0.2.0/24")}
	keep := web(be1)
	keep.VIPs[0].Local = true
	for i := range keep.Ports[0].Backends {
		keep.Ports[0].Backends[i].Scope = Both
	}
	for _, tt := range []struct {
		name  string
		pools []PoolRoute
		svc   Service
		harm  func(k *Fake, o Object)
		kind  kind
	}{
		{"another scheduler", nil, web(be1), func(k *Fake, o Object) {
			vs := o.(VirtualServer)
			vs.Scheduler.Name = "wlc"
			k.Put(vs)
		}, kindVirtualServer},
		{"a damaged virtual server", nil, web(be1), func(k *Fake, o Object) {
			vs := o.(VirtualServer)
			vs.Damaged = true
			k.Put(vs)
		}, kindVirtualServer},
		{"no address", nil, web(be1), func(k *Fake, o Object) { k.Remove(o.ID()) }, kindAddress},
		{"no members", nil, web(be1), func(k *Fake, o Object) { k.Remove(o.ID()) }, kindMember},
		{"no members of a mark", nil, keep, func(k *Fake, o Object) { k.Remove(o.ID()) }, kindMember},
		{"no route", []PoolRoute{pool}, web(be1), func(k *Fake, o Object) { k.Remove(o.ID()) }, kindPoolRoute},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := newStory(t)
			s.Configure(Options{Base: base, Drain: time.Minute, Pools: tt.pools})
			s.Update(put(tt.svc))
			mustSync(t, s.Reconciler, s.now)
			for rs := range s.Have().RealServers() {
				s.k.SetConns(rs, Conns{Active: 1})
			}
			s.Configure(Options{Base: base, Drain: time.Minute})
			s.Update(put())
			mustSync(t, s.Reconciler, s.now)
			want := s.k.Objects()
			harmed := 0
			for _, o := range want {
				if o.kind() == tt.kind {
					tt.harm(s.k, o)
					harmed++
				}
			}
			s.now = s.now.Add(10 * time.Second) // a poll is due
			mustAudit(t, s.Reconciler, s.now)
			if d := cmp.Diff(want, s.k.Objects(), exact); d != "" || harmed == 0 {
				t.Errorf("%d harmed objects, after the audit (-want +got):\n%s", harmed, d)
			}
		})
	}
}

// A process that starts finds a part of a draining virtual server.
func TestDrainRepairsADamagedVirtualServerOfAnEarlierRun(t *testing.T) {
	s := newStory(t)
	s.create()
	s.conns(be1, 1)
	damaged := s.k.Objects()[VirtualServer{Frontend: front}].(VirtualServer)
	damaged.Damaged = true
	s.k.Put(damaged)
	r := NewReconciler(s.k, Options{Drain: time.Minute}, "static")
	r.Update(put())
	mustSync(t, r, s.now)
	if vs, ok := s.k.Objects()[damaged.ID()]; !ok || vs.(VirtualServer).Damaged {
		t.Errorf("the virtual server is %v, drains %v", vs, r.Drains())
	}
}
