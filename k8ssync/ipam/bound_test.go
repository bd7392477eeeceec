package ipam

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"weir/lb"
)

// The state of an Allocator does not grow with the number of past events.
func TestOldVersionsAreForgotten(t *testing.T) {
	a := New(Config{Pools: []Pool{public(t, "2001:db8::/64")}, Retention: time.Hour})
	x, version := netip.MustParseAddr("2001:db8::"), uint64(0)
	const many = 100 * keepGone
	for range many { // each has a claim for a while, as the watch reports
		version++
		a.Learn(Claim{Addr: x, Version: version})
		version++
		a.Gone(x, version)
		a.Passed(version)
		x = x.Next()
	}
	if n := len(a.gone); n == 0 || n > 2*keepGone {
		t.Errorf("of %d claims that are gone, the versions of %d are kept", many, n)
	}
	// The answer to a write may report one late.
	flying := netip.MustParseAddr("2001:db8:0:0:1::")
	a.start(lb.ServiceID{Name: "web"}, Write{Claim: Claim{Addr: flying}})
	a.Gone(flying, version+2)
	a.Relist(version+3, nil, Intake{})
	a.Learn(Claim{Addr: flying, Version: version + 1})
	if len(a.claims) != 0 || len(a.gone) != 1 {
		t.Errorf("%d claims, %d gone", len(a.claims), len(a.gone))
	}
	a.Done(flying)
	a.Relist(version+3, nil, Intake{})
	if len(a.gone) != 0 {
		t.Errorf("%v", a.gone)
	}
}

// A namespace that creates and deletes Services does not empty a pool without a limit: what is
// retained for it stays close to half of the addresses.
func TestRetainedAddressesDoNotEmptyAPool(t *testing.T) {
	s := newStage(t, public(t, "192.0.2.0/28", "2001:db8::/64"))
	s.a.SetConfig(Config{Pools: []Pool{public(t, "192.0.2.0/28", "2001:db8::/64")}, Retention: after})
	for i := range 40 {
		r := request(fmt.Sprint("evil-", i))
		if i%3 == 0 {
			r.Addrs = addrs(fmt.Sprintf("192.0.2.%d", 15-i/3))
		}
		s.put(r).finish()
		s.delete(r.ID.Name).finish()
	}
	if u := s.a.Usage().Pools[0]; u.Retained != 9 {
		t.Errorf("%d addresses are retained, want 9 of 16", u.Retained)
	}
	s.put(request("late")).want("late", NamespaceLimit).hasPending("late", `pool "public" keeps 9 IPv4 addresses for deleted Services of namespace shop, and has fewer free ones`)
	again := request("evil-1")
	again.UID = "evil-1-2"
	s.put(again).want("evil-1", "", "192.0.2.0") // it is the Service's own
	six := request("six")
	six.Required = []lb.Family{lb.IPv6}
	s.put(six).want("six", "", "2001:db8::")
	victim := request("web")
	victim.ID.Namespace = "bank"
	s.put(victim).finish()
	if got := s.there[victim.ID].Status; len(got) != 1 {
		t.Errorf("the victim has %v", got)
	}
	s.delete("evil-1").finish()
	s.now = s.now.Add(after)
	s.finish()
	if got := s.there[request("late").ID].Status; len(got) != 1 {
		t.Errorf("after the retention the Service has %v", got)
	}
}

// In a small pool a few retained addresses refuse nothing: a namespace gets the last one.
func TestAFewRetainedAddressesDoNotLimitANamespace(t *testing.T) {
	s := newStage(t, public(t, "192.0.2.0/30"))
	s.a.SetConfig(Config{Pools: []Pool{public(t, "192.0.2.0/30")}, Retention: after})
	for i := range 3 {
		name := fmt.Sprint("old-", i)
		s.put(request(name)).finish()
		s.delete(name).finish()
	}
	s.put(request("new")).want("new", "", "192.0.2.3")
}

func TestRetentionIsQueuedOnce(t *testing.T) {
	a := New(Config{Pools: []Pool{public(t, "192.0.2.0/24")}, Retention: time.Hour})
	web, addr := lb.ServiceID{Source: "prod", Namespace: "shop", Name: "web"}, netip.MustParseAddr("192.0.2.0")
	a.Synced("prod", true)
	zones := []*time.Location{time.UTC, time.FixedZone("", 3600)}
	for v := range uint64(1000) { // the claim is written repeatedly
		a.Learn(Claim{Addr: addr, Version: v + 1, Holders: []Holder{{Service: web, UID: "u", Released: start.In(zones[v%2])}}})
	}
	if n := len(a.queue.retained.items); n != 1 {
		t.Errorf("its hold is remembered %d times", n)
	}
	if d, some := a.Next(start); some {
		t.Errorf("too early: %+v", d)
	}
	end := start.Add(time.Hour)
	if got := a.Wake(); !got.Equal(end) {
		t.Errorf("it wakes at %s", got)
	}
	if d, some := a.Next(end); !some || len(d.Writes) != 1 || !d.Writes[0].Delete {
		t.Errorf("it ends with %+v", d)
	}
	if len(a.queue.known) != 0 || !a.Wake().IsZero() {
		t.Errorf("%v, and it wakes at %s", a.queue.known, a.Wake())
	}
}

