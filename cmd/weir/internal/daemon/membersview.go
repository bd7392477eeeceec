package daemon

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"weir/cluster"
	"weir/cluster/owner"
	"weir/cmd/weir/internal/status"
	"weir/l2"
)

// What others read of the fleet.

// members has the loop tell of the fleet.
func (b *box) members(ctx context.Context) (status.Members, error) {
	var doc status.Members
	err := b.do(ctx, func() {
		b.fleet.recount()
		doc = b.fleet.doc(time.Now())
	})
	return doc, err
}

// recount takes in what changes without a word.
func (f *fleet) recount() {
	if f.gossip != nil {
		s := f.gossip.Status()
		f.heard.Counters, f.heard.Strain = s.Counters, s.Strain
	}
}

// letGo is why this box does not have what the owner of everything has beside the VIPs;
// "" if it is not for that.
func (f *fleet) letGo() string {
	if !f.stand.cutOff || len(f.extras) == 0 {
		return ""
	}
	return "nobody can reach this box: it has let go of gateways and of what masqueraded connections bear"
}

// doc is the fleet as this box sees it.
func (f *fleet) doc(now time.Time) status.Members {
	doc := status.Members{Members: []status.Member{}, Differing: []status.Differing{}, VIPs: f.roles(), Owned: f.share.mine}
	if f.cfg == nil {
		return doc
	}
	doc.Fleet, doc.Self, doc.Mode, doc.Owners = f.cfg.Gossip.Fleet, f.name(), f.cfg.Rules.Mode.String(), "spread"
	if f.byL2 {
		doc.Mode = status.ModeL2
	}
	if f.cfg.Rules.Together {
		doc.Owners = "one"
	}
	doc.Insecure, doc.Error = f.cfg.Gossip.Open, cmp.Or(errorText(f.badErr), f.heard.Error)
	doc.Differing, doc.Unjoined, doc.Strain = f.lasting(now), f.heard.Unjoined, f.heard.Strain
	n := f.heard.Counters
	doc.Counters = status.MemberCounters{Joins: n.Joins, Deaths: n.Deaths, Conflicts: n.Conflicts, Refused: n.Refused, Dropped: n.Dropped, Moves: f.moved()}
	doc.Members = append(doc.Members, f.me())
	for _, name := range f.others() {
		doc.Members = append(doc.Members, f.fellows[name].doc(now, f.cfg.RestartGrace))
	}
	slices.SortFunc(doc.Members, func(a, b status.Member) int { return cmp.Compare(a.Name, b.Name) })
	doc.Judge()
	return doc
}

// me is this box as others hear of it.
func (f *fleet) me() status.Member {
	s, said := &f.stand, f.say.state
	out := memberDoc(said)
	out.Name, out.Self, out.Life, out.Standing = f.name(), true, cluster.Alive.String(), s.now.Said.String()
	out.Since, out.Why, out.Digest = s.since, s.why, string(f.say.digest)
	out.Serves, out.Holds = f.say.serves, f.share.mine
	for _, m := range f.heard.Members {
		if m.Self {
			out.Address = m.Addr.String()
		}
	}
	if out.Standing == owner.Unfit.String() {
		out.Why = said.Unfit
	}
	if why := f.letGo(); why != "" {
		if out.CutOff = true; !strings.HasSuffix(out.Why, why) { // it says so itself if it is unfit
			out.Why = strings.TrimPrefix(out.Why+"; "+why, "; ")
		}
	}
	return out
}

// doc is another member.
func (v *fellow) doc(now time.Time, grace time.Duration) status.Member {
	m := v.member
	out := memberDoc(m.State)
	out.Name, out.Address, out.Life, out.Since = m.Name, m.Addr.String(), m.Life.String(), m.Since
	out.Suspect, out.Away, out.Standing = m.Suspect, m.Away, v.standing.String()
	if v.changed.After(out.Since) {
		out.Since = v.changed
	}
	out.Digest = string(m.State.Digest)
	if v.standing != owner.Absent {
		out.Serves, out.Holds = v.serves, v.holds
	}
	out.Why = m.State.Unfit
	switch {
	case m.Away && v.standing != owner.Absent:
		out.Why = fmt.Sprintf("its weir is gone and its kernel forwards on; it counts as before for %s", (grace - now.Sub(m.AwaySince)).Round(time.Second))
	case m.Away:
		out.Why = "its weir is gone, and has been for longer than restart_grace"
	case m.Life == cluster.Dead:
		out.Why = "it answers nobody"
	case m.Life == cluster.Left:
		out.Why = "it said good-bye"
	case m.Suspect:
		out.Why = "it does not answer this box"
	case v.unread != "":
		out.Why = "what it says can't be read: " + v.unread
	}
	return out
}

// memberDoc is what a member says in short.
func memberDoc(s cluster.State) status.Member {
	out := status.Member{Drain: s.Drain.String(), Weight: cmp.Or(int(s.Weight), owner.DefaultWeight), Version: s.Version}
	if s.FitSince != 0 {
		out.FitSince = time.Unix(s.FitSince, 0).UTC()
	}
	return out
}

// roles counts VIPs by what this box does about them.
func (f *fleet) roles() map[status.VIPRole]int {
	out := map[status.VIPRole]int{}
	for role, n := range f.share.counts {
		if role == owner.Owner && f.byL2 {
			out[status.RoleStandby] += n - f.share.mine
			n = f.share.mine
		}
		out[roleDoc(role)] += n
	}
	maps.DeleteFunc(out, func(_ status.VIPRole, n int) bool { return n == 0 })
	return out
}

