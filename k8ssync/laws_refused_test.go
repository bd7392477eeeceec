package k8ssync

import (
	"maps"
	"net/netip"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"weir/k8ssync/ipam"
	"weir/lb"
)

// refused are addresses of others: at times of the objects, at times of none.
func (d dice) refused() Refused {
	one := func() netip.Addr {
		for {
			if a, err := netip.ParseAddr(pick(d, d.addr(), "203.0.113.5", "198.51.100.7", d.pod("IPv4"), d.pod("IPv4"), d.pod("IPv6"))); err == nil {
				return a.Unmap()
			}
		}
	}
	r := Refused{Peers: map[netip.Addr]string{}, Backends: map[netip.Addr]string{}}
	for _, a := range some(d, 3, one) {
		r.Peers[a] = "the API server of cluster stage"
	}
	for _, a := range some(d, 2, one) {
		r.Backends[a] = "a backend of static/web"
	}
	r.Ranges = some(d, 2, func() Range {
		return Range{netip.MustParsePrefix(pick(d, "203.0.113.4/31", "198.51.100.0/24", "10.180.0.0/30", "10.180.1.0/24", "fd00::/126", "172.30.0.0/24", "10.64.0.0/12")), "pods of cluster stage"}
	})
	return r
}

// provided are the addresses of one or two small pools.
func (d dice) provided() Provided {
	return Provided{Class: pick(d, "weir/edge", "weir/lb"), DefaultClass: d.chance(60), Ranges: some(d, 3, func() ipam.Range {
		return mustRange(pick(d, "198.51.100.0/24", "198.51.100.4-198.51.100.7", "203.0.113.4-203.0.113.6", "2001:db8:7::/64"))
	})}
}

// refusesVIP is the law of the VIPs that others need: a box that served one would no longer
// reach its owner. The Service of the API server itself may have its address.
func (r Refused) refusesVIP(v lb.VIP, of lb.ServiceID) bool {
	_, peer := r.Peers[v.Addr]
	_, backend := r.Backends[v.Addr]
	if (peer || backend) && v.Kind != lb.NodePort && (of.Namespace != "default" || of.Name != "kubernetes") {
		return true
	}
	return (v.Kind == lb.ExternalIP || v.Kind == lb.LoadBalancer) && r.inRanges(v.Addr)
}

func (r Refused) inRanges(a netip.Addr) bool {
	return slices.ContainsFunc(r.Ranges, func(g Range) bool { return g.Prefix.Contains(a) })
}

// refusesEndpoint is the law of endpoints: none is a server that the box needs, or of another cluster.
func (r Refused) refusesEndpoint(a netip.Addr, of lb.ServiceID, env *env) bool {
	_, peer := r.Peers[a]
	if peer && (of.Namespace != "default" || of.Name != "kubernetes") && !(env.onNode() && env.nodeAddrs[a] != "") {
		return true
	}
	return r.inRanges(a) && !slices.ContainsFunc(env.podCIDRs, containing(a))
}

// refusedAbsent holds that nothing refused is in the output.
func refusedAbsent(t testing.TB, s lb.Service, env *env) {
	t.Helper()
	for _, v := range s.VIPs {
		if env.cfg.Refused.refusesVIP(v, s.ID) {
			t.Errorf("VIP %+v is refused: %+v", v, env.cfg.Refused)
		}
		if (v.Kind == lb.ExternalIP || v.Kind == lb.LoadBalancer) && slices.ContainsFunc(env.cfg.ServiceCIDRs, containing(v.Addr)) {
			t.Errorf("VIP %+v is in %v", v, env.cfg.ServiceCIDRs)
		}
	}
	if env.cfg.Reach != Pods {
		return
	}
	for _, p := range s.Ports {
		for _, b := range p.Backends {
			if b.Forward != lb.Tunnel && env.cfg.Refused.refusesEndpoint(b.Addr.Addr(), s.ID, env) {
				t.Errorf("backend %s is refused: %+v", b.Addr, env.cfg.Refused)
			}
		}
	}
}

