package k8ssync

import (
	"net/netip"
	"path/filepath"
	"strings"
	"testing"

	"weir/lb"
)

func TestRefusedAddressesAreNoVIPs(t *testing.T) {
	cfg := onEdge()
	cfg.ServiceCIDRs = prefixes("172.30.0.0/16")
	cfg.Refused = Refused{
		Peers:  map[netip.Addr]string{netip.MustParseAddr("203.0.113.77"): "the API server of cluster stage"},
		Ranges: []Range{{netip.MustParsePrefix("10.64.0.0/12"), "pods of cluster stage"}},
	}
	shop := key{"shop", "web"}
	for _, tt := range []struct {
		addr string
		kind lb.VIPKind
		of   key
		want string
	}{
		{"203.0.113.77", lb.LoadBalancer, shop, "it is the address of the API server of cluster stage, which this box needs"},
		{"203.0.113.77", lb.ExternalIP, shop, "the API server of cluster stage"},
		{"203.0.113.77", lb.ClusterIP, shop, "the API server of cluster stage"},
		{"203.0.113.77", lb.ClusterIP, key{"default", "kubernetes"}, ""},
		{"203.0.113.78", lb.ExternalIP, shop, ""},
		{"10.65.0.1", lb.LoadBalancer, shop, "it is in 10.64.0.0/12, a range of the pods of cluster stage"},
		{"10.65.0.1", lb.ClusterIP, shop, ""},
		{"172.30.9.9", lb.ExternalIP, shop, "it is in 172.30.0.0/16, a range of ClusterIPs (service_cidrs)"},
		{"172.30.9.9", lb.LoadBalancer, shop, "it is in 172.30.0.0/16, a range of ClusterIPs (service_cidrs)"},
		{"172.30.9.9", lb.ClusterIP, shop, ""},
	} {
		got := world(cfg).refuses(netip.MustParseAddr(tt.addr), tt.kind, tt.of)
		if (got == "") != (tt.want == "") || !strings.Contains(got, tt.want) {
			t.Errorf("%s as %s of %s: %q, want %q", tt.addr, tt.kind, tt.of, got, tt.want)
		}
	}
}

// lyingNode has addresses of others in its status, which its kubelet writes.
func lyingNode() node {
	return node{Name: "n3", Ready: true, InternalIPs: addrs("192.168.0.3", "fd01::1", "10.180.0.9", "172.30.0.41", "172.31.0.1", "198.51.100.7", "203.0.113.80")}
}

// A Node that lists ClusterIPs of others as its own disables none of them.
func TestANodeDisablesNoClusterIPs(t *testing.T) {
	t.Parallel()
	edge, member := onEdge(), onNode()
	for _, cfg := range []*Config{edge, member} {
		cfg.ServiceCIDRs = prefixes("172.30.0.0/16")
		cfg.ExternalIPRanges = prefixes("203.0.113.0/24")
	}
	for _, tt := range []struct {
		name, addr string
		cfg        *Config
		kind       lb.VIPKind
		want       string
	}{
		{"a ClusterIP in service_cidrs", "172.30.0.41", member, lb.ClusterIP, ""},
		{"another ClusterIP", "172.31.0.1", member, lb.ClusterIP, ""},
		{"the own Node's address", "192.168.0.1", member, lb.ClusterIP, `it is the address of node "n1"`},
		{"the own Node's address that another lists, too", "fd01::1", member, lb.ClusterIP, `it is the address of node "n1"`},
		{"an address of a load balancer, which may be the Node's", "198.51.100.7", edge, lb.LoadBalancer, `it is the address of node "n3"`},
		{"an external address, which its author chooses", "203.0.113.80", edge, lb.ExternalIP, `it is the address of node "n3"`},
	} {
		e := world(tt.cfg)
		e.setNodes(append(e.nodes, lyingNode()))
		got := e.refuses(netip.MustParseAddr(tt.addr), tt.kind, key{"shop", "web"})
		if (got == "") != (tt.want == "") || !strings.Contains(got, tt.want) {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
}

func TestRefuseTakesEffectAtOnce(t *testing.T) {
	s := newAPIServer(t)
	s.put(testService("web", "10.96.0.1"), testService("db", "10.96.0.2"), testNode("n1", "192.0.2.1"))
	c := testCluster(t, s)
	run(t, c)
	next(t, c)
	needed := Refused{Backends: map[netip.Addr]string{netip.MustParseAddr("10.96.0.1"): "a backend of static/web"}}
	c.Refuse(needed)
	u := next(t, c)
	if len(u.Put) != 1 || len(u.Put[0].VIPs) != 0 || len(u.Put[0].Notes) != 1 || u.Put[0].Notes[0].Reason != lb.NotAllowed || u.Synced {
		t.Errorf("refused: %+v", u)
	}
	c.Refuse(needed) // the same
	c.Refuse(Refused{})
	if u := next(t, c); len(u.Put) != 1 || len(u.Put[0].VIPs) != 1 {
		t.Errorf("allowed again: %+v", u)
	}
}

func TestServerAddr(t *testing.T) {
	for server, want := range map[string]string{
		"https://192.0.2.9:6443": "192.0.2.9", "https://[2001:db8::1]": "2001:db8::1", "192.0.2.8:8080": "192.0.2.8",
		"https://api.example.com": "",
	} {
		a, ok := ServerAddr(testConfig(kubeconfigFor(t, server, "")))
		if ok != (want != "") || ok && a.String() != want {
			t.Errorf("%s: %s, %v", server, a, ok)
		}
	}
	if _, ok := ServerAddr(testConfig(filepath.Join(t.TempDir(), "none"))); ok {
		t.Error("a kubeconfig that is not there has an address")
	}
}

func TestUnknownNodeNameIsAnError(t *testing.T) {
	s := newAPIServer(t)
	s.put(testService("web", "10.96.0.1"), testNode("n1", "192.0.2.1"))
	c := testCluster(t, s, func(cfg *Config) { cfg.NodeName = "n1.example.com" })
	run(t, c)
	next(t, c)
	const want = `there is no Node "n1.example.com", so no endpoint is local: node_name must be as kubectl get nodes shows it`
	if st := c.Status(); st.Error != want || !st.Synced {
		t.Errorf("status: %+v", st)
	}
	s.put(testNode("n1.example.com", "192.0.2.2"))
	eventually(t, "no error", func() bool { return c.Status().Error == "" })
}