// A box that only watches another writer keeps no queue, and has one when it writes.
func TestNothingIsQueuedAtRest(t *testing.T) {
	s := newStage(t, public(t, "192.0.2.0/24"))
	s.put(request("old")).want("old", "", "192.0.2.0").delete("old").finish()
	s.put(request("web")).want("web", "", "192.0.2.1")
	s.a.Rest()
	for i := range 1000 {
		s.put(request(fmt.Sprint("job-", i))).delete(fmt.Sprint("job-", i))
	}
	old := *s.a.claims[addr("192.0.2.0")]
	old.Version += 1000
	s.a.Learn(old)
	s.put(request("new"))
	if q := &s.a.queue; len(q.at)+len(q.now.items)+len(q.retained.items)+len(q.known) != 0 || !s.a.Wake().IsZero() {
		t.Errorf("%d, %d, %d and %d are queued, and it wakes at %s", len(q.at), len(q.now.items), len(q.retained.items), len(q.known), s.a.Wake())
	}
	s.want("new", "", "192.0.2.2").want("web", "", "192.0.2.1")
	if got := s.a.Wake(); !got.Equal(start.Add(after)) {
		t.Errorf("it wakes at %s", got)
	}
}

// Services of a cluster that is not synced cost the others nothing.
func TestUnsyncedServicesAreNotQueued(t *testing.T) {
	s := newStage(t, public(t, "192.0.2.0/31"))
	s.put(request("one")).put(request("two")).finish()
	away := request("away")
	away.ID.Source = "test"
	s.put(away).finish()
	if len(s.a.wanting) != 1 {
		t.Fatalf("%d wait for an address", len(s.a.wanting))
	}
	s.a.Synced("test", false)
	s.finish()
	s.a.start(id("two"), Write{Claim: Claim{Addr: addr("192.0.2.1")}})
	s.a.Done(addr("192.0.2.1"))
	s.a.wake(s.now)
	if n := len(s.a.queue.at) + len(s.a.waiting) + len(s.a.wanting); n != 0 {
		t.Errorf("%d are queued or wait for others", n)
	}
	s.delete("one").finish()
	s.now = s.now.Add(after)
	s.finish()
	s.a.Synced("test", true)
	s.finish()
	if got := s.there[away.ID].Status; len(got) != 1 {
		t.Errorf("it has %v", got)
	}
}

// A claim older than the known one is no result of a write: the Service is not decided again
// at once.
func TestOlderClaimEndsNoWrite(t *testing.T) {
	s := newStage(t, public(t, "192.0.2.0/30"))
	s.a.Gone(addr("192.0.2.0"), 1000)
	s.a.Put(request("web"))
	d, _ := s.a.Next(s.now)
	if len(d.Writes) != 1 || s.a.Learn(Claim{Addr: d.Writes[0].Claim.Addr, Version: 400}) {
		t.Fatalf("%+v, or the older claim is taken", d)
	}
	s.a.Done(addr("192.0.2.0"))
	if d, some := s.a.Next(s.now); some {
		t.Errorf("%+v follows", d)
	}
}

// What is available to all pending Services changes with each other Service. That is no
// Decision for each of them.
func TestNearestAddressIsNoDecision(t *testing.T) {
	s := newStage(t, public(t, "192.0.2.0/24"))
	s.put(request("held")).finish()
	for i := range 10 {
		r := request(fmt.Sprint("pending-", i))
		r.Addrs = addrs("192.0.2.0")
		s.put(r)
	}
	s.finish().hasPending("pending-0", "the nearest available address is 192.0.2.1")
	clear(s.last)
	s.put(request("web")).want("web", "", "192.0.2.1").delete("web").finish()
	delete(s.last, id("web"))
	if len(s.last) != 0 {
		t.Errorf("%d Decisions follow", len(s.last))
	}
	s.delete("held").finish()
	if len(s.last) != 10 { // the rule differs: the address is retained
		t.Errorf("%d Decisions follow", len(s.last))
	}
}
