package daemon

import (
	"maps"
	"net/netip"
	"slices"
	"time"

	"weir/cluster"
	"weir/cluster/owner"
)

// What this box hears of the other members.

// fellow is another member as this box sees it.
type fellow struct {
	member   cluster.Member
	standing owner.Standing
	// doubt is that it has answered nobody here for too long, and its kernel does not
	// say that only its weir is gone: it may be dead before the fleet is sure of it.
	doubt  bool
	word   word
	digest cluster.Digest // of word
	// serves and holds are in how many VIPs it has these parts, by its word.
	serves, holds int
	unread        string    // why what it says can't be read
	changed       time.Time // when standing did
}

// listen takes in what has been heard of the others.
func (f *fleet) listen(now time.Time) {
	if f.news {
		f.news = false
		f.answer.listen()
		f.hear(now)
	}
	f.noticeWayBack()
	for _, v := range f.fellows {
		f.look(v, now)
	}
}

// hear takes in who is there and what they say.
func (f *fleet) hear(now time.Time) {
	if f.gossip == nil {
		return
	}
	f.heard = f.gossip.Status()
	// One that has come by itself meanwhile need not be joined.
	maps.DeleteFunc(f.heard.Unjoined, func(name, _ string) bool {
		return slices.ContainsFunc(f.heard.Members, func(m cluster.Member) bool {
			return m.Life == cluster.Alive && (name == m.Addr.String() || name == m.Addr.Addr().String())
		})
	})
	known := map[string]bool{}
	came := false
	for _, m := range f.heard.Members {
		if m.Self {
			continue
		}
		known[m.Name] = true
		v := f.fellows[m.Name]
		if v == nil {
			v = &fellow{member: cluster.Member{Life: cluster.Dead}}
			f.fellows[m.Name] = v
		}
		came = came || m.Life == cluster.Alive && v.member.Life != cluster.Alive
		v.member = m
		f.read(v)
	}
	for name := range f.fellows {
		if !known[name] {
			delete(f.fellows, name)
			f.share.all = true
		}
	}
	f.answer.meet(f)
	if came {
		f.answer.burst.want(0, now)
	}
}

// read takes in the Word of a member, if it is another one. One that can't be read
// leaves the last one in force: a member that serves does not cease to for what it says
// wrong.
func (f *fleet) read(v *fellow) {
	digest := v.member.Has
	if v.member.Word == nil || digest == v.digest {
		return
	}
	v.digest = digest
	w, err := parseWord(v.member.Word)
	if v.unread = errorText(err); err != nil {
		f.log.Warn("what a member says can't be read; what it said before counts", "member", v.member.Name, "error", err)
		return
	}
	f.share.all = f.share.all || v.word.answers != w.answers
	for _, a := range v.word.differ(w) {
		f.share.dirty[a] = struct{}{}
	}
	v.word, v.serves, v.holds = w, w.count(partServes), w.count(partHolds)
	f.differ.stale = true
}

// look takes in how a member stands.
func (f *fleet) look(v *fellow, now time.Time) {
	m := v.member
	sight, away := owner.Heard, time.Duration(0)
	switch {
	case m.Away:
		sight, away = owner.Away, now.Sub(m.AwaySince)
	case m.Life != cluster.Alive:
		sight = owner.Gone
	}
	said := saidStanding(m.State)
	if m.Unread != "" {
		said = owner.Unfit // a newer weir's, perhaps: it knows better than we do
		v.unread = m.Unread
	}
	standing, doubt := owner.Seen(said, sight, away, f.cfg.RestartGrace), m.Suspect && !m.Away
	if standing != v.standing || doubt != v.doubt {
		f.share.all = true
	}
	if standing != v.standing {
		v.changed = now
	}
	if v.doubt && !doubt && m.Life == cluster.Alive {
		f.answer.burst.want(burstEvery, now) // the wire was split, perhaps, and somebody else answered beyond
	}
	v.standing, v.doubt = standing, doubt
}

// graceEnds is when the next member that is away does not count any more; the zero time
// if none does.
func (f *fleet) graceEnds() time.Time {
	var next time.Time
	for _, v := range f.fellows {
		if v.member.Away && v.standing != owner.Absent {
			next = soonest(next, v.member.AwaySince.Add(f.cfg.RestartGrace))
		}
	}
	return next
}

// others are the names of the other members that are known, sorted.
func (f *fleet) others() []string { return slices.Sorted(maps.Keys(f.fellows)) }

// members are all that may own something, this box included, as it sees them.
func (f *fleet) members() []owner.Member {
	self := owner.Member{
		Name: f.name(), Standing: f.stand.now.Own, Serves: f.serves, Holds: f.holds, Drains: f.drains,
	}
	if f.cfg != nil {
		self.Weight = int(f.cfg.Weight)
	}
	out := []owner.Member{self}
	for _, name := range f.others() {
		v := f.fellows[name]
		if v.standing == owner.Absent {
			continue
		}
		out = append(out, owner.Member{
			Name: name, Weight: int(v.member.State.Weight), Standing: v.standing,
			Serves: v.word.has(partServes), Holds: v.word.has(partHolds), Drains: v.word.has(partDrains),
		})
	}
	return out
}

// answering are members as far as they answer ARP and NDP: one that has a VIP and does
// not, for its configuration is an older one, must not keep those from it that do. This
// box counts with all it serves: it claims only what it is to answer for.
func (f *fleet) answering(members []owner.Member) []owner.Member {
	out := slices.Clone(members)
	for i, m := range out {
		if v := f.fellows[m.Name]; v != nil {
			w := v.word
			out[i].Serves = func(a netip.Addr) bool { return w.answers && w.vips[a]&(partServes|partMute) == partServes }
		}
	}
	return out
}
