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
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"weir/cmd/weirlab/histories"
	"weir/lb"
)

// apis are objects as an API server may send them, good or bad.
type apis struct {
	Config   *Config
	Service  *corev1.Service
	Slices   []*discoveryv1.EndpointSlice
	Nodes    []*corev1.Node
	Others   []*corev1.Service // with ClusterIPs of their own
	HostAddr string            // of the box
}

// read returns the objects as the box reads them.
func (in apis) read() (*service, []*slice, *env) {
	env := newEnv(in.Config)
	var nodes []node
	for _, n := range in.Nodes {
		nodes = append(nodes, readNode(n))
	}
	env.setNodes(nodes)
	for _, o := range in.Others {
		s := readService(o, nil, DefaultAnnotationPrefix)
		env.putService(s.key, &s)
	}
	svc := readService(in.Service, nil, DefaultAnnotationPrefix)
	env.putService(svc.key, &svc)
	var from []*slice
	for _, s := range in.Slices {
		one := readSlice(s)
		from = append(from, &one)
	}
	return &svc, from, env
}

// lawful reads and translates objects and holds what must be true of any.
func lawful(t testing.TB, in apis) (lb.Service, bool) {
	t.Helper()
	svc, from, env := in.read()
	got, ok := translate(svc, from, env)
	again := slices.Clone(from)
	slices.Reverse(again)
	other, okOther := translate(svc, again, env)
	if d := cmp.Diff(got, other, exact); d != "" || ok != okOther {
		t.Errorf("the order of the slices counts (-one +other):\n%s", d)
	}
	if !ok {
		return got, ok
	}
	valid(t, got)
	vipsAllowed(t, got, svc, env)
	backendsKnown(t, got, from, env)
	backendsAllowed(t, got, env)
	refusedAbsent(t, got, env)
	poolsServed(t, svc, env)
	planned(t, got, in.HostAddr)
	refusalOnlyRemoves(t, in, got)
	noiseChangesNothing(t, in, got)
	return got, ok
}

// valid holds what lb expects of a Service.
func valid(t testing.TB, s lb.Service) {
	t.Helper()
	vips, ports, nodePorts := map[netip.Addr]bool{}, map[lb.PortKey]bool{}, map[lb.PortKey]bool{}
	for _, v := range s.VIPs {
		if !v.Addr.IsValid() || v.Addr.Is4In6() || v.Addr.Zone() != "" || vips[v.Addr] || (v.Addr.IsUnspecified() != (v.Kind == lb.NodePort)) {
			t.Errorf("VIP %+v", v)
		}
		vips[v.Addr] = true
	}
	for _, p := range s.Ports {
		node := lb.PortKey{Port: p.NodePort, Proto: p.Proto}
		if p.Port == 0 || ports[p.Key()] || p.NodePort != 0 && nodePorts[node] {
			t.Errorf("port %s, node port %d", p.Key(), p.NodePort)
		}
		ports[p.Key()], nodePorts[node] = true, true
		seen := map[netip.AddrPort]bool{}
		for _, b := range p.Backends {
			if seen[b.Addr] || b.Addr.Port() == 0 || b.Weight > 65535 || b.Lower > b.Upper || b.Scope > lb.Both {
				t.Errorf("backend %+v of %s", b, p.Key())
			}
			seen[b.Addr] = true
		}
		if !slices.IsSortedFunc(p.Backends, func(a, b lb.Backend) int { return a.Addr.Compare(b.Addr) }) {
			t.Errorf("backends of %s are not sorted", p.Key())
		}
	}
	for _, r := range s.SourceRanges {
		if !r.IsValid() || r != r.Masked() || r.Addr().Is4In6() {
			t.Errorf("source range %v", r)
		}
	}
	if _, ok := lb.Schedulers[s.Scheduler.Name]; len(s.VIPs) > 0 && !ok || s.Affinity < 0 || s.Affinity > 24*time.Hour || s.Drain < 0 || !s.Created.After(time.Time{}) {
		t.Errorf("scheduler %v, affinity %v, drain %v, created %v", s.Scheduler, s.Affinity, s.Drain, s.Created)
	}
	for _, n := range s.Notes {
		if n.Service != s.ID || n.Reason == "" || len(n.Text) > 1000 {
			t.Errorf("Note %v", n)
		}
	}
}

