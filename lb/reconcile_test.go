package lb

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

var (
	vip   = netip.MustParseAddr("192.0.2.1")
	front = Frontend{Addr: vip, Port: 80, Proto: TCP}
	be1   = netip.MustParseAddrPort("10.0.0.1:8080")
	be2   = netip.MustParseAddrPort("10.0.0.2:8080")
)

// web is a Service at front with the given backends.
func web(backends ...netip.AddrPort) Service {
	s := Service{
		ID:        ServiceID{Source: "static", Name: "web"},
		VIPs:      []VIP{{Addr: vip}},
		Ports:     []Port{{Proto: TCP, Port: 80}},
		Scheduler: Scheduler{Name: "rr"},
		Drain:     time.Minute,
	}
	for _, b := range backends {
		s.Ports[0].Backends = append(s.Ports[0].Backends, Backend{Addr: b, Weight: 1})
	}
	return s
}

func put(services ...Service) Update {
	return Update{Source: "static", Put: services, Synced: true}
}

// story is a Reconciler on a Fake, with a clock of its own.
type story struct {
	*testing.T
	*Reconciler
	k   *Fake
	now time.Time
}

func newStory(t *testing.T) *story {
	k := &Fake{}
	return &story{t, NewReconciler(k, Options{Drain: time.Minute}, "static"), k, testNow}
}

// sync syncs after d has passed and wants exactly these ops.
func (s *story) sync(d time.Duration, want ...string) Report {
	s.Helper()
	s.now = s.now.Add(d)
	rep := mustSync(s.T, s.Reconciler, s.now)
	got := []string{}
	for _, op := range rep.Ops {
		got = append(got, op.String())
	}
	if d := cmp.Diff(want, got, exact); d != "" {
		s.Fatalf("ops (-want +got):\n%s", d)
	}
	return rep
}

func (s *story) conns(backend netip.AddrPort, active uint32) {
	s.k.SetConns(RealServer{Frontend: front, Addr: backend}, Conns{Active: active})
}

// sets makes the ipsets exist, so that a story need not list them.
func (s *story) sets() {
	for _, set := range Sets() {
		s.k.Put(IPSet{set, IPv4})
	}
	s.opts.Base.Families = []Family{IPv4}
	s.want.Replace(Owner{}, func() (out []Object) {
		for _, set := range Sets() {
			out = append(out, IPSet{set, IPv4})
		}
		return out
	}(), s.touched)
}

var created = []string{
	"add member IPVS-IPS 192.0.2.1",
	"add member LOAD-BALANCER 192.0.2.1,tcp:80",
	"add virtual server 192.0.2.1:80/tcp rr",
	"add real server 10.0.0.1:8080 of 192.0.2.1:80/tcp weight 1",
	"add real server 10.0.0.2:8080 of 192.0.2.1:80/tcp weight 1",
	"add member IPVS-PORTS 192.0.2.1,tcp:80",
	"add address 192.0.2.1",
}

func (s *story) create() {
	s.Helper()
	s.sets()
	s.Update(put(web(be1, be2)))
	s.sync(0, created...)
}

func TestPoolWithAnAddressOfTheBoxHasNoRoute(t *testing.T) {
	s := newStory(t)
	s.Configure(Options{Pools: []PoolRoute{{Prefix: netip.MustParsePrefix("192.0.2.0/24")}}})
	s.sets()
	s.k.HostAddrs = map[netip.Addr]string{netip.MustParseAddr("192.0.2.77"): "eth0"}
	s.Update(put(web(be1, be2)))
	s.sync(0, created...)
	if n := s.Notes(); len(n) != 1 || n[0].Reason != PoolCoversHost {
		t.Errorf("notes %v", n)
	}
	s.k.HostAddrs = nil
	if _, err := s.Audit(context.Background(), s.now); err != nil {
		t.Fatal(err)
	}
	if n := s.Notes(); len(n) != 0 || !s.k.has(PoolRoute{Prefix: netip.MustParsePrefix("192.0.2.0/24")}) {
		t.Errorf("after the address has gone the pool is not laid; notes %v", n)
	}
}

func TestUnwantedObjectsAreNoDrift(t *testing.T) {
	s := newStory(t)
	sysctl := Sysctl{"net.ipv4.vs.conntrack", "1"}
	s.Configure(Options{Base: Base{Sysctls: []Sysctl{sysctl}}, Drain: time.Minute})
	s.Update(put(web(be1)))
	mustSync(t, s.Reconciler, s.now)
	s.conns(be1, 1)
	// manage_sysctls goes off, so that they are not read, and the VIP is excluded.
	s.k.Remove(sysctl.ID())
	s.Configure(Options{Drain: time.Minute, Exclude: []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}})
	mustSync(t, s.Reconciler, s.now)
	for range 3 {
		rep, err := s.Audit(context.Background(), s.now)
		if err != nil || len(rep.Drift) > 0 || len(rep.Ops) > 0 {
			t.Fatalf("drift %v, ops %v, %v", rep.Drift, rep.Ops, err)
		}
	}
	s.conns(be1, 0)
	mustSync(t, s.Reconciler, s.now.Add(2*time.Second))
	for id := range s.k.Objects() {
		if id.kind() == kindVirtualServer {
			t.Errorf("%s is left in what is excluded", id)
		}
	}
}

