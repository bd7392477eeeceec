package ipam

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"weir/cmd/weirlab/histories"
	"weir/lb"
)

// few is a limit of so many claims that matter, and of other ones.
func few(matter, other int) halves { return halves{room{matter, 1 << 20}, room{other, 1 << 20}} }

func claim(x string, version uint64, holders ...string) Claim {
	c := Claim{Addr: addr(x), Version: version}
	for _, name := range holders {
		c = c.with(Holder{Service: id(name), UID: name + "-1"})
	}
	return c
}

// relist brings a list as a watch does: those that do not fit are left out on the way.
func relist(a *Allocator, version uint64, claims ...Claim) {
	var in Intake
	a.Relist(version, slices.DeleteFunc(claims, func(c Claim) bool { return !a.Admit(&in, &c, a.Matters(c.Addr)) }), in)
}

// No number of claims of other addresses displaces one of a pool, or of an address that a
// Service has; and they stop nothing.
func TestClaimsOutsideThePoolsDisplaceNoOthers(t *testing.T) {
	s := newStage(t, public(t, "192.0.2.0/30"))
	s.a.most = few(4, 2)
	kept := request("kept")
	kept.Status = addrs("203.0.113.9")
	s.put(kept)
	s.there[kept.ID] = kept
	for i := range 10 {
		s.a.Learn(claim(fmt.Sprintf("198.51.100.%d", i), uint64(i+1), "junk"))
	}
	s.version = 100
	s.a.Learn(claim("203.0.113.9", 99, "kept"))
	if got := s.a.ClaimProblem(); len(s.a.claims) != 3 || !strings.Contains(got, "more than 2 claims") || !strings.Contains(got, "outside all pools, and the rest is ignored") {
		t.Errorf("%d claims: %s", len(s.a.claims), got)
	}
	s.want("kept", "", "203.0.113.9")
	s.put(request("web")).want("web", "", "192.0.2.0")
	if s.a.HasRoom(false) {
		t.Error("there is no room for others")
	}
	// One that is ignored matters as soon as a Service has its address.
	late := request("late")
	late.Status = addrs("198.51.100.7")
	s.put(late)
	s.a.Learn(claim("198.51.100.7", 1000, "late"))
	if !s.a.HasClaim(addr("198.51.100.7")) {
		t.Error("the claim of an address that a Service has is ignored")
	}
	relist(s.a, 2000)
	if got := s.a.ClaimProblem(); got != "" || s.a.used != (halves{}) || len(s.a.others) > 0 {
		t.Errorf("without claims: %s, %+v", got, s.a.bounds)
	}
}

// While a claim of a pool may be unknown, nothing new is assigned, and everything assigned
// stays. Releases make room.
func TestIgnoredClaimsOfAPoolCountAsTaken(t *testing.T) {
	s := newStage(t, public(t, "192.0.2.0/28"))
	s.put(request("old")).put(request("shown")).want("old", "", "192.0.2.0").want("shown", "", "192.0.2.1")
	s.a.most = few(3, 2)
	all := []Claim{claim("192.0.2.0", 1, "old"), claim("192.0.2.2", 10, "foreign-0"), claim("192.0.2.3", 11, "foreign-1"), claim("192.0.2.1", 12, "shown")}
	relist(s.a, 20, slices.Clone(all)...)
	if s.a.HasClaim(addr("192.0.2.1")) || !strings.Contains(s.a.ClaimProblem(), "no new address is assigned: more than 3 claims") {
		t.Fatalf("%s, %v", s.a.ClaimProblem(), s.a.Claims())
	}
	asks, joins := request("asks"), request("joins")
	asks.Addrs, joins.Share = addrs("192.0.2.9"), "key"
	s.put(request("new")).put(asks).put(joins)
	for _, name := range []string{"new", "asks", "joins"} {
		s.want(name, ClaimLimit).hasPending(name, "an address without a known claim may have an owner")
	}
	s.want("old", "", "192.0.2.0").want("shown", "", "192.0.2.1")
	// Its claim is ignored, and no other is written.
	if s.a.HasClaim(addr("192.0.2.1")) {
		t.Error("the claim is written again")
	}
	s.delete("old").finish()
	s.now = s.now.Add(after)
	if s.finish(); s.a.HasClaim(addr("192.0.2.0")) {
		t.Fatal("nothing is released")
	}
	if !s.a.HasRoom(false) {
		t.Fatal("a third of the limit is no room")
	}
	s.want("new", ClaimLimit)
	relist(s.a, 30, all[1:]...)
	s.want("new", ClaimLimit).hasPending("new", "weir reads at most 3 claims of 1 MiB, and there are as many")
	s.a.most = few(8, 2)
	s.a.SetConfig(s.a.Config)
	s.want("joins", "", "192.0.2.0").want("new", "", "192.0.2.4").want("asks", "", "192.0.2.9").want("shown", "", "192.0.2.1")
}

