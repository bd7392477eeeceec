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

// isolation is whether no client can reach this box.
type isolation struct {
	is bool
	// yielded is set once this box has released what another member probes for, because
	// no client sends a packet here. It ends when a client does.
	yielded bool
	// unconnected is since when the box has neither another member nor a BGP session.
	unconnected since
	next        time.Time // when the passing of time may isolate the box
}

// follow takes the facts of a moment and reports whether the isolation has changed.
// A box is isolated if
//   - no uplink has a carrier, or
//   - no client sends a packet and another member probes for a floating address (a cable
//     beyond a switch is out, or the network of the clients is split), or
//   - the other members are gone, and no router has a session with it.
func (i *isolation) follow(set *settings, fit *fitness, alone, probed bool, now time.Time) (changed bool) {
	before := i.is
	i.is, i.next = false, time.Time{}
	if set.fleet != nil && set.l2 != nil {
		i.is = i.judge(set.uplinks, fit, alone, probed, now)
	}
	return i.is != before
}

func (i *isolation) judge(uplinks []string, fit *fitness, alone, probed bool, now time.Time) bool {
	if !slices.ContainsFunc(uplinks, func(name string) bool { return !slices.Contains(fit.links.DownNames, name) }) {
		return true
	}
	if i.yielded = fit.links.Idle && (i.yielded || probed); i.yielded {
		return true
	}
	unconnected := alone && fit.sessionless()
	i.unconnected.follow(unconnected, now)
	if !unconnected {
		return false
	}
	end := i.unconnected.at.Add(routerPatience)
	if now.Before(end) {
		i.next = end
	}
	return !now.Before(end)
}

// reason returns why this box has released the floating addresses; "" if it has not.
func (i *isolation) reason(set *settings) string {
	if !i.is || len(set.floating) == 0 {
		return ""
	}
	return "no client can reach this box: it has released the gateways and masquerade sources"
}
