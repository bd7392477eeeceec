package k8ssync

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"weir/k8ssync/ipam"
	"weir/lb"
)

// manages reports whether weir assigns the addresses of a Service. A Service without a
// class that has addresses of another controller, in no pool, is left to that controller,
// unless its annotations request something.
func (cfg *ProviderConfig) manages(s *service) bool {
	if s.Type != "LoadBalancer" || s.OtherProxy {
		return false
	}
	if s.LoadBalancerClass != "" {
		return s.LoadBalancerClass == cfg.Class
	}
	return cfg.DefaultClass && (!cfg.foreign(s) || s.Condition != (condition{}) || hasRequest(s))
}

// foreign reports whether a Service has addresses, and none of a pool.
func (cfg *ProviderConfig) foreign(s *service) bool {
	has := s.assigned()
	pooled := func(a netip.Addr) bool {
		return slices.ContainsFunc(cfg.IPAM.Pools, func(p ipam.Pool) bool {
			return slices.ContainsFunc(p.Ranges, func(r ipam.Range) bool { return r.Contains(a) })
		})
	}
	return (len(has) > 0 || s.Named) && !slices.ContainsFunc(has, pooled)
}

// hasRequest reports whether the annotations of a Service request an address.
func hasRequest(s *service) bool {
	return slices.ContainsFunc(addressAnnotations, func(name string) bool { return s.Annotations[name] != "" })
}

// refusedToShare reports whether a Service has changed so that it conflicts with the others at its
// address, which keep their ports: otherwise an older Service could take those of a younger one.
func (s *service) refusedToShare() bool {
	return s.Condition.Status == "False" && s.Condition.Reason == ipam.ShareRefused.CamelCase()
}

// assigned returns the addresses in a Service's status.
func (s *service) assigned() []netip.Addr { return slices.Concat(s.Ingress, s.Proxied) }

// request returns the request of a Service; false is that it does not concern addresses.
func (cfg *ProviderConfig) request(of *Config, s *service) (ipam.Request, bool) {
	r := ipam.Request{
		ID:  lb.ServiceID{Source: of.Name, Namespace: s.Namespace, Name: s.Name},
		UID: s.UID, Version: s.Version, Created: s.Created,
		Status: s.assigned(), AnnotationPrefix: of.prefix(),
	}
	// A Service that is being deleted keeps its addresses, and gets no new ones.
	r.Foreign = !cfg.manages(s) || s.Deleting && len(r.Status) == 0
	if r.Foreign {
		return r, s.Type == "LoadBalancer" || len(r.Status) > 0
	}
	r.Required, r.Preferred = s.families()
	r.Pool = strings.TrimSpace(s.Annotations["pool"])
	r.Share = strings.TrimSpace(s.Annotations["sharing-key"])
	r.Local, r.Selector, r.Labels = s.ExternalLocal, s.Selector, s.Labels
	for _, p := range s.Ports {
		if proto, err := lb.ParseProtocol(p.Proto); err == nil {
			r.Ports = append(r.Ports, lb.PortKey{Port: p.Port, Proto: proto})
		}
	}
	r.Addrs, r.Bad = s.requestedAddrs(r.AnnotationPrefix)
	return r, true
}

// families returns those that a Service requires, or prefers.
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

// requestedAddrs returns the addresses that a Service requests, or the error of the request. The
// annotation takes precedence over spec.loadBalancerIP, which the API server does not check.
func (s *service) requestedAddrs(prefix string) (addrs []netip.Addr, bad string) {
	text, ok := s.Annotations["addresses"]
	field, example := prefix+"addresses", `one of a family, as in "192.0.2.7, 2001:db8::7"`
	words := list(text)
	if !ok {
		field, example, words = "spec.loadBalancerIP", `one, as in "192.0.2.7"`, nil
		if s.Asked != "" {
			words = []string{s.Asked}
		}
	}
	for _, word := range words {
		a, err := netip.ParseAddr(word)
		if err != nil || a.Zone() != "" {
			return nil, fmt.Sprintf("%s: invalid address %.64q: write %s", field, word, example)
		}
		addrs = append(addrs, a.Unmap())
	}
	return addrs, ""
}
