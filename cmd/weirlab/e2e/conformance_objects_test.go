package e2e

import (
	"fmt"
	"maps"
	"net/netip"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// Objects of the API, in short forms.

// object is a Service with its status, or an EndpointSlice.
type object struct {
	service *corev1.Service
	slice   *discoveryv1.EndpointSlice
}

// option is a property of an object.
type option func(*object)

const kubeNamespace = "default"

// madeHere selects the objects of checks.
const madeHere = discoveryv1.LabelManagedBy + "=conformance"

// kubeService makes a Service; without ports("...") it has port 80/tcp.
func kubeService(name string, options ...option) object {
	o := object{service: &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: kubeNamespace, Labels: map[string]string{discoveryv1.LabelManagedBy: "conformance"}},
		Spec:       corev1.ServiceSpec{Type: corev1.ServiceTypeClusterIP},
	}}
	return o.with(options)
}

func (o object) with(options []option) object {
	ports("80/tcp")(&o)
	for _, set := range options {
		set(&o)
	}
	return o
}

// kubeEndpoints makes the EndpointSlice of a Service: "L1 R2:terminating". What may
// follow a name: terminating (and serving), gone (terminating, not serving),
// unready, published (ready by publishNotReadyAddresses while it terminates),
// zone=NAME and node=NAME (topology hints); several with commas.
func kubeEndpoints(service, spec string, options ...option) object {
	return kubeSlice(service, service, spec, options...)
}

// kubeEndpoints6 is the same with the endpoints' IPv6 addresses.
func kubeEndpoints6(service, spec string) object {
	o := kubeSlice(service+"-6", service, spec)
	o.slice.AddressType = discoveryv1.AddressTypeIPv6
	for i, word := range strings.Fields(spec) {
		name, _, _ := strings.Cut(word, ":")
		o.slice.Endpoints[i].Addresses = []string{backendAddr(name, true)}
	}
	return o
}

// kubeSlice makes one more EndpointSlice of a Service.
func kubeSlice(name, service, spec string, options ...option) object {
	o := object{slice: &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: kubeNamespace, Labels: map[string]string{
			discoveryv1.LabelServiceName: service, discoveryv1.LabelManagedBy: "conformance",
		}},
		AddressType: discoveryv1.AddressTypeIPv4,
	}}
	for word := range strings.FieldsSeq(spec) {
		o.slice.Endpoints = append(o.slice.Endpoints, endpointOf(word))
	}
	return o.with(options)
}

func endpointOf(word string) discoveryv1.Endpoint {
	name, more, _ := strings.Cut(word, ":")
	node := nodeName
	if name[0] == 'R' || name == "S1" {
		node = "other"
	}
	yes, no := true, false
	e := discoveryv1.Endpoint{Addresses: []string{backendAddr(name, false)}, NodeName: &node}
	e.Conditions = discoveryv1.EndpointConditions{Ready: &yes, Serving: &yes, Terminating: &no}
	for what := range strings.SplitSeq(more, ",") {
		kind, value, _ := strings.Cut(what, "=")
		switch kind {
		case "terminating":
			e.Conditions = discoveryv1.EndpointConditions{Ready: &no, Serving: &yes, Terminating: &yes}
		case "gone":
			e.Conditions = discoveryv1.EndpointConditions{Ready: &no, Serving: &no, Terminating: &yes}
		case "unready":
			e.Conditions = discoveryv1.EndpointConditions{Ready: &no, Serving: &no, Terminating: &no}
		case "published":
			e.Conditions = discoveryv1.EndpointConditions{Ready: &yes, Serving: &no, Terminating: &yes}
		case "zone":
			e.Zone = &value
			e.Hints = hintsOf(e.Hints)
			e.Hints.ForZones = append(e.Hints.ForZones, discoveryv1.ForZone{Name: value})
		case "node":
			e.Hints = hintsOf(e.Hints)
			e.Hints.ForNodes = append(e.Hints.ForNodes, discoveryv1.ForNode{Name: value})
		}
	}
	return e
}

func hintsOf(h *discoveryv1.EndpointHints) *discoveryv1.EndpointHints {
	if h == nil {
		return &discoveryv1.EndpointHints{}
	}
	return h
}

// backendAddr is the address of L1, R5 and so on.
func backendAddr(name string, six bool) string {
	net4, net6 := "10.180.2.", "fd00:10:180:2::"
	switch name[0] {
	case 'R':
		net4, net6 = "10.180.0.", "fd00:10:180::"
	case 'S':
		net4, net6 = "10.180.4.", "fd00:10:180:4::"
	}
	if six {
		return net6 + name[1:]
	}
	return net4 + name[1:]
}

