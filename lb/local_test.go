package lb

import (
	"context"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// Stories of traffic policy Local. The Service is prod/shop/web at 192.0.2.1:80,
// its mark is 3: the first one of TCP.

var (
	outside, pod, box = clients[0], clients[1], clients[2]
	innerFace         = MarkFrontend(IPv4, 3)
)

// newLocalStory is a node with pods that serves svc.
func newLocalStory(t *testing.T, svc Service, want ...string) *story {
	s := newStory(t)
	s.sets()
	s.k.Put(Rules{Family: IPv4})
	s.want.Replace(Owner{}, append(s.want.Objects(Owner{}), Rules{Family: IPv4}), s.touched)
	s.k.ClusterCIDRs = pods
	s.k.HostAddrs = map[netip.Addr]string{box: "eth0"}
	s.SetSources("prod")
	s.send(svc)
	if want == nil {
		mustSync(t, s.Reconciler, s.now)
		return s
	}
	s.sync(0, want...)
	return s
}

// send sends all Services of the cluster.
func (s *story) send(services ...Service) {
	s.Update(Update{Source: "prod", Put: services, Synced: true})
}

// again is a process that starts on the same kernel.
func (s *story) again(services ...Service) *story {
	r := newStory(s.T)
	r.k, r.kernel, r.now = s.k, s.k, s.now
	r.sets()
	r.want.Replace(Owner{}, append(r.want.Objects(Owner{}), Rules{Family: IPv4}), r.touched)
	r.SetSources("prod")
	r.send(services...)
	return r
}

// meets wants what clients meet at front: outside, pod, and the box itself.
func (s *story) meets(f Frontend, fromOutside, fromPod, fromBox Outcome) {
	s.Helper()
	got := []Outcome{s.k.Connect(outside, f), s.k.Connect(pod, f), s.k.Connect(box, f)}
	if d := cmp.Diff([]Outcome{fromOutside, fromPod, fromBox}, got, exact); d != "" {
		s.Fatalf("%s is met otherwise by who is outside, a pod, the box (-want +got):\n%s", f, d)
	}
}

func kept(backends ...netip.AddrPort) Outcome { return Outcome{Fate: Served, Backends: backends} }
func hidden(backends ...netip.AddrPort) Outcome {
	return Outcome{Fate: Served, Backends: backends, Masqueraded: true}
}

var dropped, refused = Outcome{Fate: Dropped}, Outcome{Fate: Refused}

// localWeb is a Service with traffic policy Local; near backends are on this
// node.
func localWeb(list ...Backend) Service {
	s := kube(backends(list...), local(VIP{Addr: vip}))
	s.Drain = time.Minute
	return s
}

func TestLocalBackendMovesBetweenNodes(t *testing.T) {
	away := Backend{Addr: be1, Weight: 1}
	s := newLocalStory(t, localWeb(near, far),
		"add member IPVS-IPS 192.0.2.1",
		"add member LOAD-BALANCER-LOCAL 192.0.2.1,tcp:80",
		"add member LOOP-BACK 10.0.0.1,tcp:8080,10.0.0.1",
		"add member LOOP-BACK 10.0.0.2,tcp:8080,10.0.0.2",
		"add member LOAD-BALANCER 192.0.2.1,tcp:80",
		"add member IPVS-MARKS 0.0.0.3",
		"add virtual server IPv4 mark 3 rr",
		"add virtual server 192.0.2.1:80/tcp rr",
		"add real server 10.0.0.1:8080 of IPv4 mark 3 weight 1",
		"add real server 10.0.0.2:8080 of IPv4 mark 3 weight 1",
		"add member INTERNAL 192.0.2.1,tcp:80 mark 3",
		"add real server 10.0.0.1:8080 of 192.0.2.1:80/tcp weight 1",
		"add member IPVS-PORTS 192.0.2.1,tcp:80",
		"add address 192.0.2.1",
	)
	s.meets(front, kept(be1), kept(be1, be2), hidden(be1, be2))
	s.send(localWeb(away, far))
	s.sync(0,
		"add member NO-LOCAL 192.0.2.1,tcp:80",
		"change real server 10.0.0.1:8080 of 192.0.2.1:80/tcp weight 0")
	s.meets(front, dropped, kept(be1, be2), hidden(be1, be2))
	s.sync(2*time.Second, "delete real server 10.0.0.1:8080 of 192.0.2.1:80/tcp weight 0")
	s.send(localWeb(near, far))
	s.sync(0,
		"add real server 10.0.0.1:8080 of 192.0.2.1:80/tcp weight 1",
		"delete member NO-LOCAL 192.0.2.1,tcp:80")
	s.send(localWeb())
	s.sync(0,
		"change real server 10.0.0.1:8080 of 192.0.2.1:80/tcp weight 0",
		"change real server 10.0.0.1:8080 of IPv4 mark 3 weight 0",
		"change real server 10.0.0.2:8080 of IPv4 mark 3 weight 0",
		"delete member LOOP-BACK 10.0.0.1,tcp:8080,10.0.0.1",
		"delete member LOOP-BACK 10.0.0.2,tcp:8080,10.0.0.2")
	s.meets(front, refused, refused, refused)
}

func TestTrafficPolicyFlipsThereAndBack(t *testing.T) {
	svc := localWeb(near, far)
	svc.VIPs[0].Local = false
	s := newLocalStory(t, svc)
	s.meets(front, hidden(be1, be2), hidden(be1, be2), hidden(be1, be2))
	s.send(localWeb(near, far))
	s.sync(0,
		"add member LOOP-BACK 10.0.0.1,tcp:8080,10.0.0.1",
		"add member LOOP-BACK 10.0.0.2,tcp:8080,10.0.0.2",
		"add member IPVS-MARKS 0.0.0.3",
		"add virtual server IPv4 mark 3 rr",
		"add real server 10.0.0.1:8080 of IPv4 mark 3 weight 1",
		"add real server 10.0.0.2:8080 of IPv4 mark 3 weight 1",
		"add member INTERNAL 192.0.2.1,tcp:80 mark 3",
		"change real server 10.0.0.2:8080 of 192.0.2.1:80/tcp weight 0",
		"add member LOAD-BALANCER-LOCAL 192.0.2.1,tcp:80")
	s.meets(front, kept(be1), kept(be1, be2), hidden(be1, be2))
	s.send(svc)
	s.sync(0,
		"delete member LOAD-BALANCER-LOCAL 192.0.2.1,tcp:80",
		"change real server 10.0.0.2:8080 of 192.0.2.1:80/tcp weight 1",
		"delete member INTERNAL 192.0.2.1,tcp:80 mark 3",
		"change real server 10.0.0.1:8080 of IPv4 mark 3 weight 0",
		"change real server 10.0.0.2:8080 of IPv4 mark 3 weight 0",
		"delete member LOOP-BACK 10.0.0.1,tcp:8080,10.0.0.1",
		"delete member LOOP-BACK 10.0.0.2,tcp:8080,10.0.0.2")
	s.meets(front, hidden(be1, be2), hidden(be1, be2), hidden(be1, be2))
	s.sync(2*time.Second,
		"delete real server 10.0.0.2:8080 of IPv4 mark 3 weight 0",
		"delete real server 10.0.0.1:8080 of IPv4 mark 3 weight 0",
		"delete virtual server IPv4 mark 3 rr",
		"delete member IPVS-MARKS 0.0.0.3")
}

func TestTrafficPolicyThatFlipsBackWhileItDrainsKeepsItsMark(t *testing.T) {
	s := newLocalStory(t, localWeb(near, far))
	svc := localWeb(near, far)
	svc.VIPs[0].Local = false
	s.k.SetConns(RealServer{Frontend: innerFace, Addr: be2}, Conns{Active: 1})
	s.send(svc)
	mustSync(t, s.Reconciler, s.now)
	s.now = s.now.Add(2 * time.Second)
	mustSync(t, s.Reconciler, s.now)
	if want := []Drain{{innerFace, be2, testNow.Add(time.Minute)}}; !slices.Equal(s.Drains(), want) {
		t.Fatalf("drains %v, want %v", s.Drains(), want)
	}
	s.send(localWeb(near, far))
	rep := mustSync(t, s.Reconciler, s.now)
	if !slices.ContainsFunc(rep.Ops, func(op Op) bool {
		return op.String() == "change real server 10.0.0.2:8080 of IPv4 mark 3 weight 1"
	}) {
		t.Errorf("the backend that drains is not taken back: %v", rep.Ops)
	}
	s.meets(front, kept(be1), kept(be1, be2), hidden(be1, be2))
}

func TestDeletedLocalServiceDrainsBothFaces(t *testing.T) {
	s := newLocalStory(t, localWeb(near, far))
	s.k.SetConns(RealServer{Frontend: innerFace, Addr: be2}, Conns{Active: 1})
	s.conns(be1, 1)
	s.send()
	s.sync(0,
		"change real server 10.0.0.1:8080 of 192.0.2.1:80/tcp weight 0",
		"change real server 10.0.0.1:8080 of IPv4 mark 3 weight 0",
		"change real server 10.0.0.2:8080 of IPv4 mark 3 weight 0",
		"delete member LOOP-BACK 10.0.0.1,tcp:8080,10.0.0.1",
		"delete member LOOP-BACK 10.0.0.2,tcp:8080,10.0.0.2")
	s.meets(front, refused, refused, refused)
	s.sync(2*time.Second, "delete real server 10.0.0.1:8080 of IPv4 mark 3 weight 0")
	s.conns(be1, 0)
	// The outer face is done. The inner one still needs the VIP, and a virtual
	// server on it: without one a daemon of the host would get the packets.
	s.sync(2*time.Second, "delete real server 10.0.0.1:8080 of 192.0.2.1:80/tcp weight 0")
	s.meets(front, refused, refused, refused)
	// A restart finds the inner face by the mapping to its mark.
	s = s.again()
	s.sync(time.Second)
	s.k.SetConns(RealServer{Frontend: innerFace, Addr: be2}, Conns{})
	s.sync(2*time.Second,
		"delete address 192.0.2.1",
		"delete member IPVS-PORTS 192.0.2.1,tcp:80",
		"delete member INTERNAL 192.0.2.1,tcp:80 mark 3",
		"delete real server 10.0.0.2:8080 of IPv4 mark 3 weight 0",
		"delete virtual server IPv4 mark 3 rr",
		"delete virtual server 192.0.2.1:80/tcp rr",
		"delete member LOAD-BALANCER 192.0.2.1,tcp:80",
		"delete member IPVS-MARKS 0.0.0.3",
		"delete member LOAD-BALANCER-LOCAL 192.0.2.1,tcp:80",
		"delete member IPVS-IPS 192.0.2.1")
}

func TestUDPBehindAMarkIsRemovedImmediately(t *testing.T) {
	udp := func(list ...Backend) Service {
		svc := localWeb(list...)
		svc.Ports[0].Proto = UDP
		return svc
	}
	s := newLocalStory(t, udp(near, far))
	s.send(udp(near))
	s.sync(0,
		"delete real server 10.0.0.2:8080 of IPv4 mark 1 weight 1",
		"delete member LOOP-BACK 10.0.0.2,udp:8080,10.0.0.2")
}

func TestHostAddressComesAndGoes(t *testing.T) {
	s := newLocalStory(t, kube(backends(near, far), local(all4)))
	second := Frontend{Addr: netip.MustParseAddr("172.16.0.1"), Port: 30080, Proto: TCP}
	audit := func(hosts map[netip.Addr]string, want ...string) {
		t.Helper()
		s.k.HostAddrs = hosts
		rep, err := s.Audit(context.Background(), s.now)
		if err != nil || len(rep.Drift) > 0 {
			t.Fatalf("drift %v, %v", rep.Drift, err)
		}
		var got []string
		for _, op := range rep.Ops {
			got = append(got, op.String())
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Fatalf("ops (-want +got):\n%s", d)
		}
	}
	audit(map[netip.Addr]string{box: "eth0", second.Addr: "eth1"},
		"add member NODE-PORTS-LOCAL 172.16.0.1,tcp:30080",
		"add member NODE-PORTS 172.16.0.1,tcp:30080",
		"add virtual server 172.16.0.1:30080/tcp rr",
		"add member INTERNAL 172.16.0.1,tcp:30080 mark 3",
		"add real server 10.0.0.1:8080 of 172.16.0.1:30080/tcp weight 1",
		"add member IPVS-PORTS 172.16.0.1,tcp:30080")
	s.meets(second, kept(be1), kept(be1, be2), hidden(be1, be2))
	audit(map[netip.Addr]string{box: "eth0"},
		"delete member IPVS-PORTS 172.16.0.1,tcp:30080",
		"delete real server 10.0.0.1:8080 of 172.16.0.1:30080/tcp weight 1",
		"delete member INTERNAL 172.16.0.1,tcp:30080 mark 3",
		"delete virtual server 172.16.0.1:30080/tcp rr",
		"delete member NODE-PORTS 172.16.0.1,tcp:30080",
		"delete member NODE-PORTS-LOCAL 172.16.0.1,tcp:30080")
}

func TestNodePortFollowsAVIPThatTakesOneOfItsAddresses(t *testing.T) {
	s := newLocalStory(t, kube(backends(near), all4))
	api := kube(func(_ *Service, p *Port) { p.Port, p.Backends = 30080, []Backend{far} }, VIP{Addr: box, Kind: ExternalIP})
	api.ID.Name = "api"
	s.send(kube(backends(near), all4), api)
	mustSync(t, s.Reconciler, s.now)
	s.meets(Frontend{Addr: box, Port: 30080, Proto: TCP}, hidden(be2), hidden(be2), hidden(be2))
	if n := s.Notes(); len(n) != 2 || n[1].Reason != Conflict || n[1].Service != webID {
		t.Errorf("notes %v", n)
	}
	s.send(kube(backends(near), all4))
	mustSync(t, s.Reconciler, s.now)
	s.meets(Frontend{Addr: box, Port: 30080, Proto: TCP}, hidden(be1), hidden(be1), hidden(be1))
}

func TestAffinityInsideKeepsTheBackendPort(t *testing.T) {
	sticky := func(ports ...uint16) Service {
		svc := localWeb()
		svc.Affinity = time.Hour
		svc.Ports[0].Backends = nil
		for i, port := range ports {
			addr := netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, 0, byte(1 + i)}), port)
			svc.Ports[0].Backends = append(svc.Ports[0].Backends, Backend{Addr: addr, Weight: 1})
		}
		return svc
	}
	inner := func(s *story) (out []VirtualServer) {
		for _, o := range s.k.Objects() {
			if vs, ok := o.(VirtualServer); ok && vs.Frontend.Mark != 0 {
				out = append(out, vs)
			}
		}
		return out
	}
	mixed := 0
	s := newLocalStory(t, sticky(8080, 8080))
	for _, ports := range [][]uint16{{8080, 8080}, {9090, 9090}, {9090, 8080}, {80, 80}, {8080}} {
		before, svc := inner(s), sticky(ports...)
		svc.Drain = 0
		broken := false
		s.k.After = func(op Op) {
			if got := s.k.Connect(pod, front); got.Fate != Served {
				broken = true
				t.Errorf("%v: after %s a pod is %s", ports, op, got.Fate)
			}
		}
		s.send(svc)
		mustSync(t, s.Reconciler, s.now)
		s.k.After = nil
		got := inner(s)
		if len(got) != 1 || broken {
			t.Fatalf("%v: %v", ports, got)
		}
		one := slices.Min(ports) == slices.Max(ports)
		want := VirtualServer{Frontend: got[0].Frontend, Scheduler: svc.Scheduler}
		if one {
			want.Affinity = 3600
		}
		if one && ports[0] != 80 {
			want.Port = ports[0]
		}
		notes := slices.ContainsFunc(s.Notes(), func(n Note) bool { return n.Reason == MixedPorts })
		if got[0] != want || notes == one || ports[0] != 8080 && got[0].Frontend == before[0].Frontend {
			t.Errorf("%v: %s instead of %s, after %v; notes %v", ports, got[0], want, before, s.Notes())
		}
		if notes {
			mixed++
		}
		if rep := mustSync(t, s.again(svc).Reconciler, s.now); len(rep.Ops) > 0 {
			t.Errorf("%v: a restart writes %v", ports, rep.Ops)
		}
	}
	if mixed != 1 {
		t.Errorf("%d notes", mixed)
	}
}