// backendsAllowed holds that a box outside the cluster sends packets only to pods, or to
// what the operator permits.
func backendsAllowed(t testing.TB, s lb.Service, env *env) {
	t.Helper()
	cfg := env.cfg
	if cfg.Reach != Pods || cfg.NodeName != "" {
		return
	}
	pods, nodes := slices.Clone(cfg.PodCIDRs), []netip.Addr{}
	for _, n := range env.nodes {
		pods = append(pods, n.PodCIDRs...)
		nodes = slices.Concat(nodes, n.InternalIPs, n.ExternalIPs)
	}
	// An address in the pod range of another Node is no Node's.
	nodes = slices.DeleteFunc(nodes, func(a netip.Addr) bool {
		return slices.ContainsFunc(pods[len(cfg.PodCIDRs):], containing(a)) || slices.ContainsFunc(cfg.ServiceCIDRs, containing(a))
	})
	for _, p := range s.Ports {
		for _, b := range p.Backends {
			a := b.Addr.Addr()
			within := func(p netip.Prefix) bool { return p.Contains(a) }
			allowed := len(cfg.EndpointRanges) == 0 && slices.ContainsFunc(pods, within) && !slices.Contains(nodes, a)
			if !allowed && !slices.ContainsFunc(cfg.EndpointRanges, within) {
				t.Errorf("backend %s: pods are in %v, permitted are %v, nodes are %v", a, pods, cfg.EndpointRanges, nodes)
			}
		}
	}
}

// vipsAllowed holds that no VIP belongs to another owner.
func vipsAllowed(t testing.TB, s lb.Service, svc *service, env *env) {
	t.Helper()
	within := func(list []netip.Prefix, a netip.Addr) bool {
		return slices.ContainsFunc(list, func(p netip.Prefix) bool { return p.Contains(a) })
	}
	for _, v := range s.VIPs {
		if v.Kind == lb.NodePort {
			continue
		}
		a := v.Addr
		if a.IsLoopback() || a.IsMulticast() || a.IsLinkLocalUnicast() || a.IsUnspecified() || a == netip.MustParseAddr("255.255.255.255") {
			t.Errorf("VIP %s is nobody's", a)
		}
		for _, n := range env.nodes {
			// A kubelet lists any addresses, and must not disable the ClusterIPs of others.
			listed := (slices.Contains(n.InternalIPs, a) || slices.Contains(n.ExternalIPs, a)) && (v.Kind != lb.ClusterIP || env.cfg.NodeName != "" && n.Name == env.cfg.NodeName && env.nodeAddrs[a] == n.Name)
			if listed || v.Kind != lb.ClusterIP && within(n.PodCIDRs, a) {
				t.Errorf("VIP %s is node %s's or of its pods", a, n.Name)
			}
		}
		switch v.Kind {
		case lb.ClusterIP:
			if !slices.Contains(svc.ClusterIPs, a) {
				t.Errorf("ClusterIP %s of %v", a, svc.ClusterIPs)
			}
		case lb.ExternalIP:
			if !slices.Contains(svc.ExternalIPs, a) || !within(env.cfg.ExternalIPRanges, a) || !v.Foreign || env.clusterIPs[a] > 0 {
				t.Errorf("external IP %+v", v)
			}
		case lb.LoadBalancer:
			loadBalancerAllowed(t, v, svc, env)
		}
	}
}

// backendsKnown holds that every backend is an endpoint, or a node's node port.
func backendsKnown(t testing.TB, s lb.Service, from []*slice, env *env) {
	t.Helper()
	known := map[netip.AddrPort]bool{}
	for _, sl := range from {
		for _, e := range sl.Endpoints {
			for _, p := range sl.Ports {
				known[netip.AddrPortFrom(e.Addr, p.Port)] = env.cfg.Reach == Pods && (e.Ready || e.Serving && e.Terminating) || known[netip.AddrPortFrom(e.Addr, p.Port)]
			}
		}
	}
	for _, p := range s.Ports {
		for _, b := range p.Backends {
			isNode := slices.ContainsFunc(env.nodes, func(n node) bool {
				return slices.Contains(slices.Concat(n.InternalIPs, n.ExternalIPs), b.Addr.Addr())
			})
			if !known[b.Addr] && (env.cfg.Reach != NodePorts || !isNode) {
				t.Errorf("backend %s of %s is no endpoint", b.Addr, p.Key())
			}
			if b.Scope != lb.Wide && !env.onNode() {
				t.Errorf("backend %s is %s on a box that is no node", b.Addr, b.Scope)
			}
		}
	}
}

