package k8ssync

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"sigs.k8s.io/yaml"
)

// manifest reads an API object as people write it.
func manifest[T any](t testing.TB, text string) *T {
	t.Helper()
	out := new(T)
	must(t, yaml.Unmarshal([]byte(text), out))
	return out
}

var unexported = cmp.AllowUnexported(service{}, slice{}, endpoint{}, node{}, condition{}, servicePort{}, slicePort{}, key{})

func TestReadService(t *testing.T) {
	for _, c := range []struct {
		name, text string
		want       service
	}{
		{"every field", `
metadata: {namespace: shop, name: web, uid: u1, resourceVersion: "7", creationTimestamp: "2026-03-01T12:00:00Z", deletionTimestamp: "2026-03-02T12:00:00Z",
  annotations: {weir/drain-timeout: 1m, other/x: y}, labels: {tier: gold, secret: x}}
spec:
  type: LoadBalancer
  loadBalancerClass: weir/edge
  loadBalancerIP: 198.51.100.7
  ipFamilyPolicy: PreferDualStack
  clusterIP: 172.30.0.41
  clusterIPs: [172.30.0.41, "fd30::41"]
  ipFamilies: [IPv4, IPv6]
  externalIPs: [203.0.113.5]
  externalTrafficPolicy: Local
  internalTrafficPolicy: Local
  healthCheckNodePort: 32000
  sessionAffinity: ClientIP
  sessionAffinityConfig: {clientIP: {timeoutSeconds: 60}}
  loadBalancerSourceRanges: [192.168.0.0/24, " 203.0.113.0/25", 10.1.2.3/8, "fd00::/8"]
  ports:
  - {name: http, port: 80, nodePort: 30080, protocol: TCP}
  - {name: dns, port: 80, protocol: UDP}
status:
  loadBalancer: {ingress: [{ip: 198.51.100.7}, {ip: 198.51.100.8, ipMode: VIP}, {ip: 198.51.100.9, ipMode: Proxy}, {hostname: lb.example}]}
  conditions:
  - {type: Other, status: "True", reason: X}
  - {type: weir/LoadBalancer, status: "False", reason: NoPool, message: why, lastTransitionTime: "2026-03-01T12:00:00Z"}`,
			service{key: key{"shop", "web"}, UID: "u1", Version: "7", Created: made, Deleting: true, Type: "LoadBalancer", LoadBalancerClass: "weir/edge",
				ClusterIPs: addrs("172.30.0.41", "fd30::41"), ExternalIPs: addrs("203.0.113.5"), Ingress: addrs("198.51.100.7", "198.51.100.8"),
				Proxied: addrs("198.51.100.9"), Named: true, Condition: condition{"False", "NoPool", "why", made},
				Asked: "198.51.100.7", Families: []string{"IPv4", "IPv6"}, FamilyPolicy: "PreferDualStack",
				ExternalLocal: true, InternalLocal: true, HealthCheckNodePort: 32000, AffinitySeconds: 60, Restricted: true,
				SourceRanges: prefixes("10.0.0.0/8", "192.168.0.0/24", "203.0.113.0/25", "fd00::/8"),
				Ports:        []servicePort{{"http", "TCP", 80, 30080}, {"dns", "UDP", 80, 0}},
				Annotations:  map[string]string{"drain-timeout": "1m"}, Labels: map[string]string{"tier": "gold"}}},
		{"headless", `spec: {clusterIP: None, clusterIPs: [None]}`, service{}},
		{"ClusterIP from before there were several", `spec: {clusterIP: 172.30.0.1}`, service{ClusterIPs: addrs("172.30.0.1")}},
		{"default affinity", `spec: {sessionAffinity: ClientIP}`, service{AffinitySeconds: 10800}},
		{"another proxy's, whatever the label says", `metadata: {labels: {service.kubernetes.io/service-proxy-name: ""}}`, service{OtherProxy: true}},
		{"an unknown ipMode is not served", `status: {loadBalancer: {ingress: [{ip: 198.51.100.7, ipMode: vip}]}}`, service{}},
		{"addresses that are none", `
spec: {clusterIPs: ["10.0.0.300", "::ffff:172.30.0.1", 172.30.0.2, "fd30::1"], ipFamilies: [IPv4], externalIPs: [010.0.0.1, "fe80::1%eth0", "2001:db8::1", "2001:db8::0:1"]}`,
			service{ClusterIPs: addrs("172.30.0.1"), ExternalIPs: addrs("2001:db8::1"), Families: []string{"IPv4"}, Dropped: []string{
				`spec.clusterIPs: "10.0.0.300" is no IP address`,
				`spec.clusterIPs: 172.30.0.2 is the second one of its family`,
				`spec.clusterIPs: fd30::1 is of no family in spec.ipFamilies`,
				`spec.externalIPs: "010.0.0.1" is no IP address`,
				`spec.externalIPs: "fe80::1%eth0" is no IP address`}}},
		{"ranges that are none stay closed", `spec: {loadBalancerSourceRanges: ["", 10.0.0.1, "::ffff:10.0.0.0/8", "::ffff:10.1.0.0/112"]}`,
			service{Restricted: true, SourceRanges: prefixes("10.1.0.0/16"), Dropped: []string{
				`spec.loadBalancerSourceRanges: "" is no range of addresses`,
				`spec.loadBalancerSourceRanges: "10.0.0.1" is no range of addresses`,
				`spec.loadBalancerSourceRanges: "::ffff:10.0.0.0/8" is no range of addresses`}}},
		{"ranges of the annotation", `{metadata: {annotations: {service.beta.kubernetes.io/load-balancer-source-ranges: " 10.0.0.0/8, 10.0.0.1"}}, spec: {type: LoadBalancer}}`,
			service{Type: "LoadBalancer", Restricted: true, SourceRanges: prefixes("10.0.0.0/8"), Dropped: []string{
				`service.beta.kubernetes.io/load-balancer-source-ranges: " 10.0.0.1" is no range of addresses`}}},
		{"ranges of the annotation and the field", `
metadata: {annotations: {service.beta.kubernetes.io/load-balancer-source-ranges: "10.0.0.0/8"}}
spec: {type: LoadBalancer, loadBalancerSourceRanges: [192.168.0.0/24]}`,
			service{Type: "LoadBalancer", Restricted: true, SourceRanges: prefixes("192.168.0.0/24")}},
		{"an empty annotation restricts nobody", `{metadata: {annotations: {service.beta.kubernetes.io/load-balancer-source-ranges: " "}}, spec: {type: LoadBalancer}}`,
			service{Type: "LoadBalancer"}},
		{"the annotation of another type", `{metadata: {annotations: {service.beta.kubernetes.io/load-balancer-source-ranges: "10.0.0.0/8"}}, spec: {type: ClusterIP}}`,
			service{Type: "ClusterIP"}},
		{"ports", `
spec:
  healthCheckNodePort: -1
  ports:
  - {name: a, port: 0}
  - {name: b, port: 65536}
  - {name: c, port: 80, protocol: ICMP}
  - {name: d, port: 80, nodePort: 70000}
  - {name: d, port: 81}
  - {name: e, port: 80}
  - {name: f, port: 82, nodePort: 30082}
  - {name: g, port: 83, nodePort: 30082}`,
			service{Ports: []servicePort{{"d", "TCP", 80, 0}, {"f", "TCP", 82, 30082}, {"g", "TCP", 83, 0}}, Dropped: []string{
				"spec.ports[0].port: invalid port 0", "spec.ports[1].port: invalid port 65536", `spec.ports[2].protocol: unknown protocol "ICMP"; use TCP, UDP or SCTP`,
				"spec.ports[3].nodePort: invalid port 70000", "spec.ports[4]: there is another port with this name or number",
				"spec.ports[5]: there is another port with this name or number", "spec.ports[7].nodePort: another port has it",
				"spec.healthCheckNodePort: invalid port -1"}}},
		{"affinity without end", `spec: {sessionAffinity: ClientIP, sessionAffinityConfig: {clientIP: {timeoutSeconds: 2147483647}}}`,
			service{AffinitySeconds: 86400, Dropped: []string{"spec.sessionAffinityConfig.clientIP.timeoutSeconds: 2147483647 is above 86400: that is used"}}},
		{"affinity without beginning", `spec: {sessionAffinity: ClientIP, sessionAffinityConfig: {clientIP: {timeoutSeconds: 0}}}`,
			service{AffinitySeconds: 10800, Dropped: []string{"spec.sessionAffinityConfig.clientIP.timeoutSeconds: 0 is not above 0: 10800 is used"}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			if d := cmp.Diff(c.want, readService(manifest[corev1.Service](t, c.text), []string{"tier"}, DefaultAnnotationPrefix), exact, unexported); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
		})
	}
}

