package ipam

import (
	"net/netip"
	"testing"
	"time"

	"weir/lb"
)

// What an Allocator keeps of the past does not grow with all that was ever told.
func TestThePastIsForgotten(t *testing.T) {
	a := New(Config{Pools: []Pool{public(t, "2001:db8::/64")}, ReleaseAfter: time.Hour})
	x, version := netip.MustParseAddr("2001:db8::"), uint64(0)
	const many = 100 * enoughGone
	for range many { // each has a claim for a while, as the watch tells
		version++
		a.Learn(Claim{Addr: x, Version: version})
		version++
		a.Gone(x, version)
		a.Passed(version)
		x = x.Next()
	}
	if n := len(a.gone); n == 0 || n > 2*enoughGone {
		t.Errorf("of %d claims that are gone, the versions of %d are kept", many, n)
	}
	// One that is being written may be told of by its answer, which comes late.
	flying := netip.MustParseAddr("2001:db8:0:0:1::")
	a.fly(lb.ServiceID{Name: "web"}, Write{Claim: Claim{Addr: flying}})
	a.Gone(flying, version+2)
	a.Relist(version+3, nil)
	a.Learn(Claim{Addr: flying, Version: version + 1})
	if len(a.claims) != 0 || len(a.gone) != 1 {
		t.Errorf("%d claims, %d gone", len(a.claims), len(a.gone))
	}
	a.Done(flying)
	a.Relist(version+3, nil)
	if len(a.gone) != 0 {
		t.Errorf("%v", a.gone)
	}
}

func TestAHoldIsRememberedOnce(t *testing.T) {
	a := New(Config{Pools: []Pool{public(t, "192.0.2.0/24")}, ReleaseAfter: time.Hour})
	web, addr := lb.ServiceID{Source: "prod", Namespace: "shop", Name: "web"}, netip.MustParseAddr("192.0.2.0")
	a.Synced("prod", true)
	zones := []*time.Location{time.UTC, time.FixedZone("", 3600)}
	for v := range uint64(1000) { // somebody writes the claim again and again
		a.Learn(Claim{Addr: addr, Version: v + 1, Holders: []Holder{{Service: web, UID: "u", Released: start.In(zones[v%2])}}})
	}
	if n := len(a.queue.holds.items); n != 1 {
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
	if len(a.queue.held) != 0 || !a.Wake().IsZero() {
		t.Errorf("%v, and it wakes at %s", a.queue.held, a.Wake())
	}
}