// planned holds that Plan makes nothing of it that is not the Service's.
func planned(t testing.TB, s lb.Service, host string) {
	t.Helper()
	own := netip.MustParseAddr(host)
	vips := map[netip.Addr]lb.VIP{}
	node := false
	for _, v := range s.VIPs {
		vips[v.Addr] = v
		node = node || v.Kind == lb.NodePort && v.Addr.Is4() == own.Is4()
	}
	marks := map[lb.MarkKey]uint32{}
	for i, p := range s.Ports {
		for j, f := range []lb.Family{lb.IPv4, lb.IPv6} {
			marks[lb.MarkKey{Service: s.ID, FamilyPort: lb.FamilyPort{Port: p.Key(), Family: f}}] = uint32(1 + 2*i + j)
		}
	}
	objects, _ := lb.Plan(s, &lb.Facts{HostAddrs: map[netip.Addr]string{own: "eth0"}, Marks: marks})
	for _, o := range objects {
		switch o := o.(type) {
		case lb.Address:
			if _, ok := vips[o.Addr]; !ok || o.Addr == own {
				t.Errorf("%v is no VIP", o)
			}
		case lb.VirtualServer:
			if o.Frontend.Mark != 0 {
				continue // of the Service's own frontends
			}
			v, ok := vips[o.Frontend.Addr]
			if o.Frontend.Addr == own && (ok && !v.Foreign || node) {
				continue
			}
			if !ok || o.Frontend.Addr == own {
				t.Errorf("%v is nobody's frontend", o)
			}
		case lb.RealServer:
			if s.Apart && o.Addr.Addr() == own {
				t.Errorf("%v is the box itself", o)
			}
		}
	}
}

// dice make objects out of a space so small that they often clash, with nonsense
// among it.
type dice struct{ *rand.Rand }

func (d dice) chance(percent int) bool { return d.IntN(100) < percent }

func pick[T any](d dice, of ...T) T { return of[d.IntN(len(of))] }

func some[T any](d dice, most int, make func() T) (out []T) {
	for range d.IntN(most + 1) {
		out = append(out, make())
	}
	return out
}

func (d dice) addr() string {
	return pick(d, "203.0.113.5", "203.0.113.6", "198.51.100.7", "2001:db8:7::7", "172.30.0.41", "172.30.0.1", "fd30::41", "192.168.0.1", "192.168.0.2",
		"10.180.0.1", "10.180.0.2", "10.180.2.1", "fd00::1", "127.0.0.1", "::1", "0.0.0.0", "::", "fe80::1", "169.254.0.1", "224.0.0.1", "255.255.255.255",
		"::ffff:203.0.113.7", "", "None", "x", "100::8", "192.0.0.8", "192.0.2.1")
}

// pod is an endpoint's address, nearly always one that can be.
func (d dice) pod(family discoveryv1.AddressType) string {
	switch {
	case d.chance(15):
		return d.addr()
	case family == discoveryv1.AddressTypeIPv6:
		return fmt.Sprintf("fd00::%d", 1+d.IntN(6))
	}
	return fmt.Sprintf("10.180.%d.%d", d.IntN(2), 1+d.IntN(5))
}

func (d dice) port() int32 {
	if d.chance(10) {
		return pick(d, int32(0), -1, 70000)
	}
	return pick(d, int32(80), 81, 443, 30080, 30081)
}

func (d dice) word() string { return pick(d, "", "a", "b", "n1", "n2", "weir/edge") }

func (d dice) portName() string { return pick(d, "", "http") }

func (d dice) proto() corev1.Protocol {
	return pick(d, "", "TCP", "TCP", "UDP", "SCTP", corev1.Protocol("ICMP"))
}

func maybe[T any](d dice, v T) *T {
	if d.chance(20) {
		return nil
	}
	return &v
}

