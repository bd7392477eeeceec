package ipam

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"weir/lb"
)

func TestTheLowestAddressOfTheBestPool(t *testing.T) {
	b, c := public(t, "198.51.100.0/31"), public(t, "203.0.113.0/30")
	b.Name, c.Name, c.Priority, c.AvoidFirstLast = "b", "c", -1, true
	a := public(t, "192.0.2.0/24")
	a.Name, a.AutoAssign, a.Priority = "a", false, -2
	s := newStage(t, a, b, c)
	for i, want := range []string{"203.0.113.1", "203.0.113.2", "198.51.100.0", "198.51.100.1"} {
		name := fmt.Sprint("s", i)
		s.put(request(name)).want(name, "", want)
	}
	s.put(request("late")).want("late", PoolExhausted).hasPending("late", `the nearest available address is 192.0.2.0 of pool "a"`)
	asks := request("asks")
	asks.Pool = "a"
	s.put(asks).want("asks", "", "192.0.2.0")
	end := request("end")
	end.Addrs = addrs("203.0.113.3")
	s.put(end).want("end", "", "203.0.113.3")
}

func TestOlderServiceComesFirst(t *testing.T) {
	s := newStage(t, public(t, "192.0.2.1"))
	young, old := request("a"), request("b")
	young.Created = start.Add(time.Second)
	s.put(young).put(old).want("b", "", "192.0.2.1").want("a", PoolExhausted)
}

func TestLimits(t *testing.T) {
	p := public(t, "192.0.2.0/24")
	p.Clusters, p.Namespaces, p.Labels = []string{"prod"}, []string{"shop"}, map[string]string{"tier": "front"}
	s := newStage(t, p)
	r := request("web")
	s.put(r).want("web", NoPool).hasPending("web", `pool "public" admits only Services with label tier=front`)
	r.Labels = map[string]string{"tier": "front"}
	s.put(r).want("web", "", "192.0.2.0")
	r.Labels = nil
	s.put(r).want("web", "", "192.0.2.0").noted("web", OutsidePool, "tier=front")
	for _, x := range []lb.ServiceID{{Source: "test", Namespace: "shop", Name: "web"}, {Source: "prod", Namespace: "else", Name: "web"}} {
		r := request("web")
		r.ID, r.Labels, r.Addrs = x, map[string]string{"tier": "front"}, addrs("192.0.2.9")
		s.put(r).finish()
		if d := s.last[x]; d.Pending.Reason != NotAllowed || len(d.Addrs) > 0 {
			t.Errorf("%v: %+v, want %s", x, d, NotAllowed)
		}
		if rule := s.last[x].Pending.Rule; x.Namespace != "shop" && strings.Contains(rule, "shop") {
			t.Errorf("%v learns of another namespace: %s", x, rule)
		}
	}
}

func TestUnavailableRequests(t *testing.T) {
	a, b := public(t, "192.0.2.0/30"), public(t, "198.51.100.0/30")
	b.Name, b.AutoAssign = "z", false
	tests := []struct {
		name string
		ask  func(*Request)
		want Reason
		text string
	}{
		{"outside", func(r *Request) { r.Addrs = addrs("203.0.113.1") }, AddressNotInPool, "203.0.113.1 is in no pool; the nearest available address is 192.0.2.1 of"},
		{"taken", func(r *Request) { r.Addrs = addrs("192.0.2.0") }, AddressInUse, "the address of prod/shop/first"},
		{"other pool", func(r *Request) { r.Addrs, r.Pool = addrs("192.0.2.1"), "z" }, AddressNotInPool, "request an address of that pool"},
		{"no pool", func(r *Request) { r.Pool = "c" }, NoPool, `there is no pool "c"`},
		{"two", func(r *Request) { r.Addrs = addrs("192.0.2.1", "192.0.2.2") }, BadRequest, "one address of a family"},
		{"family", func(r *Request) { r.Addrs = addrs("2001:db8::1") }, BadRequest, "spec.ipFamilies"},
		{"missing", func(r *Request) { r.Required = []lb.Family{lb.IPv6} }, FamilyMissing, `"public" has no IPv6 addresses`},
		{"both", func(r *Request) { r.Required = []lb.Family{lb.IPv4, lb.IPv6} }, FamilyMissing, "IPv6"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			s := newStage(t, a, b).put(request("first")).finish()
			r := request("web")
			test.ask(&r)
			s.put(r).want("web", test.want).hasPending("web", test.text)
			// A Service with an address keeps it, whatever it requests.
			s.put(request("kept")).want("kept", "", "192.0.2.1")
			k := request("kept")
			test.ask(&k)
			k.Addrs = slices.DeleteFunc(k.Addrs, func(x netip.Addr) bool { return x == addr("192.0.2.1") })
			if slices.Contains(k.Required, lb.IPv4) {
				s.put(k).finish()
				if len(s.there[k.ID].Status) == 0 {
					t.Errorf("the wish took the address away: %+v", s.last[k.ID])
				}
			}
		})
	}
}