func TestReadSlice(t *testing.T) {
	const head = `
metadata: {namespace: shop, name: web-1, labels: {kubernetes.io/service-name: web}, annotations: {endpoints.kubernetes.io/last-change-trigger-time: "2026-03-01T12:00:00Z"}}
`
	id := slice{key: key{"shop", "web-1"}, Service: "web", Triggered: made}
	for _, c := range []struct {
		name, text string
		want       slice
	}{
		{"every field", head + `
addressType: IPv4
ports: [{name: http, port: 8080, protocol: TCP}, {name: "", port: 53, protocol: UDP}, {name: x, port: 1}]
endpoints:
- {addresses: [10.0.0.1, 10.0.0.2], nodeName: n1, zone: a, conditions: {ready: true, serving: true, terminating: false}, hints: {forZones: [{name: a}, {name: b}], forNodes: [{name: n1}]}}
- {addresses: [10.0.0.3], conditions: {ready: false, serving: true, terminating: true}}
- {addresses: [10.0.0.4]}`,
			slice{Ports: []slicePort{{"http", "TCP", 8080}, {"", "UDP", 53}, {"x", "TCP", 1}}, Endpoints: []endpoint{
				{Addr: addrs("10.0.0.1")[0], Node: "n1", Zone: "a", Ready: true, Serving: true, Hints: &hints{[]string{"a", "b"}, []string{"n1"}}},
				{Addr: addrs("10.0.0.3")[0], Serving: true, Terminating: true},
				{Addr: addrs("10.0.0.4")[0], Ready: true, Serving: true}}}},
		{"an owner", strings.Replace(head, "{namespace", `{ownerReferences: [{apiVersion: v1, kind: Node, name: web, uid: n}, {apiVersion: v1, kind: Service, name: web, uid: u}, {apiVersion: v1, kind: Service, name: other, uid: o}], namespace`, 1) + `
addressType: IPv4`, slice{Owner: "u"}},
		{"names instead of addresses", head + `
addressType: FQDN
endpoints: [{addresses: [a.example]}]`,
			slice{Dropped: []string{`addressType "FQDN" has no IP addresses`}}},
		{"ports that say nothing", head + `
addressType: IPv6
ports: [{port: 80}, {name: all}, {name: zero, port: 0}, {name: q, port: 443, protocol: QUIC}]`,
			slice{Dropped: []string{"ports[0] has no name or no number", "ports[1] has no name or no number", "ports[2].port: invalid port 0", `ports[3].protocol: unknown protocol "QUIC"; use TCP, UDP or SCTP`}}},
		{"addresses that are nobody's", head + `
addressType: IPv4
endpoints: [{addresses: []}, {}, {addresses: ["fd00::1"]}, {addresses: ["::ffff:10.0.0.1"]}, {addresses: [127.0.0.1]}, {addresses: [169.254.169.254]}, {addresses: [0.0.0.0]}, {addresses: [224.0.0.1]}, {addresses: [10.0.0.1]}, {addresses: [x]}]`,
			slice{Endpoints: []endpoint{{Addr: addrs("10.0.0.1")[0], Ready: true, Serving: true}}, Dropped: []string{
				"endpoints[0] has no address", "endpoints[1] has no address", `endpoints[2]: "fd00::1" is no IPv4 address`, `endpoints[3]: "::ffff:10.0.0.1" is no IPv4 address`,
				"endpoints[4]: 127.0.0.1 is a loopback address", "endpoints[5]: 169.254.169.254 is a link-local address", "endpoints[6]: 0.0.0.0 is the unspecified address",
				"endpoints[7]: 224.0.0.1 is a multicast address", "and 1 more"}}},
		{"IPv6", head + `
addressType: IPv6
endpoints: [{addresses: ["FD00::1"]}, {addresses: ["2001:db8::1%eth0"]}, {addresses: ["::1"]}, {addresses: ["::ffff:10.0.0.1"]}]`,
			slice{Endpoints: []endpoint{{Addr: addrs("fd00::1")[0], Ready: true, Serving: true}}, Dropped: []string{
				`endpoints[1]: "2001:db8::1%eth0" is no IPv6 address`, "endpoints[2]: ::1 is a loopback address", `endpoints[3]: "::ffff:10.0.0.1" is no IPv6 address`}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			c.want.key, c.want.Service, c.want.Triggered = id.key, id.Service, id.Triggered
			if d := cmp.Diff(c.want, readSlice(manifest[discoveryv1.EndpointSlice](t, c.text)), exact, unexported); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
		})
	}
}

