package fleet

import (
	"maps"
	"net/netip"
	"slices"
	"time"

	"weir/cluster"
	"weir/cluster/owner"
	"weir/cmd/weir/internal/fleet/message"
	"weir/cmd/weir/internal/status"
)

// member is another member as this box sees it.
type member struct {
	cluster.Member
	state owner.State
	// suspect is set if it has not answered this box for too long, unless its kernel shows
	// that only its daemon is down: it may be dead before the fleet is sure of it.
	suspect bool
	message message.Message
	digest  cluster.Digest // of message
	// serves and owns are the numbers of VIPs that it serves and owns.
	serves, owns int
	unread       string    // the reason that its message cannot be read
	kept         bool      // the restarted gossip has not found it yet
	changed      time.Time // of the last change of state
}

// comparable reports whether the sources of a member should be those of this box: it is
// fit, and has sent a message.
func (m *member) comparable() bool {
	return m.state.Fit() && m.Life == cluster.Alive && len(m.message.Sources) > 0
}

// members are the other members of the fleet.
type members struct {
	byName map[string]*member
	status cluster.Status // of the last receive
	fleet  string         // the name of the fleet
	// gone are the members that a restarted gossip has not found, and when it should have.
	gone map[string]time.Time
}

// A member stays in members.gone as long as a dead one in a gossip that is not restarted, and there are as many at most.
const goneFor, maxGone = 24 * time.Hour, 1000

func newMembers(fleet string) members {
	return members{byName: map[string]*member{}, gone: map[string]time.Time{}, fleet: fleet}
}