func TestMovesOnlyOnRequest(t *testing.T) {
	a, b := public(t, "192.0.2.0/30"), public(t, "198.51.100.0/30")
	b.Name = "z"
	s := newStage(t, a, b)
	r := request("web")
	s.put(r).want("web", "", "192.0.2.0")
	r.Pool = "z"
	s.put(r).want("web", "", "198.51.100.0")
	r.Pool = ""
	s.put(r).want("web", "", "198.51.100.0")
	r.Addrs = addrs("192.0.2.2")
	s.put(r).want("web", "", "192.0.2.2")
	r.Addrs = nil
	s.put(r).want("web", "", "192.0.2.2")
	s.put(request("next")).want("next", "", "192.0.2.1") // 192.0.2.0 is kept for web
	s.now = s.now.Add(after)
	s.put(request("last")).want("last", "", "192.0.2.0")
}

func TestChangedPoolMovesNoService(t *testing.T) {
	p := public(t, "192.0.2.0/30")
	s := newStage(t, p)
	r := request("web")
	r.Pool = "public"
	s.put(r).put(request("api")).want("web", "", "192.0.2.1").want("api", "", "192.0.2.0")
	p.Ranges = ranges(t, "198.51.100.0/30")
	c := Config{Pools: []Pool{p}, Retention: after}
	if got := s.a.OutsidePool(c); len(got) != 2 || got[0].Service != id("api") {
		t.Errorf("outside their pool: %v", got)
	}
	s.a.SetConfig(c)
	s.want("web", "", "192.0.2.1").noted("web", OutsidePool, "in no pool now")
	s.want("api", "", "192.0.2.0").noted("api", OutsidePool, "in no pool now")
	s.a.Rest() // another box is the writer
	if u := s.a.Usage(); u.OutsidePool != 2 || u.Pools[0].OutsidePool != 0 {
		t.Errorf("addresses of no pool: %+v", u)
	}
	s.delete("api").put(request("api2")).want("api2", "", "198.51.100.0")
	if u := s.a.Usage(); u.Outside != 2 || u.Pools[0].Used != 1 {
		t.Errorf("usage: %+v", u)
	}
	// One made again is a new one: it gets what it may have today.
	again := r
	again.UID = "web-2"
	s.delete("web").finish().put(again).want("web", "", "198.51.100.1")
}

func TestDualStack(t *testing.T) {
	six := public(t, "2001:db8::/64")
	six.Name = "six"
	both := []lb.Family{lb.IPv4, lb.IPv6}
	s := newStage(t, public(t, "192.0.2.0/31"))
	r := request("web")
	s.put(r).want("web", "", "192.0.2.0")
	r.Required = both
	s.put(r).want("web", FamilyMissing, "192.0.2.0") // it keeps what it has
	p := request("prefer")
	p.Required, p.Preferred = nil, both
	s.put(p).want("prefer", "", "192.0.2.1").noted("prefer", FamilyLeft, "IPv6")
	q := request("require")
	q.Required = both
	s.put(q).want("require", PoolExhausted)
	s.a.SetConfig(Config{Pools: []Pool{public(t, "192.0.2.0/31"), six}, Retention: after})
	s.want("web", "", "192.0.2.0", "2001:db8::1").want("prefer", "", "192.0.2.1", "2001:db8::").want("require", PoolExhausted)
	if u := s.a.Usage(); u.Pools[1].Used != 2 {
		t.Errorf("both or none: %+v", u)
	}
	r.Required = both[:1]
	s.put(r).want("web", "", "192.0.2.0")
}

