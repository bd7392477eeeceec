package k8ssync

import (
	"fmt"
	"net/netip"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"weir/lb"
)

// readSlice reads an EndpointSlice. That of a headless Service, or for another proxy, has no Service.
func readSlice(in *discoveryv1.EndpointSlice) slice {
	if in == nil {
		return slice{}
	}
	var r reader
	out := slice{key: key{in.Namespace, in.Name}, Service: intern(in.Labels[discoveryv1.LabelServiceName])}
	for _, label := range []string{corev1.IsHeadlessService, labelOtherProxy} {
		if _, ignored := in.Labels[label]; ignored {
			out.Service = ""
		}
	}
	for _, o := range in.OwnerReferences {
		if o.APIVersion == "v1" && o.Kind == "Service" && o.Name == out.Service {
			out.Owner = intern(string(o.UID))
		}
	}
	if text, ok := in.Annotations[corev1.EndpointsLastChangeTriggerTime]; ok {
		out.Triggered, _ = time.Parse(time.RFC3339Nano, text)
	}
	switch in.AddressType {
	case discoveryv1.AddressTypeIPv4, discoveryv1.AddressTypeIPv6:
		out.Ports = r.slicePorts(in.Ports)
		out.Endpoints = r.endpoints(in)
	default:
		r.drop("addressType %.64q has no IP addresses", string(in.AddressType))
	}
	out.Dropped = r.report()
	return out
}

// slicePorts reads the ports of a slice. One without a number means all ports,
// which nothing can balance; the API server gives every port a name, "" if need
// be.
func (r *reader) slicePorts(in []discoveryv1.EndpointPort) []slicePort {
	var out []slicePort
	for i, p := range bounded(r, in, maxPorts, "ports") {
		field := fmt.Sprintf("ports[%d]", i)
		if p.Name == nil || p.Port == nil {
			r.drop("%s has no name or no number", field)
			continue
		}
		var proto corev1.Protocol
		if p.Protocol != nil {
			proto = *p.Protocol
		}
		known, ok := r.proto(field+".protocol", proto)
		if !ok {
			continue
		}
		if port, ok := r.port(field+".port", *p.Port); ok {
			out = append(out, slicePort{intern(*p.Name), known, port})
		}
	}
	return out
}

func (r *reader) endpoints(in *discoveryv1.EndpointSlice) []endpoint {
	family, list := in.AddressType, bounded(r, in.Endpoints, maxEndpoints, "endpoints")
	out := make([]endpoint, 0, len(list))
	for i := range list {
		e := &list[i]
		if len(e.Addresses) == 0 {
			r.drop("endpoints[%d] has no address", i)
			continue
		}
		// The other addresses of an endpoint mean nothing (the API's own comment).
		a, err := netip.ParseAddr(e.Addresses[0])
		if err != nil || a.Zone() != "" || a.Is4In6() || a.Is4() != (family == discoveryv1.AddressTypeIPv4) {
			r.drop("endpoints[%d]: %.64q is no %s address", i, e.Addresses[0], family)
			continue
		}
		if what := lb.Reserved(a, a); what != "" {
			r.drop("endpoints[%d]: %s is %s", i, a, what)
			continue
		}
		read := r.endpoint(e, a)
		read.Pod = isPod(e.TargetRef, in.Namespace)
		out = append(out, read)
	}
	return out
}

// isPod reports whether the target of an endpoint is a Pod of a namespace.
func isPod(target *corev1.ObjectReference, namespace string) bool {
	return target != nil && target.Kind == "Pod" && target.Namespace == namespace && target.Name != "" &&
		(target.APIVersion == "" || target.APIVersion == "v1")
}

func (r *reader) endpoint(e *discoveryv1.Endpoint, a netip.Addr) endpoint {
	is := func(b *bool, absent bool) bool {
		if b == nil {
			return absent
		}
		return *b
	}
	out := endpoint{
		Addr:        a,
		Ready:       is(e.Conditions.Ready, true),
		Serving:     is(e.Conditions.Serving, true),
		Terminating: is(e.Conditions.Terminating, false),
	}
	if e.NodeName != nil {
		out.Node = intern(*e.NodeName)
	}
	if e.Zone != nil {
		out.Zone = intern(*e.Zone)
	}
	if e.Hints != nil && len(e.Hints.ForZones)+len(e.Hints.ForNodes) > 0 {
		out.Hints = &hints{}
		for _, z := range bounded(r, e.Hints.ForZones, maxHints, "hints.forZones") {
			out.Hints.ForZones = append(out.Hints.ForZones, intern(z.Name))
		}
		for _, n := range bounded(r, e.Hints.ForNodes, maxHints, "hints.forNodes") {
			out.Hints.ForNodes = append(out.Hints.ForNodes, intern(n.Name))
		}
	}
	return out
}

// readNode reads a Node.
func readNode(in *corev1.Node) node {
	if in == nil {
		return node{}
	}
	var r reader
	cidrs := in.Spec.PodCIDRs
	if len(cidrs) == 0 && in.Spec.PodCIDR != "" {
		cidrs = []string{in.Spec.PodCIDR}
	}
	_, excluded := in.Labels[corev1.LabelNodeExcludeBalancers]
	out := node{
		Name:     in.Name,
		Zone:     intern(in.Labels[corev1.LabelTopologyZone]),
		PodCIDRs: r.prefixes("spec.podCIDRs", cidrs, maxNodeAddrs),
		Leaving:  in.DeletionTimestamp != nil || slices.ContainsFunc(in.Spec.Taints, func(t corev1.Taint) bool { return t.Key == taintScaledDown }),
	}
	out.Excluded = excluded || out.Leaving
	texts := map[corev1.NodeAddressType][]string{}
	for _, a := range in.Status.Addresses {
		texts[a.Type] = append(texts[a.Type], a.Address)
	}
	out.InternalIPs = r.addrs("status.addresses", texts[corev1.NodeInternalIP], maxNodeAddrs)
	out.ExternalIPs = r.addrs("status.addresses", texts[corev1.NodeExternalIP], maxNodeAddrs)
	for _, c := range in.Status.Conditions {
		out.Ready = out.Ready || c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	}
	out.Dropped = r.report()
	return out
}