func TestFailuresOfWeirItselfAreNoted(t *testing.T) {
	s := newStory(t)
	s.Configure(Options{Base: base})
	s.k.Fail = func(op Op) error {
		if op.Object == (Rules{Family: IPv4}) {
			return errors.New("the lock is held")
		}
		return nil
	}
	s.Update(put())
	mustSync(t, s.Reconciler, s.now)
	if n := s.Notes(); len(n) != 1 || n[0].String() != "weir: failed: add rules IPv4: the lock is held" {
		t.Errorf("notes %v", n)
	}
}

func TestUnhealthyBackendKeepsItsConnections(t *testing.T) {
	s := newStory(t)
	s.create()
	s.SetHealth(map[ServiceID]Health{web().ID: {Down: map[netip.AddrPort]bool{be2: true}}}, true)
	s.sync(0, "change real server 10.0.0.2:8080 of 192.0.2.1:80/tcp weight 0")
	s.SetHealth(nil, true)
	s.sync(0, "change real server 10.0.0.2:8080 of 192.0.2.1:80/tcp weight 1")
}

// Scheduler dh refuses clients that hash to a weight of 0.
func TestUnhealthyBackendOfDHIsLeftOut(t *testing.T) {
	svc := web(be1, be2)
	svc.Scheduler = Scheduler{Name: "dh"}
	objects, _ := Plan(svc, &Facts{Health: map[ServiceID]Health{svc.ID: {Down: map[netip.AddrPort]bool{be2: true}}}})
	var got []netip.AddrPort
	for _, o := range objects {
		if rs, ok := o.(RealServer); ok {
			got = append(got, rs.Addr)
		}
	}
	if d := cmp.Diff([]netip.AddrPort{be1}, got, exact); d != "" {
		t.Errorf("real servers (-want +got):\n%s", d)
	}
}

func TestLostQuorum(t *testing.T) {
	sorry := netip.MustParseAddrPort("10.0.0.9:8080")
	down := Health{Down: map[netip.AddrPort]bool{be1: true, be2: true}, Lost: map[FamilyPort]bool{{PortKey{80, TCP}, IPv4}: true}}
	for _, tt := range []struct {
		when WhenDown
		want Outcome
	}{
		{KeepAll, kept(be1, be2)},
		{Refuse, refused},
		{UseFallback, kept(sorry)},
	} {
		t.Run(tt.when.String(), func(t *testing.T) {
			s := newStory(t)
			s.sets()
			svc := web(be1, be2)
			svc.WhenDown, svc.Fallback = tt.when, []netip.AddrPort{sorry}
			s.Update(put(svc))
			s.SetHealth(map[ServiceID]Health{svc.ID: down}, true)
			mustSync(t, s.Reconciler, s.now)
			if d := cmp.Diff(tt.want, s.k.Connect(clients[0], front), exact); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
			if notes := s.Notes(); len(notes) != 1 || notes[0].Reason != QuorumLost {
				t.Errorf("notes %v", notes)
			}
		})
	}
}

func TestNothingIsDeletedBeforeEverySourceHasSynced(t *testing.T) {
	s := newStory(t)
	s.create()
	r := newStory(t)
	r.k, r.kernel = s.k, s.k
	r.sets()
	rep := r.sync(0)
	if rep.Deferred == 0 {
		t.Error("no deletion is held")
	}
	r.Update(put())
	r.sync(0,
		"change real server 10.0.0.1:8080 of 192.0.2.1:80/tcp weight 0",
		"change real server 10.0.0.2:8080 of 192.0.2.1:80/tcp weight 0")
}

