package daemon

import (
	"net/netip"
	"slices"
	"time"

	"weir/cluster/owner"
	"weir/l2"
)

// Where backends reply through a gateway that the owner of everything answers for, a box
// that has the VIPs without the gateway serves nobody: the replies go by another box.
// Routers must not be led to it as to the owner before it has both.

// wayBack tells whether this box has all that the owner of everything has beside the
// VIPs: it answers for each of them, and nobody else does.
func (f *fleet) wayBack() bool {
	for a := range f.extras {
		if !slices.ContainsFunc(f.seats(a), func(v l2.VIP) bool { return v.State == l2.Held }) {
			return false
		}
	}
	return true
}

// seats is how far this box is with answering for an address, on each interface.
func (f *fleet) seats(a netip.Addr) []l2.VIP {
	vips := f.answer.status.VIPs // sorted by address
	at := func(v l2.VIP, a netip.Addr) int { return v.Addr.Compare(a) }
	from, _ := slices.BinarySearchFunc(vips, a, at)
	to, _ := slices.BinarySearchFunc(vips, a.Next(), at)
	if to < from { // a is the last address of all
		to = len(vips)
	}
	return vips[from:to]
}

// lacksWayBack tells whether an owner of VIPs is to be told to routers as a standby.
func (f *fleet) lacksWayBack(v owner.Verdict) bool {
	return v.Role == owner.Owner && f.followed() && !f.share.wayBack
}

// noticeWayBack has everything judged anew when it came or went.
func (f *fleet) noticeWayBack() {
	if len(f.extras) == 0 {
		return
	}
	if has := f.wayBack(); has != f.share.wayBack {
		f.share.wayBack, f.share.all, f.say.stale = has, true, true
	}
}

// handoverPatience is how long a box that gives VIPs away leads routers to itself until
// the next owner says that it has the way back: it has to hear of it, to wait until this
// box lets go, and to ask whether it has.
const handoverPatience = 4 * time.Second

// followed tells whether a way back moves with the VIPs that routers are told of.
func (f *fleet) followed() bool {
	return f.cfg != nil && f.answer.cfg != nil && len(f.extras) > 0 && f.rules().Mode == owner.ActiveStandby
}

// has tells whether this box has a VIP, with all that goes with it, as it owns it.
func (f *fleet) has(a netip.Addr) bool {
	return f.share.verdicts[a].Owner == f.name() && (!f.followed() || f.share.wayBack)
}

// givesAway tells whether routers, who are led here as to the owner of a VIP, are to be
// led here still although another member is to own it: that one has no way back yet. had
// is the verdict before.
func (f *fleet) givesAway(a netip.Addr, had, v owner.Verdict, now time.Time) bool {
	next := f.fellows[v.Owner]
	since, gives := f.share.giving[a]
	if _, worse := f.share.roles[a]; !gives && had.Owner == f.name() && !worse {
		since, gives = now, true
	}
	if gives && f.followed() && next != nil && next.standing.Fit() && next.word.vips[a]&partHolds == 0 && now.Sub(since) < handoverPatience {
		f.share.giving[a] = since
		return true
	}
	delete(f.share.giving, a)
	return false
}

// handsOver tells whether the way back is still here, or nowhere yet, while this box is
// being taken out.
func (f *fleet) handsOver() bool {
	if !f.followed() {
		return false
	}
	for a := range f.extras {
		if name, has := f.ownerOf(a); name == f.name() || name != "" && !has {
			return true
		}
	}
	return false
}

// handoverEnds is when patience with the next handover does; the zero time if there is
// none.
func (f *fleet) handoverEnds() time.Time {
	var next time.Time
	for _, since := range f.share.giving {
		next = soonest(next, since.Add(handoverPatience))
	}
	return next
}

// late has those judged again with whom patience is over.
func (f *fleet) late(now time.Time) {
	for a, since := range f.share.giving {
		if now.Sub(since) >= handoverPatience {
			f.share.dirty[a] = struct{}{}
		}
	}
}
