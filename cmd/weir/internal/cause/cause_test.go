package cause

import (
	"testing"

	"weir/lb"
)

func TestCausesOfAPass(t *testing.T) {
	t.Parallel()
	id := func(name string) lb.ServiceID { return lb.ServiceID{Source: "prod", Namespace: "shop", Name: name} }
	for _, tt := range []struct {
		name string
		do   func(*List)
		want string
	}{
		{"none", func(*List) {}, ""},
		{"one said twice", func(c *List) { c.Add("the start"); c.Add("the start") }, "the start"},
		{"checks", func(c *List) { c.Add("checks of %s", Some([]lb.ServiceID{id("web"), id("api")})) }, "checks of prod/shop/api and 1 more"},
		{"a source", func(c *List) {
			c.AddUpdate(lb.Update{Source: "prod", Put: []lb.Service{{ID: id("web")}}, Delete: []lb.ServiceID{id("old")}})
		}, "prod/shop/old and 1 more changed"},
		{"a source as a whole", func(c *List) { c.AddUpdate(lb.Update{Source: "prod", Synced: true}) }, "all of prod"},
		{"too many", func(c *List) {
			for _, x := range []string{"a", "b", "c", "d", "e", "f"} {
				c.Add("%s", x)
			}
		}, "a; b; c; d; and more"},
	} {
		var c List
		tt.do(&c)
		if got := c.String(); got != tt.want {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
}
