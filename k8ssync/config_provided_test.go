package k8ssync

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"

	"weir/k8ssync/ipam"
	"weir/lb"
)

// pool198 is a pool with web's addresses.
var pool198 = Provided{Class: "weir/lb", DefaultClass: true, Ranges: []ipam.Range{
	{First: netip.MustParseAddr("198.51.100.0"), Last: netip.MustParseAddr("198.51.100.255")},
	{First: netip.MustParseAddr("2001:db8:7::"), Last: netip.MustParseAddr("2001:db8:7::ff")},
}}

func TestAddressesOfPoolsAreServed(t *testing.T) {
	const both = "LoadBalancer 198.51.100.7\nLoadBalancer 2001:db8:7::7\n"
	const refused = "address-not-allowed: 198.51.100.7 is not served as LoadBalancer: load_balancer_ranges of cluster prod do not contain it: only the operator can add it there\n" +
		"address-not-allowed: 2001:db8:7::7 is not served as LoadBalancer: load_balancer_ranges of cluster prod do not contain it: only the operator can add it there\n"
	const foreign = "another controller has assigned it, and neither a pool nor load_balancer_ranges of cluster prod contain it: " +
		"only the operator can add it there, or exclude the Service with load_balancer_classes\n"
	proxied := func(s *service, _ *Config) { s.Ingress, s.Proxied = nil, s.Ingress }
	for _, c := range []struct {
		name   string
		change func(*service, *Config)
		want   string
	}{
		{"of a pool, and so not foreign", func(*service, *Config) {}, both},
		{"of a pool, beside load_balancer_ranges", func(_ *service, c *Config) { c.LoadBalancerRanges = prefixes("192.0.2.0/24") }, both},
		{"of neither", func(_ *service, c *Config) { c.LoadBalancerRanges, c.Provided.Ranges = prefixes("192.0.2.0/24"), nil }, refused},
		{"of neither, without a list", func(_ *service, c *Config) { c.Provided = Provided{} },
			"address-not-allowed: 198.51.100.7 is not served as LoadBalancer: " + foreign + "address-not-allowed: 2001:db8:7::7 is not served as LoadBalancer: " + foreign},
		{"of another pool", func(_ *service, c *Config) { c.Provided.Ranges = c.Provided.Ranges[:1] },
			"LoadBalancer 198.51.100.7\naddress-not-allowed: 2001:db8:7::7 is not served as LoadBalancer: " + foreign},
		{"of another pool now, but assigned by weir", func(s *service, c *Config) {
			c.Provided.Ranges, s.Condition.Status = c.Provided.Ranges[:1], "True"
		}, "LoadBalancer 198.51.100.7\nLoadBalancer 2001:db8:7::7 foreign\n"},
		{"of neither, on a node", func(_ *service, c *Config) { c.Provided, c.NodeName = Provided{}, "n1" }, both},
		{"our class need not be in lb_classes", func(s *service, c *Config) { s.LoadBalancerClass, c.Classes = "weir/lb", []string{"metallb"} }, both},
		{"nor need the default class", func(_ *service, c *Config) { c.Classes = []string{"metallb"} }, both},
		{"others must", func(s *service, c *Config) { s.LoadBalancerClass, c.Classes = "cilium", []string{"metallb"} }, ""},
		{"and so must the default class if it is not ours", func(_ *service, c *Config) { c.Provided.DefaultClass, c.Classes = false, []string{"metallb"} }, ""},
		{"ipMode Proxy", proxied, both},
		{"ipMode Proxy of another class", func(s *service, c *Config) { proxied(s, c); s.LoadBalancerClass = "cilium" }, ""},
		{"ipMode Proxy of another pool", func(s *service, c *Config) { proxied(s, c); c.Provided.Ranges = c.Provided.Ranges[:1] }, "LoadBalancer 198.51.100.7\n"},
		{"ipMode Proxy of another pool, but written by weir", func(s *service, c *Config) {
			proxied(s, c)
			c.Provided.Ranges, s.Condition.Status = c.Provided.Ranges[:1], "True"
		}, "LoadBalancer 198.51.100.7\nLoadBalancer 2001:db8:7::7 foreign\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			cfg, svc := onEdge(), web()
			cfg.Kinds, cfg.Provided, cfg.LoadBalancerRanges = map[lb.VIPKind]bool{lb.LoadBalancer: true}, pool198, nil
			c.change(svc, cfg)
			got, _ := translate(svc, nil, world(cfg))
			got.Ports, got.Apart = nil, false
			if d := cmp.Diff(c.want, shown(got)); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
		})
	}
}

func TestProvideTakesEffectAtOnce(t *testing.T) {
	s := newAPIServer(t)
	proxy := "Proxy"
	s.put(testNode("n1", "192.0.2.1"), testBalancer("web", "10.96.0.1", "198.51.100.7", &proxy))
	c := testCluster(t, s)
	run(t, c)
	if u := next(t, c); len(u.Put) != 1 || len(u.Put[0].VIPs) != 1+1 { // of the ClusterIP and the node port
		t.Fatalf("without pools: %+v", u.Put)
	}
	c.Provide(pool198)
	if u := next(t, c); len(u.Put) != 1 || len(u.Put[0].VIPs) != 1+1+1 {
		t.Errorf("with a pool: %+v", u.Put)
	}
}
