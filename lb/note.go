package lb

import (
	"cmp"
	"fmt"
	"slices"
)

// Reason says why something of a Service could not be done. The set is closed,
// and each reason is documented where operators look for it (docs of weir
// status).
type Reason string

// The reasons.
const (
	// NoBackends: a frontend has no backend of its family; clients are refused.
	NoBackends Reason = "no-backends"
	// NoLocal: the traffic policy is Local and the backends are all on other
	// nodes; clients outside (of a ClusterIP: all) are dropped.
	NoLocal Reason = "no-local"
	// QuorumLost: the checks leave fewer backends than the quorum.
	QuorumLost Reason = "quorum-lost"
	// Conflict: another Service has the frontend.
	Conflict Reason = "conflict"
	// Stranger: the kernel has a virtual server there that weir did not make.
	Stranger Reason = "stranger"
	// Excluded: the VIP is in exclude_cidrs.
	Excluded Reason = "excluded"
	// HostAddress: the VIP is an address of the box itself, so its other ports
	// stay open and it is not put on weir's device.
	HostAddress Reason = "host-address"
	// PoolHoldsHost: a pool of vip_mode "route" contains an address of the box.
	PoolHoldsHost Reason = "pool-holds-host"
	// ClosedFamily: source ranges are given, but none of the VIP's family.
	ClosedFamily Reason = "closed-family"
	// HealthPort: the port for probes of this node can't be opened, or is another
	// Service's.
	HealthPort Reason = "health-port"
	// NotAllowed: the address can't be a VIP or backend of this Service, because it
	// is somebody else's, or not in the ranges that the operator allows.
	NotAllowed Reason = "address-not-allowed"
	// BadObject: the source says something that makes no sense; the rest is served.
	BadObject Reason = "bad-object"
	// AnnotationRefused: an annotation is not allowed, malformed or can't be had.
	AnnotationRefused Reason = "annotation-refused"
	// NoNodePort: backends are reached by node ports, and the Service has none.
	NoNodePort Reason = "no-node-port"
	// Held: the source has taken more away than its guard lets it (GuardOptions), so
	// what was stays.
	Held Reason = "held"
	// AddressPending: a Service waits for an address of a pool, or for another one.
	AddressPending Reason = "address-pending"
	// PoolStranded: a Service keeps an address that the pools would not give it any
	// more.
	PoolStranded Reason = "pool-stranded"
	// FamilyLeft: of a family that the Service prefers there is no address.
	FamilyLeft Reason = "family-left"
	// FleetOpen: the fleet has no key, so that anybody can be a member.
	FleetOpen Reason = "fleet-open"
	// FleetAlone: a member that is to be joined can't be reached.
	FleetAlone Reason = "fleet-alone"
	// FleetDiffers: a source says other things on another member.
	FleetDiffers Reason = "fleet-differs"
	// OrderDiffers: another member has the backends of a frontend with scheduler mh in
	// another order.
	OrderDiffers Reason = "mh-order"
	// DuplicateAddress: a machine that is no member of the fleet answers for a VIP.
	DuplicateAddress Reason = "duplicate-address"
	// NeedsIPVS: IPVS alone can do it, and this kernel, or mode, is without.
	NeedsIPVS Reason = "needs-ipvs"
	// Failed: the kernel would not take an object.
	Failed Reason = "failed"
)

// Note is what could not be done for a Service, and why.
type Note struct {
	Service ServiceID
	Reason  Reason
	Text    string
}

func (n Note) String() string { return fmt.Sprintf("%s: %s: %s", n.Service, n.Reason, n.Text) }

func sortNotes(notes []Note) []Note {
	slices.SortFunc(notes, func(a, b Note) int {
		return cmp.Or(a.Service.Compare(b.Service), cmp.Compare(a.Reason, b.Reason), cmp.Compare(a.Text, b.Text))
	})
	return slices.Compact(notes)
}