func (d dice) service() *corev1.Service {
	s := &corev1.Service{}
	s.Namespace, s.Name = pick(d, "shop", "default"), pick(d, "web", "x")
	if d.chance(3) {
		s.Namespace, s.Name = "default", "kubernetes"
	}
	if d.chance(80) {
		s.CreationTimestamp = metav1.NewTime(made.Add(time.Duration(d.IntN(5)) * time.Hour))
	}
	if d.chance(5) {
		s.Labels = map[string]string{labelOtherProxy: "x"}
	}
	s.Annotations = map[string]string{}
	for range d.IntN(3) {
		s.Annotations[pick(d, append(Annotations(), "x")...)] = pick(d, "", "wrr", "mh", "dh", "10s", "keep", "masquerade", "100/50", "zone/a=7,node/n2=0", "port", "\x00")
	}
	s.Spec = corev1.ServiceSpec{
		Type:       pick(d, "", corev1.ServiceTypeClusterIP, corev1.ServiceTypeNodePort, corev1.ServiceTypeLoadBalancer, corev1.ServiceTypeLoadBalancer, corev1.ServiceTypeExternalName),
		ClusterIPs: some(d, 3, d.addr), ExternalIPs: some(d, 4, d.addr), IPFamilies: some(d, 2, func() corev1.IPFamily { return pick(d, corev1.IPv4Protocol, corev1.IPv6Protocol, "IPv5") }),
		ExternalTrafficPolicy:    pick(d, "", corev1.ServiceExternalTrafficPolicyLocal, corev1.ServiceExternalTrafficPolicyCluster),
		InternalTrafficPolicy:    maybe(d, pick(d, corev1.ServiceInternalTrafficPolicyLocal, corev1.ServiceInternalTrafficPolicyCluster)),
		LoadBalancerClass:        maybe(d, d.word()),
		LoadBalancerSourceRanges: some(d, 2, func() string { return pick(d, "10.0.0.0/8", " fd00::/8", "0.0.0.0/0", "x", "::ffff:1.2.3.0/120") }),
		HealthCheckNodePort:      d.port(), SessionAffinity: pick(d, corev1.ServiceAffinityNone, corev1.ServiceAffinityClientIP),
		SessionAffinityConfig: maybe(d, corev1.SessionAffinityConfig{ClientIP: maybe(d, corev1.ClientIPConfig{TimeoutSeconds: maybe(d, d.port())})}),
		Ports: some(d, 4, func() corev1.ServicePort {
			return corev1.ServicePort{Name: d.portName(), Protocol: d.proto(), Port: d.port(), NodePort: d.port()}
		}),
	}
	s.Status.LoadBalancer.Ingress = some(d, 4, func() corev1.LoadBalancerIngress {
		ip := d.addr()
		if d.chance(50) {
			ip = pick(d, "198.51.100.7", "198.51.100.8", "203.0.113.5", "2001:db8:7::7")
		}
		return corev1.LoadBalancerIngress{IP: ip, IPMode: maybe(d, pick(d, corev1.LoadBalancerIPModeVIP, corev1.LoadBalancerIPModeProxy, "x"))}
	})
	if d.chance(30) {
		s.Status.Conditions = []metav1.Condition{{Type: DefaultAnnotationPrefix + conditionName, Status: metav1.ConditionTrue, Reason: "Assigned"}}
	}
	return s
}

func (d dice) slice() *discoveryv1.EndpointSlice {
	s := &discoveryv1.EndpointSlice{AddressType: pick(d, discoveryv1.AddressTypeIPv4, discoveryv1.AddressTypeIPv6)}
	if d.chance(10) {
		s.AddressType = pick(d, discoveryv1.AddressTypeFQDN, "")
	}
	s.Namespace, s.Name, s.Labels = "shop", fmt.Sprintf("web-%d", d.Uint64()), map[string]string{discoveryv1.LabelServiceName: "web"}
	s.Ports = some(d, 5, func() discoveryv1.EndpointPort {
		return discoveryv1.EndpointPort{Name: maybe(d, d.portName()), Protocol: maybe(d, d.proto()), Port: maybe(d, d.port())}
	})
	s.Endpoints = some(d, 8, func() discoveryv1.Endpoint {
		e := discoveryv1.Endpoint{Addresses: some(d, 2, func() string { return d.pod(s.AddressType) }), NodeName: maybe(d, d.word()), Zone: maybe(d, d.word())}
		e.Conditions = discoveryv1.EndpointConditions{Ready: maybe(d, d.chance(60)), Serving: maybe(d, d.chance(60)), Terminating: maybe(d, d.chance(30))}
		if d.chance(60) {
			e.Hints = &discoveryv1.EndpointHints{
				ForZones: some(d, 2, func() discoveryv1.ForZone { return discoveryv1.ForZone{Name: d.word()} }),
				ForNodes: some(d, 2, func() discoveryv1.ForNode { return discoveryv1.ForNode{Name: d.word()} }),
			}
		}
		return e
	})
	return s
}

