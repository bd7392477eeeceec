package k8ssync

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"unique"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"weir/k8ssync/ipam"
)

// Reading never fails: of any object, even one that was stored past the validation of the
// API server, the valid parts are read. These limits are above those of the API, or above
// any practical use, and prevent that one object takes the memory of all.
const (
	maxDropped     = 8
	maxVIPs        = 64   // of each kind, of one Service
	maxPorts       = 1024 // of a Service or an EndpointSlice
	maxRanges      = 1024 // source ranges: each takes a place in a set, times the frontends
	maxEndpoints   = 1000 // of an EndpointSlice, as its API has it
	maxHints       = 64
	maxAnnotations = 16
	maxAnnotation  = 4096 // bytes
	maxMessage     = 1024 // bytes, of a condition
	maxAddress     = 64   // bytes, of spec.loadBalancerIP
	maxNodeAddrs   = 64
)

// conditionName is the type, without the prefix, of weir's condition in the status of
// Services to which it assigns addresses: weir has written that status.
const conditionName = "LoadBalancer"

// What the API calls things, where client libraries have no constant.
const (
	labelOtherProxy = "service.kubernetes.io/service-proxy-name"
	// taintScaledDown is what the cluster autoscaler puts on a node that it is
	// about to delete.
	taintScaledDown = "ToBeDeletedByClusterAutoscaler"
	// defaultAffinity is that of sessionAffinityConfig, maxAffinity its limit: a
	// day.
	defaultAffinity = 10800
	maxAffinity     = 86400
)

// reader reads one object.
type reader struct {
	dropped []string
	more    int
}

// drop records a value that is left out.
func (r *reader) drop(format string, args ...any) {
	if len(r.dropped) == maxDropped {
		r.more++
		return
	}
	r.dropped = append(r.dropped, fmt.Sprintf(format, args...))
}

func (r *reader) report() []string {
	if r.more > 0 {
		return append(r.dropped, fmt.Sprintf("and %d more", r.more))
	}
	return r.dropped
}

// bounded limits a list to n elements, and records the rest.
func bounded[T any](r *reader, list []T, n int, field string) []T {
	if len(list) <= n {
		return list
	}
	r.drop("%s has %d elements: the first %d are used", field, len(list), n)
	return list[:n]
}

// intern returns a string that shares its memory with equal ones of about the same
// age: the names of a few nodes, zones and ports come with every endpoint.
func intern(s string) string { return unique.Make(s).Value() }

// addr reads an address, unmapped.
func (r *reader) addr(field, s string) (netip.Addr, bool) {
	a, err := netip.ParseAddr(s)
	if err != nil || a.Zone() != "" {
		r.drop("%s: %.64q is no IP address", field, s)
		return netip.Addr{}, false
	}
	return a.Unmap(), true
}

// addrs reads addresses, each once.
func (r *reader) addrs(field string, texts []string, most int) []netip.Addr { //nolint:unparam // the limits are alike by chance
	var out []netip.Addr
	for _, s := range bounded(r, texts, most, field) {
		if a, ok := r.addr(field, s); ok && !slices.Contains(out, a) {
			out = append(out, a)
		}
	}
	return out
}

// prefixes reads ranges, masked and sorted, each once.
func (r *reader) prefixes(field string, texts []string, most int) []netip.Prefix {
	var out []netip.Prefix
	for _, s := range bounded(r, texts, most, field) {
		p, err := netip.ParsePrefix(strings.TrimSpace(s))
		if err == nil && p.Addr().Is4In6() {
			p = netip.PrefixFrom(p.Addr().Unmap(), p.Bits()-96)
		}
		if err != nil || !p.IsValid() {
			r.drop("%s: %.64q is no range of addresses", field, s)
			continue
		}
		out = append(out, p.Masked())
	}
	slices.SortFunc(out, netip.Prefix.Compare)
	return slices.Compact(out)
}

// port reads a port number.
func (r *reader) port(field string, n int32) (uint16, bool) {
	if n < 1 || n > 65535 {
		r.drop("%s: invalid port %d", field, n)
		return 0, false
	}
	return uint16(n), true
}

// proto reads a protocol; none is TCP, as the API server has it.
func (r *reader) proto(field string, p corev1.Protocol) (string, bool) {
	switch p {
	case "":
		return string(corev1.ProtocolTCP), true
	case corev1.ProtocolTCP, corev1.ProtocolUDP, corev1.ProtocolSCTP:
		return intern(string(p)), true
	}
	r.drop("%s: unknown protocol %.64q; use TCP, UDP or SCTP", field, string(p))
	return "", false
}