// loadBalancerAllowed holds that an address of a load balancer is of a list, of a pool, or
// assigned by weir; on a node without a list, that any controller has written it.
func loadBalancerAllowed(t testing.TB, v lb.VIP, svc *service, env *env) {
	t.Helper()
	p, ranges := env.cfg.Provided, env.cfg.LoadBalancerRanges
	ours := svc.LoadBalancerClass == p.Class
	if svc.LoadBalancerClass == "" {
		ours = p.DefaultClass && len(p.Ranges) > 0
	}
	written := ours && svc.Condition != condition{}
	pooled := slices.ContainsFunc(p.Ranges, func(r ipam.Range) bool { return !v.Addr.Less(r.First) && !r.Last.Less(v.Addr) })
	configured := pooled || slices.ContainsFunc(ranges, containing(v.Addr))
	switch {
	case slices.Contains(svc.Ingress, v.Addr):
	case slices.Contains(svc.Proxied, v.Addr) && ours && (written || pooled):
	default:
		t.Errorf("%+v is not in the status", v)
	}
	if !configured && (len(ranges) > 0 || !env.onNode() && !written) || env.clusterIPs[v.Addr] > 0 {
		t.Errorf("ingress %+v of %v and %+v", v, ranges, p)
	}
	if v.Foreign != (!env.onNode() && !configured) {
		t.Errorf("%+v is foreign or not: %v and %+v", v, ranges, p)
	}
}

// poolsServed holds that a list, or the pool of weir, permits each of its addresses.
func poolsServed(t testing.TB, svc *service, env *env) {
	t.Helper()
	for _, a := range svc.Ingress {
		pooled := slices.ContainsFunc(env.cfg.Provided.Ranges, func(r ipam.Range) bool { return !a.Less(r.First) && !r.Last.Less(a) })
		if reason := env.refusesIngress(a, svc); reason != "" && (pooled || slices.ContainsFunc(env.cfg.LoadBalancerRanges, containing(a))) {
			t.Errorf("%s is of %+v, or of %v, and is refused: %s", a, env.cfg.Provided, env.cfg.LoadBalancerRanges, reason)
		}
	}
}

// refusalOnlyRemoves holds that refused addresses cost a Service just these VIPs.
func refusalOnlyRemoves(t testing.TB, in apis, got lb.Service) {
	t.Helper()
	all := in.without()
	want := slices.DeleteFunc(slices.Clone(all.VIPs), func(v lb.VIP) bool { return in.Config.Refused.refusesVIP(v, got.ID) })
	if d := cmp.Diff(want, got.VIPs, exact); d != "" && len(want)+len(got.VIPs) > 0 {
		t.Errorf("refused: %+v (-want +got):\n%s", in.Config.Refused, d)
	}
}

// without returns the Service of a box that nothing is refused to.
func (in apis) without() lb.Service {
	free := *in.Config
	free.Refused = Refused{}
	in.Config = &free
	out, _ := translate(in.read())
	return out
}

// refusals counts the VIPs and endpoints that a box loses by refused addresses.
func refusals(in apis) (n int) {
	free := in.without()
	_, _, env := in.read()
	for _, v := range free.VIPs {
		if in.Config.Refused.refusesVIP(v, free.ID) {
			n++
		}
	}
	for _, p := range free.Ports {
		for _, b := range p.Backends {
			if in.Config.Reach == Pods && in.Config.Refused.refusesEndpoint(b.Addr.Addr(), free.ID, env) {
				n++
			}
		}
	}
	return n
}

// noise are addresses of other clusters that no object here has.
var noise = netip.MustParsePrefix("100.96.0.0/12")

// noiseChangesNothing holds that a decision does not depend on what other clusters have
// elsewhere.
func noiseChangesNothing(t testing.TB, in apis, got lb.Service) {
	t.Helper()
	svc, from, _ := in.read()
	for _, a := range slices.Concat(svc.ClusterIPs, svc.Ingress, svc.Proxied, svc.ExternalIPs) {
		if noise.Contains(a) {
			return // an input of the fuzzer
		}
	}
	for _, s := range from {
		if slices.ContainsFunc(s.Endpoints, func(e endpoint) bool { return noise.Contains(e.Addr) }) {
			return
		}
	}
	loud := *in.Config
	r := &loud.Refused
	r.Peers, r.Backends = maps.Clone(r.Peers), maps.Clone(r.Backends)
	if r.Peers == nil {
		r.Peers, r.Backends = map[netip.Addr]string{}, map[netip.Addr]string{}
	}
	r.Peers[noise.Addr().Next()] = "the API server of cluster loud"
	r.Backends[noise.Addr()] = "a backend of static/loud"
	r.Ranges = append([]Range{{noise, "pods of cluster loud"}}, r.Ranges...)
	loud.Provided.Ranges = append(slices.Clone(loud.Provided.Ranges), ipam.Range{First: noise.Addr(), Last: noise.Addr()})
	loud.ServiceCIDRs = append([]netip.Prefix{noise}, loud.ServiceCIDRs...)
	if len(in.Config.Provided.Ranges) == 0 {
		loud.Provided.Ranges = nil // the first pool makes the default class weir's
	}
	in.Config = &loud
	other, _ := translate(in.read())
	if d := cmp.Diff(got, other, exact); d != "" {
		t.Errorf("it depends on addresses of other clusters (-without +with):\n%s", d)
	}
}