func (d dice) node() *corev1.Node {
	n := &corev1.Node{}
	n.Name, n.Labels = pick(d, "n1", "n2", "n3"), map[string]string{corev1.LabelTopologyZone: d.word()}
	n.Spec.PodCIDRs = some(d, 2, func() string { return pick(d, "10.180.0.0/24", "fd00::/64", "x") })
	n.Status.Addresses = some(d, 3, func() corev1.NodeAddress {
		return corev1.NodeAddress{Type: pick(d, corev1.NodeInternalIP, corev1.NodeExternalIP, corev1.NodeHostName), Address: d.addr()}
	})
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: pick(d, corev1.ConditionTrue, corev1.ConditionFalse)}}
	return n
}

func (d dice) config() *Config {
	c := &Config{Name: "prod", Scheduler: lb.Scheduler{Name: pick(d, "rr", "wlc", "mh")}, Drain: time.Minute, Kinds: map[lb.VIPKind]bool{}, Ranges: pick(d, lb.RangesLoadBalancer, lb.RangesOutside)}
	for _, k := range []lb.VIPKind{lb.ClusterIP, lb.NodePort, lb.ExternalIP, lb.LoadBalancer} {
		c.Kinds[k] = d.chance(80)
	}
	if d.chance(50) {
		c.NodeName = "n1"
	}
	if d.chance(30) {
		c.Reach = NodePorts
	}
	if d.chance(60) {
		c.LoadBalancerRanges = prefixes("198.51.100.0/24", "192.0.2.0/24")
	}
	switch {
	case d.chance(60):
		c.EndpointRanges = prefixes("0.0.0.0/0", "::/0")
	case d.chance(50):
		c.EndpointRanges = prefixes("10.180.0.0/15", "fd00::/16")
	}
	if d.chance(30) {
		c.Classes = some(d, 2, d.word)
	}
	c.ExternalIPRanges = prefixes("0.0.0.0/0", "::/0")
	c.Annotations = Annotations()
	if d.chance(40) {
		c.ServiceCIDRs = some(d, 2, func() netip.Prefix {
			return netip.MustParsePrefix(pick(d, "172.30.0.0/16", "fd30::/16", "203.0.113.6/32", "198.51.100.0/24", "10.180.2.0/24"))
		})
	}
	if d.chance(60) {
		c.Refused = d.refused()
	}
	if d.chance(70) {
		c.Provided = d.provided()
	}
	return c
}

func TestLawsOfTranslation(t *testing.T) {
	served, backends, refused, provided := uint64(0), 0, 0, 0
	n := histories.Times(1000)
	for seed := range n {
		d := dice{rand.New(rand.NewPCG(seed, 3))}
		in := apis{d.config(), d.service(), some(d, 5, d.slice), some(d, 3, d.node), some(d, 2, d.service), pick(d, "192.0.2.1", "198.51.100.7", "203.0.113.5", "10.180.2.1", "fd00::1")}
		got, ok := lawful(t, in)
		if t.Failed() {
			t.Fatalf("seed %d:\n%s", seed, shown(got))
		}
		refused += refusals(in)
		for _, v := range got.VIPs {
			if v.Kind == lb.LoadBalancer && in.Config.Provided.contains(v.Addr) {
				provided++
			}
		}
		if ok && len(got.VIPs) > 0 {
			served++
			for _, p := range got.Ports {
				backends += len(p.Backends)
			}
		}
	}
	if served < n/4 || uint64(backends) < n/10 {
		t.Errorf("only %d Services of %d with %d backends: the dice make too much nonsense to show anything", served, n, backends)
	}
	if uint64(refused) < n/40 || uint64(provided) < n/200 { //nolint:gosec // counts
		t.Errorf("only %d VIPs and endpoints of %d Services are refused, and %d VIPs are of pools", refused, n, provided)
	}
	t.Logf("%d Services served with %d backends; %d VIPs and endpoints refused, %d VIPs of pools", served, backends, refused, provided)
}

func TestLawsHoldForEmptyInput(t *testing.T) {
	got, ok := lawful(t, apis{Config: &Config{}, Service: nil, Slices: []*discoveryv1.EndpointSlice{nil}, Nodes: []*corev1.Node{nil}, HostAddr: "192.0.2.1"})
	if ok {
		t.Errorf("nothing is served as %s", strings.TrimSpace(shown(got)))
	}
}
