package k8ssync

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"weir/lb"
)

func TestEndpointsThatMayNotBe(t *testing.T) {
	t.Parallel()
	edge := func(ranges ...string) *Config {
		c := onEdge()
		c.EndpointRanges = prefixes(ranges...)
		return c
	}
	refused := Refused{
		Peers:    map[netip.Addr]string{netip.MustParseAddr("10.180.0.99"): "the router tor", netip.MustParseAddr("192.168.0.2"): "the API server of cluster prod"},
		Backends: map[netip.Addr]string{netip.MustParseAddr("10.180.0.98"): "a backend of static/web"},
		Ranges:   []Range{{netip.MustParsePrefix("10.99.0.0/16"), "pods of cluster stage"}, {netip.MustParsePrefix("10.180.0.0/16"), "pods of cluster old"}},
	}
	onANode := func() *Config {
		c := onNode()
		c.EndpointRanges = nil
		return c
	}
	strict := onANode()
	strict.EndpointRanges = prefixes("10.180.0.0/16")
	for _, c := range []struct {
		name, addr string
		cfg        *Config
		want       string // "" is that it is used
	}{
		{"a pod", "10.180.0.7", edge(), ""},
		{"a pod of IPv6", "fd00::7", edge(), ""},
		{"a pod of a range that another cluster has, too", "10.180.0.8", edge(), ""},
		{"a host beside the pods", "10.200.0.1", edge(), "in no pod CIDR"},
		{"a Node", "192.168.0.1", edge(), "the address of node"},
		{"a Node that the operator permits", "192.168.0.1", edge("192.168.0.0/24"), ""},
		{"a pod outside the list", "10.180.0.7", edge("10.200.0.0/16"), "endpoint_ranges of cluster prod do not contain it"},
		{"what the operator permits", "10.200.0.1", edge("10.200.0.0/16"), ""},
		{"a router", "10.180.0.99", edge("0.0.0.0/0"), "the router tor, which this box needs"},
		{"a backend of a static service", "10.180.0.98", edge(), ""},
		{"a pod of another cluster", "10.99.0.1", edge("0.0.0.0/0"), "pods of cluster stage"},
		{"anything, seen from a node", "10.200.0.1", onANode(), ""},
		{"the API server's Node, seen from a node", "192.168.0.2", onANode(), ""},
		{"anything, seen from a node with a list", "10.200.0.1", strict, "endpoint_ranges of cluster prod do not contain it"},
		{"a pod that a Node lists as its own", "10.180.0.9", edge(), ""},
		{"a router, seen from a node", "10.180.0.99", onANode(), "the router tor"},
		{"a pod of another cluster, seen from a node", "10.99.0.1", onANode(), "pods of cluster stage"},
	} {
		e := world(c.cfg)
		e.setNodes(append(e.nodes, lyingNode()))
		e.refused = refused
		if reason := e.refusesTarget(netip.MustParseAddr(c.addr), key{"shop", "web"}); (reason == "") != (c.want == "") || !strings.Contains(reason, c.want) {
			t.Errorf("%s: %q, want %q", c.name, reason, c.want)
		}
	}
}