// An operator deletes just the Leases that are ignored.
func TestTheEndOfAnIgnoredClaimIsAReasonForAList(t *testing.T) {
	s := newStage(t, public(t, "192.0.2.0/28"))
	s.a.most = few(2, 2)
	relist(s.a, 10, claim("192.0.2.0", 1, "web"), claim("192.0.2.1", 2, "docs"), claim("192.0.2.2", 3, "junk"))
	if !s.a.lost || s.a.HasRoom(true) {
		t.Fatalf("after the list: %+v", s.a.bounds)
	}
	if s.a.Gone(addr("192.0.2.2"), 11); !s.a.HasRoom(true) || s.a.HasRoom(false) {
		t.Error("no list follows")
	}
}

// A claim that no status has any more counts among the others, within their limit.
func TestAClaimOfAFormerStatusNeedsRoomAmongTheOthers(t *testing.T) {
	s := newStage(t, public(t, "192.0.2.0/28"))
	s.a.most = few(8, 2)
	for i := range 10 {
		x := addr(fmt.Sprintf("198.51.100.%d", i))
		r := request("web")
		r.Status = []netip.Addr{x}
		s.put(r)
		s.a.Learn(claim(x.String(), uint64(1000+i), "junk"))
		r.Status = nil
		s.put(r)
		if used := s.a.used; !used.other.fits(s.a.most.other) || used.matter.claims > 1 {
			t.Fatalf("%d statuses: %+v", i+1, used)
		}
	}
}

// While claims are ignored, one that is missing has not ended.
func TestAnIgnoredClaimHasNotChanged(t *testing.T) {
	s := newStage(t, public(t, "192.0.2.0/28"))
	changed := func(want ...string) {
		t.Helper()
		got := slices.SortedFunc(maps.Keys(s.a.TakeChanged()), netip.Addr.Compare)
		if !slices.Equal(got, addrs(want...)) {
			t.Errorf("%v changed, want %v", got, want)
		}
	}
	s.a.most = few(2, 2)
	relist(s.a, 10, claim("192.0.2.0", 1, "web"), claim("192.0.2.1", 2, "docs"))
	changed("192.0.2.0", "192.0.2.1")
	relist(s.a, 20, claim("192.0.2.2", 11, "junk"), claim("192.0.2.3", 12, "junk"), claim("192.0.2.1", 2, "docs"))
	changed("192.0.2.2", "192.0.2.3")
	relist(s.a, 30)
	changed("192.0.2.2", "192.0.2.3")
}

