package fleet

import (
	"fmt"
	"net/netip"
	"slices"

	"weir/cluster"
	"weir/cluster/owner"
	"weir/cmd/weir/internal/config"
)

// settings are the parts of a configuration that matter here. Without [fleet] the box is
// a fleet of its own, which owns everything; without [l2] too there is nothing to do.
type settings struct {
	name    string // of this box
	version string
	fleet   *config.Fleet // nil without [fleet]
	l2      *config.L2    // nil without [l2]
	// joinErr is the reason that there is no gossip although there is a [fleet].
	joinErr error
	// arpOnly is set if only ARP shows clients the owner of a VIP: [l2] without [bgp].
	arpOnly bool
	// floating are the addresses that move with the VIPs, each with the interfaces to
	// answer ARP on: gateways of backends, and sources of masqueraded connections.
	floating map[netip.Addr][]string
	uplinks  []string // the interfaces towards clients and routers
	digest   cluster.Digest
}

func settingsOf(cfg *config.Config, host, version string) settings {
	s := settings{
		name: host, version: version, fleet: cfg.Fleet, l2: cfg.L2, arpOnly: cfg.L2 != nil && cfg.BGP == nil,
		floating: floatingAddresses(cfg), uplinks: Uplinks(cfg), digest: digestOfRules(cfg),
	}
	if cfg.Fleet != nil {
		s.name = cfg.Fleet.Gossip.Name
	}
	return s
}

// rules returns the rules of the election.
func (s *settings) rules() owner.Rules {
	if s.fleet == nil {
		return owner.Rules{}
	}
	return s.fleet.Rules
}

// gossips reports whether there are other members to talk to.
func (s *settings) gossips() bool { return s.fleet != nil && s.joinErr == nil }

// ownersMatter reports whether the owner of a VIP makes a difference. It makes none if
// all members announce alike and no member answers ARP.
func (s *settings) ownersMatter() bool {
	return s.l2 != nil || s.rules().Mode == owner.ActiveStandby
}

// needsReturnPath reports whether a return path moves with the VIPs that routers know.
func (s *settings) needsReturnPath() bool {
	return s.fleet != nil && s.l2 != nil && len(s.floating) > 0 && s.rules().Mode == owner.ActiveStandby
}

// floatingAddresses returns the gateways of backends and the sources of masqueraded
// connections, each with the interfaces to answer ARP on. Backends send their replies to
// such a source on any interface; with [bgp] only, routers do.
func floatingAddresses(cfg *config.Config) map[netip.Addr][]string {
	out := map[netip.Addr][]string{}
	if cfg.L2 == nil {
		if cfg.BGP != nil {
			for _, a := range cfg.Kernel.MasqueradeSource {
				out[a] = nil
			}
		}
		return out
	}
	for _, a := range cfg.Kernel.MasqueradeSource {
		out[a] = cfg.L2.Everywhere()
	}
	for _, g := range cfg.L2.Gateways {
		out[g.Address] = append(out[g.Address], g.Interface)
	}
	return out
}

// Uplinks returns the interfaces towards clients or routers: those of [fleet] and [l2]
// without the ones towards backends, unless no others are left. With BGP peers, [l2] is
// usually for backends, and the interfaces of [fleet] are the uplinks.
func Uplinks(cfg *config.Config) []string {
	fleet, l := cfg.Fleet, cfg.L2
	if fleet == nil || l == nil {
		return nil
	}
	names := slices.Clone(fleet.Interfaces)
	if routed := cfg.BGP != nil && len(cfg.BGP.Speaker.Peers) > 0; !routed || len(names) == 0 {
		names = append(names, l.Interfaces...)
	}
	slices.Sort(names)
	names = slices.Compact(names)
	uplinks := slices.DeleteFunc(slices.Clone(names), func(name string) bool {
		return slices.ContainsFunc(l.Gateways, func(g config.Gateway) bool { return g.Interface == name })
	})
	if len(uplinks) == 0 {
		return names
	}
	return uplinks
}

// digestOfRules returns a digest of the keys that all members must have alike, with lists in any order.
func digestOfRules(cfg *config.Config) cluster.Digest {
	if cfg.Fleet == nil {
		return ""
	}
	b := fmt.Appendf(nil, "%v %v %v", cfg.Fleet.Rules.Mode, cfg.Fleet.Rules.SingleOwner, cfg.Fleet.Rules.NoPreempt)
	if l := cfg.L2; l != nil {
		kinds, pools := slices.Sorted(slices.Values(l.Kinds)), slices.SortedFunc(slices.Values(l.Pools), netip.Prefix.Compare)
		b = fmt.Appendf(b, " l2 %v %v %v %v", kinds, l.Static, pools, slices.SortedFunc(slices.Values(cfg.Kernel.MasqueradeSource), netip.Addr.Compare))
		for _, g := range slices.SortedFunc(slices.Values(l.Gateways), func(a, b config.Gateway) int { return a.Address.Compare(b.Address) }) {
			b = fmt.Appendf(b, " %v", g.Address) // each box has its own interface
		}
	}
	return cluster.DigestOf(b)
}