// A box that serves nothing, because a key is not set, reports the value of the key.
func TestMissingKeys(t *testing.T) {
	t.Parallel()
	cfg := onEdge()
	cfg.EndpointRanges, cfg.LoadBalancerRanges = nil, nil
	o := newObjects(most)
	o.put(slicing(t, "web-1", "10.200.0.1@n1 ready", "10.201.0.1@n1 ready", "10.200.7.1@n1 ready"), time.Time{}, time.Now())
	e := world(cfg)
	check := func(name string, want map[string][]netip.Prefix) {
		t.Helper()
		if d := cmp.Diff(want, e.missing(o), cmpopts.EquateComparable(netip.Prefix{})); d != "" {
			t.Errorf("%s (-want +got):\n%s", name, d)
		}
	}
	check("Nodes with pod CIDRs", map[string][]netip.Prefix{})
	e.setNodes([]node{{Name: "n1", InternalIPs: addrs("192.168.0.1")}})
	if reason := e.refusesTarget(netip.MustParseAddr("10.180.0.7"), key{"shop", "web"}); !strings.Contains(reason, "set endpoint_ranges") {
		t.Errorf("Nodes without pod CIDRs: %q", reason)
	}
	pods := map[string][]netip.Prefix{"endpoint_ranges": prefixes("10.200.0.0/16", "10.201.0.0/16")}
	check("Nodes without pod CIDRs", pods)
	if err := unknownPods(e.missing(o)); err == nil || !strings.HasSuffix(err.Error(), `endpoint_ranges = ["10.200.0.0/16", "10.201.0.0/16"]`) {
		t.Errorf("Nodes without pod CIDRs: %v", err)
	}
	put := func(svc *service) {
		o.put(svc, time.Time{}, time.Now())
		e.putService(svc.key, svc)
	}
	all := func() { // as after changes of the configuration and of the addresses that are refused
		for k, svc := range o.services {
			e.putService(k, svc)
		}
	}
	ours := web()
	ours.Name, ours.Ingress = "ours", addrs("198.51.100.8")
	other := web()
	other.Name, other.Ingress = "other", addrs("203.0.113.9")
	put(web())
	put(ours)
	put(other)
	pods["load_balancer_ranges"] = prefixes("198.51.100.0/24", "203.0.113.0/24", "2001:db8:7::/64")
	check("addresses of another controller", pods)
	o.drop(other)
	e.putService(other.key, nil)
	pods["load_balancer_ranges"] = prefixes("198.51.100.0/24", "2001:db8:7::/64")
	check("a Service less", pods)
	e.provided = pool198
	all()
	delete(pods, "load_balancer_ranges")
	check("addresses of a pool", pods)
	e.provided, cfg.LoadBalancerRanges = Provided{}, prefixes("192.0.2.0/24")
	all()
	check("a list without the addresses", pods)
	cfg.LoadBalancerRanges, cfg.Classes = nil, []string{"weir/lb"}
	all()
	check("addresses of another class", pods)
	cfg.NodeName = "n1"
	check("a node", map[string][]netip.Prefix{})
}

// An endpoint that is not permitted is noted once, whatever the number of ports, and the
// others serve.
func TestOtherEndpointsServe(t *testing.T) {
	t.Parallel()
	cfg, svc := onEdge(), web()
	cfg.EndpointRanges = nil
	svc.Ports = append(svc.Ports, servicePort{"http", "TCP", 81, 0})
	got, _ := translate(svc, []*slice{slicing(t, "web-1", "10.180.0.1@n1 ready", "10.200.0.1@n1 ready")}, world(cfg))
	var used []string
	for _, p := range got.Ports {
		for _, b := range p.Backends {
			used = append(used, b.Addr.String())
		}
	}
	if want := []string{"10.180.0.1:8080", "10.180.0.1:8080"}; !slices.Equal(used, want) {
		t.Errorf("used %v, want %v", used, want)
	}
	notes := slices.DeleteFunc(slices.Clone(got.Notes), func(n lb.Note) bool { return n.Reason != lb.NotAllowed || !strings.Contains(n.Text, "endpoint") })
	if len(notes) != 1 || !strings.HasPrefix(notes[0].Text, "endpoint 10.200.0.1 of EndpointSlice web-1 is not used: it is in no pod CIDR") {
		t.Errorf("notes %v", got.Notes)
	}
}

