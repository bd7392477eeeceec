package l2

import (
	"time"
)

// Probes: RFC 5227 sends three, one to two seconds apart, after a wait of up to one
// second, and then waits two more. That is for hosts in no hurry; here clients wait.
const (
	probes         = 3
	probeGap       = 100 * time.Millisecond
	cautiousProbes = 8
	cautiousGap    = 75 * time.Millisecond
	// While another host answers, a contested VIP is probed every contestGap, and every
	// contestSlowGap after contestSlowAfter.
	contestGap       = 200 * time.Millisecond
	contestSlowAfter = 5 * time.Second
	contestSlowGap   = time.Second
	// overruleAfter is the time without a sign of life of the other host after which a
	// VIP of a dead member is taken. A live member gives a sign affirmAfter each second.
	overruleAfter = 5 * time.Second
	affirmAfter   = 150 * time.Millisecond
	// lateAnswer is the time after a probe within which a frame counts as its answer.
	lateAnswer = 100 * time.Millisecond
	// defendGap is the shortest time between two defences of a VIP, and between two
	// conflicts that are counted.
	defendGap = time.Second
	// requestedGap is the resolution of VIP.Requested.
	requestedGap = time.Second
	// conflictMemory is the time for which the other user of a VIP is remembered.
	conflictMemory = time.Minute
	// maxForeign bounds the foreign users that are remembered for the log.
	maxForeign = 1000
)

// burst is the schedule of announcements after a takeover. The last one is for switches
// that block a port for 30 s after link up (spanning tree).
var burst = [...]time.Duration{0, 100 * time.Millisecond, 500 * time.Millisecond, time.Second, 2 * time.Second,
	5 * time.Second, 10 * time.Second, 30 * time.Second}

// probesNeeded returns how many probes must stay unanswered, and the gap between them. A member that counts as dead and
// has answered may be alive without contact to this box, as one that is suspected.
func (b *binding) probesNeeded(members map[MAC]Member) (int, time.Duration) {
	if b.cautious || b.state == Contested && members[b.other.mac].Gone {
		return cautiousProbes, cautiousGap
	}
	return probes, probeGap
}

// enqueue queues a frame to be sent at the pace of the link.
func (b *binding) enqueue(k frameKind, p priority) {
	q := &b.link.queue[p]
	*q = append(*q, queuedFrame{b, b.generation, k})
}

// countConflict counts a conflict, at most once in defendGap; it returns false if the
// conflict was not counted.
func (b *binding) countConflict(withMember bool, now time.Time) bool {
	if !b.other.counted.IsZero() && now.Sub(b.other.counted) < defendGap {
		return false
	}
	b.other.counted = now
	if withMember {
		b.link.MemberConflicts++
	} else {
		b.link.ForeignConflicts++
	}
	return true
}

// become changes the state, which begins a new generation.
func (e *engine) become(b *binding, state State, now time.Time) {
	b.generation++
	b.unanswered, b.burstStep, b.nextGratuitous, b.requested, b.requester = 0, 0, time.Time{}, time.Time{}, ""
	e.timers.set(b, time.Time{})
	if b.state != state {
		b.link.count[b.state]--
		b.link.count[state]++
		b.state, b.since = state, now
		e.statusChanges++
	}
	switch state {
	case Probing:
		b.enqueue(kindProbe, priorityFirstProbe)
	case Contested:
		e.timers.set(b, now.Add(contestGap))
	case Answered:
		b.link.Takeovers++
		b.other.counted = time.Time{} // a later conflict is a new one
		b.enqueue(kindGratuitous, priorityMove)
	}
}

// reset restarts a binding according to the state of its link.
func (e *engine) reset(b *binding, now time.Time) {
	b.other = otherUser{counted: b.other.counted}
	state := Idle
	if b.link.ready() {
		state = Probing
	}
	e.become(b, state, now)
}

// timeout does the work for which a binding has waited.
func (e *engine) timeout(b *binding, now time.Time) {
	e.timers.set(b, time.Time{})
	switch b.state {
	case Probing, Contested:
		if need, _ := b.probesNeeded(e.members); b.unanswered >= need {
			e.become(b, Answered, now)
			return
		}
		if b.state == Contested && b.unanswered == 0 {
			b.enqueue(kindProbe, priorityRepeat)
			return
		}
		b.enqueue(kindProbe, priorityProbing)
	case Answered:
		if b.other.mac != (MAC{}) && !now.Before(b.other.forget) {
			b.other.mac, b.other.member, b.other.overruled = MAC{}, "", false
			e.statusChanges++
		}
		if !b.nextGratuitous.IsZero() && !now.Before(b.nextGratuitous) {
			b.nextGratuitous = time.Time{}
			b.enqueue(kindGratuitous, priorityRepeat)
		}
		e.timers.setAnswered(b)
	}
}