// kube-proxy ignores the slices of headless Services, and those for other proxies.
func TestIgnoredSlicesHaveNoService(t *testing.T) {
	selector := (&Config{}).resources()[1].labels
	for _, label := range []string{"service.kubernetes.io/headless", "service.kubernetes.io/service-proxy-name"} {
		s := manifest[discoveryv1.EndpointSlice](t, `{metadata: {labels: {kubernetes.io/service-name: web, `+label+`: ""}}, addressType: IPv4}`)
		if got := readSlice(s); got.Service != "" || !slices.Contains(strings.Split(selector, ","), "!"+label) {
			t.Errorf("label %s: it is %q's, and the selector is %q", label, got.Service, selector)
		}
	}
}

func TestReadNode(t *testing.T) {
	const text = `
metadata: {name: n1, labels: {topology.kubernetes.io/zone: a}}
spec: {podCIDR: 10.180.0.0/24, podCIDRs: [10.180.0.0/24, "fd00::/64", x]}
status:
  addresses: [{type: Hostname, address: n1}, {type: InternalIP, address: 192.168.0.1}, {type: ExternalIP, address: 198.51.100.1}, {type: InternalIP, address: "fd01::1"}, {type: InternalIP, address: ""}]
  conditions: [{type: DiskPressure, status: "True"}, {type: Ready, status: "%s"}]`
	want := node{Name: "n1", Zone: "a", InternalIPs: addrs("192.168.0.1", "fd01::1"), ExternalIPs: addrs("198.51.100.1"),
		PodCIDRs: prefixes("10.180.0.0/24", "fd00::/64"), Dropped: []string{`spec.podCIDRs: "x" is no range of addresses`, `status.addresses: "" is no IP address`}}
	for status, ready := range map[string]bool{"True": true, "False": false, "Unknown": false, "": false} {
		want.Ready = ready
		if d := cmp.Diff(want, readNode(manifest[corev1.Node](t, fmt.Sprintf(text, status))), exact, unexported); d != "" {
			t.Errorf("Ready %s (-want +got):\n%s", status, d)
		}
	}
}

