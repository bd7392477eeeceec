package e2e

import (
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"sigs.k8s.io/yaml"
)

// randomService is a Service of a seed with its EndpointSlices and the targets to probe.
type randomService struct {
	objects []object // the Service is the first
	targets []target
	// endpoints counts those of a family, whatever their state.
	endpoints map[bool]int
	// twin, if not nil, is the same Service without session affinity.
	twin *randomService
}

// target is one VIP and port of a Service.
type target struct {
	kind    string // "ClusterIP", "NodePort" and so on
	network string // "tcp" or "udp"
	addr    string // with the port
	six     bool
}

// otherNodePort is the NodePort of an address that nodePortAddresses excludes.
const otherNodePort = "NodePort of another address"

func (s *randomService) name() string { return s.objects[0].service.Name }

func (s *randomService) spec() *corev1.ServiceSpec { return &s.objects[0].service.Spec }

// sticky reports whether the Service has session affinity.
func (s *randomService) sticky() bool { return s.twin != nil }

func (s *randomService) String() string {
	var docs []string
	for _, o := range s.objects {
		var text []byte
		var err error
		if o.service != nil {
			text, err = yaml.Marshal(o.service)
		} else {
			text, err = yaml.Marshal(o.slice)
		}
		if err != nil {
			panic(err) // objects of the API have YAML
		}
		docs = append(docs, string(text))
	}
	return strings.Join(docs, "---\n")
}

// randomDraw generates the Services of one seed.
type randomDraw struct {
	*rand.Rand
	nodePorts int32 // that are in use, from 30000 on
}

// randomServices returns n Services. It is pure: the seed determines them.
func randomServices(seed uint64, n int) []*randomService {
	r := randomDraw{Rand: rand.New(rand.NewPCG(seed, seed)), nodePorts: 30000}
	var all []*randomService
	for i := range n {
		var twin *randomService
		if i > 0 && r.chance(20) {
			twin = all[r.IntN(i)]
		}
		if twin != nil && !twin.sticky() {
			all = append(all, r.affine(i, twin))
			continue
		}
		all = append(all, r.service(i))
	}
	return all
}

func (r *randomDraw) chance(percent int) bool { return r.IntN(100) < percent }

func (r *randomDraw) oneOf(words ...string) string { return words[r.IntN(len(words))] }

// randomPorts are ports of Services with endpoint ports at which the backends answer.
var randomPorts = []string{"80/tcp", "80:8443/tcp", "443:8443/tcp", "7000:5353/tcp", "53/udp", "53:80/udp", "80/udp", "6000:53/udp"}

// frontendPort returns the port and protocol of the Service: "443/tcp" of "443:8443/tcp".
func frontendPort(spec string) string {
	numbers, protocol, _ := strings.Cut(spec, "/")
	port, _, _ := strings.Cut(numbers, ":")
	return port + "/" + protocol
}

// service draws the Service number i.
func (r *randomDraw) service(i int) *randomService {
	families := []bool{false}
	switch {
	case r.chance(35):
		families = []bool{false, true}
	case r.chance(25):
		families = []bool{true}
	}
	specs := []string{r.oneOf(randomPorts...)}
	if other := r.oneOf(randomPorts...); r.chance(20) && frontendPort(other) != frontendPort(specs[0]) {
		specs = append(specs, other)
	}
	options := []option{ports(specs...), clusterIP(perFamily(families, "172.30.1.%d", "fd00:172:30::1%03d", i)...)}
	kind := r.oneOf("ClusterIP", "NodePort", "NodePort", "ExternalIP", "ExternalIP", "LoadBalancer", "LoadBalancer", "LoadBalancer")
	if kind == "ExternalIP" || r.chance(10) {
		options = append(options, externalIPs(perFamily(families, "50.60.70.%d", "2001:db8:50::%d", i)...))
	}
	switch kind {
	case "NodePort":
		options = append(options, nodePort(0))
	case "LoadBalancer":
		options = append(options, r.loadBalancer(families, i)...)
	}
	if r.chance(35) {
		options = append(options, internalLocal)
	}
	if kind != "ClusterIP" && r.chance(45) {
		options = append(options, externalLocal)
	}
	s := &randomService{objects: []object{kubeService(fmt.Sprintf("s%02d", i), options...)}, endpoints: map[bool]int{}}
	r.numberNodePorts(s)
	for _, six := range families {
		words := r.endpointWords()
		s.endpoints[six] = len(words)
		if slice, there := r.slice(s.name(), words, specs, six); there {
			s.objects = append(s.objects, slice)
		}
	}
	s.targets = s.allTargets()
	return s
}

// loadBalancer draws what a load balancer has beside a NodePort.
func (r *randomDraw) loadBalancer(families []bool, i int) []option {
	addrs := perFamily(families, "1.2.3.%d", "2001:db8:1::%d", i)
	options := []option{loadBalancer(addrs...)}
	if len(addrs) == 1 && r.chance(10) {
		options = []option{loadBalancerMode(addrs[0], corev1.LoadBalancerIPModeProxy)}
	}
	if r.chance(50) {
		cidrs := []string{"203.0.113.0/25", "2001:db8:e::/121"}
		if r.chance(50) {
			cidrs = append(cidrs, "10.0.0.0/24", "fd00:10::/120")
		}
		if r.chance(50) {
			cidrs = append(cidrs, nodeAddr+"/32", nodeAddr6+"/128")
		}
		options = append(options, ranges(cidrs...))
	}
	return options
}

