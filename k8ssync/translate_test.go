package k8ssync

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"weir/lb"
)

var exact = cmp.Options{
	cmp.Comparer(func(a, b netip.Addr) bool { return a == b }),
	cmp.Comparer(func(a, b netip.AddrPort) bool { return a == b }),
	cmp.Comparer(func(a, b netip.Prefix) bool { return a == b }),
	cmpopts.EquateEmpty(),
}

var made = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// onNode is the configuration of a node, onEdge that of a box before a cluster.
func onNode() *Config {
	c := onEdge()
	c.NodeName, c.LoadBalancerRanges = "n1", nil
	c.Kinds = map[lb.VIPKind]bool{lb.ClusterIP: true, lb.LoadBalancer: true, lb.ExternalIP: true, lb.NodePort: true}
	return c
}

func onEdge() *Config {
	return &Config{
		Name: "prod", Scheduler: lb.Scheduler{Name: "rr"}, Drain: 30 * time.Second,
		Kinds:              map[lb.VIPKind]bool{lb.LoadBalancer: true, lb.ExternalIP: true},
		EndpointRanges:     prefixes("10.0.0.0/8", "fd00::/16"),
		LoadBalancerRanges: prefixes("198.51.100.0/24", "2001:db8:7::/64"),
		ExternalIPRanges:   prefixes("203.0.113.0/24", "2001:db8:e::/64", "10.0.0.0/8", "172.16.0.0/12", "127.0.0.0/8"),
	}
}

func prefixes(texts ...string) (out []netip.Prefix) {
	for _, s := range texts {
		out = append(out, netip.MustParsePrefix(s))
	}
	return out
}

// web is a dual-stack Service with a VIP of every kind.
func web() *service {
	return &service{
		key: key{"shop", "web"}, Created: made, Type: "LoadBalancer",
		ClusterIPs:  addrs("172.30.0.41", "fd30::41"),
		Ingress:     addrs("198.51.100.7", "2001:db8:7::7"),
		ExternalIPs: addrs("203.0.113.5", "2001:db8:e::5"),
		Ports:       []servicePort{{"http", "TCP", 80, 30080}},
	}
}

var pods = []string{"10.180.0.1@n1 ready", "10.180.2.1@n2 ready", "fd00::1@n1 ready", "fd00::2@n2 ready"}

// world has three nodes and other Services' ClusterIPs.
func world(cfg *Config) *env {
	e := newEnv(cfg)
	e.setNodes([]node{
		{Name: "n2", InternalIPs: addrs("192.168.0.2"), ExternalIPs: addrs("203.0.113.9"), Ready: true},
		{Name: "n1", Zone: "a", InternalIPs: addrs("192.168.0.1", "fd01::1"), PodCIDRs: prefixes("10.180.0.0/24", "fd00::/64"), Ready: true},
	})
	e.putService(key{"default", "kubernetes"}, &service{ClusterIPs: addrs("172.30.0.1")})
	return e
}

// shown gives what matters of a translation in lines.
func shown(s lb.Service) string {
	var b strings.Builder
	for _, v := range s.VIPs {
		b.WriteString(v.Kind.String() + " " + v.Addr.String())
		if v.Local {
			b.WriteString(" local")
		}
		if v.Foreign {
			b.WriteString(" foreign")
		}
		b.WriteByte('\n')
	}
	for _, p := range s.Ports {
		b.WriteString(p.Key().String() + ":")
		for _, be := range p.Backends {
			b.WriteString(" " + be.Addr.String() + " " + be.Scope.String())
		}
		b.WriteByte('\n')
	}
	if s.Keep {
		b.WriteString("keep\n")
	}
	if s.Apart {
		b.WriteString("apart\n")
	}
	for _, n := range s.Notes {
		b.WriteString(string(n.Reason) + ": " + n.Text + "\n")
	}
	return b.String()
}