// shown is what has been decided about a VIP, as people are told: where nobody announces
// it, it is not announced by all alike either, but has an owner and those that stand by.
func (f *fleet) shown(a netip.Addr) (owner.Verdict, bool) {
	v, judged := f.share.verdicts[a]
	if judged && f.byL2 && f.cfg != nil {
		rules := f.rules()
		rules.Mode = owner.ActiveStandby
		v = rules.Verdict(f.name(), f.answering(f.members()), a)
	}
	return v, judged
}

func roleDoc(r owner.Role) status.VIPRole { return status.VIPRole(r.String()) }

// moved is how many VIPs this box has taken over or given away.
func (f *fleet) moved() (n uint64) {
	for _, m := range f.share.moves {
		n += m
	}
	return n
}

// glance is the fleet at a glance; nil without [cluster].
func (f *fleet) glance(now time.Time) *status.Fleet {
	if f == nil || f.cfg == nil {
		return nil
	}
	doc := f.doc(now)
	out := &status.Fleet{
		Name: doc.Fleet, Mode: doc.Mode, Self: doc.Self, Members: map[status.MemberState]int{}, VIPs: doc.VIPs, Owned: doc.Owned,
		Differing: doc.Differing, Unjoined: doc.Unjoined, Error: doc.Error, Insecure: doc.Insecure,
	}
	for _, m := range doc.Members {
		out.Members[m.State]++
		if m.Self {
			out.State, out.Why, out.CutOff = m.State, m.Why, m.CutOff
		}
	}
	return out
}

// l2Doc is what is answered for.
func l2Doc(s l2.Status) *status.L2 {
	doc := &status.L2{Interfaces: make([]status.L2Interface, len(s.Interfaces))}
	at := map[string]*status.L2Interface{}
	for i, x := range s.Interfaces {
		doc.Interfaces[i] = status.L2Interface{Name: x.Name, Error: x.Error}
		if x.MAC != (l2.MAC{}) {
			doc.Interfaces[i].MAC = x.MAC.String()
		}
		if x.Index != 0 && !x.Carrier && x.Error == "" {
			doc.Interfaces[i].Error = "no carrier"
		}
		at[x.Name] = &doc.Interfaces[i]
	}
	for _, v := range s.VIPs {
		x := at[v.Interface]
		if x == nil {
			continue
		}
		contested := status.Contested{Address: v.Addr.String(), Interface: v.Interface, By: v.Other.String(), Member: v.Fellow, Since: v.Since}
		switch v.State {
		case l2.Held:
			x.Held++
			if v.Duplicate() {
				contested.Since = v.Heard
				doc.Duplicates = append(doc.Duplicates, contested)
			}
		case l2.Probing:
			x.Probing++
		case l2.Contested:
			x.Contested++
			doc.Contested = append(doc.Contested, contested)
		default:
			x.Idle++
		}
	}
	return doc
}

// explainOwned says who of the fleet serves an address.
func (b *box) explainOwned(ctx context.Context, doc *status.Explanation, addr netip.Addr) {
	_ = b.do(ctx, func() { doc.Owned = b.fleet.owned(addr) })
}

// owned tells that; nil for what nobody serves, and where nobody asks.
func (f *fleet) owned(addr netip.Addr) *status.Owned {
	v, judged := f.shown(addr)
	if !f.on() || !judged {
		return nil
	}
	doc := &status.Owned{Owner: v.Owner, Me: v.Owner == f.name(), Role: roleDoc(v.Role), Why: v.Why.Text(), Members: []status.OwnedBy{}}
	if f.cfg != nil {
		for _, m := range f.members() {
			if m.Serves(addr) {
				doc.Members = append(doc.Members, status.OwnedBy{
					Name: m.Name, Standing: m.Standing.String(), Holds: m.Holds(addr), Drained: m.Drains(addr),
				})
			}
		}
		slices.SortStableFunc(doc.Members, func(a, b status.OwnedBy) int {
			return cmp.Or(-cmp.Compare(rank(a, v.Owner), rank(b, v.Owner)), cmp.Compare(a.Name, b.Name))
		})
	}
	if stray := f.strayWayBack(addr, v.Owner); stray != "" {
		doc.Why += "; " + stray
	}
	if _, extra := f.extras[addr]; extra && doc.Me {
		doc.Why = cmp.Or(f.letGo(), doc.Why)
	}
	for _, x := range f.answer.status.VIPs {
		if x.Addr == addr {
			held := status.Held{Interface: x.Interface, State: x.State.String(), Since: x.Since}
			if x.Other != (l2.MAC{}) {
				held.By = cmp.Or(x.Fellow, "a stranger") + " (" + x.Other.String() + ")"
			}
			doc.Held = append(doc.Held, held)
		}
	}
	return doc
}

// strayWayBack says that replies of backends come to another member than the owner of a
// VIP, if they do: where one owner has everything, but can't serve this VIP.
func (f *fleet) strayWayBack(vip netip.Addr, has string) string {
	if _, extra := f.extras[vip]; extra || has == "" || !f.rules().Together {
		return ""
	}
	for _, a := range slices.SortedFunc(maps.Keys(f.extras), netip.Addr.Compare) {
		if back := f.share.verdicts[a].Owner; back != "" && back != has && a.Is4() == vip.Is4() {
			return "but what backends send to " + a.String() + " comes to " + back + ", which can't serve this VIP: let all members see the same backends"
		}
	}
	return ""
}

// rank orders those that can serve a VIP: its owner, then by standing.
func rank(m status.OwnedBy, ownedBy string) int {
	if m.Name == ownedBy {
		return 10
	}
	for s := owner.Absent; s <= owner.Settled; s++ {
		if s.String() == m.Standing {
			return int(s)
		}
	}
	return 0
}
