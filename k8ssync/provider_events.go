package k8ssync

import (
	"net/netip"
	"slices"

	"weir/lb"
)

// Reasons of Events about addresses. Only the writer writes them, after the change.
const (
	eventAssigned    lb.Reason = "address-assigned"
	eventReleased    lb.Reason = "address-released"
	eventOutsidePool lb.Reason = "address-outside-pool"
	eventPending               = lb.AddressPending
)

// byProvider reports whether the writer writes the Events for Notes with a reason. All
// boxes have these Notes.
func byProvider(r lb.Reason) bool {
	return r == lb.AddressPending || r == lb.OutsidePool || r == lb.FamilyLeft
}

// event writes an Event, unless they are disabled.
func (m *member) event(s subject) {
	if m.cluster.cfg.Events {
		m.cluster.events.once(s)
	}
}

// without returns those of a that are not in b.
func without(a, b []netip.Addr) []netip.Addr {
	return slices.DeleteFunc(slices.Clone(a), func(x netip.Addr) bool { return slices.Contains(b, x) })
}