func TestErrorNeverTakesTheLastBackend(t *testing.T) {
	s := newStory(t)
	s.create()
	be3 := netip.MustParseAddrPort("10.0.0.3:8080")
	s.k.Fail = func(op Op) error {
		if rs, ok := op.Object.(RealServer); ok && rs.Addr == be3 {
			return errors.New("no buffer space")
		}
		return nil
	}
	s.Update(put(web(be3)))
	rep := s.sync(0, "change real server 10.0.0.1:8080 of 192.0.2.1:80/tcp weight 0")
	if rep.Failed != 2 || len(rep.Errors) != 1 {
		t.Errorf("%d failed, errors %v", rep.Failed, rep.Errors)
	}
	if got := s.k.Connect(clients[0], front); got.Fate != Served {
		t.Errorf("clients are %s", got.Fate)
	}
	if n := s.Notes(); len(n) != 1 || !strings.Contains(n[0].Text, "no buffer space") {
		t.Errorf("notes %v", n)
	}
	s.k.Fail = nil
	s.sync(2*time.Second,
		"add real server 10.0.0.3:8080 of 192.0.2.1:80/tcp weight 1",
		"change real server 10.0.0.2:8080 of 192.0.2.1:80/tcp weight 0",
		"delete real server 10.0.0.1:8080 of 192.0.2.1:80/tcp weight 0")
	if n := s.Notes(); len(n) != 0 {
		t.Errorf("notes %v", n)
	}
}

func TestWithoutItsVirtualServerNothingIsAdmitted(t *testing.T) {
	s := newStory(t)
	s.sets()
	s.k.Fail = func(op Op) error {
		if op.Object.kind() == kindVirtualServer {
			return errors.New("scheduler module ip_vs_rr is missing")
		}
		return nil
	}
	s.Update(put(web(be1)))
	rep := s.sync(0, "add member IPVS-IPS 192.0.2.1", "add member LOAD-BALANCER 192.0.2.1,tcp:80", "add address 192.0.2.1")
	if rep.Failed != 3 || len(rep.Errors) != 1 {
		t.Errorf("%d failed, errors %v", rep.Failed, rep.Errors)
	}
	if n := s.Notes(); len(n) != 1 || !strings.Contains(n[0].Text, "ip_vs_rr is missing") {
		t.Errorf("notes %v", n)
	}
	if again := s.sync(retryMin); again.Failed != 3 || len(again.Errors) != 0 {
		t.Errorf("again: %d failed, errors %v", again.Failed, again.Errors)
	}
	s.now = s.now.Add(-retryMin)
	if next := s.Next(); !next.Equal(s.now.Add(3 * retryMin)) {
		t.Errorf("next try %s", next)
	}
}

func TestLostObjectsComeBack(t *testing.T) {
	s := newStory(t)
	s.create()
	s.k.Remove(Address{vip})
	lost := s.Lost([]Object{Address{vip}, Address{netip.MustParseAddr("192.0.2.99")}})
	if len(lost) != 1 {
		t.Errorf("lost %v", lost)
	}
	s.sync(0, "add address 192.0.2.1")
}

// A set is lost with its members, which come back without an audit.
func TestALostSetComesBackWithItsMembers(t *testing.T) {
	s := newStory(t)
	s.create()
	set := IPSet{SetIPVSPorts, IPv4}
	s.k.Remove(set)
	if lost := s.Lost([]Object{set, IPSet{SetIPVSPorts, IPv6}}); len(lost) != 2 {
		t.Errorf("lost %v, want the set and its member", lost)
	}
	s.sync(0, "add set IPVS-PORTS IPv4 (hash:ip,port)", "add member IPVS-PORTS 192.0.2.1,tcp:80")
}

func TestAuditRepairsDrift(t *testing.T) {
	s := newStory(t)
	s.create()
	s.k.Remove(tuple(SetIPVSPorts, front))
	s.k.Put(RealServer{Frontend: front, Addr: be1, Weight: 7})
	s.k.Put(RealServer{Frontend: front, Addr: netip.MustParseAddrPort("10.6.6.6:80"), Weight: 7})
	rep, err := s.Audit(context.Background(), s.now)
	if err != nil {
		t.Fatal(err)
	}
	if len(rep.Drift) != 3 {
		t.Errorf("drift %v", rep.Drift)
	}
	want := []string{
		"add member IPVS-PORTS 192.0.2.1,tcp:80",
		"change real server 10.0.0.1:8080 of 192.0.2.1:80/tcp weight 1",
		"change real server 10.6.6.6:80 of 192.0.2.1:80/tcp weight 0",
	}
	var got []string
	for _, op := range rep.Ops {
		got = append(got, op.String())
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("ops (-want +got):\n%s", d)
	}
}

