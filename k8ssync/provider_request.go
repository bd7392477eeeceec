package k8ssync

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"weir/k8ssync/ipam"
	"weir/lb"
)

// ours tells whether a Service is one that weir gives addresses to. One without a
// class to which another controller has given addresses that are of no pool is
// left to that one, unless it asks for something.
func (cfg *ProviderConfig) ours(s *service) bool {
	if s.Type != "LoadBalancer" || s.OtherProxy {
		return false
	}
	if s.LoadBalancerClass != "" {
		return s.LoadBalancerClass == cfg.Class
	}
	return cfg.DefaultClass && (!cfg.others(s) || s.Condition != (condition{}) || asks(s))
}

// others tells whether a Service has addresses, and none of a pool.
func (cfg *ProviderConfig) others(s *service) bool {
	has := s.given()
	pooled := func(a netip.Addr) bool {
		return slices.ContainsFunc(cfg.IPAM.Pools, func(p ipam.Pool) bool {
			return slices.ContainsFunc(p.Ranges, func(r ipam.Range) bool { return r.Contains(a) })
		})
	}
	return (len(has) > 0 || s.Named) && !slices.ContainsFunc(has, pooled)
}

// asks tells whether a Service says what it wants of weir.
func asks(s *service) bool {
	return slices.ContainsFunc(addressAnnotations, func(name string) bool { return s.Annotations[annotationPrefix+name] != "" })
}

// given are the addresses in a Service's status.
func (s *service) given() []netip.Addr { return slices.Concat(s.Ingress, s.Proxied) }

// request says what a Service asks for; false is that it is nothing to do with
// addresses.
func (cfg *ProviderConfig) request(cluster string, s *service) (ipam.Request, bool) {
	r := ipam.Request{
		ID:  lb.ServiceID{Source: cluster, Namespace: s.Namespace, Name: s.Name},
		UID: s.UID, Version: s.Version, Created: s.Created,
		Status: s.given(),
	}
	// One that goes keeps what it has until it has gone, and gets nothing new.
	r.Foreign = !cfg.ours(s) || s.Deleting && len(r.Status) == 0
	if r.Foreign {
		return r, s.Type == "LoadBalancer" || len(r.Status) > 0
	}
	r.Required, r.Preferred = s.families()
	r.Pool = strings.TrimSpace(s.Annotations[annotationPrefix+"pool"])
	r.Share = strings.TrimSpace(s.Annotations[annotationPrefix+"share"])
	r.Local, r.Selector, r.Labels = s.ExternalLocal, s.Selector, s.Labels
	for _, p := range s.Ports {
		if proto, err := lb.ParseProtocol(p.Proto); err == nil {
			r.Ports = append(r.Ports, lb.PortKey{Port: p.Port, Proto: proto})
		}
	}
	r.Addrs, r.Bad = s.wantedAddrs()
	return r, true
}

// families are those that a Service must have, or would like.
func (s *service) families() (required, preferred []lb.Family) {
	var all []lb.Family
	for _, f := range s.Families {
		all = append(all, map[string]lb.Family{"IPv4": lb.IPv4, "IPv6": lb.IPv6}[f])
	}
	if len(all) == 0 { // from before there were families
		for _, a := range s.ClusterIPs {
			all = append(all, lb.FamilyOf(a))
		}
	}
	switch {
	case s.FamilyPolicy == "RequireDualStack":
		return []lb.Family{lb.IPv4, lb.IPv6}, nil
	case s.FamilyPolicy == "PreferDualStack":
		return nil, all
	case len(all) > 0:
		return all[:1], nil
	}
	return nil, []lb.Family{lb.IPv4, lb.IPv6}
}

// wantedAddrs are those that a Service asks for, or what is wrong with it. The
// annotation says more than spec.loadBalancerIP, which has only one.
func (s *service) wantedAddrs() (addrs []netip.Addr, bad string) {
	const name = annotationPrefix + "addresses"
	text, ok := s.Annotations[name]
	if !ok {
		if s.Asked.IsValid() {
			return []netip.Addr{s.Asked}, ""
		}
		return nil, ""
	}
	for _, word := range list(text) {
		a, err := netip.ParseAddr(word)
		if err != nil || a.Zone() != "" {
			return nil, fmt.Sprintf(`%s: %.64q is no address: write one of a family, as in "192.0.2.7, 2001:db8::7"`, name, word)
		}
		addrs = append(addrs, a.Unmap())
	}
	return addrs, ""
}
