package config

import (
	"net/netip"
	"slices"
	"time"

	"weir/lb"
)

// L2 is the table [l2]: the owner of a VIP answers ARP and NDP for it.
type L2 struct {
	// Interfaces are those on which it answers, in the order of the file; at least one.
	Interfaces []string
	// Refresh is how often neighbors are told again of what is held; 0 is never.
	Refresh time.Duration
	// Kinds are those of the VIPs of clusters that are answered for; Static tells that
	// those of static services are. Pools are what VIPs must be of, if there are any.
	Kinds  []lb.VIPKind
	Static bool
	Pools  []netip.Prefix
	// Gateways are held by the owner of everything.
	Gateways []Gateway
}

// Gateway is the table [[l2.gateway]]: an address through which backends send their
// replies.
type Gateway struct {
	Address netip.Addr
	// Interface is the only one on which it is answered for.
	Interface string
}

// Wants tells whether an address at which some Services serve is one to answer for.
func (l *L2) Wants(a netip.Addr, serving []lb.Serving) bool {
	if len(l.Pools) > 0 && !slices.ContainsFunc(l.Pools, func(p netip.Prefix) bool { return p.Contains(a) }) {
		return false
	}
	return slices.ContainsFunc(serving, func(s lb.Serving) bool {
		if s.Kind == lb.NodePort {
			return false // at the box's own addresses, which the kernel answers for
		}
		if s.Service.Source == Source {
			return l.Static
		}
		return slices.Contains(l.Kinds, s.Kind)
	})
}
