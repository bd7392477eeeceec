package k8ssync

import (
	"fmt"
	"net/netip"
	"slices"

	"weir/lb"
)

// An account that may write EndpointSlices could direct the traffic of a VIP to any address
// that the box reaches: a kubelet, a router's ssh, the pods of another cluster
// (CVE-2021-25740, and across clusters). A node follows kube-proxy, since its pods reach
// the same addresses anyway, except for the servers that the box needs. A box outside the
// cluster uses only pods.

// An account that can write EndpointSlices can also write a reference to a Pod
// (Config.RequirePodBacked): weir does not watch Pods, since on each box that would be more
// objects than all others together, so it does not check that the Pod has the address. The
// reference excludes endpoints that are no Pods by mistake or by design; only ranges protect
// against an attacker.

// refusesEndpoint returns why an endpoint of a Service can't be used, with the solution; ""
// if it can.
func (e *env) refusesEndpoint(ep endpoint, of key) string {
	if reason := e.refusesTarget(ep.Addr, of); reason != "" {
		return reason
	}
	if e.cfg.RequirePodBacked && !ep.Pod && of != kubernetesService {
		return fmt.Sprintf("its targetRef is no Pod of namespace %.64q, and cluster %s has require_pod_backed: "+
			"use a Service with a selector, or let the operator change that", of.Namespace, e.cfg.Name)
	}
	return ""
}

// refusesTarget returns why an address can't be an endpoint of a Service, with the solution;
// "" if it can.
func (e *env) refusesTarget(a netip.Addr, of key) string {
	if what := e.refused.Peers[a]; what != "" && of != kubernetesService && !(e.onNode() && e.nodeAddrs[a] != "") {
		return fmt.Sprintf("it is the address of %s, which this box needs", what)
	}
	if i := slices.IndexFunc(e.refused.Ranges, func(r Range) bool { return r.Prefix.Contains(a) }); i >= 0 && !e.pods.contains(a) {
		return fmt.Sprintf("it is in %s, a range of the %s", e.refused.Ranges[i].Prefix, e.refused.Ranges[i].What)
	}
	switch {
	case slices.ContainsFunc(e.cfg.EndpointRanges, containing(a)):
		return ""
	case len(e.cfg.EndpointRanges) > 0:
		return fmt.Sprintf("endpoint_ranges of cluster %s do not contain it: only the operator can add it there", e.cfg.Name)
	case e.onNode():
		return ""
	case e.nodeAddrs[a] != "":
		return fmt.Sprintf("it is the address of node %.64q, and endpoint_ranges of cluster %s do not permit it", e.nodeAddrs[a], e.cfg.Name)
	case e.pods.empty():
		return fmt.Sprintf("the Nodes of cluster %s have no pod CIDRs, so weir does not know its pods: set endpoint_ranges", e.cfg.Name)
	case !e.pods.contains(a):
		return fmt.Sprintf("it is in no pod CIDR of the Nodes of cluster %s: if it is a pod, add its range to pod_cidrs or endpoint_ranges", e.cfg.Name)
	}
	return ""
}

// permitEndpoints leaves out the endpoints that may not be those of the Service, and notes
// each address once.
func (t *translator) permitEndpoints() {
	if t.env.cfg.Reach != Pods || t.tunnel {
		return
	}
	noted := map[netip.Addr]bool{}
	from := slices.SortedFunc(slices.Values(t.from), func(a, b *slice) int { return a.compare(b.key) })
	for i, s := range from {
		refused := func(e endpoint) bool { return t.env.refusesEndpoint(e, t.svc.key) != "" }
		if !slices.ContainsFunc(s.Endpoints, refused) {
			continue
		}
		rest := *s
		rest.Endpoints = slices.DeleteFunc(slices.Clone(s.Endpoints), func(e endpoint) bool {
			reason := t.env.refusesEndpoint(e, t.svc.key)
			if reason != "" && !noted[e.Addr] {
				noted[e.Addr] = true
				t.note(lb.NotAllowed, "endpoint %s of EndpointSlice %s is not used: %s", e.Addr, s.Name, reason)
			}
			return reason != ""
		})
		from[i] = &rest
	}
	t.from = from
}

// prefixSet is a set of prefixes, in which a lookup takes a step for each length.
type prefixSet struct {
	of   map[netip.Prefix]struct{}
	bits map[prefixLength]struct{}
}

type prefixLength struct {
	is4  bool
	bits int
}

func newPrefixSet(list []netip.Prefix) prefixSet {
	s := prefixSet{map[netip.Prefix]struct{}{}, map[prefixLength]struct{}{}}
	for _, p := range list {
		s.of[p.Masked()] = struct{}{}
		s.bits[prefixLength{p.Addr().Is4(), p.Bits()}] = struct{}{}
	}
	return s
}

func (s prefixSet) empty() bool { return len(s.of) == 0 }

func (s prefixSet) contains(a netip.Addr) bool {
	for l := range s.bits {
		if l.is4 != a.Is4() {
			continue
		}
		if p, err := a.Prefix(l.bits); err == nil {
			if _, ok := s.of[p]; ok {
				return true
			}
		}
	}
	return false
}