func TestForeignObjectsStayUnchanged(t *testing.T) {
	s := newStory(t)
	s.sets()
	foreign := VirtualServer{Frontend: front, Scheduler: Scheduler{Name: "wlc"}}
	other := VirtualServer{Frontend: Frontend{Addr: vip, Port: 81, Proto: TCP}, Scheduler: Scheduler{Name: "wlc"}}
	foreignAddr := Address{netip.MustParseAddr("192.0.2.200")}
	s.k.Put(foreign, other, RealServer{Frontend: front, Addr: be1, Weight: 9}, foreignAddr)
	s.Update(put(web(be1, be2)))
	s.sync(0)
	if n := s.Notes(); len(n) != 1 || n[0].Reason != ForeignFrontend {
		t.Errorf("notes %v", n)
	}
	s.k.Remove(foreign.ID())
	if _, err := s.Audit(context.Background(), s.now); err != nil {
		t.Fatal(err)
	}
	if got := s.k.Connect(clients[0], front); len(got.Backends) != 2 {
		t.Errorf("after the foreign server went: %v", got)
	}
	if _, err := s.Cleanup(context.Background(), s.now); err != nil {
		t.Fatal(err)
	}
	// The address is on weir's device, which therefore stays.
	if d := cmp.Diff(NewSnapshot(other, foreignAddr, Device{}), s.k.Objects(), exact); d != "" {
		t.Errorf("after cleanup (-want +got):\n%s", d)
	}
	s.k.Remove(foreignAddr)
	if _, err := s.Cleanup(context.Background(), s.now); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(NewSnapshot(other), s.k.Objects(), exact); d != "" {
		t.Errorf("after the foreign address has gone and another cleanup (-want +got):\n%s", d)
	}
}

func TestOldestServiceHasTheFrontend(t *testing.T) {
	s := newStory(t)
	s.sets()
	young, old := web(be1), web(be2)
	young.ID.Name, young.Created = "aaa", testNow
	old.ID.Name, old.Created = "zzz", testNow.Add(-time.Hour)
	for range 5 { // never a flap
		s.Update(put(young, old))
		mustSync(t, s.Reconciler, s.now)
		if got := s.k.Connect(clients[0], front); !slices.Equal(got.Backends, []netip.AddrPort{be2}) {
			t.Fatalf("%v answers", got.Backends)
		}
	}
	if n := s.Notes(); len(n) != 1 || n[0].Reason != Conflict || n[0].Service != young.ID {
		t.Errorf("notes %v", n)
	}
	s.Update(put(young))
	s.sync(time.Second,
		"add real server 10.0.0.1:8080 of 192.0.2.1:80/tcp weight 1",
		"change real server 10.0.0.2:8080 of 192.0.2.1:80/tcp weight 0")
}

func TestHostAddressKeepsItsOtherPorts(t *testing.T) {
	s := newStory(t)
	s.sets()
	s.k.HostAddrs = map[netip.Addr]string{vip: "eth0"}
	s.Update(put(web(be1)))
	s.sync(0,
		"add member LOAD-BALANCER 192.0.2.1,tcp:80",
		"add virtual server 192.0.2.1:80/tcp rr",
		"add real server 10.0.0.1:8080 of 192.0.2.1:80/tcp weight 1",
		"add member IPVS-PORTS 192.0.2.1,tcp:80")
	if n := s.Notes(); len(n) != 1 || n[0].Reason != HostAddress {
		t.Errorf("notes %v", n)
	}
}

func TestPreviewAppliesNothing(t *testing.T) {
	s := newStory(t)
	s.Configure(Options{Base: base})
	s.Update(put(web(be1)))
	ops, err := s.Preview(context.Background(), s.now)
	if err != nil || len(ops) < 30 {
		t.Fatalf("%d ops, %v", len(ops), err)
	}
	if s.k.Calls() != 0 {
		t.Errorf("%d ops were applied", s.k.Calls())
	}
}

// The results of some Services have the effect of those of all.
func TestHealthOfSomeServices(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	whole, parts := NewReconciler(&Fake{}, Options{}), NewReconciler(&Fake{}, Options{})
	known := map[ServiceID]Health{}
	for range 1000 {
		all, part := maps.Clone(known), map[ServiceID]Health{}
		for range r.IntN(3) {
			id := ServiceID{Source: "static", Name: fmt.Sprint(r.IntN(5))}
			h := Health{}
			if r.IntN(2) == 0 {
				h.Down = map[netip.AddrPort]bool{be2: true}
			}
			if r.IntN(2) == 0 {
				h.Lost = map[FamilyPort]bool{{PortKey{80, TCP}, IPv4}: true}
			}
			all[id], part[id] = h, h
		}
		gone := r.IntN(10) == 0
		for id := range all {
			if gone && r.IntN(2) == 0 {
				delete(all, id)
			}
		}
		if gone {
			part = maps.Clone(all)
		}
		want := whole.SetHealth(maps.Clone(all), true)
		got := parts.SetHealth(part, gone)
		slices.SortFunc(want, ServiceID.Compare)
		slices.SortFunc(got, ServiceID.Compare)
		if !slices.Equal(got, want) {
			t.Fatalf("differ: %v, want %v", got, want)
		}
		if diff := cmp.Diff(whole.Facts().Health, parts.Facts().Health, cmpopts.EquateComparable(netip.AddrPort{}), cmpopts.EquateEmpty()); diff != "" {
			t.Fatalf("health (-all +parts):\n%s", diff)
		}
		known = all
	}
}
