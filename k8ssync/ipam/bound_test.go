package ipam

import (
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