func TestNodesThatTakeNoTraffic(t *testing.T) {
	for name, text := range map[string]string{
		"label":    `{metadata: {labels: {node.kubernetes.io/exclude-from-external-load-balancers: "false"}}}`,
		"deletion": `{metadata: {deletionTimestamp: "2026-03-01T12:00:00Z"}}`,
		"taint":    `{spec: {taints: [{key: ToBeDeletedByClusterAutoscaler, effect: NoSchedule}]}}`,
	} {
		n := readNode(manifest[corev1.Node](t, text))
		if !n.Excluded {
			t.Errorf("%s: not excluded", name)
		}
		if leaving := name != "label"; n.Leaving != leaving || n.equal(&node{Excluded: true, Leaving: !leaving}) {
			t.Errorf("%s: leaving %v", name, n.Leaving)
		}
	}
	if readNode(manifest[corev1.Node](t, `{spec: {unschedulable: true, taints: [{key: x}]}}`)).Excluded {
		t.Error("a cordoned node still serves what it has")
	}
}

func TestNilIsReadAsZero(t *testing.T) {
	if got := readService(nil, nil, DefaultAnnotationPrefix); !got.equal(&service{}) {
		t.Errorf("%+v", got)
	}
	if got := readSlice(nil); !got.equal(&slice{}) {
		t.Errorf("%+v", got)
	}
	if got := readNode(nil); !got.equal(&node{}) {
		t.Errorf("%+v", got)
	}
}