// perFamily returns an address of each family. Numbers start at 10.
func perFamily(families []bool, four, six string, i int) []string {
	var addrs []string
	for _, v6 := range families {
		format := four
		if v6 {
			format = six
		}
		addrs = append(addrs, fmt.Sprintf(format, i+10))
	}
	return addrs
}

// affine returns a Service like another one, with session affinity.
func (r *randomDraw) affine(i int, twin *randomService) *randomService {
	s := &randomService{endpoints: twin.endpoints, twin: twin}
	for _, o := range twin.objects {
		if o.service == nil {
			slice := o.slice.DeepCopy()
			slice.Name = fmt.Sprintf("s%02d%s", i, strings.TrimPrefix(slice.Name, twin.name()))
			slice.Labels[discoveryv1.LabelServiceName] = fmt.Sprintf("s%02d", i)
			s.objects = append(s.objects, object{slice: slice})
			continue
		}
		service := o.service.DeepCopy()
		service.Name = fmt.Sprintf("s%02d", i)
		spec := &service.Spec
		families := []bool{}
		for _, f := range spec.IPFamilies {
			families = append(families, f == corev1.IPv6Protocol)
		}
		spec.ClusterIPs = perFamily(families, "172.30.1.%d", "fd00:172:30::1%03d", i)
		spec.ClusterIP = spec.ClusterIPs[0]
		if len(spec.ExternalIPs) > 0 {
			spec.ExternalIPs = perFamily(families, "50.60.70.%d", "2001:db8:50::%d", i)
		}
		for n, addr := range perFamily(families, "1.2.3.%d", "2001:db8:1::%d", i) {
			if len(service.Status.LoadBalancer.Ingress) > 0 {
				service.Status.LoadBalancer.Ingress[n].IP = addr
			}
		}
		made := object{service: service}
		affinity(10800)(&made)
		s.objects = append(s.objects, made)
	}
	r.numberNodePorts(s)
	s.targets = s.allTargets()
	return s
}

// numberNodePorts gives each port of the Service a node port of its own, and the Service a health
// check port, of those that the API server does not give to others.
func (r *randomDraw) numberNodePorts(s *randomService) {
	next := func() int32 { r.nodePorts++; return r.nodePorts }
	spec := s.spec()
	if spec.Type == corev1.ServiceTypeClusterIP {
		return
	}
	for i := range spec.Ports {
		spec.Ports[i].NodePort = next()
	}
	spec.HealthCheckNodePort = 0
	if spec.Type == corev1.ServiceTypeLoadBalancer && spec.ExternalTrafficPolicy == corev1.ServiceExternalTrafficPolicyLocal {
		spec.HealthCheckNodePort = next()
	}
}

// endpointWords draws endpoints, in the words of kubeEndpoints.
func (r *randomDraw) endpointWords() []string {
	names := []string{"L1", "L2", "L3", "R1", "R2", "R3"}
	r.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
	names = names[:r.IntN(5)]
	slices.Sort(names)
	states := []string{"", "", "", "", "", "terminating", "terminating", "unready", "gone", "published"}
	if r.chance(15) {
		states = []string{"terminating", "terminating", "gone"}
	}
	hints := r.oneOf("", "", "", "zones", "zones", "nodes")
	var words []string
	for _, name := range names {
		var more []string
		if state := r.oneOf(states...); state != "" {
			more = append(more, state)
		}
		if hints != "" && !r.chance(5) {
			more = append(more, "zone="+r.oneOf(nodeZone, nodeZone, "zone-b"))
		}
		if hints == "nodes" && !r.chance(5) {
			more = append(more, "node="+r.oneOf(nodeName, "other"))
		}
		word := name
		if len(more) > 0 {
			word += ":" + strings.Join(more, ",")
		}
		words = append(words, word)
	}
	return words
}

// slice returns the EndpointSlice of a family. A Service without endpoints may have none.
func (r *randomDraw) slice(service string, words, specs []string, six bool) (object, bool) {
	if len(words) == 0 && r.chance(50) {
		return object{}, false
	}
	if six {
		o := kubeEndpoints6(service, strings.Join(words, " "))
		ports(specs...)(&o)
		return o, true
	}
	return kubeEndpoints(service, strings.Join(words, " "), ports(specs...)), true
}

// allTargets lists the VIPs and ports of the Service.
func (s *randomService) allTargets() []target {
	var all []target
	spec := s.spec()
	for _, p := range spec.Ports {
		for _, addr := range spec.ClusterIPs {
			six := strings.Contains(addr, ":")
			add := func(kind, addr string, port int32) {
				all = append(all, target{kind, strings.ToLower(string(p.Protocol)), net.JoinHostPort(addr, strconv.Itoa(int(port))), six})
			}
			ofFamily := func(addr string) bool { return strings.Contains(addr, ":") == six }
			add("ClusterIP", addr, p.Port)
			for _, external := range spec.ExternalIPs {
				if ofFamily(external) {
					add("ExternalIP", external, p.Port)
				}
			}
			for _, ingress := range s.objects[0].service.Status.LoadBalancer.Ingress {
				if ofFamily(ingress.IP) {
					add("LoadBalancer", ingress.IP, p.Port)
				}
			}
			if p.NodePort == 0 {
				continue
			}
			node, other := nodeAddr, altAddr
			if six {
				node, other = nodeAddr6, "fd00:192:169::2"
			}
			add("NodePort", node, p.NodePort)
			add(otherNodePort, other, p.NodePort)
		}
	}
	return all
}