// sent continues after a frame has been sent.
func (e *engine) sent(b *binding, k frameKind, now time.Time) {
	b.other.probed = now // a leaf answers announcements, too
	switch k {
	case kindProbe:
		b.link.Probes++
		b.unanswered++
		_, gap := b.probesNeeded(e.members)
		e.timers.set(b, now.Add(gap))
	case kindGratuitous:
		b.link.Gratuitous++
		if b.vip.Is4() {
			b.enqueue(kindGratuitousReply, priorityRepeat)
		}
		b.burstStep++
		e.scheduleGratuitous(b, now)
	case kindGratuitousReply, kindDefence:
		b.link.Gratuitous++
	}
}

// scheduleGratuitous sets the time of the next announcement: the next step of the burst,
// then Config.GARPInterval.
func (e *engine) scheduleGratuitous(b *binding, now time.Time) {
	switch {
	case b.burstStep < len(burst):
		b.nextGratuitous = now.Add(burst[b.burstStep] - burst[b.burstStep-1])
	case e.config.GARPInterval > 0:
		b.nextGratuitous = now.Add(e.config.GARPInterval)
	default:
		b.nextGratuitous = time.Time{}
	}
	e.timers.setAnswered(b)
}

// announce restarts the burst.
func (e *engine) announce(b *binding, p priority) {
	b.generation++
	b.burstStep, b.nextGratuitous = 0, time.Time{}
	b.enqueue(kindGratuitous, p)
	e.timers.setAnswered(b)
}

// conflict handles a frame of another host that uses a claimed VIP.
func (e *engine) conflict(b *binding, from MAC, now time.Time) {
	if b.state == Idle {
		return
	}
	m, known := e.members[from]
	if b.state == Answered && b.other.overruled && from == b.other.mac && (m.Gone || !known) {
		if now.Sub(b.other.probed) < lateAnswer {
			b.remember(e.config.GARPInterval, now)
			return
		}
		b.other.objected = true
	}
	e.recordUser(b, from, m.Name, now)
	if b.state != Answered {
		e.contest(b, known, now)
		return
	}
	if known && m.Preferred != nil && m.Preferred(b.vip) {
		b.countConflict(known, now)
		e.become(b, Contested, now)
		return
	}
	if !b.countConflict(known, now) {
		e.timers.setAnswered(b)
		return
	}
	if known { // it yields, and its neighbours must learn
		e.announce(b, priorityMove)
		return
	}
	b.enqueue(kindDefence, priorityMove)
	e.timers.setAnswered(b)
}

// competingProbe handles a probe of another host for a VIP that is being probed here. One
// of the two goes on: of members the preferred one, else the host with the smaller MAC.
func (e *engine) competingProbe(b *binding, from MAC, now time.Time) {
	m, known := e.members[from]
	yields := string(from[:]) < string(b.link.mac[:])
	if known {
		yields = m.Preferred != nil && m.Preferred(b.vip)
	}
	if yields {
		e.recordUser(b, from, m.Name, now)
		e.contest(b, known, now)
	}
}

// contest makes a binding that is not Answered wait before it probes again.
func (e *engine) contest(b *binding, withMember bool, now time.Time) {
	if b.state == Probing {
		b.countConflict(withMember, now)
		e.become(b, Contested, now)
		return
	}
	if b.overrules(e.members[b.other.mac], now) {
		e.become(b, Answered, now)
		b.other.overruled = true
		b.remember(e.config.GARPInterval, now)
		b.link.Overruled++
		if len(e.foreign) < maxForeign {
			e.foreign = append(e.foreign, foreignUse{b.vip, b.link.name, b.other.mac, b.other.member, true})
		}
		return
	}
	b.generation++
	b.unanswered = 0
	gap := contestGap
	if now.Sub(b.since) >= contestSlowAfter {
		gap = contestSlowGap
	}
	e.timers.set(b, now.Add(gap))
}

// overrules reports whether a contested VIP is taken although another host answers for it:
// the owner is dead, and that host has shown no sign of life. An objection lasts until the
// owner is alive.
func (b *binding) overrules(m Member, now time.Time) bool {
	dead := b.orphaned && m.Name == "" || m.Gone
	return dead && !b.other.objected && now.Sub(b.since) >= overruleAfter && now.Sub(b.other.lived) >= overruleAfter
}

// remember records that the other host has used the VIP. One that was overruled is remembered until it has had the time to
// answer the next announcement: otherwise that answer would be a conflict.
func (b *binding) remember(announced time.Duration, now time.Time) {
	b.other.seen, b.other.forget = now, now.Add(conflictMemory)
	if b.other.overruled {
		b.other.forget = b.other.forget.Add(announced)
	}
}

// recordUser records the other host that uses the VIP.
func (e *engine) recordUser(b *binding, from MAC, member string, now time.Time) {
	if b.other.mac != from || b.other.member != member {
		e.statusChanges++
		if member == "" && len(e.foreign) < maxForeign {
			e.foreign = append(e.foreign, foreignUse{vip: b.vip, link: b.link.name, mac: from})
		}
	}
	if b.other.mac != from {
		b.other.overruled, b.other.objected = false, false
	}
	if now.Sub(b.other.probed) >= lateAnswer {
		b.other.lived = now
	}
	b.other.mac, b.other.member = from, member
	b.remember(e.config.GARPInterval, now)
}