func TestServiceOnANode(t *testing.T) {
	const all = "80/tcp: 10.180.0.1:8080 wide 10.180.2.1:8080 wide [fd00::1]:8080 wide [fd00::2]:8080 wide\n"
	const both = "80/tcp: 10.180.0.1:8080 both 10.180.2.1:8080 wide [fd00::1]:8080 both [fd00::2]:8080 wide\n"
	for _, c := range []struct {
		name   string
		change func(*service)
		want   string
	}{
		{"every kind", func(s *service) {}, `ClusterIP 172.30.0.41
ClusterIP fd30::41
LoadBalancer 198.51.100.7
LoadBalancer 2001:db8:7::7
ExternalIP 203.0.113.5 foreign
ExternalIP 2001:db8:e::5 foreign
NodePort 0.0.0.0
NodePort ::
` + all},
		{"externalTrafficPolicy Local", func(s *service) { s.ExternalLocal = true }, `ClusterIP 172.30.0.41
ClusterIP fd30::41
LoadBalancer 198.51.100.7 local
LoadBalancer 2001:db8:7::7 local
ExternalIP 203.0.113.5 local foreign
ExternalIP 2001:db8:e::5 local foreign
NodePort 0.0.0.0 local
NodePort :: local
` + both},
		{"internalTrafficPolicy Local", func(s *service) { s.InternalLocal = true }, `ClusterIP 172.30.0.41 local
ClusterIP fd30::41 local
LoadBalancer 198.51.100.7
LoadBalancer 2001:db8:7::7
ExternalIP 203.0.113.5 foreign
ExternalIP 2001:db8:e::5 foreign
NodePort 0.0.0.0
NodePort ::
` + both},
		{"external IPs of its own families alone, never loopback", func(s *service) {
			s.Type, s.ClusterIPs, s.Ingress, s.Ports[0].NodePort = "ClusterIP", s.ClusterIPs[:1], nil, 0
			s.ExternalIPs = append(s.ExternalIPs, netip.MustParseAddr("127.0.0.1"))
		}, `ClusterIP 172.30.0.41
ExternalIP 203.0.113.5 foreign
80/tcp: 10.180.0.1:8080 wide 10.180.2.1:8080 wide
bad-object: 2001:db8:e::5 is not served as ExternalIP: the Service has no IPv6
address-not-allowed: 127.0.0.1 is not served as ExternalIP: it is a loopback address
`},
		{"an external IP that is also the load balancer's", func(s *service) {
			s.ClusterIPs, s.Ingress, s.ExternalIPs, s.Ports[0].NodePort = s.ClusterIPs[:1], addrs("203.0.113.5"), addrs("203.0.113.5"), 0
		}, "ClusterIP 172.30.0.41\nLoadBalancer 203.0.113.5\n80/tcp: 10.180.0.1:8080 wide 10.180.2.1:8080 wide\n"},
		{"a Service of type NodePort has no load balancer's addresses", func(s *service) { s.Type, s.ClusterIPs, s.ExternalIPs = "NodePort", s.ClusterIPs[1:], nil },
			"ClusterIP fd30::41\nNodePort ::\n80/tcp: [fd00::1]:8080 wide [fd00::2]:8080 wide\n"},
		{"addresses of nodes, pods and ClusterIPs", func(s *service) {
			s.ClusterIPs, s.Ports[0].NodePort = s.ClusterIPs[:1], 0
			s.Ingress = addrs("192.168.0.2", "172.30.0.1", "198.51.100.8", "224.0.0.1", "169.254.1.1")
			s.ExternalIPs = addrs("203.0.113.9", "10.180.0.77", "172.30.0.41", "198.18.0.1", "0.0.0.0", "255.255.255.255")
		}, `ClusterIP 172.30.0.41
LoadBalancer 198.51.100.8
80/tcp: 10.180.0.1:8080 wide 10.180.2.1:8080 wide
address-not-allowed: 192.168.0.2 is not served as LoadBalancer: it is the address of node "n2": choose a free one
address-not-allowed: 172.30.0.1 is not served as LoadBalancer: it is the ClusterIP of a Service: choose a free address
address-not-allowed: 224.0.0.1 is not served as LoadBalancer: it is a multicast address
address-not-allowed: 169.254.1.1 is not served as LoadBalancer: it is a link-local address
address-not-allowed: 203.0.113.9 is not served as ExternalIP: it is the address of node "n2": choose a free one
address-not-allowed: 10.180.0.77 is not served as ExternalIP: it is in 10.180.0.0/24, a range of pods: choose a free one
address-not-allowed: 198.18.0.1 is not served as ExternalIP: external_ip_ranges of cluster prod do not contain it: only the operator can add it there
address-not-allowed: 0.0.0.0 is not served as ExternalIP: it is the unspecified address
address-not-allowed: 255.255.255.255 is not served as ExternalIP: it is the broadcast address
`},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			svc := web()
			c.change(svc)
			e := world(onNode())
			e.putService(svc.key, svc)
			got, ok := translate(svc, []*slice{slicing(t, "web-1", pods...)}, e)
			if !ok {
				t.Fatal("nothing is served")
			}
			if d := cmp.Diff(c.want, shown(got)); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
			if want := (lb.ServiceID{Source: "prod", Namespace: "shop", Name: "web"}); got.ID != want || got.Created != made || got.Drain != 30*time.Second {
				t.Errorf("ID %v, created %v, drain %v", got.ID, got.Created, got.Drain)
			}
		})
	}
}