func TestTwoRequiredFamiliesAppearTogether(t *testing.T) {
	s := newStage(t, public(t, "192.0.2.0/31", "2001:db8::/64"))
	r := request("web")
	r.Required = []lb.Family{lb.IPv4, lb.IPv6}
	s.a.Put(r)
	d, _ := s.a.Next(s.now)
	if len(d.Writes) != 2 || len(d.Addrs) > 0 {
		t.Fatalf("%+v", d)
	}
	four := d.Writes[0].Claim
	four.Version = 1
	s.a.Learn(four)
	s.a.Done(four.Addr)
	if d, ok := s.a.Next(s.now); ok {
		t.Errorf("the second is under way: %+v", d)
	}
	s.a.Done(d.Writes[1].Claim.Addr) // and failed
	s.a.Again(r.ID)
	if d, _ := s.a.Next(s.now); len(d.Addrs) > 0 || len(d.Writes) != 1 {
		t.Errorf("one without the other: %+v", d)
	}
}

func TestDeletedClaimIsRestored(t *testing.T) {
	s := newStage(t, public(t, "192.0.2.0/31")).put(request("a")).put(request("b")).finish()
	for _, c := range s.a.Claims() {
		s.a.Gone(c.Addr, c.Version)
	}
	s.put(request("c")).want("c", PoolExhausted).want("a", "", "192.0.2.0").want("b", "", "192.0.2.1")
	if c := s.a.Claims(); len(c) != 2 {
		t.Errorf("claims: %+v", c)
	}
}

// A writer with an old view of a claim does not remove the address before it has checked.
func TestLateWriterChecksFirst(t *testing.T) {
	s := newStage(t, public(t, "192.0.2.0/31"))
	x, other := addr("192.0.2.0"), lb.ServiceID{Source: "far", Namespace: "shop", Name: "other"}
	s.a.Learn(Claim{Addr: x, Version: 1, Holders: []Holder{{Service: other, UID: "o"}}})
	r := request("web")
	r.Status = addrs("192.0.2.0")
	s.a.Put(r)
	d, _ := s.a.Next(s.now)
	if len(d.Writes) != 1 || d.Writes[0].Claim.Version != 1 || d.Writes[0].Claim.Holders[0].Service != other {
		t.Fatalf("%+v", d)
	}
	// The store has long given it to web.
	s.a.Learn(Claim{Addr: x, Version: 5, Holders: []Holder{{Service: r.ID, UID: r.UID}}})
	s.a.Done(x)
	for range 3 {
		if d, ok := s.a.Next(s.now); ok && d.Service == r.ID && (len(d.Writes) > 0 || !slices.Equal(d.Addrs, r.Status)) {
			t.Errorf("%+v", d)
		}
	}
}

func TestRecreatedService(t *testing.T) {
	s := newStage(t, public(t, "192.0.2.0/31"))
	s.put(request("a")).put(request("b")).want("b", "", "192.0.2.1")
	s.delete("a").put(request("c")).want("c", PoolExhausted)
	byName := request("d")
	byName.Addrs = addrs("192.0.2.0")
	s.put(byName).want("d", AddressRetained).hasPending("d", "kept for prod/shop/a until 2026-01-01T00:10:00Z")
	s.delete("d")
	if u := s.a.Usage().Pools[0]; u.Used != 1 || u.Retained != 1 || u.Free != (Count{}) {
		t.Errorf("usage: %+v", u)
	}
	again := request("a")
	again.UID = "a-2"
	s.put(again).want("a", "", "192.0.2.0").want("c", PoolExhausted)
	s.delete("a").finish()
	if got, want := s.a.Wake(), s.now.Add(after); !got.Equal(want) {
		t.Errorf("wakes at %v, want %v", got, want)
	}
	s.now = s.now.Add(after - 1)
	s.want("c", PoolExhausted)
	s.now = s.now.Add(1)
	s.want("c", "", "192.0.2.0")
}