// readService reads a Service, with the labels of these keys and the annotations with a
// prefix.
func readService(in *corev1.Service, labels []string, prefix string) service {
	if in == nil {
		return service{}
	}
	var r reader
	spec := &in.Spec
	_, otherProxy := in.Labels[labelOtherProxy]
	out := service{
		key:           key{in.Namespace, in.Name},
		UID:           string(in.UID),
		Version:       in.ResourceVersion,
		Created:       in.CreationTimestamp.UTC(),
		Deleting:      in.DeletionTimestamp != nil,
		Type:          intern(string(spec.Type)),
		OtherProxy:    otherProxy,
		ClusterIPs:    r.clusterIPs(spec),
		ExternalIPs:   r.addrs("spec.externalIPs", spec.ExternalIPs, maxVIPs),
		Condition:     readCondition(in.Status.Conditions, prefix+conditionName),
		Asked:         cut(strings.TrimSpace(spec.LoadBalancerIP), maxAddress),
		Families:      families(spec.IPFamilies),
		Labels:        chosen(in.Labels, labels),
		Selector:      ipam.SelectorText(spec.Selector),
		Ports:         r.servicePorts(spec.Ports),
		ExternalLocal: spec.ExternalTrafficPolicy == corev1.ServiceExternalTrafficPolicyLocal,
		InternalLocal: spec.InternalTrafficPolicy != nil && *spec.InternalTrafficPolicy == corev1.ServiceInternalTrafficPolicyLocal,
		Annotations:   r.annotations(in.Annotations, prefix),
	}
	field, ranges := sourceRanges(in)
	out.SourceRanges, out.Restricted = r.prefixes(field, ranges, maxRanges), len(ranges) > 0
	r.ingress(in.Status.LoadBalancer.Ingress, &out)
	if spec.IPFamilyPolicy != nil {
		out.FamilyPolicy = intern(string(*spec.IPFamilyPolicy))
	}
	if spec.LoadBalancerClass != nil {
		out.LoadBalancerClass = intern(*spec.LoadBalancerClass)
	}
	if spec.SessionAffinity == corev1.ServiceAffinityClientIP {
		out.AffinitySeconds = r.affinity(spec.SessionAffinityConfig)
	}
	if spec.HealthCheckNodePort != 0 {
		out.HealthCheckNodePort, _ = r.port("spec.healthCheckNodePort", spec.HealthCheckNodePort)
	}
	out.Dropped = r.report()
	return out
}

// sourceRanges returns the ranges of clients that a Service admits, and the field that has
// them. The annotation is older than the field, which takes precedence, and cloud
// controllers still honour it (k8s.io/cloud-provider, service/helpers).
func sourceRanges(in *corev1.Service) (field string, ranges []string) {
	annotated := strings.TrimSpace(in.Annotations[corev1.AnnotationLoadBalancerSourceRangesKey])
	if len(in.Spec.LoadBalancerSourceRanges) > 0 || annotated == "" || in.Spec.Type != corev1.ServiceTypeLoadBalancer {
		return "spec.loadBalancerSourceRanges", in.Spec.LoadBalancerSourceRanges
	}
	return corev1.AnnotationLoadBalancerSourceRangesKey, strings.Split(annotated, ",")
}

// clusterIPs are those of spec.clusterIPs, or spec.clusterIP from before there
// were several. A headless Service has none.
func (r *reader) clusterIPs(spec *corev1.ServiceSpec) []netip.Addr {
	texts := spec.ClusterIPs
	if len(texts) == 0 && spec.ClusterIP != "" {
		texts = []string{spec.ClusterIP}
	}
	if spec.ClusterIP == corev1.ClusterIPNone || slices.Contains(texts, corev1.ClusterIPNone) {
		return nil
	}
	var out []netip.Addr
	for _, a := range r.addrs("spec.clusterIPs", texts, maxVIPs) {
		family := corev1.IPv4Protocol
		if a.Is6() {
			family = corev1.IPv6Protocol
		}
		switch {
		case len(spec.IPFamilies) > 0 && !slices.Contains(spec.IPFamilies, family):
			r.drop("spec.clusterIPs: %s is of no family in spec.ipFamilies", a)
		case slices.ContainsFunc(out, func(b netip.Addr) bool { return a.Is4() == b.Is4() }):
			r.drop("spec.clusterIPs: %s is the second one of its family", a)
		default:
			out = append(out, a)
		}
	}
	return out
}