func TestServiceOutsideTheCluster(t *testing.T) {
	const vips = "LoadBalancer 198.51.100.7\nLoadBalancer 2001:db8:7::7\nExternalIP 203.0.113.5 foreign\nExternalIP 2001:db8:e::5 foreign\n"
	const all = "80/tcp: 10.180.0.1:8080 wide 10.180.2.1:8080 wide [fd00::1]:8080 wide [fd00::2]:8080 wide\n"
	const nodes = "80/tcp: 192.168.0.1:30080 wide 192.168.0.2:30080 wide [fd01::1]:30080 wide\n"
	for _, c := range []struct {
		name   string
		change func(*service, *Config)
		want   string
	}{
		{"plain", func(s *service, c *Config) {}, vips + all + "apart\n"},
		{"externalTrafficPolicy Local keeps addresses", func(s *service, c *Config) { s.ExternalLocal = true }, vips + all + "keep\napart\n"},
		{"but not if told to masquerade", func(s *service, c *Config) {
			s.ExternalLocal, c.Annotations, s.Annotations = true, []string{"source-address"}, map[string]string{"source-address": "masquerade"}
		}, vips + all + "apart\n"},
		{"ClusterIPs with internalTrafficPolicy Local are as those with Cluster", func(s *service, c *Config) {
			s.InternalLocal, c.Kinds = true, map[lb.VIPKind]bool{lb.ClusterIP: true}
		}, "ClusterIP 172.30.0.41 foreign\nClusterIP fd30::41 foreign\n" + all + "apart\n"},
		{"load_balancer_ranges allow an address of the box's own", func(s *service, c *Config) {
			c.LoadBalancerRanges, s.ExternalIPs = prefixes("198.51.100.0/24"), nil
		}, "LoadBalancer 198.51.100.7\n" + all + "apart\naddress-not-allowed: 2001:db8:7::7 is not served as LoadBalancer: load_balancer_ranges of cluster prod do not contain it: only the operator can add it there\n"},
		{"through node ports", func(s *service, c *Config) { c.Reach = NodePorts }, vips + nodes + "apart\n"},
		{"through node ports, Local keeps nothing", func(s *service, c *Config) { c.Reach, s.ExternalLocal = NodePorts, true }, vips + nodes + "apart\n"},
		{"through node ports, keep if told", func(s *service, c *Config) {
			c.Reach, c.Annotations, s.Annotations = NodePorts, []string{"source-address"}, map[string]string{"source-address": "keep"}
		}, vips + nodes + "keep\napart\n"},
		{"through node ports, without one", func(s *service, c *Config) { c.Reach, s.Ports[0].NodePort = NodePorts, 0 }, vips + "80/tcp:\napart\n" +
			"no-node-port: 80/tcp: cluster prod is reached by node ports, and there is none: make the Service one of type NodePort or LoadBalancer, with allocateLoadBalancerNodePorts\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			cfg, svc := onEdge(), web()
			c.change(svc, cfg)
			got, ok := translate(svc, []*slice{slicing(t, "web-1", pods...)}, world(cfg))
			if !ok {
				t.Fatal("nothing is served")
			}
			if d := cmp.Diff(c.want, shown(got)); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
		})
	}
}