// A namespace has no more addresses than it may have, also by Services that come and go.
func TestNamespaceLimit(t *testing.T) {
	p := public(t, "192.0.2.0/28", "2001:db8::/124")
	p.MaxPerNamespace = 2
	s := newStage(t, p)
	c := Config{Pools: []Pool{p}, Retention: after, Reservations: []Reservation{{Service: id("booked"), Addrs: addrs("192.0.2.9")}}}
	s.a.SetConfig(c)
	s.put(request("a")).put(request("b")).want("a", "", "192.0.2.0").want("b", "", "192.0.2.1")
	s.put(request("c")).want("c", NamespaceLimit).hasPending("c", `namespace shop has 2 IPv4 addresses of pool "public", with those kept for deleted Services`)
	asks := request("d")
	asks.Addrs = addrs("192.0.2.7")
	s.put(asks).want("d", NamespaceLimit)
	s.put(request("booked")).want("booked", "", "192.0.2.9") // is not refused
	six := request("six")
	six.Required = []lb.Family{lb.IPv6}
	s.put(six).want("six", "", "2001:db8::")
	other := request("web")
	other.ID.Namespace = "bank"
	s.put(other).finish()
	if got := s.there[other.ID].Status; !slices.Equal(got, addrs("192.0.2.2")) {
		t.Errorf("another namespace has %v", got)
	}
	s.delete("a").want("c", NamespaceLimit)
	again := request("a")
	again.UID = "a-2"
	s.put(again).want("a", "", "192.0.2.0") // it is the Service's own
	s.delete("a").delete("booked").delete("d").finish()
	s.now = s.now.Add(after)
	s.want("c", "", "192.0.2.0")
}

// Random Services of two namespaces come and go, and neither ever has more than its limit.
func TestNamespaceLimitIsKept(t *testing.T) {
	const limit = 5
	p := public(t, "192.0.2.0/28", "2001:db8::/124")
	p.MaxPerNamespace = limit
	d := rand.New(rand.NewPCG(3, 9))
	s := newStage(t, p)
	most := 0
	for range 3000 {
		r := request(fmt.Sprint(d.IntN(30)))
		r.ID.Namespace = []string{"shop", "bank"}[d.IntN(2)]
		if r.Required = []lb.Family{lb.IPv4}; d.IntN(3) == 0 {
			r.Required = []lb.Family{lb.IPv4, lb.IPv6}
		}
		if d.IntN(4) == 0 {
			r.Addrs = addrs(fmt.Sprintf("192.0.2.%d", d.IntN(16)))
		}
		if d.IntN(3) == 0 {
			delete(s.there, r.ID)
			s.a.Delete(r.ID)
		} else {
			s.put(r)
		}
		s.finish()
		s.now = s.now.Add(time.Duration(d.IntN(int(after / 20))))
		of := map[space]map[lb.Family]int{}
		for _, c := range s.a.Claims() {
			in := map[space]bool{}
			for _, h := range c.Holders {
				in[space{h.Service.Source, h.Service.Namespace}] = true
			}
			for k := range in {
				if of[k] == nil {
					of[k] = map[lb.Family]int{}
				}
				of[k][lb.FamilyOf(c.Addr)]++
				if most = max(most, of[k][lb.FamilyOf(c.Addr)]); most > limit {
					t.Fatalf("%v has %v, with %v; at most %d", k, of[k], c, limit)
				}
			}
		}
	}
	if most < limit {
		t.Errorf("the dice gave at most %d, want the limit", most)
	}
}

