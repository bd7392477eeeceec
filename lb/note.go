package lb

import (
	"cmp"
	"fmt"
	"slices"
)

// Reason is why a part of a Service is not in effect. The set is closed, and
// packaging/doc/notes.md documents each reason.
type Reason string

// The reasons.
const (
	// NoBackends: a frontend has no backend of its family; clients are refused.
	NoBackends Reason = "no-backends"
	// NoLocal: the traffic policy is Local and all backends are on other nodes; clients outside
	// (of a ClusterIP: all) are dropped.
	NoLocal Reason = "no-local"
	// QuorumLost: the checks leave fewer backends than the quorum.
	QuorumLost Reason = "quorum-lost"
	// Conflict: another Service has the frontend.
	Conflict Reason = "conflict"
	// ForeignFrontend: the kernel has a virtual server there that weir did not make.
	ForeignFrontend Reason = "foreign"
	// Excluded: the VIP is in exclude_cidrs.
	Excluded Reason = "excluded"
	// HostAddress: the VIP is an address of the box itself, so its other ports stay open and
	// weir's device does not get it.
	HostAddress Reason = "host-address"
	// PoolCoversHost: a pool of vip_mode "route" contains an address of the box.
	PoolCoversHost Reason = "pool-covers-host"
	// ClosedFamily: there are source ranges, but none of the VIP's family.
	ClosedFamily Reason = "closed-family"
	// HealthPort: the port for probes of this node can't be opened, or belongs to another
	// Service.
	HealthPort Reason = "health-port"
	// NotAllowed: the address can't be a VIP or backend of this Service, because it has another
	// owner, or is outside the ranges that the operator allows.
	NotAllowed Reason = "address-not-allowed"
	// BadObject: a part of the object in the source is invalid; the rest is served.
	BadObject Reason = "bad-object"
	// OverBudget: the Service or its namespace needs more kernel objects than the operator
	// allows.
	OverBudget Reason = "over-budget"
	// AnnotationRefused: an annotation is not allowed, malformed or not possible.
	AnnotationRefused Reason = "annotation-refused"
	// NoNodePort: backends are reached by node ports, and the Service has none.
	NoNodePort Reason = "no-node-port"
	// Guarded: the source has removed more than its guard permits (GuardOptions), so the former
	// state stays.
	Guarded Reason = "guarded"
	// AddressPending: a Service waits for an address of a pool, or for another one.
	AddressPending Reason = "address-pending"
	// OutsidePool: a Service keeps an address that the pools would not assign any more.
	OutsidePool Reason = "outside-pool"
	// FamilyLeft: no address is free of a family that the Service prefers.
	FamilyLeft Reason = "family-left"
	// FleetOpen: the fleet has no key, so any host can be a member.
	FleetOpen Reason = "fleet-open"
	// MemberUnreachable: a configured member is unreachable.
	MemberUnreachable Reason = "member-unreachable"
	// FleetDiffers: a source has another content on another member.
	FleetDiffers Reason = "fleet-differs"
	// OrderDiffers: another member has the backends of a frontend with scheduler mh in another
	// order.
	OrderDiffers Reason = "mh-order"
	// DuplicateAddress: a host that is no member of the fleet answers for a VIP.
	DuplicateAddress Reason = "duplicate-address"
	// NeedsIPVS: only IPVS can do it, and this kernel or mode has no IPVS.
	NeedsIPVS Reason = "needs-ipvs"
	// MixedPorts: the backends of clients inside have several ports, so these clients have no
	// affinity.
	MixedPorts Reason = "mixed-ports"
	// Failed: the kernel refused an object.
	Failed Reason = "failed"
)

// Note is a part of a Service that is not in effect, and the reason.
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

// Notes returns the Notes of all Services, sorted. An Op that only waits for a failed one has
// none.
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

// Unfinished returns the Services that the kernel does not serve as their source has them, and
// the reason: Failed if the kernel refused an object of theirs, or one that theirs wait for;
// Guarded if a guard withholds something.
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
