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
	// ForeignFrontend: the kernel has a virtual server there that weir did not make.
	ForeignFrontend Reason = "foreign"
	// Excluded: the VIP is in exclude_cidrs.
	Excluded Reason = "excluded"
	// HostAddress: the VIP is an address of the box itself, so its other ports
	// stay open and it is not put on weir's device.
	HostAddress Reason = "host-address"
	// PoolCoversHost: a pool of vip_mode "route" contains an address of the box.
	PoolCoversHost Reason = "pool-covers-host"
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
	// OverBudget: the Service or its namespace needs more kernel objects than the operator
	// allows.
	OverBudget Reason = "over-budget"
	// AnnotationRefused: an annotation is not allowed, malformed or can't be had.
	AnnotationRefused Reason = "annotation-refused"
	// NoNodePort: backends are reached by node ports, and the Service has none.
	NoNodePort Reason = "no-node-port"
	// Guarded: the source has taken more away than its guard lets it (GuardOptions), so
	// what was stays.
	Guarded Reason = "guarded"
	// AddressPending: a Service waits for an address of a pool, or for another one.
	AddressPending Reason = "address-pending"
	// OutsidePool: a Service keeps an address that the pools would not give it any
	// more.
	OutsidePool Reason = "outside-pool"
	// FamilyLeft: of a family that the Service prefers there is no address.
	FamilyLeft Reason = "family-left"
	// FleetOpen: the fleet has no key, so that anybody can be a member.
	FleetOpen Reason = "fleet-open"
	// MemberUnreachable: a member that is to be joined can't be reached.
	MemberUnreachable Reason = "member-unreachable"
	// FleetDiffers: a source says other things on another member.
	FleetDiffers Reason = "fleet-differs"
	// OrderDiffers: another member has the backends of a frontend with scheduler mh in
	// another order.
	OrderDiffers Reason = "mh-order"
	// DuplicateAddress: a machine that is no member of the fleet answers for a VIP.
	DuplicateAddress Reason = "duplicate-address"
	// NeedsIPVS: IPVS alone can do it, and this kernel, or mode, is without.
	NeedsIPVS Reason = "needs-ipvs"
	// MixedPorts: the backends of clients inside have several ports, so that they are
	// without affinity.
	MixedPorts Reason = "mixed-ports"
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

// Notes gives what could not be done, sorted. Ops that only wait for one that
// failed are not told: the one that failed is.
func (r *Reconciler) Notes() []Note {
	var out []Note
	for _, notes := range r.notes {
		out = append(out, notes...)
	}
	out = append(out, r.guards.notes()...)
	owners := r.failed.owners(r.want)
	r.failed.each(func(id Object, f failure) {
		note := Note{Reason: Failed, Text: fmt.Sprintf("%s: %v", f.op, f.err)}
		if owner := owners(id); owner != nil {
			note.Service = owner.Service
		}
		out = append(out, note)
	})
	return sortNotes(out)
}

// Unfinished gives the Services that the kernel does not hold as their source says,
// and why: Failed if it would not take something of theirs, or that waits for
// something which it would not take, and Guarded if a guard holds something.
func (r *Reconciler) Unfinished() map[ServiceID]Reason {
	out := map[ServiceID]Reason{}
	owners := r.failed.owners(r.want)
	for id := range r.failed.of {
		for _, s := range r.marks.servicesOf(id, owners(id)) {
			out[s] = Failed
		}
	}
	for _, n := range r.guards.notes() {
		out[n.Service] = Guarded
	}
	return out
}
