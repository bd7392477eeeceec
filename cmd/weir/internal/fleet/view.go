package fleet

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"weir/cluster"
	"weir/cluster/l2"
	"weir/cluster/owner"
	"weir/cmd/weir/internal/status"
	"weir/cmd/weir/internal/status/explain"
)

// Members returns the fleet as this box sees it, with the counters of latest; nil: those
// of the last Update.
func (v View) Members(now time.Time, latest *cluster.Status) status.Members {
	e := v.e
	s, received := &e.settings, &e.members.status
	if latest == nil {
		latest = received
	}
	doc := status.Members{Members: []status.Member{}, Differing: []status.Differing{}, VIPs: v.roleCounts(), Owned: e.ownership.owned}
	if s.fleet == nil {
		return doc
	}
	doc.Fleet, doc.Self, doc.Mode, doc.Placement = s.fleet.Gossip.Fleet, s.name, s.rules().Mode.String(), "spread"
	if s.arpOnly {
		doc.Mode = status.ModeL2
	}
	if s.rules().SingleOwner {
		doc.Placement = "single"
	}
	doc.Insecure, doc.Error = s.fleet.Gossip.Open, cmp.Or(status.ErrorText(s.joinErr), received.Error)
	doc.Differing, doc.UnreachableNames, doc.HealthScore = e.differences.lasting(now), received.Unreachable, latest.HealthScore
	n := latest.Counters
	doc.Counters = status.MemberCounters{
		Joins: n.Joins, Deaths: n.Deaths, Conflicts: n.Conflicts, Refused: n.Refused, Replayed: n.Replayed, Dropped: n.Dropped, Moves: e.ownership.moved(),
	}
	doc.Members = append(doc.Members, v.selfDoc())
	for _, name := range e.members.names() {
		doc.Members = append(doc.Members, e.members.byName[name].doc(now, s.fleet.RestartGrace))
	}
	slices.SortFunc(doc.Members, func(a, b status.Member) int { return cmp.Compare(a.Name, b.Name) })
	doc.Judge()
	return doc
}

// Status returns the fleet in short; nil without [fleet].
func (v View) Status(now time.Time) *status.Fleet {
	if v.e.settings.fleet == nil {
		return nil
	}
	doc := v.Members(now, nil)
	out := &status.Fleet{
		Name: doc.Fleet, Mode: doc.Mode, Self: doc.Self, Members: map[status.MemberState]int{}, VIPs: doc.VIPs, Owned: doc.Owned,
		Differing: doc.Differing, UnreachableNames: doc.UnreachableNames, Error: doc.Error, Insecure: doc.Insecure,
	}
	for _, m := range doc.Members {
		out.Members[m.State]++
		if m.Self {
			out.State, out.Reason, out.Isolated = m.State, m.Reason, m.Isolated
		}
	}
	return out
}

// ShowOwner sets the owner of a frontend; a box without [fleet] has none to show.
func (v View) ShowOwner(x *status.Frontend) {
	if d, decided := v.shown(x.Key.Addr); decided && v.e.settings.fleet != nil {
		x.Owner, x.Role = d.Owner, status.VIPRole(d.Role.String())
	}
}

// selfDoc returns this box as other members see it.
func (v View) selfDoc() status.Member {
	e := v.e
	s, published := &e.self, e.publisher.state
	out := stateDoc(published)
	out.Name, out.Self, out.Life, out.ElectionState = e.settings.name, true, cluster.Alive.String(), s.now.Published.String()
	out.Since, out.Reason, out.Digest = s.since, s.reason, string(e.publisher.digest)
	out.Serves, out.Owns = e.publisher.serves, e.ownership.owned
	for _, m := range e.members.status.Members {
		if m.Self {
			out.Address = m.Addr.String()
		}
	}
	if s.now.Published == owner.Unfit {
		out.Reason = published.Unfit
	}
	if reason := e.isolation.releaseReason(&e.settings); reason != "" {
		if out.Isolated = true; !strings.HasSuffix(out.Reason, reason) { // an unfit box publishes it
			out.Reason = strings.TrimPrefix(out.Reason+"; "+reason, "; ")
		}
	}
	return out
}

func (m *member) doc(now time.Time, grace time.Duration) status.Member {
	out := stateDoc(m.State)
	out.Name, out.Address, out.Life, out.Since = m.Name, m.Addr.String(), m.Life.String(), m.Since
	out.Suspect, out.DaemonDown, out.ElectionState = m.Member.Suspect, m.ProcessDown, m.state.String()
	if m.changed.After(out.Since) {
		out.Since = m.changed
	}
	out.Digest = string(m.State.Digest)
	if m.state != owner.Absent {
		out.Serves, out.Owns = m.serves, m.owns
	}
	out.Reason = m.State.Unfit
	switch {
	case m.ProcessDown && m.state != owner.Absent:
		out.Reason = fmt.Sprintf("its daemon is down and its kernel forwards; it counts as before for %s", (grace - now.Sub(m.ProcessDownSince)).Round(time.Second))
	case m.ProcessDown:
		out.Reason = "its daemon has been down for longer than restart_grace"
	case m.Life == cluster.Dead:
		out.Reason = "it answers no member"
	case m.Life == cluster.Left:
		out.Reason = "it has left the fleet"
	case m.Member.Suspect:
		out.Reason = "it does not answer this box"
	case m.Unreadable+m.unread != "":
		out.Reason = "its message can't be read: " + cmp.Or(m.Unreadable, m.unread)
	}
	return out
}

