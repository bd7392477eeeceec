package fleet

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"weir/cluster/l2"
	"weir/cluster/owner"
	"weir/lb"
)

// Notes returns the problems of the fleet and of the claims.
func (v View) Notes(now time.Time) []lb.Note {
	e, out := v.e, v.duplicates()
	if e.settings.fleet == nil {
		return out
	}
	add := func(reason lb.Reason, format string, args ...any) {
		out = append(out, lb.Note{Reason: reason, Text: fmt.Sprintf(format, args...)})
	}
	if e.settings.fleet.Gossip.Open {
		add(lb.FleetOpen, "the fleet has no key: any host that can send this box a datagram is a member of it")
	}
	for _, name := range slices.Sorted(maps.Keys(e.differences.unreachable)) {
		if now.Sub(e.differences.unreachable[name]) >= DifferAfter {
			add(lb.MemberUnreachable, "%s can't be joined: %s", name, e.members.status.Unreachable[name])
		}
	}
	me := e.settings.name
	for _, x := range e.differences.lasting(now) {
		var others []string
		for _, name := range slices.Sorted(maps.Keys(x.Digests)) {
			if x.Digests[name] != x.Digests[me] {
				others = append(others, name)
			}
		}
		text := "differs between " + strings.Join(others, ", ") + " and this box: compare weir services on both"
		switch {
		case x.Source == rulesSource:
			text = "differs between " + strings.Join(others, ", ") + " and this box: mode, placement, preempt_delay = \"never\" and the keys of [l2] must be the same, or two boxes own one VIP"
		case x.Digests[me] == "":
			text = "is known to " + strings.Join(others, ", ") + ", and not here"
		}
		add(lb.FleetDiffers, "source %s %s", x.Source, text)
	}
	for _, name := range slices.Sorted(maps.Keys(e.differences.orders)) {
		if x := e.differences.orders[name]; now.Sub(x.since) >= DifferAfter {
			add(lb.OrderDiffers, "%s has the backends of %d frontends in another order or with other weights, %s for instance: their connections would not survive a takeover", name, x.frontends, x.first)
		}
	}
	return out
}

// duplicates returns a note for each VIP of this box that an unknown host answers ARP
// for, or that was taken although a host answers, and for each Service there.
func (v View) duplicates() []lb.Note {
	var out []lb.Note
	for _, x := range v.e.claims.foreign {
		note := lb.Note{Reason: lb.DuplicateAddress, Text: fmt.Sprintf("%s is also used on %s by %s, which is no member of the fleet: remove it from that host", x.Addr, x.Interface, x.Other)}
		if x.State == l2.Contested {
			note.Text = fmt.Sprintf("%s is used on %s by %s, which is no member of the fleet, so no member answers for it: remove it from that host", x.Addr, x.Interface, x.Other)
		}
		if x.Overruled {
			note.Text = fmt.Sprintf("%s was answered for on %s by %s although its owner was dead, so this box took it over: exempt VIPs from proxy ARP and ARP suppression", x.Addr, x.Interface, cmp.Or(x.Member, x.Other.String()))
		}
		serving := v.e.local.routes[x.Addr]
		if len(serving) == 0 {
			out = append(out, note)
		}
		for _, s := range serving {
			note.Service = s.Service
			out = append(out, note)
		}
	}
	return slices.Compact(out)
}

// Numbers are the values for metrics. They do not change once made.
type Numbers struct {
	Fleet, L2   bool // there is a [fleet], an [l2]
	Fit, Stable bool
	Owned       int
	Moves       map[owner.Reason]uint64
	Suspects    int
	// Disorders counts the frontends with another order of backends, by member.
	Disorders map[string]int
	Sources   []string // with a published digest
}

// Numbers returns the values for metrics.
func (v View) Numbers() Numbers {
	e := v.e
	out := Numbers{
		Fleet: e.settings.fleet != nil, L2: e.settings.l2 != nil, Fit: e.self.reason == "", Stable: e.self.now.Published == owner.Stable,
		Owned: e.ownership.owned, Moves: maps.Clone(e.ownership.moves), Disorders: map[string]int{},
		Sources: slices.Collect(maps.Keys(e.publisher.message.Sources)),
	}
	for name, m := range e.members.byName {
		out.Disorders[name] = e.differences.orders[name].frontends
		if m.Member.Suspect {
			out.Suspects++
		}
	}
	return out
}