// comparable returns the names of the members to compare with, sorted; none if this box is not ready to be compared.
func (m *members) comparable(ready bool) (names []string) {
	for name, v := range m.byName {
		if ready && v.comparable() {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// receipt is the result of receiving members.
type receipt struct {
	changed  bool // members that count have gone, or answer ARP in another way
	messages bool // there are new messages
	joined   bool // a member has come
	touched  []netip.Addr
	events   []Event
}

// receive takes the members as the gossip has them. With keep, those that it does not have
// stay as they were: it was restarted, and may not have found them yet.
func (m *members) receive(status cluster.Status, keep bool, now time.Time) (out receipt) {
	m.status = status
	// A member that has joined on its own need not be joined.
	maps.DeleteFunc(m.status.Unreachable, func(name, _ string) bool {
		return slices.ContainsFunc(status.Members, func(x cluster.Member) bool {
			return x.Life == cluster.Alive && (name == x.Addr.String() || name == x.Addr.Addr().String())
		})
	})
	known := map[string]bool{}
	for _, x := range status.Members {
		if x.Self {
			continue
		}
		known[x.Name] = true
		v := m.byName[x.Name]
		if v == nil {
			v = &member{Member: cluster.Member{Life: cluster.Dead}}
			m.byName[x.Name] = v
		}
		out.joined = out.joined || x.Life == cluster.Alive && (v.Life != cluster.Alive || v.kept)
		v.Member, v.kept = x, false
		v.read(&out)
	}
	for name, v := range m.byName {
		if v.kept = !known[name]; v.kept && !keep {
			delete(m.byName, name)
			out.changed = true
		}
	}
	maps.DeleteFunc(m.gone, func(name string, at time.Time) bool { return known[name] || now.Sub(at) > goneFor })
	return out
}

// begin forgets the members of another fleet, when the gossip has been restarted for this one.
func (m *members) begin(fleet string, rejoins uint64) {
	switch {
	case m.fleet == "":
		m.fleet = fleet
	case m.fleet != fleet && rejoins != m.status.Rejoins:
		*m = newMembers(fleet)
	}
}

// forget forgets the members that a restarted gossip has not found in time, and reports whether there were any.
func (m *members) forget(now time.Time) (any bool) {
	for name, v := range m.byName {
		if v.kept {
			delete(m.byName, name)
			any = true
		}
		if v.kept && v.Life != cluster.Left && len(m.gone) < maxGone {
			m.gone[name] = now
		}
	}
	return any
}

// read takes the message of a member, if it is a new one. A message that cannot be read
// leaves the last one in force: the member goes on serving.
func (m *member) read(out *receipt) {
	digest := m.MessageDigest
	if digest == "" || digest == m.digest {
		return
	}
	m.digest = digest
	msg, err := message.Parse(m.Message)
	if m.unread = status.ErrorText(err); err != nil {
		out.events = append(out.events, warning("member message refused", "member", m.Name, "error", err))
		return
	}
	out.changed = out.changed || m.message.Answers != msg.Answers
	out.touched = append(out.touched, m.message.Changed(msg)...)
	m.message, m.serves, m.owns = msg, msg.Count(message.Serves), msg.Count(message.Owns)
	out.messages = true
}

// observe takes the state of each member at a moment, and reports whether one has
// changed, and whether a suspect has answered again.
func (m *members) observe(grace time.Duration, now time.Time) (changed, answered bool) {
	for _, v := range m.byName {
		c, a := v.observe(grace, now)
		changed, answered = changed || c, answered || a
	}
	return changed, answered
}

func (m *member) observe(grace time.Duration, now time.Time) (changed, answered bool) {
	sight, away := owner.Alive, time.Duration(0)
	switch {
	case m.ProcessDown:
		sight, away = owner.ProcessDown, now.Sub(m.ProcessDownSince)
	case m.Life != cluster.Alive:
		sight = owner.Dead
	}
	reported := reportedState(m.State)
	if m.Unreadable != "" {
		reported = owner.Unfit // the member may be of a newer version, and knows better
	}
	state, suspect := owner.StateOf(reported, sight, away, grace), m.Suspect && !m.ProcessDown
	changed = state != m.state || suspect != m.suspect
	if state != m.state {
		m.changed = now
	}
	answered = m.suspect && !suspect && m.Life == cluster.Alive
	m.state, m.suspect = state, suspect
	return changed, answered
}

// reportedState returns the state of a member by its own report.
func reportedState(s cluster.State) owner.State {
	switch {
	case s.Drain != cluster.Serving:
		return owner.Draining
	case s.Unfit != "":
		return owner.Unfit
	case s.Stable:
		return owner.Stable
	}
	return owner.Fresh
}

// graceEnds returns when the next unreachable member stops counting; the zero time if
// there is none.
func (m *members) graceEnds(grace time.Duration) (next time.Time) {
	for _, v := range m.byName {
		if v.ProcessDown && v.state != owner.Absent {
			next = Soonest(next, v.ProcessDownSince.Add(grace))
		}
	}
	return next
}

// names returns the names of all other members, sorted.
func (m *members) names() []string { return slices.Sorted(maps.Keys(m.byName)) }

// anyStable reports whether another member is stable.
func (m *members) anyStable() bool {
	for _, v := range m.byName {
		if v.state == owner.Stable {
			return true
		}
	}
	return false
}

// answers reports whether the member answers the probes of the gossip.
func (m *member) answers() bool { return m.Life == cluster.Alive && !m.Member.Suspect }

// allGone reports whether there were other members, and none answers.
func (m *members) allGone() bool {
	for _, v := range m.byName {
		if v.answers() {
			return false
		}
	}
	return len(m.byName)+len(m.gone) > 0
}

// silent reports whether there is a member of a name that does not answer.
func (m *members) silent(name string) bool {
	v := m.byName[name]
	_, gone := m.gone[name]
	return v != nil && !v.answers() || gone
}

// answered reports whether all members to join have answered, and their messages are
// here. The first answer is not enough: of three boxes that start at once two would take
// the VIPs of the third.
func (m *members) answered() bool {
	answered := false
	for _, v := range m.byName {
		if v.kept || !v.answers() {
			continue
		}
		if v.State.Message != "" && v.digest != v.State.Message {
			return false
		}
		answered = true
	}
	return answered && m.status.Joined
}

// candidates returns the other members that count in an election.
func (m *members) candidates() []owner.Member {
	var out []owner.Member
	for _, name := range m.names() {
		v := m.byName[name]
		if v.state == owner.Absent {
			continue
		}
		out = append(out, owner.Member{
			Name: name, Weight: int(v.State.Weight), State: v.state,
			Serves: v.message.Has(message.Serves), Owns: v.message.Has(message.Owns), Drains: v.message.Has(message.Drains),
		})
	}
	return out
}

// answering returns candidates as far as they answer ARP and NDP. A member with an older
// configuration serves a VIP without answering for it, and must not keep it from others.
// This box counts with all it serves: it claims nothing else.
func (m *members) answering(candidates []owner.Member) []owner.Member {
	out := slices.Clone(candidates)
	for i, c := range out {
		if v := m.byName[c.Name]; v != nil {
			msg := v.message
			out[i].Serves = func(a netip.Addr) bool {
				return msg.Answers && msg.VIPs[a]&(message.Serves|message.Mute) == message.Serves
			}
		}
	}
	return out
}

// sure returns candidates without the suspects.
func (m *members) sure(candidates []owner.Member) []owner.Member {
	return slices.DeleteFunc(slices.Clone(candidates), func(c owner.Member) bool {
		v := m.byName[c.Name]
		return v != nil && v.suspect
	})
}

// orphaned reports whether a member that is gone was the owner of a VIP, and answered for it.
func (m *members) orphaned(a netip.Addr) bool {
	for _, v := range m.byName {
		if v.Life != cluster.Alive && v.message.VIPs[a]&(message.Owns|message.Contested) == message.Owns {
			return true
		}
	}
	return false
}

// serving reports whether another member serves a VIP; fit asks for one that is fit and
// where the VIP is not drained.
func (m *members) serving(a netip.Addr, fit bool) bool {
	for _, v := range m.byName {
		if v.state != owner.Absent && v.message.VIPs[a]&message.Serves != 0 && (!fit || v.state.Fit() && v.message.VIPs[a]&message.Drains == 0) {
			return true
		}
	}
	return false
}
