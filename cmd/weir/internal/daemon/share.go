package daemon

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
	"time"

	"weir/bgp"
	"weir/cluster/owner"
	"weir/l2"
)

// Who owns what, by how this box and the others stand.

// share is what has been decided.
type share struct {
	verdicts map[netip.Addr]owner.Verdict
	roles    map[netip.Addr]bgp.Role // those that are not AsRuled
	// dirty are addresses whose verdicts may be others by now; all of them if all.
	dirty map[netip.Addr]struct{}
	all   bool
	// wayBack is whether this box had what the owner of everything has beside the VIPs.
	wayBack bool
	// giving are VIPs that another member is to own, since when, to which routers are led
	// here until it has the way back.
	giving map[netip.Addr]time.Time
	moves  map[owner.Why]uint64
	// counts are how many VIPs this box has which role for, and mine how many it owns.
	counts map[owner.Role]int
	mine   int
}

func newShare() share {
	return share{
		verdicts: map[netip.Addr]owner.Verdict{}, roles: map[netip.Addr]bgp.Role{},
		dirty: map[netip.Addr]struct{}{}, giving: map[netip.Addr]time.Time{}, moves: map[owner.Why]uint64{}, counts: map[owner.Role]int{},
	}
}

// outcome is what a change of verdicts means for those who lead clients here.
type outcome struct {
	// roles are for routers. Those of VIPs that nobody here answers for come late, when
	// the routers have been told that: then the VIP is held down when it returns.
	roles, late map[netip.Addr]bgp.Role
	claims      map[netip.Addr]*l2.Claim
}

// holds tells whether this box owns a VIP, or did so in a run just before.
func (f *fleet) holds(a netip.Addr) bool {
	if v, decided := f.share.verdicts[a]; decided {
		return v.Owner == f.name()
	}
	_, before := f.tracer.before[a]
	return before
}

// holding are the VIPs that this box owns, sorted; nil if nobody will ask.
func (f *fleet) holding() []netip.Addr {
	if f.cfg == nil || !f.cfg.Rules.Stay {
		return nil
	}
	var out []netip.Addr
	for a, v := range f.share.verdicts {
		if v.Owner == f.name() {
			out = append(out, a)
		}
	}
	slices.SortFunc(out, netip.Addr.Compare)
	return out
}

// drains tells whether somebody takes a VIP off this box.
func (f *fleet) drains(a netip.Addr) bool {
	_, out := f.stand.out.vips[a]
	return out
}

// rules are those by which VIPs are shared.
func (f *fleet) rules() owner.Rules {
	if f.cfg == nil {
		return owner.Rules{}
	}
	return f.cfg.Rules
}

// vips are all addresses that anybody serves, or that Services here claim.
func (f *fleet) vips() map[netip.Addr]struct{} {
	out := map[netip.Addr]struct{}{}
	for a := range f.routes {
		out[a] = struct{}{}
	}
	for a := range f.extras {
		out[a] = struct{}{}
	}
	for a := range f.share.verdicts {
		out[a] = struct{}{}
	}
	for _, v := range f.fellows {
		for a := range v.word.vips {
			out[a] = struct{}{}
		}
	}
	return out
}

// decide judges the VIPs whose verdicts may be others than before. A box that does not
// know who else is there decides nothing: whatever it does stays as it is.
func (f *fleet) decide(now time.Time) outcome {
	s := &f.share
	out := outcome{roles: map[netip.Addr]bgp.Role{}, late: map[netip.Addr]bgp.Role{}, claims: map[netip.Addr]*l2.Claim{}}
	if f.left || f.cfg != nil && !f.stand.joined {
		return out
	}
	f.late(now)
	dirty := s.dirty
	if s.all {
		dirty = f.vips()
	}
	if len(dirty) == 0 {
		return out
	}
	members, rules, moved := f.members(), f.rules(), moves{}
	answering := f.answering(members)
	if f.byL2 {
		members = answering
	}
	sure := slices.DeleteFunc(slices.Clone(answering), func(m owner.Member) bool {
		v := f.fellows[m.Name]
		return v != nil && v.doubt
	})
	for a := range dirty {
		had, v := s.verdicts[a], rules.Verdict(f.name(), members, a)
		f.judged(a, v, moved)
		if !f.givesAway(a, had, v, now) {
			f.roleOf(a, v, &out)
		}
		var claim *l2.Claim
		switch {
		case f.answer.cfg == nil:
		case rules.Owner(answering, a) == f.name():
			claim = f.claimOf(a)
		case len(sure) < len(answering) && rules.Owner(sure, a) == f.name():
			if claim = f.claimOf(a); claim != nil {
				claim.Doubtful = true
			}
		}
		f.answer.want(a, claim, out.claims)
	}
	s.dirty, s.all = map[netip.Addr]struct{}{}, false
	moved.log(f)
	return out
}