func TestServicesThatAreNotServed(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*service, *Config)
	}{
		{"ExternalName, even with a ClusterIP", func(s *service, c *Config) { s.Type = "ExternalName" }},
		{"headless", func(s *service, c *Config) { s.ClusterIPs = nil }},
		{"another proxy's", func(s *service, c *Config) { s.OtherProxy = true }},
		{"another namespace", func(s *service, c *Config) { c.Namespaces = []string{"kube-system"} }},
		{"no kind that is served", func(s *service, c *Config) { s.Type, s.ExternalIPs = "NodePort", nil }},
		{"a class of somebody else's", func(s *service, c *Config) {
			s.ExternalIPs, s.LoadBalancerClass, c.Classes = nil, "x.io/lb", []string{""}
		}},
		{"nothing that says so is told, either", func(s *service, c *Config) {
			s.Type, s.ExternalIPs, s.Annotations, s.Dropped = "ClusterIP", nil, map[string]string{"x": ""}, []string{"nonsense"}
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			cfg, svc := onEdge(), web()
			c.change(svc, cfg)
			if got, ok := translate(svc, []*slice{slicing(t, "web-1", pods...)}, world(cfg)); ok {
				t.Errorf("served:\n%s", shown(got))
			}
		})
	}
}

func TestClassIsServedIfListed(t *testing.T) {
	cfg, svc := onEdge(), web()
	svc.LoadBalancerClass, cfg.Classes = "weir/edge", []string{"", "weir/edge"}
	if got, ok := translate(svc, nil, world(cfg)); !ok || got.VIPs[0].Kind != lb.LoadBalancer {
		t.Errorf("%v\n%s", ok, shown(got))
	}
}

func TestRefusedVIPsHaveNotes(t *testing.T) {
	cfg, svc := onEdge(), web()
	cfg.ExternalIPRanges, svc.Ingress = nil, nil
	got, ok := translate(svc, nil, world(cfg))
	if !ok || len(got.VIPs) > 0 || len(got.Ports) > 0 || len(got.Notes) != 2 {
		t.Errorf("%v; want no VIPs and a Note about each external IP:\n%s", ok, shown(got))
	}
}

func TestHealthCheckNodePort(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*service, *Config)
		want   lb.HealthCheck
	}{
		{"ready here", func(s *service, c *Config) {}, lb.HealthCheck{Port: 32000, Endpoints: 1}},
		{"Cluster", func(s *service, c *Config) { s.ExternalLocal = false }, lb.HealthCheck{}},
		{"type NodePort", func(s *service, c *Config) { s.Type = "NodePort" }, lb.HealthCheck{}},
		{"no port", func(s *service, c *Config) { s.HealthCheckNodePort = 0 }, lb.HealthCheck{}},
		{"no node", func(s *service, c *Config) { c.NodeName = "" }, lb.HealthCheck{}},
		{"no endpoint here", func(s *service, c *Config) { c.NodeName = "n3" }, lb.HealthCheck{Port: 32000}},
		{"ClusterIPs alone are served", func(s *service, c *Config) { c.Kinds = map[lb.VIPKind]bool{lb.ClusterIP: true} }, lb.HealthCheck{}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			cfg, svc := onNode(), web()
			svc.ExternalLocal, svc.HealthCheckNodePort = true, 32000
			c.change(svc, cfg)
			got, _ := translate(svc, []*slice{slicing(t, "web-1", pods...)}, world(cfg))
			if got.HealthCheck != c.want {
				t.Errorf("%+v, want %+v", got.HealthCheck, c.want)
			}
		})
	}
}

