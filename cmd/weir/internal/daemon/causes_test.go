package daemon

import (
	"net/netip"
	"testing"
	"time"

	"weir/lb"
)

func TestCausesOfAPass(t *testing.T) {
	t.Parallel()
	id := func(name string) lb.ServiceID { return lb.ServiceID{Source: "prod", Namespace: "shop", Name: name} }
	for _, tt := range []struct {
		name string
		do   func(*causes)
		want string
	}{
		{"none", func(*causes) {}, ""},
		{"one said twice", func(c *causes) { c.add("the start"); c.add("the start") }, "the start"},
		{"checks", func(c *causes) { c.add("checks of %s", some([]lb.ServiceID{id("web"), id("api")})) }, "checks of prod/shop/api and 1 more"},
		{"a source", func(c *causes) {
			c.heardOf(lb.Update{Source: "prod", Put: []lb.Service{{ID: id("web")}}, Delete: []lb.ServiceID{id("old")}})
		}, "prod/shop/old and 1 more changed"},
		{"a source as a whole", func(c *causes) { c.heardOf(lb.Update{Source: "prod", Synced: true}) }, "all that prod says"},
		{"too many", func(c *causes) {
			for _, x := range []string{"a", "b", "c", "d", "e", "f"} {
				c.add("%s", x)
			}
		}, "a; b; c; d; and more"},
	} {
		var c causes
		tt.do(&c)
		if got := c.String(); got != tt.want {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
}

func TestWhatAPassShowsIsACauseToo(t *testing.T) {
	t.Parallel()
	now := time.Now()
	b := &box{rec: lb.NewReconciler(nil, lb.Options{}), holds: []lb.Hold{{Source: "prod", Until: now}, {Source: "test", Until: now.Add(time.Hour)}, {Source: "dev"}}}
	b.causes.add("the start")
	rep := lb.Report{Drift: []lb.Object{lb.Address{Addr: netip.MustParseAddr("192.0.2.1")}}}
	want := "the start; others changed the kernel; guard_hold of prod is over; drains of backends are over; and more"
	if got := b.because(before{draining: 1, pending: 2}, rep, now); got != want {
		t.Errorf("%q, want %q", got, want)
	}
	b.holds = nil
	if got := b.because(before{}, lb.Report{}, now); got != "" {
		t.Errorf("the next pass has causes of the last: %q", got)
	}
}