// The pools may get addresses with claims that were ignored.
func TestIgnoredClaimsOfANewPoolCountAsTaken(t *testing.T) {
	s := newStage(t, public(t, "192.0.2.0/30"))
	s.a.most = few(8, 1)
	all := []Claim{claim("198.51.100.0", 1, "a"), claim("198.51.100.1", 2, "b")}
	relist(s.a, 9, slices.Clone(all)...)
	s.a.SetConfig(Config{Pools: []Pool{public(t, "198.51.100.0/30")}, Retention: after})
	if s.put(request("new")).want("new", ClaimLimit); !s.a.HasRoom(false) {
		t.Error("no new list is requested")
	}
	relist(s.a, 19, all...)
	s.want("new", "", "198.51.100.2")
	if s.a.used.other != (room{}) || s.a.used.matter.claims != 3 {
		t.Errorf("%+v", s.a.used)
	}
}

// Many writes at once are no reason to stop: each takes the room that it needs. A Service that the limit
// stops goes on when there is room, whether it has an address or not.
func TestAllGetTheirClaims(t *testing.T) {
	const many = 400
	for _, tt := range []struct {
		name  string
		shown bool
		bytes int
	}{
		{"new", false, 1 << 20}, {"adopted", true, 1 << 20},
		{"new, with little room", false, many*1000 + 4<<10}, {"adopted, with little room", true, many*1000 + 4<<10},
	} {
		a, x, store := New(Config{Pools: []Pool{public(t, "10.0.0.0/16")}, Retention: after}), addr("10.0.1.0"), map[netip.Addr]Claim{}
		a.Synced("prod", true)
		a.most.matter = room{many, tt.bytes}
		junk := claim("10.0.9.9", 1, "junk")
		junk.Holders[0].Service.Source = "unknown"         // so that it stays
		junk.Holders[0].Pool = strings.Repeat("x", 40_000) // it leaves no room for all
		a.Learn(junk)
		for i := range many {
			r := request(fmt.Sprintf("web-%d", i))
			if tt.shown {
				r.Status, x = []netip.Addr{x}, x.Next()
			}
			a.Put(r)
		}
		finish := func() {
			for version := uint64(len(store) + 2); ; {
				var writes []Write
				for d, some := a.Next(start); some; d, some = a.Next(start) {
					writes = append(writes, d.Writes...)
				}
				for _, w := range writes {
					w.Claim.Version = version
					version++
					store[w.Claim.Addr] = w.Claim
					a.Learn(w.Claim)
					a.Done(w.Claim.Addr)
				}
				if len(writes) == 0 {
					return
				}
			}
		}
		if finish(); len(store) < many*9/10 || len(store) == many || a.growth != (room{}) {
			t.Errorf("%s: %d claims beside a large one, %+v", tt.name, len(store), a.growth)
		}
		a.Gone(junk.Addr, 1)
		if finish(); len(store) != many || len(a.short) > 0 {
			t.Errorf("%s: %d claims, %d Services wait", tt.name, len(store), len(a.short))
		}
	}
}

// An address that was in a status once makes no lasting room for its claim.
func TestClaimsOfFormerStatusesCountAsOthers(t *testing.T) {
	a := New(Config{Pools: []Pool{public(t, "192.0.2.0/28")}})
	a.most = few(4, 2)
	for i := range 20 {
		x := fmt.Sprintf("198.51.100.%d", i)
		a.Learn(claim(x, uint64(i+1), "junk"))
		r := request("web")
		r.Foreign, r.Status = true, addrs(x)
		a.Put(r)
	}
	if a.Delete(id("web")); len(a.claims) > 3 || a.used.matter != (room{}) {
		t.Errorf("%d claims, %+v", len(a.claims), a.used)
	}
}

// A few large claims outside the pools cause no list after the other.
func TestLargeClaimIsNotListedAgain(t *testing.T) {
	a := New(Config{Pools: []Pool{public(t, "192.0.2.0/28")}})
	var all []Claim
	for i := range 5 {
		c := claim(fmt.Sprintf("198.51.100.%d", i), uint64(i+1), "junk")
		c.Holders[0].Pool = strings.Repeat("x", 3_400_000)
		all = append(all, c)
	}
	if relist(a, 9, all...); !a.left || a.HasRoom(false) {
		t.Errorf("%v, %+v", a.left, a.used)
	}
}