func TestSourceRangesAreCopied(t *testing.T) {
	cfg, svc := onNode(), web()
	svc.Restricted, svc.SourceRanges, cfg.Ranges = true, prefixes("203.0.113.0/25"), lb.RangesOutside
	got, _ := translate(svc, []*slice{slicing(t, "web-1", pods...)}, world(cfg))
	if !got.Restricted || got.Ranges != lb.RangesOutside || !slices.Equal(got.SourceRanges, svc.SourceRanges) {
		t.Errorf("restricted %v, scope %v, ranges %v", got.Restricted, got.Ranges, got.SourceRanges)
	}
	objects, _ := lb.Plan(got, &lb.Facts{})
	closed := lb.Frontend{Addr: netip.MustParseAddr("2001:db8:7::7"), Port: 80, Proto: lb.TCP}
	if !slices.Contains(objects, lb.Object(lb.Member{Set: lb.SetFirewall, Addr: closed.Addr, Port: closed.Port, Proto: closed.Proto})) {
		t.Errorf("IPv4 ranges alone leave %s open", closed)
	}
}

// kube-proxy admits a node by its node address, and not because a bridge of pods has one in the ranges.
func TestSourceRangesAdmitANodeByItsNodeAddress(t *testing.T) {
	bridge, vip := netip.MustParseAddr("10.180.0.254"), netip.MustParseAddr("198.51.100.7")
	for text, admitted := range map[string]bool{"10.180.0.0/24": false, "192.168.0.1/32": true, "192.168.0.2/32": false, "fd01::/64": false} {
		svc := web()
		svc.Restricted, svc.SourceRanges = true, prefixes(text)
		got, _ := translate(svc, []*slice{slicing(t, "web-1", pods...)}, world(onNode()))
		got.VIPs = []lb.VIP{{Addr: vip}}
		objects, _ := lb.Plan(got, &lb.Facts{HostAddrs: map[netip.Addr]string{bridge: "cni0", netip.MustParseAddr("192.168.0.1"): "eth0"}})
		self := slices.ContainsFunc(objects, func(o lb.Object) bool {
			m, ok := o.(lb.Member)
			return ok && m.Set == lb.SetSourceIP && m.Addr == vip
		})
		if self != admitted {
			t.Errorf("ranges %s admit the node: %v, want %v", text, self, admitted)
		}
	}
	if got, _ := translate(web(), nil, world(onEdge())); got.Self != nil {
		t.Errorf("an edge box is none of the nodes, and yet known by %v", got.Self)
	}
}

func TestServiceWithoutACreationTimeYields(t *testing.T) {
	for _, created := range []time.Time{{}, time.Date(0, 1, 1, 0, 0, 0, 0, time.UTC)} {
		svc := web()
		svc.Created = created
		if got, _ := translate(svc, nil, world(onNode())); !got.Created.After(made) {
			t.Errorf("created %v is taken for %v: older than what has a time", created, got.Created)
		}
	}
}

func TestInvalidValuesHaveNotes(t *testing.T) {
	svc, s := web(), slicing(t, "web-1")
	svc.Dropped, s.Dropped = []string{"spec.ports[1].port: invalid port 0"}, []string{"endpoints[0] has no address"}
	got, _ := translate(svc, []*slice{s}, world(onNode()))
	want := []lb.Note{
		{Service: got.ID, Reason: lb.BadObject, Text: "spec.ports[1].port: invalid port 0"},
		{Service: got.ID, Reason: lb.BadObject, Text: "EndpointSlice web-1: endpoints[0] has no address"},
	}
	if d := cmp.Diff(want, got.Notes); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

// A few fields of a Service multiply: backends are left out, or the Service is.
func TestOneServiceIsLimited(t *testing.T) {
	many := func(ports, endpoints, ranges int) lb.Service {
		svc := web()
		svc.Ports = nil
		for i := range ports {
			svc.Ports = append(svc.Ports, servicePort{Name: "http", Proto: "TCP", Port: uint16(i + 1)})
		}
		for i := range ranges {
			svc.Restricted = true
			svc.SourceRanges = append(svc.SourceRanges, netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(i >> 8), byte(i)}), 24))
		}
		big := slicing(t, "web-1")
		for i := range endpoints {
			big.Endpoints = append(big.Endpoints, endpoint{Addr: netip.AddrFrom4([4]byte{10, 1, byte(i >> 8), byte(i)}), Ready: true})
		}
		got, _ := translate(svc, []*slice{big}, world(onNode()))
		return got
	}
	overBudget := func(s lb.Service) (text string) {
		for _, n := range s.Notes {
			if n.Reason == lb.OverBudget {
				text += n.Text
			}
		}
		return text
	}
	got := many(maxPorts, 2000, 0)
	if n := kernelObjects(&got); n > DefaultBudget.Service || n < DefaultBudget.Service/2 || len(got.Ports) != maxPorts || len(got.Ports[0].Backends) == 0 {
		t.Errorf("%d kernel objects, %d ports, %d backends of the first; at most %d objects", n, len(got.Ports), len(got.Ports[0].Backends), DefaultBudget.Service)
	}
	if text := overBudget(got); !strings.Contains(text, "max_service_objects is 100000: the first ") {
		t.Errorf("note: %q", text)
	}
	if got := many(maxPorts, 1, maxRanges); len(got.VIPs)+len(got.Ports) != 0 || !strings.Contains(overBudget(got), "it is not served") {
		t.Errorf("%d VIPs, %d ports, notes %v: want none", len(got.VIPs), len(got.Ports), got.Notes)
	}
	if got := many(100, 100, 10); overBudget(got) != "" || len(got.Ports[99].Backends) != 100 {
		t.Errorf("a Service within the budget: %v, %d backends", got.Notes, len(got.Ports[99].Backends))
	}
}

