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
