package k8ssync

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"

	"weir/lb"
)

func TestClusterIPsOfOthersAreNoVIPs(t *testing.T) {
	e := newEnv(onEdge())
	wants := func(name string, ip string) key {
		k := key{"shop", name}
		e.putService(k, &service{key: k, ExternalIPs: addrs(ip)})
		return k
	}
	wants("b", "203.0.113.5")
	wants("a", "203.0.113.5")
	wants("c", "203.0.113.6")
	holder := key{"default", "dns"}
	steps := []struct {
		name string
		ips  []netip.Addr // nil: the Service is gone
		want []key
		held bool
	}{
		{"an address becomes a ClusterIP", addrs("203.0.113.5"), []key{{"shop", "a"}, {"shop", "b"}}, true},
		{"nothing changes", addrs("203.0.113.5"), nil, true},
		{"another one is added", addrs("fd30::1", "203.0.113.5"), nil, true},
		{"the Service is gone", nil, []key{{"shop", "a"}, {"shop", "b"}}, false},
		{"and again", nil, nil, false},
	}
	for _, s := range steps {
		var svc *service
		if s.ips != nil {
			svc = &service{key: holder, ClusterIPs: s.ips, ExternalIPs: addrs("203.0.113.5")} // it does not affect itself
		}
		if d := cmp.Diff(s.want, e.putService(holder, svc), cmp.AllowUnexported()); d != "" {
			t.Errorf("%s (-want +got):\n%s", s.name, d)
		}
		if got := e.refuses(netip.MustParseAddr("203.0.113.5"), lb.ExternalIP, key{"shop", "a"}) != ""; got != s.held {
			t.Errorf("%s: refused %v", s.name, got)
		}
	}
	for _, name := range []string{"a", "b", "c"} {
		e.putService(key{"shop", name}, nil)
	}
	if len(e.services)+len(e.clusterIPs)+len(e.wanted) != 0 {
		t.Errorf("left of Services that are gone: %v %v %v", e.services, e.clusterIPs, e.wanted)
	}
}

func TestOwnZone(t *testing.T) {
	cfg := onNode()
	e := world(cfg)
	if got := e.zone(); got != "a" {
		t.Errorf("zone %q, want that of the Node", got)
	}
	cfg.Zone = "b"
	if got := e.zone(); got != "b" {
		t.Errorf("zone %q, want the configured one", got)
	}
}

func TestWantsNodes(t *testing.T) {
	for _, c := range []struct {
		name string
		cfg  Config
		want bool
	}{
		{"ClusterIPs of permitted endpoints", Config{Kinds: map[lb.VIPKind]bool{lb.ClusterIP: true}, EndpointRanges: prefixes("10.0.0.0/8")}, false},
		{"pods of ClusterIPs", Config{Kinds: map[lb.VIPKind]bool{lb.ClusterIP: true}}, true},
		{"a node", Config{NodeName: "n1"}, true},
		{"through node ports", Config{Reach: NodePorts}, true},
		{"addresses that could be a node's", *onEdge(), true},
	} {
		if got := c.cfg.wantsNodes(); got != c.want {
			t.Errorf("%s: %v", c.name, got)
		}
	}
}