// ingress reads status.loadBalancer. Packets to an address of ipMode VIP
// arrive with it; one of ipMode Proxy is usually a proxy's own, which sends to the
// nodes by other addresses (KEP-1860). One with only a host name is not served.
func (r *reader) ingress(in []corev1.LoadBalancerIngress, out *service) {
	var vips, proxied []string
	for _, i := range in {
		out.Named = out.Named || i.Hostname != ""
		switch {
		case i.IP == "":
		case i.IPMode == nil || *i.IPMode == corev1.LoadBalancerIPModeVIP:
			vips = append(vips, i.IP)
		case *i.IPMode == corev1.LoadBalancerIPModeProxy:
			proxied = append(proxied, i.IP)
		}
	}
	const field = "status.loadBalancer.ingress"
	out.Ingress, out.Proxied = r.addrs(field, vips, maxVIPs), r.addrs(field, proxied, maxVIPs)
}

// readCondition finds weir's own condition.
func readCondition(in []metav1.Condition, kind string) condition {
	for _, c := range in {
		if c.Type == kind {
			return condition{intern(string(c.Status)), intern(c.Reason), cut(c.Message, maxMessage), c.LastTransitionTime.UTC()}
		}
	}
	return condition{}
}

// families are those of spec.ipFamilies: one or two.
func families(in []corev1.IPFamily) []string {
	var out []string
	for _, f := range in {
		if (f == corev1.IPv4Protocol || f == corev1.IPv6Protocol) && !slices.Contains(out, string(f)) {
			out = append(out, intern(string(f)))
		}
	}
	return out
}

// chosen are the labels with these keys.
func chosen(labels map[string]string, keys []string) map[string]string {
	var out map[string]string
	for _, k := range keys {
		if v, ok := labels[k]; ok {
			if out == nil {
				out = map[string]string{}
			}
			out[intern(k)] = intern(v)
		}
	}
	return out
}

func (r *reader) servicePorts(in []corev1.ServicePort) []servicePort {
	var out []servicePort
	type name struct{ name, proto string }
	type number struct {
		port  uint16
		proto string
	}
	names, ports, nodePorts := map[name]bool{}, map[number]bool{}, map[number]bool{}
	for i, p := range bounded(r, in, maxPorts, "spec.ports") {
		field := fmt.Sprintf("spec.ports[%d]", i)
		proto, ok := r.proto(field+".protocol", p.Protocol)
		if !ok {
			continue
		}
		port, ok := r.port(field+".port", p.Port)
		if !ok {
			continue
		}
		if names[name{p.Name, proto}] || ports[number{port, proto}] {
			r.drop("%s: there is another port with this name or number", field)
			continue
		}
		names[name{p.Name, proto}], ports[number{port, proto}] = true, true
		one := servicePort{Name: intern(p.Name), Proto: proto, Port: port}
		if p.NodePort != 0 {
			one.NodePort, _ = r.port(field+".nodePort", p.NodePort)
		}
		if n := (number{one.NodePort, proto}); n.port != 0 && nodePorts[n] {
			r.drop("%s.nodePort: another port has it", field)
			one.NodePort = 0
		} else {
			nodePorts[n] = true
		}
		out = append(out, one)
	}
	return out
}

func (r *reader) affinity(c *corev1.SessionAffinityConfig) int {
	if c == nil || c.ClientIP == nil || c.ClientIP.TimeoutSeconds == nil {
		return defaultAffinity
	}
	switch n := *c.ClientIP.TimeoutSeconds; {
	case n < 1:
		r.drop("spec.sessionAffinityConfig.clientIP.timeoutSeconds: %d is not above 0: %d is used", n, defaultAffinity)
		return defaultAffinity
	case n > maxAffinity:
		r.drop("spec.sessionAffinityConfig.clientIP.timeoutSeconds: %d is above %d: that is used", n, maxAffinity)
		return maxAffinity
	default:
		return int(n)
	}
}

// annotations returns those with a prefix, without it.
func (r *reader) annotations(in map[string]string, prefix string) map[string]string {
	var names []string
	for name := range in {
		if strings.HasPrefix(name, prefix) {
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		return nil
	}
	slices.Sort(names)
	out := map[string]string{}
	for _, name := range bounded(r, names, maxAnnotations, "annotations "+prefix) {
		if len(in[name]) > maxAnnotation {
			r.drop("annotation %.64q is longer than %d bytes", name, maxAnnotation)
			continue
		}
		out[strings.TrimPrefix(name, prefix)] = in[name]
	}
	return out
}
