package query

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"

	"weir/cmd/weir/internal/config"
	"weir/cmd/weir/internal/status"
	"weir/lb"
	"weir/lb/health"
)

func TestAForeignFrontendHasNoOwner(t *testing.T) {
	t.Parallel()
	rec := lb.NewReconciler(&lb.Fake{}, lb.Options{}, config.Source)
	rec.Update(lb.Update{Source: config.Source, Put: parse(t, twoServices).Services, Synced: true})
	front := func(addr string) lb.Frontend {
		return lb.Frontend{Addr: netip.MustParseAddr(addr), Port: 80, Proto: lb.TCP}
	}
	rec.Facts().Foreign = map[lb.Frontend]bool{front("192.0.2.2"): true}
	owners := NewOwners(rec, nil)
	if w, ok := owners.Of(front("192.0.2.1")); !ok || w.ServiceID != static("a") {
		t.Errorf("the first is %v", w)
	}
	if w, ok := owners.Of(front("192.0.2.2")); ok {
		t.Errorf("the foreign one is %v", w)
	}
}

func TestAFrontendHasFactsOfItsService(t *testing.T) {
	t.Parallel()
	v4, v6 := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("2001:db8::1")
	rec := lb.NewReconciler(&lb.Fake{}, lb.Options{}, config.Source)
	rec.Update(lb.Update{Source: config.Source, Put: []lb.Service{{ID: static("dns"), HealthCheck: lb.HealthCheck{Port: 32000}, VIPs: []lb.VIP{{Addr: v4}, {Addr: v6}}, Ports: []lb.Port{
		{Proto: lb.UDP, Port: 53, Backends: []lb.Backend{{Addr: netip.MustParseAddrPort("10.0.0.1:53"), Weight: 1, Forward: lb.Tunnel}}},
		{Proto: lb.UDP, Port: 54, Backends: []lb.Backend{{Addr: netip.MustParseAddrPort("10.0.0.1:54"), Weight: 1, Forward: lb.DirectRouting}}},
	}}}, Synced: true})
	owners := NewOwners(rec, nil)
	for f, want := range map[lb.Frontend]bool{
		{Addr: v4, Port: 53, Proto: lb.UDP}: false, {Addr: v6, Port: 53, Proto: lb.UDP}: true, {Addr: v6, Port: 54, Proto: lb.UDP}: false,
	} {
		if w, ok := owners.Of(f); !ok || w.mixed != want || w.healthCheckNodePort != 32000 {
			t.Errorf("%s: known %t, backends of the other family %t, healthCheckNodePort %d", f, ok, w.mixed, w.healthCheckNodePort)
		}
	}
}

func TestUnchecked(t *testing.T) {
	t.Parallel()
	catalog := lb.NewCatalog(config.Source, "prod")
	backend := func(a string) lb.Backend { return lb.Backend{Addr: netip.MustParseAddrPort(a), Weight: 1} }
	put := func(source, namespace, name string, ports ...lb.Port) lb.ServiceID {
		id := lb.ServiceID{Source: source, Namespace: namespace, Name: name}
		catalog.Apply(lb.Update{Source: source, Put: []lb.Service{{ID: id, Ports: ports}}}, nil, map[lb.ServiceID]struct{}{})
		return id
	}
	two := lb.Port{Port: 80, Backends: []lb.Backend{backend("10.0.0.1:80"), backend("10.0.0.2:80")}}
	checked := put(config.Source, "", "web", two)
	put(config.Source, "", "dns", two, two)
	put("prod", "shop", "api")
	got := unchecked(catalog, []health.Group{{Service: checked}})
	want := []status.Unchecked{
		{Service: "prod/shop/api", Reason: "its cluster reports which backends are ready"},
		{Service: "static/dns", Backends: 2, Reason: "the configuration has no [service.check] for it"},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}
