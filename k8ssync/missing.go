package k8ssync

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"weir/lb"
)

// The keys of a box outside the cluster without which it may not serve anything.
const (
	endpointRanges     = "endpoint_ranges"
	loadBalancerRanges = "load_balancer_ranges"
)

// maxExamples limits the ranges of a missing key.
const maxExamples = 8

// missing returns the keys that are not set, so that objects of o are not used. Each has the
// ranges of some of these objects, sorted, for the operator to check and to set.
func (e *env) missing(o *objects) map[string][]netip.Prefix {
	out := map[string][]netip.Prefix{}
	if e.onNode() {
		return out
	}
	seen := ranges{}
	if e.cfg.Reach == Pods && len(e.cfg.EndpointRanges) == 0 && e.pods.empty() {
		for _, s := range o.slices {
			for _, ep := range s.Endpoints {
				seen.add(ep.Addr, 16)
			}
		}
	}
	seen.to(out, endpointRanges)
	if seen = (ranges{}); e.cfg.Kinds[lb.LoadBalancer] && len(e.cfg.LoadBalancerRanges) == 0 {
		for k := range e.unlisted {
			svc := o.services[k]
			t := translator{svc: svc, env: e}
			if svc.Type != "LoadBalancer" || !t.served() || !t.ofClass() {
				continue
			}
			for _, a := range svc.Ingress {
				if !e.permitsIngress(a, svc) && e.refuses(a, lb.LoadBalancer, k) == "" {
					seen.add(a, 24)
				}
			}
		}
	}
	seen.to(out, loadBalancerRanges)
	return out
}

// ranges are ranges of addresses.
type ranges map[netip.Prefix]struct{}

// add adds the range of an address, with so many bits for IPv4.
func (r ranges) add(a netip.Addr, bits int) {
	if a.Is6() {
		bits = 64
	}
	if p, err := a.Prefix(bits); err == nil {
		r[p] = struct{}{}
	}
}

// to sets a key to the first ranges, if there are any.
func (r ranges) to(out map[string][]netip.Prefix, key string) {
	if len(r) > 0 {
		out[key] = slices.SortedFunc(maps.Keys(r), netip.Prefix.Compare)[:min(len(r), maxExamples)]
	}
}

// unknownPods returns an error if endpoints are not used because the Nodes have no pod CIDRs.
func unknownPods(missing map[string][]netip.Prefix) error {
	var texts []string
	for _, p := range missing[endpointRanges] {
		texts = append(texts, strconv.Quote(p.String()))
	}
	if len(texts) == 0 {
		return nil
	}
	return fmt.Errorf("the Nodes have no pod CIDRs, so no endpoint is used: add the ranges of the pods to [[kubernetes]], "+
		"for example (from the present endpoints): endpoint_ranges = [%s]", strings.Join(texts, ", "))
}