// stateDoc returns the parts that a member reports in its short state.
func stateDoc(s cluster.State) status.Member {
	out := status.Member{Drain: s.Drain.String(), Weight: cmp.Or(int(s.Weight), owner.DefaultWeight), Version: s.Version}
	if s.FitSince != 0 {
		out.FitSince = time.Unix(s.FitSince, 0).UTC()
	}
	return out
}

// roleCounts counts VIPs by the role of this box.
func (v View) roleCounts() map[status.VIPRole]int {
	e := v.e
	out := map[status.VIPRole]int{}
	for role, n := range e.ownership.counts {
		if role == owner.Owner && e.settings.arpOnly {
			out[status.RoleStandby] += n - e.ownership.owned
			n = e.ownership.owned
		}
		out[status.VIPRole(role.String())] += n
	}
	maps.DeleteFunc(out, func(_ status.VIPRole, n int) bool { return n == 0 })
	return out
}

// shown returns the decision about a VIP for users. A VIP that no router knows has one
// owner and standbys even in mode active-active.
func (v View) shown(a netip.Addr) (owner.Decision, bool) {
	e := v.e
	d, decided := e.ownership.verdicts[a]
	if decided && e.settings.arpOnly && e.settings.fleet != nil {
		rules := e.settings.rules()
		rules.Mode = owner.ActiveStandby
		d = rules.Decide(e.settings.name, e.members.answering(e.candidates()), a)
	}
	return d, decided
}

// Owned returns the owner of an address; nil if no member serves it, and without [fleet]
// and [l2].
func (v View) Owned(addr netip.Addr) *explain.Owned {
	e := v.e
	d, decided := v.shown(addr)
	if !decided || e.settings.fleet == nil && e.settings.l2 == nil {
		return nil
	}
	doc := &explain.Owned{
		Owner: d.Owner, Self: d.Owner == e.settings.name, Role: status.VIPRole(d.Role.String()), Reason: d.Reason.Text(), Members: []explain.OwnedBy{},
	}
	if e.settings.fleet != nil {
		doc.Members = servers(e.candidates(), addr, d.Owner)
	}
	if lost := v.lostReturnPath(addr, d.Owner); lost != "" {
		doc.Reason += "; " + lost
	}
	if _, floating := e.settings.floating[addr]; floating && doc.Self {
		doc.Reason = cmp.Or(e.isolation.releaseReason(&e.settings), doc.Reason)
	}
	for _, x := range e.claims.at(addr) {
		on := explain.OwnedOn{Interface: x.Interface, State: x.State.String(), Since: x.Since}
		if x.Other != (l2.MAC{}) {
			on.By = cmp.Or(x.Member, "an unknown host") + " (" + x.Other.String() + ")"
		}
		doc.Interfaces = append(doc.Interfaces, on)
	}
	return doc
}

// servers returns the members that serve a VIP: its owner first, then the best states.
func servers(candidates []owner.Member, addr netip.Addr, ownedBy string) []explain.OwnedBy {
	slices.SortStableFunc(candidates, func(a, b owner.Member) int {
		switch {
		case a.Name == ownedBy:
			return -1
		case b.Name == ownedBy:
			return 1
		}
		return cmp.Or(-cmp.Compare(a.State, b.State), cmp.Compare(a.Name, b.Name))
	})
	out := []explain.OwnedBy{}
	for _, m := range candidates {
		if m.Serves(addr) {
			out = append(out, explain.OwnedBy{Name: m.Name, State: m.State.String(), Owns: m.Owns(addr), Drained: m.Drains(addr)})
		}
	}
	return out
}

// lostReturnPath returns that replies of backends go to another member than the owner of
// a VIP, where one member owns everything but cannot serve this VIP; "" if they do not.
func (v View) lostReturnPath(vip netip.Addr, ownedBy string) string {
	e := v.e
	if _, floating := e.settings.floating[vip]; floating || ownedBy == "" || !e.settings.rules().SingleOwner {
		return ""
	}
	for _, a := range slices.SortedFunc(maps.Keys(e.settings.floating), netip.Addr.Compare) {
		if back := e.ownership.verdicts[a].Owner; back != "" && back != ownedBy && a.Is4() == vip.Is4() {
			return "but replies of backends to " + a.String() + " go to " + back + ", which can't serve this VIP: give all members the same backends"
		}
	}
	return ""
}
