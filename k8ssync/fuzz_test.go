package k8ssync

import (
	"encoding/json"
	"net/netip"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"sigs.k8s.io/yaml"

	"weir/cmd/weirlab/fuzzing"
	"weir/k8ssync/ipam"
	"weir/lb"
)

// serverObjects has the objects of an API server, unread.
type serverObjects struct {
	Service *corev1.Service
	Slices  []*discoveryv1.EndpointSlice
	Nodes   []*corev1.Node
	Others  []*corev1.Service
}

// FuzzTranslate reads objects from JSON, like answers of the API server, and checks the laws
// of translation. The bits of how are the configuration of the box.
func FuzzTranslate(f *testing.F) {
	fuzzing.Wide(f)
	for i, text := range []string{
		`{}`,
		`
service: {metadata: {namespace: shop, name: web, annotations: {weir/weights: zone/a=2}}, spec: {type: LoadBalancer, clusterIPs: [172.30.0.41, "fd30::41"], ipFamilies: [IPv4, IPv6], externalIPs: [203.0.113.5, 192.168.0.1], externalTrafficPolicy: Local, healthCheckNodePort: 32000, ports: [{name: http, port: 80, nodePort: 30080}]}, status: {loadBalancer: {ingress: [{ip: 198.51.100.7}, {ip: 198.51.100.8, ipMode: Proxy}]}}}
slices: [{metadata: {name: web-1}, addressType: IPv4, ports: [{name: http, port: 8080}], endpoints: [{addresses: [10.0.0.1], nodeName: n1, hints: {forZones: [{name: a}]}}, {addresses: [10.0.0.2], conditions: {ready: false, serving: true, terminating: true}}]}]
nodes: [{metadata: {name: n1, labels: {topology.kubernetes.io/zone: a}}, spec: {podCIDRs: [10.0.0.0/24]}, status: {addresses: [{type: InternalIP, address: 192.168.0.1}], conditions: [{type: Ready, status: "True"}]}}]
others: [{metadata: {name: x}, spec: {clusterIPs: [203.0.113.5]}}]`,
		`
service: {spec: {clusterIPs: ["::ffff:1.2.3.4", "fe80::1%eth0"], ports: [{port: 0}, {port: 80, protocol: X}, {port: 80}], sessionAffinity: ClientIP, sessionAffinityConfig: {clientIP: {timeoutSeconds: -1}}, loadBalancerSourceRanges: [x, "::/0"]}}
slices: [null, {addressType: FQDN}, {addressType: IPv6, ports: [{}], endpoints: [{}, {addresses: [""]}]}]
nodes: [null]`,
	} {
		data, err := yaml.YAMLToJSON([]byte(text))
		if err != nil {
			f.Fatal(err)
		}
		for how := range byte(4) {
			f.Add(data, how|byte(i)<<2)
			f.Add(data, how|8)
		}
	}
	f.Fuzz(func(t *testing.T, data []byte, how byte) {
		var in serverObjects
		if json.Unmarshal(data, &in) != nil {
			return
		}
		names := map[string]bool{}
		for _, s := range in.Slices {
			if s == nil || names[s.Name] {
				return // the API server has one object of a name
			}
			names[s.Name] = true
		}
		cfg := &Config{
			Name: "prod", Scheduler: lb.Scheduler{Name: "rr"}, Drain: time.Minute, Annotations: Annotations(),
			Kinds:            map[lb.VIPKind]bool{lb.ClusterIP: true, lb.NodePort: true, lb.ExternalIP: true, lb.LoadBalancer: true},
			ExternalIPRanges: []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0"), netip.MustParsePrefix("::/0")},
		}
		if how&1 != 0 {
			cfg.NodeName = "n1"
		}
		if how&2 != 0 {
			cfg.Reach = NodePorts
		}
		if how&4 != 0 {
			cfg.LoadBalancerRanges = prefixes("198.51.100.0/24", "2001:db8::/32")
		}
		if how&8 != 0 {
			cfg.ServiceCIDRs = prefixes("172.30.0.0/16")
			cfg.Refused = Refused{
				Peers:    map[netip.Addr]string{netip.MustParseAddr("10.0.0.1"): "the API server of cluster stage"},
				Backends: map[netip.Addr]string{netip.MustParseAddr("203.0.113.5"): "a backend of static/web"},
				Ranges:   []Range{{netip.MustParsePrefix("10.64.0.0/12"), "pods of cluster stage"}},
			}
			cfg.Provided = Provided{Class: "weir/lb", DefaultClass: true, Ranges: []ipam.Range{mustRange("198.51.100.8-198.51.100.9")}}
		}
		lawful(t, apis{cfg, in.Service, in.Slices, in.Nodes, in.Others, "192.0.2.1"})
	})
}
