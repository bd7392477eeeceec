package lb

import (
	"cmp"
	"fmt"
	"maps"
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

// Compare orders Notes by Service, then by reason and text.
func (n Note) Compare(other Note) int {
	return cmp.Or(n.Service.Compare(other.Service), cmp.Compare(n.Reason, other.Reason), cmp.Compare(n.Text, other.Text))
}

func sortNotes(notes []Note) []Note {
	slices.SortFunc(notes, Note.Compare)
	return slices.Compact(notes)
}

// plannedNotes are the Notes of the plans. A change of one Service costs no sorting of all.
type plannedNotes struct {
	of     map[ServiceID][]Note   // of Services that have any, sorted
	sorted []ServiceID            // those that had any at the last call of all
	fresh  map[ServiceID]struct{} // those that have got their first one since
}

func newPlannedNotes() plannedNotes {
	return plannedNotes{of: map[ServiceID][]Note{}, fresh: map[ServiceID]struct{}{}}
}

// set replaces the Notes of a Service, which are sorted and of no other, and reports whether
// they differ.
func (n *plannedNotes) set(id ServiceID, notes []Note) bool {
	before := n.of[id]
	if slices.Equal(before, notes) {
		return false
	}
	switch {
	case len(notes) == 0:
		delete(n.of, id)
		delete(n.fresh, id)
	case len(before) == 0:
		n.fresh[id] = struct{}{}
		fallthrough
	default:
		n.of[id] = notes
	}
	return true
}

// all returns the Notes of all Services, sorted, with room for some more.
func (n *plannedNotes) all(more int) []Note {
	fresh := slices.SortedFunc(maps.Keys(n.fresh), ServiceID.Compare)
	clear(n.fresh)
	ids := make([]ServiceID, 0, len(n.of))
	out := make([]Note, 0, len(n.of)+more)
	for old := n.sorted; len(old)+len(fresh) > 0; {
		var id ServiceID
		switch order := firstOrder(old, fresh); {
		case order < 0:
			id, old = old[0], old[1:]
		case order > 0:
			id, fresh = fresh[0], fresh[1:]
		default: // it had none for a while
			id, old, fresh = old[0], old[1:], fresh[1:]
		}
		if notes := n.of[id]; len(notes) > 0 {
			ids, out = append(ids, id), append(out, notes...)
		}
	}
	n.sorted = ids
	return out
}

// firstOrder compares the first elements of two lists, not both empty; an empty one is last.
func firstOrder(a, b []ServiceID) int {
	switch {
	case len(b) == 0:
		return -1
	case len(a) == 0:
		return 1
	}
	return a[0].Compare(b[0])
}

// Notes returns the Notes of all Services, sorted. An Op that only waits for a failed one has
// none. It sorts within the Reconciler, so only its owner may call it.
func (r *Reconciler) Notes() []Note {
	more := r.guards.notes()
	owners := r.failed.owners(r.want)
	r.failed.each(func(id Object, f failure) {
		note := Note{Reason: Failed, Text: fmt.Sprintf("%s: %v", f.op, f.err)}
		if owner := owners(id); owner != nil {
			note.Service = owner.Service
		}
		more = append(more, note)
	})
	out := r.notes.all(len(more))
	if len(more) == 0 {
		return out
	}
	return sortNotes(append(out, more...))
}

// Unfinished returns the Services that the kernel does not serve as their source has them, and
// the reason: Failed if the kernel refused an object of theirs, or one that theirs wait for, or if
// real servers of theirs are postponed;
// Guarded if a guard withholds something.
func (r *Reconciler) Unfinished() map[ServiceID]Reason {
	out := map[ServiceID]Reason{}
	owners := r.failed.owners(r.want)
	for id := range r.failed.of {
		for _, s := range r.marks.servicesOf(id, owners(id)) {
			out[s] = Failed
		}
	}
	for f := range r.later.frontends {
		for _, s := range r.marks.servicesOf(VirtualServer{Frontend: f}, nil) {
			out[s] = Failed
		}
	}
	for _, n := range r.guards.notes() {
		out[n.Service] = Guarded
	}
	return out
}
