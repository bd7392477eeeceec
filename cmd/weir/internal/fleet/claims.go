package fleet

import (
	"maps"
	"net"
	"net/netip"
	"reflect"
	"slices"
	"time"

	"weir/cluster"
	"weir/cluster/l2"
	"weir/cluster/owner"
)

// garpEvery is the minimum time between two repeats of gratuitous ARP because a suspect
// answers again, which is frequent where packets get lost.
const garpEvery = 5 * time.Second

// claims are the addresses to answer ARP and NDP for. A VIP is claimed when the kernel
// serves it and this box owns it, and released before the kernel stops serving it.
type claims struct {
	wanted map[netip.Addr]l2.Claim
	// since are the times of claims that are not answered for yet.
	since map[netip.Addr]time.Time
	garp  throttle
	peers map[l2.MAC]competitor // the other members by their MACs
	// status is the last one of the answerer; foreign are its VIPs that an unknown box
	// answers for, and those that were taken although another box answers for them.
	status  l2.Status
	foreign []l2.VIP
}

func newClaims() claims {
	return claims{wanted: map[netip.Addr]l2.Claim{}, since: map[netip.Addr]time.Time{}}
}

// receive takes the state of all claims. It returns how long those took that are answered
// for by now, and whether others are contested by foreign hosts than before.
func (c *claims) receive(status l2.Status) (took []time.Duration, changed bool) {
	before := c.foreign
	c.status, c.foreign = status, nil
	for _, v := range status.VIPs {
		if v.Duplicate() || v.Overruled {
			c.foreign = append(c.foreign, v)
		}
		if since, waits := c.since[v.Addr]; waits && v.State == l2.Answered {
			took = append(took, v.Since.Sub(since))
			delete(c.since, v.Addr)
		}
	}
	return took, !slices.EqualFunc(before, c.foreign, func(a, b l2.VIP) bool { return a.Addr == b.Addr && a.State == b.State })
}

// contested reports whether a foreign host keeps this box from answering for an address.
func (c *claims) contested(a netip.Addr) bool {
	return slices.ContainsFunc(c.at(a), func(v l2.VIP) bool { return v.State == l2.Contested && v.Duplicate() })
}

// set claims an address, or releases it if claim is nil; changes gets the difference.
func (c *claims) set(a netip.Addr, claim *l2.Claim, changes map[netip.Addr]*l2.Claim, now time.Time) {
	before, claimed := c.wanted[a]
	switch {
	case claim == nil && claimed:
		delete(c.wanted, a)
		delete(c.since, a)
		changes[a] = nil
	case claim != nil && (!claimed || !reflect.DeepEqual(before, *claim)):
		if !claimed {
			c.since[a] = now
		}
		c.wanted[a] = *claim
		changes[a] = claim
	}
}

// release returns the release of all addresses.
func (c *claims) release() map[netip.Addr]*l2.Claim {
	changes := map[netip.Addr]*l2.Claim{}
	for a := range c.wanted {
		changes[a] = nil
	}
	clear(c.wanted)
	clear(c.since)
	return changes
}

// competitor is the basis of the choice between this box and another member that both
// answer for a VIP: the tie-break of the election.
type competitor struct {
	rules              owner.Rules
	self, other        string
	selfWeight, weight int
	gone               bool // the other one
}

// preferred reports whether the other member keeps a VIP.
func (c competitor) preferred(vip netip.Addr) bool {
	return c.rules.Prefers(&owner.Member{Name: c.other, Weight: c.weight}, &owner.Member{Name: c.self, Weight: c.selfWeight}, vip)
}

// changedPeers returns the other members by MAC, if they or the tie-break have changed since the answerer got them.
func (c *claims) changedPeers(s *settings, m *members) map[l2.MAC]l2.Member {
	if s.l2 == nil {
		c.peers = nil
		return nil
	}
	peers := map[l2.MAC]competitor{}
	for _, name := range m.names() { // one that was renamed is dead under its former name
		v := m.byName[name]
		x := competitor{rules: s.rules(), self: s.name, other: name, weight: int(v.State.Weight), gone: v.Life != cluster.Alive}
		if s.fleet != nil {
			x.selfWeight = int(s.fleet.Weight)
		}
		for _, text := range v.message.MACs {
			if mac, ok := parseMAC(text); ok && (!x.gone || peers[mac].other == "") {
				peers[mac] = x
			}
		}
	}
	if maps.Equal(peers, c.peers) {
		return nil
	}
	c.peers = peers
	out := map[l2.MAC]l2.Member{}
	for mac, x := range peers {
		out[mac] = l2.Member{Name: x.other, Gone: x.gone, Preferred: x.preferred}
	}
	return out
}

// at returns the state of a claim on each interface.
func (c *claims) at(a netip.Addr) []l2.VIP {
	vips := c.status.VIPs // sorted by address
	compare := func(v l2.VIP, a netip.Addr) int { return v.Addr.Compare(a) }
	from, _ := slices.BinarySearchFunc(vips, a, compare)
	to, _ := slices.BinarySearchFunc(vips, a.Next(), compare)
	if to < from { // a is the last address of all
		to = len(vips)
	}
	return vips[from:to]
}

// holdsAll reports whether this box answers for each of some addresses.
func (c *claims) holdsAll(addrs map[netip.Addr][]string) bool {
	for a := range addrs {
		if !slices.ContainsFunc(c.at(a), func(v l2.VIP) bool { return v.State == l2.Answered }) {
			return false
		}
	}
	return true
}

// requester returns one of some members, such as the silent ones, that probes for one of some
// addresses, for which this box answers; "" if none does.
func (c *claims) requester(addrs map[netip.Addr][]string, of func(member string) bool, now time.Time) string {
	for a := range addrs {
		for _, v := range c.at(a) {
			if v.State == l2.Answered && !v.Requested.IsZero() && now.Sub(v.Requested) < probedLately && of(v.Requester) {
				return v.Requester
			}
		}
	}
	return ""
}

// parseMAC reads an Ethernet address.
func parseMAC(text string) (mac l2.MAC, ok bool) {
	hw, err := net.ParseMAC(text)
	if err != nil || len(hw) != len(mac) {
		return mac, false
	}
	return l2.MAC(hw), true
}