// What is too much is cut, and the text of a tenant with it.
func TestReadingIsLimited(t *testing.T) {
	svc := &corev1.Service{}
	svc.Annotations = map[string]string{"weir/drain-timeout": strings.Repeat("1", maxAnnotation+1)}
	for i := range 3 * maxPorts {
		svc.Spec.Ports = append(svc.Spec.Ports, corev1.ServicePort{Name: fmt.Sprint(i), Port: int32(i + 1)})
		svc.Spec.ExternalIPs = append(svc.Spec.ExternalIPs, fmt.Sprintf("203.0.%d.%d", i/256, i%256))
		svc.Spec.LoadBalancerSourceRanges = append(svc.Spec.LoadBalancerSourceRanges, strings.Repeat("y", i))
		svc.Annotations[fmt.Sprintf("weir/%d", i)] = "x"
	}
	got := readService(svc, nil, DefaultAnnotationPrefix)
	if len(got.Ports) != maxPorts || len(got.ExternalIPs) != maxVIPs || len(got.SourceRanges) > 0 || !got.Restricted || len(got.Annotations) != maxAnnotations || len(got.Dropped) != maxDropped+1 {
		t.Errorf("%d ports, %d external IPs, %d ranges, %d annotations, %d dropped", len(got.Ports), len(got.ExternalIPs), len(got.SourceRanges), len(got.Annotations), len(got.Dropped))
	}
	for _, d := range got.Dropped {
		if len(d) > 200 {
			t.Errorf("%d bytes: %s", len(d), d)
		}
	}
	big := &discoveryv1.EndpointSlice{AddressType: discoveryv1.AddressTypeIPv4}
	for i := range 300_000 {
		big.Endpoints = append(big.Endpoints, discoveryv1.Endpoint{Addresses: []string{fmt.Sprintf("10.%d.%d.%d", i>>16, i>>8&255, i&255)}})
	}
	if got := readSlice(big); len(got.Endpoints) != maxEndpoints || len(got.Dropped) != 1 {
		t.Errorf("%d endpoints, dropped %q", len(got.Endpoints), got.Dropped)
	}
}

// A change of a field that equal ignores would never be served.
func TestEveryFieldOfAnObjectCounts(t *testing.T) {
	uncounted := []string{"slice.Triggered", "service.Version"}
	for _, c := range []struct {
		zero  func() any
		equal func(a, b any) bool
	}{
		{func() any { return &service{} }, func(a, b any) bool { return a.(*service).equal(b.(*service)) }},
		{func() any { return &slice{} }, func(a, b any) bool { return a.(*slice).equal(b.(*slice)) }},
		{func() any { return &endpoint{} }, func(a, b any) bool { return a.(*endpoint).equal(*b.(*endpoint)) }},
		{func() any { return &hints{} }, func(a, b any) bool { return a.(*hints).equal(b.(*hints)) }},
		{func() any { return &node{} }, func(a, b any) bool { return a.(*node).equal(b.(*node)) }},
	} {
		typ := reflect.TypeOf(c.zero()).Elem()
		for i := range typ.NumField() {
			name := typ.Name() + "." + typ.Field(i).Name
			changed := c.zero()
			field := reflect.ValueOf(changed).Elem().Field(i)
			if typ.Field(i).Anonymous {
				field = reflect.NewAt(field.Type(), field.Addr().UnsafePointer()).Elem().Field(0)
			}
			fill(t, field)
			counts := true
			for _, u := range uncounted {
				counts = counts && u != name
			}
			if c.equal(c.zero(), changed) == counts {
				t.Errorf("%s: equal says %v", name, !counts)
			}
		}
	}
}

// fill gives a field some value.
func fill(t *testing.T, v reflect.Value) {
	t.Helper()
	switch v.Kind() {
	case reflect.String:
		v.SetString("x")
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int:
		v.SetInt(1)
	case reflect.Uint16:
		v.SetUint(1)
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
	case reflect.Map:
		v.Set(reflect.ValueOf(map[string]string{"x": "y"}))
	case reflect.Pointer:
		v.Set(reflect.ValueOf(&hints{ForZones: []string{"a"}}))
	case reflect.Struct:
		if v.Type() == reflect.TypeFor[condition]() {
			v.Set(reflect.ValueOf(condition{Status: "True"}))
			return
		}
		if v.Type() == reflect.TypeFor[time.Time]() {
			v.Set(reflect.ValueOf(made))
			return
		}
		v.Set(reflect.ValueOf(addrs("10.0.0.1")[0]))
	default:
		t.Fatalf("no value for %s", v.Type())
	}
}