// A Service keeps backends of both families, and with traffic policy Local those of the node.
func TestTheLimitLeavesBackendsForAllClients(t *testing.T) {
	svc, four, six := web(), slicing(t, "web-4"), slicing(t, "web-6")
	for i := range 50 {
		four.Endpoints = append(four.Endpoints, endpoint{Addr: netip.AddrFrom4([4]byte{10, 1, 0, byte(i)}), Ready: true})
		six.Endpoints = append(six.Endpoints, endpoint{Addr: netip.AddrFrom16([16]byte{0: 0xfd, 15: byte(i)}), Ready: true})
	}
	four.Endpoints[49].Node, svc.ExternalLocal = "n1", true
	cfg := onNode()
	cfg.Budget.Service = 100
	got, _ := translate(svc, []*slice{four, six}, world(cfg))
	var n [2]int
	local := false
	for _, be := range got.Ports[0].Backends {
		n[family(be.Addr.Addr())]++
		local = local || be.Scope == lb.Both
	}
	if n[0] == 0 || n[0] != n[1] || !local || kernelObjects(&got) > 100 {
		t.Errorf("%v backends by family, of this node %v, %d kernel objects of 100", n, local, kernelObjects(&got))
	}
}

// A sharer with a refused change takes no port of the others, however old it is.
func TestARefusedSharerYields(t *testing.T) {
	for _, refused := range []bool{false, true} {
		old, young := web(), web()
		young.Name, young.Created = "young", made.Add(time.Hour)
		if refused {
			old.Condition = condition{Status: "False", Reason: "ShareRefused"}
		}
		c, taken := lb.NewCatalog("prod"), map[lb.Frontend]lb.ServiceID{}
		for _, svc := range []*service{old, young} {
			s, _ := translate(svc, nil, world(onEdge()))
			c.Apply(lb.Update{Source: "prod", Put: []lb.Service{s}}, taken, map[lb.ServiceID]struct{}{})
		}
		f := lb.Frontend{Addr: netip.MustParseAddr("198.51.100.7"), Port: 80, Proto: lb.TCP}
		if won := taken[f].Name; (won == "young") != refused {
			t.Errorf("refused %v: %s has the port", refused, won)
		}
	}
}

// The Note of those beyond the limit has a reason of theirs.
func TestManyNotesHaveTheirReason(t *testing.T) {
	var eps []string
	for i := range maxNotes + 3 {
		eps = append(eps, fmt.Sprintf("192.0.2.%d@n1 ready", i+1))
	}
	got, _ := translate(web(), []*slice{slicing(t, "web-1", eps...)}, world(onEdge()))
	last := got.Notes[len(got.Notes)-1]
	if len(got.Notes) != maxNotes+1 || last.Reason != lb.NotAllowed || last.Text != "and 3 more" {
		t.Errorf("%d notes, the last is %+v", len(got.Notes), last)
	}
}