func TestReservations(t *testing.T) {
	p := public(t, "192.0.2.0/30", "2001:db8::/64")
	p.Namespaces = []string{"shop"}
	c := Config{Pools: []Pool{p}, Retention: after, Reservations: []Reservation{
		{Service: id("web"), Addrs: addrs("192.0.2.0", "2001:db8::")},
		{Service: lb.ServiceID{Source: "prod", Namespace: "else", Name: "web"}, Addrs: addrs("192.0.2.3")},
	}}
	s := newStage(t, p)
	s.a.SetConfig(c)
	s.put(request("a")).want("a", "", "192.0.2.1")
	b := request("b")
	b.Addrs = addrs("192.0.2.0")
	s.put(b).want("b", AddressReserved).hasPending("b", "reserved for prod/shop/web")
	b.Addrs = nil
	b.Required = []lb.Family{lb.IPv6}
	s.put(b).want("b", "", "2001:db8::1")
	web := request("web")
	web.Required = []lb.Family{lb.IPv4, lb.IPv6}
	s.put(web).want("web", "", "192.0.2.0", "2001:db8::")
	other := request("web")
	other.ID = c.Reservations[1].Service
	s.put(other).finish()
	if got := s.there[other.ID].Status; !slices.Equal(got, addrs("192.0.2.3")) {
		t.Errorf("a reservation is past the pool's limits: got %v", got)
	}
	// One that comes too late waits, and moves no Service.
	c.Reservations = append(c.Reservations, Reservation{Service: id("late"), Addrs: addrs("192.0.2.1")})
	s.a.SetConfig(c)
	s.put(request("late")).want("late", AddressInUse).want("a", "", "192.0.2.1").noted("a", OutsidePool, "reserved for prod/shop/late")
	s.delete("a").finish()
	s.now = s.now.Add(after)
	s.want("late", "", "192.0.2.1")
}

func TestForeignAddressesAreTaken(t *testing.T) {
	s := newStage(t, public(t, "192.0.2.0/31"))
	f := request("other")
	f.Foreign, f.Status = true, addrs("192.0.2.0")
	s.put(f).put(request("a")).want("a", "", "192.0.2.1")
	if d := s.a.Decide(f.ID, s.now); d.Apply || len(d.Writes) > 0 {
		t.Errorf("others' Services are not touched: %+v", d)
	}
	s.put(request("b")).want("b", PoolExhausted)
	s.delete("other").want("b", "", "192.0.2.0")
}

func TestChangeOfClassReleases(t *testing.T) {
	s := newStage(t, public(t, "192.0.2.0/31"))
	r := request("a")
	s.put(r).want("a", "", "192.0.2.0")
	r.Foreign = true
	s.put(r).finish()
	if got := s.there[r.ID].Status; len(got) > 0 {
		t.Errorf("status: %v", got)
	}
	if u := s.a.Usage().Pools[0]; u.Retained != 1 {
		t.Errorf("usage: %+v", u)
	}
	r.Foreign = false
	s.put(r).want("a", "", "192.0.2.0")
}

func TestAdoption(t *testing.T) {
	p := public(t, "192.0.2.0/29")
	p.Namespaces = []string{"else"} // what is there is there
	s := newStage(t, p)
	old, young, sharer := request("z"), request("a"), request("s")
	young.Created = start.Add(time.Hour)
	for _, r := range []*Request{&old, &young} {
		r.Status = addrs("192.0.2.5")
	}
	old.Share, sharer.Share = "k", "k"
	sharer.Ports, sharer.Status, sharer.Created = []lb.PortKey{{Port: 443, Proto: lb.TCP}}, addrs("192.0.2.5"), start.Add(time.Hour)
	for _, r := range []Request{young, sharer, old} {
		s.there[r.ID] = r
		s.a.Put(r)
	}
	s.want("z", "", "192.0.2.5").want("s", "", "192.0.2.5").want("a", NoPool)
	if c := s.a.Claims(); len(c) != 1 || c[0].HolderIdentity() != "prod/shop/s,prod/shop/z" {
		t.Errorf("claims: %+v", c)
	}
}

