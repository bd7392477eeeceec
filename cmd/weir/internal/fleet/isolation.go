package fleet

import (
	"slices"
	"time"
)

// The owner of all VIPs also owns the floating addresses: the gateways of backends and
// the source of masqueraded connections. Usually the last box that can serve keeps all of
// them, however unfit it is. A box that no client can reach may be the last one only from
// its own point of view. It would keep the return path from the box that has taken over.

const (
	// routerPatience is how long a box without other members may have no BGP session
	// before it counts as isolated: routers that restart are back sooner.
	routerPatience = 15 * time.Second
	// probedLately is how long a member counts as one that probes for an address. It
	// probes every second as long as it gets no other answer.
	probedLately = 4 * time.Second
)

// isolation reports whether no client can reach this box.
type isolation struct {
	reason string // "" if a client can
	// yieldedTo is the member to which this box has released what that one probes for,
	// because no client sends a packet here.
	yieldedTo string
	// unconnected is since when the box has neither another member nor a BGP session.
	unconnected since
	next        time.Time // when the passing of time may isolate the box
}

// is reports whether no client can reach this box.
func (i *isolation) is() bool { return i.reason != "" }

// follow takes the facts of a moment and reports whether the isolation has changed.
// requester is a silent member that probes for a floating address, or "". A box is isolated
// if
//   - no uplink has a carrier, or
//   - no client sends a packet, and a member that does not answer probes for a floating
//     address (a cable beyond a switch is out, or the network of the clients is split). It
//     ends when a client does, or the member answers again: from then on the election
//     decides. A member that answers and probes is about to hand over, or to take over, by
//     the same election; to yield to it would leave the address without an owner, or
//   - the other members are gone, and no router has a session with it.
func (i *isolation) follow(set *settings, fit *fitness, others *members, requester string, now time.Time) (changed bool) {
	before := i.is()
	i.reason, i.next = "", time.Time{}
	if set.fleet != nil && set.l2 != nil {
		i.reason = i.judge(set.uplinks, fit, others, requester, now)
	}
	return i.is() != before
}

func (i *isolation) judge(uplinks []string, fit *fitness, others *members, requester string, now time.Time) (reason string) {
	if !slices.ContainsFunc(uplinks, func(name string) bool { return !slices.Contains(fit.links.DownNames, name) }) {
		return "no uplink has a carrier"
	}
	if !others.silent(i.yieldedTo) {
		i.yieldedTo = requester
	}
	if !fit.links.Idle {
		i.yieldedTo = ""
	}
	if i.yieldedTo != "" {
		return "no client sends a packet, and " + i.yieldedTo + ", which does not answer, serves the floating addresses"
	}
	unconnected := others.allGone() && fit.sessionless()
	i.unconnected.follow(unconnected, now)
	if !unconnected {
		return ""
	}
	if end := i.unconnected.at.Add(routerPatience); now.Before(end) {
		i.next = end
		return ""
	}
	return "no other member answers, and no router has a session"
}

// releaseReason returns why this box has released the floating addresses; "" if it has not.
func (i *isolation) releaseReason(set *settings) string {
	if !i.is() || len(set.floating) == 0 {
		return ""
	}
	return "no client can reach this box: it has released the gateways and masquerade sources"
}
