package fleet

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
	"time"

	"weir/bgp/advertise"
	"weir/cluster/owner"
	"weir/cmd/weir/internal/fleet/message"
)

// ReturnPathPatience is how long a box that gives up VIPs waits for another member to take
// over the return path of backends, before routers are asked to prefer others.
const ReturnPathPatience = 4 * time.Second

// ownership is the owner of each VIP, and what this box does about it.
type ownership struct {
	verdicts map[netip.Addr]owner.Decision
	roles    map[netip.Addr]advertise.Role // those that are not AsRuled
	// touched are the VIPs to decide again; seen are the inputs of the last election of all.
	touched  map[netip.Addr]struct{}
	seen     generations
	previous map[netip.Addr]struct{} // owned by the last run, and not decided yet
	// returnPath is set while this box answers for all floating addresses.
	returnPath bool
	// handovers are VIPs with another owner to which routers are routed here until that
	// one has the return path, with the begin.
	handovers map[netip.Addr]time.Time
	moves     map[owner.Reason]uint64
	counts    map[owner.Role]int // of VIPs, by the role of this box
	owned     int
}

func newOwnership() ownership {
	return ownership{
		verdicts: map[netip.Addr]owner.Decision{}, roles: map[netip.Addr]advertise.Role{}, touched: map[netip.Addr]struct{}{},
		handovers: map[netip.Addr]time.Time{}, moves: map[owner.Reason]uint64{}, counts: map[owner.Role]int{},
	}
}

// touch marks VIPs to decide again.
func (o *ownership) touch(vips ...netip.Addr) {
	for _, a := range vips {
		o.touched[a] = struct{}{}
	}
}

// owns reports whether a member owns a VIP; before the first decision, whether this box
// did in the last run.
func (o *ownership) owns(name string, a netip.Addr) bool {
	if v, decided := o.verdicts[a]; decided {
		return v.Owner == name
	}
	_, before := o.previous[a]
	return before
}

// ownedBy returns the VIPs of a member, sorted.
func (o *ownership) ownedBy(name string) []netip.Addr {
	var out []netip.Addr
	for a, v := range o.verdicts {
		if v.Owner == name {
			out = append(out, a)
		}
	}
	slices.SortFunc(out, netip.Addr.Compare)
	return out
}

// record records a decision and returns the one before. A VIP that no member serves stays
// recorded while Services here claim it.
func (o *ownership) record(a netip.Addr, v owner.Decision, claimed bool, me string) owner.Decision {
	delete(o.previous, a)
	before, known := o.verdicts[a]
	if known {
		o.count(before, me, -1)
	}
	if v.Owner == "" && !claimed {
		delete(o.verdicts, a)
	} else {
		o.verdicts[a] = v
		o.count(v, me, 1)
	}
	return before
}

// count adds n times a decision. A VIP that no member serves has no role to count.
func (o *ownership) count(v owner.Decision, me string, n int) {
	if v.Owner != "" {
		o.counts[v.Role] += n
	}
	if v.Owner == me {
		o.owned += n
	}
}

// assign sets the role of a VIP for routers, and reports whether it is a new one.
func (o *ownership) assign(a netip.Addr, role advertise.Role) bool {
	if o.roles[a] == role {
		return false
	}
	if role == advertise.AsRuled {
		delete(o.roles, a)
	} else {
		o.roles[a] = role
	}
	return true
}

// handsOver reports whether routers stay routed here as to the owner of a VIP although
// another member owns it: that one has no return path yet. had is the decision before.
func (o *ownership) handsOver(a netip.Addr, had owner.Decision, me string, next *member, now time.Time) bool {
	begin, under := o.handovers[a]
	if _, worse := o.roles[a]; !under && had.Owner == me && !worse {
		begin, under = now, true
	}
	if under && next != nil && next.state.Fit() && next.message.VIPs[a]&message.Owns == 0 && now.Sub(begin) < ReturnPathPatience {
		o.handovers[a] = begin
		return true
	}
	delete(o.handovers, a)
	return false
}

// handoversEnd returns when the next patience with a handover ends; the zero time if none does.
func (o *ownership) handoversEnd() (next time.Time) {
	for a, begin := range o.handovers {
		if _, touched := o.touched[a]; !touched {
			next = Soonest(next, begin.Add(ReturnPathPatience))
		}
	}
	return next
}

// touchOverdue marks the handovers that have taken too long.
func (o *ownership) touchOverdue(now time.Time) {
	for a, begin := range o.handovers {
		if now.Sub(begin) >= ReturnPathPatience {
			o.touch(a)
		}
	}
}

// moved returns how many VIPs this box has taken over or handed over.
func (o *ownership) moved() (n uint64) {
	for _, m := range o.moves {
		n += m
	}
	return n
}

// moves are VIPs that this box has taken over or handed over in one decision.
type moves map[move][]netip.Addr

type move struct {
	from, to string
	reason   owner.Reason
}

func (m moves) add(from string, v owner.Decision, a netip.Addr) {
	key := move{from, v.Owner, v.Reason}
	m[key] = append(m[key], a)
}

// maxMoveEvents bounds the events of one decision.
const maxMoveEvents = 8

// events returns an event for each pair of owners.
func (m moves) events(me string) (out []Event) {
	for _, key := range slices.SortedFunc(maps.Keys(m), move.compare) {
		if len(out) == maxMoveEvents {
			return append(out, info("more VIPs moved"))
		}
		message := "VIPs handed over"
		if key.to == me {
			message = "VIPs taken over"
		}
		vips := m[key]
		out = append(out, info(message, "vips", len(vips), "first", slices.MinFunc(vips, netip.Addr.Compare),
			"from", key.from, "to", key.to, "reason", key.reason))
	}
	return out
}

func (m move) compare(n move) int {
	return cmp.Or(cmp.Compare(m.from, n.from), cmp.Compare(m.to, n.to), cmp.Compare(m.reason, n.reason))
}

// recount counts the VIPs of this box, which may have another name.
func (o *ownership) recount(me string) { o.owned = len(o.ownedBy(me)) }