// With require_pod_backed only endpoints that refer to a Pod of their namespace serve. One
// without a reference does not hide another one with the same address.
func TestOnlyPodsServeWhereRequired(t *testing.T) {
	t.Parallel()
	ref := func(kind, version, namespace, name string) *corev1.ObjectReference {
		return &corev1.ObjectReference{Kind: kind, APIVersion: version, Namespace: namespace, Name: name}
	}
	in, here := testSlice("web"), "n1"
	for i, target := range []*corev1.ObjectReference{
		ref("Pod", "", "shop", "web-a"), ref("Pod", "v1", "shop", "web-b"), nil, ref("Pod", "", "other", "web-d"),
		ref("Node", "", "shop", "n1"), ref("Pod", "", "", "web-f"), ref("Pod", "", "shop", ""), ref("Pod", "example.com/v1", "shop", "web-h"),
	} {
		in.Endpoints = append(in.Endpoints, discoveryv1.Endpoint{Addresses: []string{fmt.Sprintf("10.180.0.%d", i+1)}, TargetRef: target, NodeName: &here})
	}
	shadow := slicing(t, "a-first", "10.180.0.1@n1 ready")
	read := readSlice(in)
	for i := range read.Ports {
		read.Ports[i] = shadow.Ports[0]
	}
	for _, c := range []struct {
		name  string
		cfg   *Config
		of    key
		on    bool
		count int
	}{
		{"required on an edge box", onEdge(), key{"shop", "web"}, true, 2},
		{"required on a node", onNode(), key{"shop", "web"}, true, 2},
		{"not required", onEdge(), key{"shop", "web"}, false, 8},
		{"via node ports, where nodes choose", func() *Config { c := onEdge(); c.Reach = NodePorts; return c }(), key{"shop", "web"}, true, 2},
		{"endpoints of the API server, which are no pods", onNode(), kubernetesService, true, 8},
	} {
		c.cfg.RequirePodBacked, c.cfg.EndpointRanges = c.on, nil
		svc := web()
		svc.key, svc.ExternalLocal, svc.HealthCheckNodePort = c.of, true, 30999
		got, _ := translate(svc, []*slice{&read, shadow}, world(c.cfg))
		if n := len(got.Ports[0].Backends); n != c.count && c.cfg.Reach == Pods {
			t.Errorf("%s: %d backends, want %d: %v", c.name, n, c.count, got.Ports[0].Backends)
		}
		if n := got.HealthCheck.Endpoints; n != c.count && c.cfg.NodeName != "" {
			t.Errorf("%s: the health check port reports %d endpoints, want %d", c.name, n, c.count)
		}
		refused := 0
		for _, n := range got.Notes {
			if n.Reason == lb.NotAllowed && strings.Contains(n.Text, "is not used: its targetRef is no Pod of namespace \"shop\"") {
				refused++
			}
		}
		if want := map[bool]int{true: 7}[c.count == 2 && c.cfg.Reach == Pods]; refused != want {
			t.Errorf("%s: %d notes, want %d: %v", c.name, refused, want, got.Notes)
		}
	}
}

// A set of prefixes answers like a list of them.
func TestPrefixSet(t *testing.T) {
	t.Parallel()
	d := rand.New(rand.NewPCG(1, 2))
	addr := func() netip.Addr {
		if d.IntN(2) == 0 {
			return netip.AddrFrom4([4]byte{10, byte(d.IntN(3)), byte(d.IntN(3)), byte(d.IntN(256))})
		}
		return netip.MustParseAddr(fmt.Sprintf("fd00:%x::%x", d.IntN(3), d.IntN(1<<16)))
	}
	for range 200 {
		var list []netip.Prefix
		for range d.IntN(5) {
			a := addr()
			list = append(list, netip.PrefixFrom(a, d.IntN(a.BitLen()+1)))
		}
		set := newPrefixSet(list)
		for range 50 {
			a := addr()
			if got, want := set.contains(a), slices.ContainsFunc(list, containing(a)); got != want {
				t.Fatalf("%s in %v: %v, want %v", a, list, got, want)
			}
		}
		if set.empty() != (len(list) == 0) {
			t.Fatalf("%v: empty is %v", list, set.empty())
		}
	}
}