// owned is how many VIPs a member owns.
func (s *share) owned(name string) int {
	n := 0
	for _, v := range s.verdicts {
		if v.Owner == name {
			n++
		}
	}
	return n
}

// count adds n times a verdict. A VIP that nobody serves has no role to count.
func (s *share) count(v owner.Verdict, me string, n int) {
	if v.Owner != "" {
		s.counts[v.Role] += n
	}
	if v.Owner == me {
		s.mine += n
	}
}

// judged takes down a verdict.
func (f *fleet) judged(a netip.Addr, v owner.Verdict, moved moves) {
	s := &f.share
	before, known := s.verdicts[a]
	_, mine := f.routes[a]
	if v.Owner == "" && !mine {
		delete(s.verdicts, a)
	} else {
		s.verdicts[a] = v
	}
	me := f.name()
	if known {
		s.count(before, me, -1)
	}
	if _, judged := s.verdicts[a]; judged {
		s.count(v, me, 1)
	}
	if before.Owner == v.Owner {
		return
	}
	if before.Owner == me || v.Owner == me {
		f.say.stale = true
		if !f.ownersMatter() {
			return
		}
		if known && before.Owner != "" && v.Owner != "" {
			s.moves[v.Why]++
		}
		moved.add(before.Owner, v, a)
	}
}

// ownersMatter tells whether it makes a difference who owns a VIP. Where all announce it
// alike, and nobody answers ARP, it does not.
func (f *fleet) ownersMatter() bool {
	return f.answer.cfg != nil || f.rules().Mode == owner.ActiveStandby
}

// roleOf gives routers' role of a VIP, if it is another one.
func (f *fleet) roleOf(a netip.Addr, v owner.Verdict, out *outcome) {
	role, to := bgp.AsRuled, out.roles
	_, mine := f.routes[a]
	_, extra := f.extras[a]
	switch {
	case !mine && !extra || f.cfg == nil:
	case v.Role == owner.Standby, f.lacksWayBack(v):
		role = bgp.Standby
	case v.Role == owner.Out:
		role = bgp.Out
	case v.Role == owner.Nothing && v.Owner != "":
		// Others have a backend: the floor is not meant for that.
		role, to = bgp.Out, out.late
	}
	if f.share.roles[a] == role {
		return
	}
	if to[a] = role; role == bgp.AsRuled {
		delete(f.share.roles, a)
	} else {
		f.share.roles[a] = role
	}
}

// lastOne tells whether this box can serve a VIP, and no other can that is fit and that
// nobody takes it off; of a VIP that is gone from here, whether no other serves it at all.
func (f *fleet) lastOne(a netip.Addr, gone bool) bool {
	if _, extra := f.extras[a]; !extra && len(f.routes[a]) == 0 {
		return false
	}
	for _, v := range f.fellows {
		serves := v.standing != owner.Absent && v.word.vips[a]&partServes != 0
		if serves && (gone || v.standing.Fit() && v.word.vips[a]&partDrains == 0) {
			return false
		}
	}
	return true
}

// ownerOf names the member that is to have a VIP, "" if there is none, and tells whether
// it says that it does.
func (f *fleet) ownerOf(a netip.Addr) (name string, has bool) {
	name = f.share.verdicts[a].Owner
	v := f.fellows[name]
	return name, name != "" && (v == nil || v.word.vips[a]&partHolds != 0)
}

// moves are VIPs that this box has taken over or given away at once, by from whom, to
// whom and why.
type moves map[move][]netip.Addr

type move struct {
	from, to string
	why      owner.Why
}

func (m moves) add(from string, v owner.Verdict, a netip.Addr) {
	key := move{from, v.Owner, v.Why}
	m[key] = append(m[key], a)
}

// maxMoveLines bounds the log of one decision.
const maxMoveLines = 8

func (m moves) log(f *fleet) {
	lines := 0
	for _, key := range slices.SortedFunc(maps.Keys(m), move.compare) {
		if lines++; lines > maxMoveLines {
			f.log.Info("and more VIPs have another owner")
			return
		}
		what := "given away"
		if key.to == f.name() {
			what = "owned"
		}
		vips := m[key]
		f.log.Info(what, "vips", len(vips), "first", slices.MinFunc(vips, netip.Addr.Compare), "from", key.from, "to", key.to, "why", key.why)
	}
}

// compare orders moves, for the log.
func (m move) compare(n move) int {
	return cmp.Or(cmp.Compare(m.from, n.from), cmp.Compare(m.to, n.to), cmp.Compare(m.why, n.why))
}
