package daemon

import (
	"slices"
	"time"

	"weir/cluster"
)

// The owner of everything also has what others send their packets through: the gateways
// of backends, and the source of masqueraded connections. Usually the last box that can
// serve keeps all that, however unfit it is. But one that nobody can reach any more
// serves nobody, and may be the last only as far as it can see: it would keep the way
// back from the box that has taken over.

// unheardPatience is how long a box that is alone may be without a session with a router
// until it takes itself for cut off: routers that restart are back sooner.
const unheardPatience = 15 * time.Second

// cutOff tells whether nobody can reach this box: no interface of [l2] carries anything,
// or VIPs are for routers only and none has a session with it, nor is any other member
// there, of those that were. It also tells when time alone may make it so.
func (f *fleet) cutOff(facts facts, now time.Time) (is bool, next time.Time) {
	l := f.answer.cfg
	if f.cfg == nil || l == nil {
		return false, time.Time{}
	}
	if !slices.ContainsFunc(l.Interfaces, func(name string) bool { return !slices.Contains(facts.darkNames, name) }) {
		return true, time.Time{}
	}
	unheard := len(facts.routers) > 0 && !facts.asked.IsZero() && !facts.heard && f.alone() && !f.answersClients()
	f.unheard.follow(unheard, now)
	if !unheard {
		return false, time.Time{}
	}
	if end := f.unheard.since.Add(unheardPatience); now.Before(end) {
		return false, end
	}
	return true, time.Time{}
}

// answersClients tells whether any VIP is answered for, and not only gateways.
func (f *fleet) answersClients() bool {
	for a, serving := range f.routes {
		if f.answer.cfg.Wants(a, serving) {
			return true
		}
	}
	return false
}

// alone tells whether there were other members, and none is there.
func (f *fleet) alone() bool {
	for _, v := range f.fellows {
		if v.member.Life == cluster.Alive && !v.member.Suspect {
			return false
		}
	}
	return len(f.fellows) > 0
}