// ports are "80/tcp" or "443:8443/tcp", a Service's port and the endpoints'.
func ports(specs ...string) option {
	return func(o *object) {
		if o.service != nil {
			o.service.Spec.Ports = nil
		} else {
			o.slice.Ports = nil
		}
		for _, spec := range specs {
			numbers, proto, _ := strings.Cut(spec, "/")
			from, to, other := strings.Cut(numbers, ":")
			if !other {
				to = from
			}
			name, protocol := "p"+from+proto, corev1.Protocol(strings.ToUpper(proto))
			port, _ := strconv.Atoi(from)
			target, _ := strconv.Atoi(to)
			if o.service != nil {
				o.service.Spec.Ports = append(o.service.Spec.Ports, corev1.ServicePort{
					Name: name, Protocol: protocol, Port: int32(port), TargetPort: intstr.FromInt32(int32(target))})
				continue
			}
			number := int32(target)
			o.slice.Ports = append(o.slice.Ports, discoveryv1.EndpointPort{Name: &name, Protocol: &protocol, Port: &number})
		}
	}
}

// clusterIP gives a Service its ClusterIPs, one or one a family.
func clusterIP(addrs ...string) option {
	return func(o *object) {
		spec := &o.service.Spec
		spec.ClusterIP, spec.ClusterIPs = addrs[0], addrs
		policy := corev1.IPFamilyPolicySingleStack
		if len(addrs) > 1 {
			policy = corev1.IPFamilyPolicyRequireDualStack
		}
		spec.IPFamilyPolicy = &policy
		for _, a := range addrs {
			family := corev1.IPv4Protocol
			if netip.MustParseAddr(a).Is6() {
				family = corev1.IPv6Protocol
			}
			spec.IPFamilies = append(spec.IPFamilies, family)
		}
	}
}

func externalIPs(addrs ...string) option {
	return func(o *object) { o.service.Spec.ExternalIPs = addrs }
}

// nodePort makes it of type NodePort, if it is not a LoadBalancer; its first port
// has the number.
func nodePort(number int32) option {
	return func(o *object) {
		if o.service.Spec.Type == corev1.ServiceTypeClusterIP {
			o.service.Spec.Type = corev1.ServiceTypeNodePort
		}
		o.service.Spec.Ports[0].NodePort = number
	}
}

func loadBalancer(addrs ...string) option {
	return func(o *object) {
		o.service.Spec.Type = corev1.ServiceTypeLoadBalancer
		for _, a := range addrs {
			o.service.Status.LoadBalancer.Ingress = append(o.service.Status.LoadBalancer.Ingress, corev1.LoadBalancerIngress{IP: a})
		}
	}
}

func loadBalancerMode(addr string, mode corev1.LoadBalancerIPMode) option {
	return func(o *object) {
		loadBalancer(addr)(o)
		o.service.Status.LoadBalancer.Ingress[0].IPMode = &mode
	}
}

func ranges(cidrs ...string) option {
	return func(o *object) { o.service.Spec.LoadBalancerSourceRanges = cidrs }
}

// healthCheckPort chooses the port, from 30000 to 30085. The API server takes ports at random
// from the others (KEP-3668), and so at times the chosen one for the same Service.
func healthCheckPort(number int32) option {
	return func(o *object) { o.service.Spec.HealthCheckNodePort = number }
}

func externalLocal(o *object) {
	o.service.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal
}

func internalLocal(o *object) {
	policy := corev1.ServiceInternalTrafficPolicyLocal
	o.service.Spec.InternalTrafficPolicy = &policy
}

func publishNotReady(o *object) { o.service.Spec.PublishNotReadyAddresses = true }

func affinity(seconds int32) option {
	return func(o *object) {
		o.service.Spec.SessionAffinity = corev1.ServiceAffinityClientIP
		o.service.Spec.SessionAffinityConfig = &corev1.SessionAffinityConfig{ClientIP: &corev1.ClientIPConfig{TimeoutSeconds: &seconds}}
	}
}

func externalName(name string) option {
	return func(o *object) {
		o.service.Spec = corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: name}
	}
}

// drains has connections of the Service's removed backends live on for so long.
func drains(duration string) option { return annotated("drain-timeout", duration) }

// annotated gives a Service an annotation of weir.
func annotated(name, value string) option {
	return func(o *object) {
		if o.service.Annotations == nil {
			o.service.Annotations = map[string]string{}
		}
		o.service.Annotations["lb.example.com/"+name] = value
	}
}

// labelled adds a label, with an empty value if it has no other.
func labelled(label string) option {
	return func(o *object) {
		var meta *metav1.ObjectMeta
		if o.service != nil {
			meta = &o.service.ObjectMeta
		} else {
			meta = &o.slice.ObjectMeta
		}
		meta.Labels = maps.Clone(meta.Labels)
		if meta.Labels == nil {
			meta.Labels = map[string]string{}
		}
		meta.Labels[label] = "other"
	}
}

func (o object) String() string {
	if o.service != nil {
		return fmt.Sprintf("service %s", o.service.Name)
	}
	return fmt.Sprintf("slice %s", o.slice.Name)
}