// Of a list, the first ones are known, whatever was known before; and large ones count.
func TestLimitOfAListIsTheSameForAll(t *testing.T) {
	young, old := New(Config{Pools: []Pool{public(t, "192.0.2.0/24")}}), New(Config{Pools: []Pool{public(t, "192.0.2.0/24")}})
	old.most, young.most = few(3, 3), few(3, 3)
	for i := range 3 {
		old.Learn(claim(fmt.Sprintf("192.0.2.%d", 100+i), uint64(i+1), "gone"))
	}
	var all []Claim
	for i := range 5 {
		all = append(all, claim(fmt.Sprintf("192.0.2.%d", i), uint64(i+10), "web"))
	}
	relist(old, 50, slices.Clone(all)...)
	relist(young, 50, slices.Clone(all)...)
	if a, b := fmt.Sprint(old.Claims()), fmt.Sprint(young.Claims()); a != b || len(old.claims) != 3 {
		t.Errorf("%s\n%s", a, b)
	}
	// A claim that grows beyond the limit is ignored, and no longer counts.
	big := claim("192.0.2.1", 60, "web")
	big.Holders[0].Pool = strings.Repeat("x", 2<<20)
	old.Learn(big)
	if old.HasClaim(big.Addr) || !old.incomplete() || old.used.matter.claims != 2 {
		t.Errorf("%+v", old.used)
	}
}

// The laws hold while claims are ignored; when none is, the end is as always.
func TestLawsBeyondTheLimitOfClaims(t *testing.T) {
	for seed := range histories.Times(60) {
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			w := newWorld(t, seed, 1+int(seed%3))
			limit := rand.New(rand.NewPCG(seed, 5)) //nolint:gosec // a history, not a secret
			for range 150 {
				if limit.IntN(10) == 0 {
					w.most = few(limit.IntN(6), limit.IntN(3))
					p := w.writers[limit.IntN(len(w.writers))]
					p.a.most = w.most
				}
				if w.step(); t.Failed() {
					t.FailNow()
				}
			}
			w.most = few(1000, 1000)
			for _, p := range w.writers {
				p.a.most = w.most
				w.relist(p, home)
			}
			w.heal()
			w.checkEnd()
		})
	}
}

// A claim with ever new times of a release leaves nothing behind.
func TestOldReleasesAreForgotten(t *testing.T) {
	a := New(Config{Pools: []Pool{public(t, "192.0.2.0/24")}, Retention: time.Hour})
	for v := range uint64(20 * keepRetained) {
		a.Learn(Claim{Addr: addr("192.0.2.0"), Version: v + 1, Holders: []Holder{{Service: id("web"), Released: start.Add(time.Duration(v))}}})
	}
	if n := len(a.queue.retained.items); n == 0 || n > 2*keepRetained || n != len(a.queue.known) {
		t.Errorf("%d releases are kept, %d are known", n, len(a.queue.known))
	}
}

// The text of a claim is limited; many holders cost no more than their number.
func TestLongClaimHasUnknownHolders(t *testing.T) {
	full := Claim{Addr: addr("192.0.2.0")}
	for i := range 1500 {
		full.Holders = append(full.Holders, Holder{Service: lb.ServiceID{Source: "prod", Namespace: "shop", Name: fmt.Sprintf("web-%04d", i)}})
	}
	text, err := full.MarshalText()
	if err != nil || len(text) > maxText {
		t.Fatal(len(text), err)
	}
	var c Claim
	if err := c.UnmarshalText(text); err != nil || len(c.Holders) != len(full.Holders) {
		t.Errorf("%v, %d holders", err, len(c.Holders))
	}
	long := append(text, slices.Repeat([]byte(" "), maxText)...)
	if err := c.UnmarshalText(long); err == nil || c.Holders != nil || !strings.Contains(err.Error(), "longer than 256 KiB") {
		t.Errorf("%v, %d holders", err, len(c.Holders))
	}
}
