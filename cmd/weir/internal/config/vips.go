package config

import (
	"net/netip"
	"slices"
	"time"

	"weir/bgp"
	"weir/bgp/advertise"
	"weir/bgp/routerconfig"
	fleet "weir/cluster"
	"weir/cluster/owner"
	"weir/lb"
)

// BGP is the table [bgp] with its peers and rules.
type BGP struct {
	// Speaker configures the sessions. A RouterID that is the zero Addr means the box's
	// own address towards the first peer with IPv4 (which exists); only the routing table
	// has it.
	Speaker bgp.Config
	// Policy selects the routes and sets their attributes.
	Policy advertise.Policy
	// DrainDelay is the time between the two steps of a drain.
	DrainDelay time.Duration
	// Announced are prefixes that contain every route, as far as the configuration
	// determines them, sorted. Aggregates means that some routes are not host routes.
	Announced  []netip.Prefix
	Aggregates bool
	// PasswordFiles are the names of the files by the names of their peers.
	PasswordFiles map[string]string
}

// RouterSide returns the input of routerconfig.Text for one peer.
func (b *BGP) RouterSide(vendor, peer string) routerconfig.Router {
	return routerconfig.Router{
		Vendor: vendor, Config: b.Speaker, Peer: peer,
		Prefixes: b.Announced, Aggregates: b.Aggregates, PasswordFile: b.PasswordFiles[peer],
	}
}

// Fleet is the table [fleet]: the boxes that serve the same VIPs. (A Cluster is one of
// Kubernetes.)
type Fleet struct {
	// Gossip configures this member and its contacts. If its Advertise is the zero
	// AddrPort, the member finds its own address.
	Gossip fleet.Config
	// KeyFiles are the names of the files of Gossip.Keys, in the same order.
	KeyFiles []string
	// Rules place the VIPs.
	Rules owner.Rules
	// Weight is this box's share of the VIPs that are spread over the fleet, 1 to 1000.
	Weight uint16
	// PreemptDelay is the time that a box must have been fit before it preempts other
	// members. It is not used with Rules.NoPreempt.
	PreemptDelay time.Duration
	// RestartGrace is the time that a member keeps its VIPs while its daemon is down and
	// its kernel answers.
	RestartGrace time.Duration
	// Interfaces are those that need carrier for the box to be fit, in the order of the
	// file, without those of L2.
	Interfaces []string
	// Sync is nil without [fleet.sync].
	Sync *FleetSync
}

// FleetSync is the table [fleet.sync]: the kernels of the members synchronize established
// connections. Each box sends its own and receives all.
type FleetSync struct {
	// Interface is the one to the other members.
	Interface string
	// ID marks the messages of this box, 1 to 255.
	ID uint8
	// Group is the multicast address and the UDP port of all members, TTL the number of
	// hops to them, 1 to 255.
	Group netip.AddrPort
	TTL   uint8
	// MaxLen is the maximum length of a message in bytes, 1024 to 65507.
	MaxLen uint16
}

// Daemons returns the kernel's sync daemons.
func (s *FleetSync) Daemons() []lb.SyncDaemon {
	if s == nil {
		return nil
	}
	master := lb.SyncDaemon{Role: lb.SyncMaster, Interface: s.Interface, SyncID: s.ID, Group: s.Group, TTL: s.TTL, MaxLen: s.MaxLen}
	backup := master
	backup.Role, backup.SyncID = lb.SyncBackup, 0 // 0 accepts every ID
	return []lb.SyncDaemon{master, backup}
}

// Source is the lb.ServiceID.Source of the Services of a file.
const Source = "static"

// MasqueradeID is the Service for the routes of kernel.masquerade_source. They are
// announced like VIPs of a static service; no real service can have this name.
var MasqueradeID = lb.ServiceID{Source: Source, Name: "masquerade_source"}

// L2 is the table [l2]: the owner of a VIP answers ARP and NDP for it.
type L2 struct {
	// Interfaces are those that answer, in the order of the file; at least one.
	Interfaces []string
	// GARPInterval is the interval of repeated announcements to neighbors; 0 disables them.
	GARPInterval time.Duration
	// Kinds are the kinds of VIPs of clusters to answer for, Static adds those of static
	// services. Pools restricts them to its addresses, if there are any.
	Kinds  []lb.VIPKind
	Static bool
	Pools  []netip.Prefix
	// Gateways belong to the owner of all VIPs.
	Gateways []Gateway
}

// Gateway is the table [[l2.gateway]]: the default gateway of backends.
type Gateway struct {
	Address netip.Addr
	// Interface is the only one that answers for it.
	Interface string
}

// Wants reports whether to answer for an address of some Services.
func (l *L2) Wants(a netip.Addr, serving []lb.Serving) bool {
	if len(l.Pools) > 0 && !slices.ContainsFunc(l.Pools, func(p netip.Prefix) bool { return p.Contains(a) }) {
		return false
	}
	return slices.ContainsFunc(serving, func(s lb.Serving) bool {
		if s.Kind == lb.NodePort {
			return false // addresses of the box, for which the kernel answers
		}
		if s.Service.Source == Source {
			return l.Static
		}
		return slices.Contains(l.Kinds, s.Kind)
	})
}

// Everywhere returns all interfaces that answer for anything.
func (l *L2) Everywhere() []string {
	out := slices.Clone(l.Interfaces)
	for _, g := range l.Gateways {
		if !slices.Contains(out, g.Interface) {
			out = append(out, g.Interface)
		}
	}
	return out
}