// Two Services that show the same address and share nothing: the older one keeps it,
// in whichever order they become known and decided.
func TestAdoptionByTheOlder(t *testing.T) {
	for _, order := range [][]string{{"old", "young"}, {"young", "old"}} {
		s := newStage(t, public(t, "192.0.2.0/29"))
		for _, name := range order {
			r := request(name)
			r.Status = addrs("192.0.2.5")
			if name == "young" {
				r.Created = start.Add(time.Second)
			}
			s.there[r.ID] = r
			s.a.Put(r)
		}
		if d := s.a.Decide(id("young"), s.now); len(d.Writes) > 0 {
			t.Errorf("%v: the younger one claims before the older one has: %+v", order, d.Writes)
		}
		s.want("old", "", "192.0.2.5").want("young", "", "192.0.2.0")
		if c := s.a.claims[addr("192.0.2.5")]; c == nil || c.HolderIdentity() != "prod/shop/old" {
			t.Errorf("%v: claimed as %+v, want prod/shop/old", order, c)
		}
	}
}

// A Service of another controller that shows the same address is reported if it is
// older, and is no conflict if it came later.
func TestAdoptionBesideAForeignService(t *testing.T) {
	for _, age := range []time.Duration{-time.Second, time.Second} {
		s := newStage(t, public(t, "192.0.2.0/29"))
		foreign, own := request("foreign"), request("own")
		foreign.Foreign, foreign.Created = true, start.Add(age)
		foreign.Status, own.Status = addrs("192.0.2.5"), addrs("192.0.2.5")
		s.a.Put(foreign)
		s.a.Put(own)
		d := s.a.Decide(own.ID, s.now)
		conflict := slices.ContainsFunc(d.Notes, func(n Note) bool { return n.Reason == Conflict })
		if conflict != (age < 0) || len(d.Writes) != 1 {
			t.Errorf("the other one is %v younger: %d writes, notes %v", age, len(d.Writes), d.Notes)
		}
	}
}

func TestUnsyncedClusterKeepsItsClaims(t *testing.T) {
	s := newStage(t, public(t, "192.0.2.0/31"))
	s.put(request("a")).want("a", "", "192.0.2.0")
	claims := s.a.Claims()
	b := New(s.a.Config) // another writer, that does not reach the cluster
	b.Relist(9, claims, Intake{})
	b.Synced("test", true)
	later := start.Add(24 * time.Hour)
	if d, ok := b.Next(later); ok {
		t.Errorf("did %+v", d)
	}
	r := request("t")
	r.ID.Source = "test"
	b.Put(r)
	if d, _ := b.Next(later); len(d.Writes) != 1 || d.Writes[0].Claim.Addr != addr("192.0.2.1") {
		t.Errorf("did %+v", d)
	}
	b.Synced("prod", true) // and there is no a
	if d, _ := b.Next(later); len(d.Writes) != 1 || d.Writes[0].Claim.Holders[0].Released != later {
		t.Errorf("did %+v", d)
	}
}

func TestClaimOfUnknownHoldersIsTaken(t *testing.T) {
	s := newStage(t, public(t, "192.0.2.0/31"))
	s.a.Learn(Claim{Addr: addr("192.0.2.0"), Version: 1})
	s.put(request("a")).want("a", "", "192.0.2.1")
	r := request("b")
	r.Addrs = addrs("192.0.2.0")
	s.put(r).want("b", AddressInUse).hasPending("b", "weir-192.0.2.0")
	s.a.Gone(addr("192.0.2.0"), 1)
	s.want("b", "", "192.0.2.0")
}

func TestOlderVersionsAreIgnored(t *testing.T) {
	a := New(Config{})
	x := addr("192.0.2.0")
	known := func() uint64 {
		for _, c := range a.Claims() {
			return c.Version
		}
		return 0
	}
	for i, step := range []struct {
		do   func()
		want uint64
	}{
		{func() { a.Learn(Claim{Addr: x, Version: 5}) }, 5},
		{func() { a.Learn(Claim{Addr: x, Version: 4}) }, 5},
		{func() { a.Gone(x, 4) }, 5},
		{func() { a.Relist(4, nil, Intake{}) }, 5},
		{func() { a.Gone(x, 6) }, 0},
		{func() { a.Learn(Claim{Addr: x, Version: 5}) }, 0},
		{func() { a.Learn(Claim{Addr: x, Version: 7}) }, 7},
		{func() { a.Relist(9, nil, Intake{}) }, 0},
	} {
		if step.do(); known() != step.want {
			t.Errorf("step %d: known at %d, want %d", i, known(), step.want)
		}
	}
}
