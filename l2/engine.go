package l2

import (
	"maps"
	"net/netip"
	"slices"
	"time"
)

// engine is everything but effects: who claims what, what has been heard, and what is to
// be said when. It is told the time, and gives frames (out).
type engine struct {
	config  Config
	claims  map[netip.Addr]Claim
	links   map[string]*link
	fellows map[MAC]Fellow
	own     map[MAC]bool // of links
	timers  timers

	out       []frame
	changed   bool // Status, since it was last looked at
	named     bool // links that nobody has looked at
	stirred   bool // something is to be done before the time that tick gave
	strangers []stranger
}

// frame is to be sent on a link.
type frame struct {
	link *link
	six  bool
	data []byte
}

// stranger has a VIP and is not of the fleet.
type stranger struct {
	vip  netip.Addr
	link string
	mac  MAC
}

// link is an interface that is named.
type link struct {
	name string
	linkState
	seats   map[netip.Addr]*seat
	port    portState
	dirty   bool   // seats came or went
	count   counts // of seats by state
	pace    pace
	errands errands
	Counters
}

// linkState is what an interface is at a moment; the zero value is that it can't be
// spoken on.
type linkState struct {
	index   int // 0: there is none
	mac     MAC
	carrier bool
	trouble string // why there is none, or it can't be spoken on
}

// portState is how the sockets of a link are.
type portState struct {
	deaf    bool // there are none
	trouble string
}

// ready tells whether the link can be spoken on.
func (l *link) ready() bool { return l.carrier && !l.port.deaf && l.index != 0 && l.mac.single() }

func newEngine() *engine {
	return &engine{claims: map[netip.Addr]Claim{}, links: map[string]*link{}, own: map[MAC]bool{}}
}

// configure replaces the Config.
func (e *engine) configure(c Config, now time.Time) {
	c.Interfaces = slices.Clone(c.Interfaces)
	e.config = c
	for _, name := range c.Interfaces {
		e.link(name)
	}
	for vip, claim := range e.claims {
		if claim.Interfaces == nil {
			e.seat(vip, claim, now)
		}
	}
	for _, l := range e.links {
		for _, s := range l.seats {
			if s.state == Held && s.round >= len(burst) {
				e.planNext(s, now)
			}
		}
	}
	e.sweep()
}

// set changes claims; nil is no more.
func (e *engine) set(changes map[netip.Addr]*Claim, now time.Time) {
	// The order of addresses is the order of probes, and so of takeovers.
	for _, a := range slices.SortedFunc(maps.Keys(changes), netip.Addr.Compare) {
		vip := a.Unmap().WithZone("")
		if !usable(vip) {
			continue
		}
		if changes[a] == nil {
			delete(e.claims, vip)
			for _, l := range e.links {
				e.release(l, vip)
			}
			continue
		}
		claim := *changes[a]
		claim.Interfaces = slices.Clone(claim.Interfaces)
		e.claims[vip] = claim
		e.seat(vip, claim, now)
	}
	e.sweep()
}

// seat gives a claim a seat on each of its interfaces, and on no other.
func (e *engine) seat(vip netip.Addr, claim Claim, now time.Time) {
	names := claim.Interfaces
	if names == nil {
		names = e.config.Interfaces
	}
	for name, l := range e.links {
		if !slices.Contains(names, name) {
			e.release(l, vip)
		}
	}
	for _, name := range names {
		l := e.link(name)
		if s := l.seats[vip]; s != nil {
			s.doubtful = claim.Doubtful
			continue
		}
		s := &seat{vip: vip, link: l, doubtful: claim.Doubtful, since: now, place: nowhere}
		l.seats[vip] = s
		l.count[Idle]++
		l.dirty, e.changed = true, true
		e.reset(s, now)
	}
}

// release ends a seat, silently.
func (e *engine) release(l *link, vip netip.Addr) {
	s := l.seats[vip]
	if s == nil {
		return
	}
	s.turn++
	e.timers.set(s, time.Time{})
	delete(l.seats, vip)
	l.count[s.state]--
	l.dirty, e.changed = true, true
}

// link gives the link of a name, which need not exist in the kernel.
func (e *engine) link(name string) *link {
	l := e.links[name]
	if l == nil {
		l = &link{name: name, seats: map[netip.Addr]*seat{}}
		e.links[name] = l
		e.changed, e.named = true, true
	}
	return l
}

// sweep forgets links that nobody names any more.
func (e *engine) sweep() {
	for name, l := range e.links {
		if len(l.seats) == 0 && !slices.Contains(e.config.Interfaces, name) {
			delete(e.links, name)
			e.changed = true
		}
	}
	e.gatherOwn()
}

func (e *engine) gatherOwn() {
	clear(e.own)
	for _, l := range e.links {
		if l.mac.single() {
			e.own[l.mac] = true
		}
	}
}

// setLink says what an interface has become.
func (e *engine) setLink(name string, now linkState, at time.Time) {
	l := e.links[name]
	if l == nil || l.linkState == now {
		return
	}
	before, mac := l.ready(), l.mac
	another := l.index != now.index
	l.linkState = now
	e.changed, e.stirred = true, true
	e.gatherOwn()
	switch {
	case before != l.ready() || another:
		e.resetAll(l, at)
	case mac != l.mac: // whoever is held has moved
		for _, s := range l.inOrder() {
			if s.state == Held {
				e.announce(s, classFirst)
			}
		}
	}
}

// setPort says how the sockets of a link have become.
func (e *engine) setPort(name string, now portState, at time.Time) {
	l := e.links[name]
	if l == nil || l.port == now {
		return
	}
	before := l.ready()
	l.port = now
	e.changed = true
	if before != l.ready() {
		e.resetAll(l, at)
	}
}

func (e *engine) resetAll(l *link, now time.Time) {
	for _, s := range l.inOrder() {
		e.reset(s, now)
	}
}

func (l *link) inOrder() []*seat {
	return slices.SortedFunc(maps.Values(l.seats), func(a, b *seat) int { return a.vip.Compare(b.vip) })
}

// announceAll tells the neighbours again of all that is held.
func (e *engine) announceAll() {
	for _, l := range e.links {
		for _, s := range l.inOrder() {
			if s.state == Held {
				e.announce(s, classLater)
			}
		}
	}
}

// hear takes what somebody said on a link.
func (e *engine) hear(l *link, m message, now time.Time) {
	if e.own[m.from] || !l.ready() { // a frame that came back, or from an interface beside this one
		return
	}
	if s := l.seats[m.used]; s != nil {
		e.conflict(s, m.from, now)
	}
	s := l.seats[m.asked]
	switch {
	case s == nil:
	case s.state == Held:
		if _, fellow := e.fellows[m.from]; fellow && m.probes() {
			e.wantedBy(s, now)
		}
		l.Answered++
		e.send(l, s.vip, answer(l.mac, m))
	case s.state != Idle && m.probes():
		e.rival(s, m.from, now)
	}
}

// know replaces who the fellows are.
func (e *engine) know(fellows map[MAC]Fellow) {
	e.fellows = maps.Clone(fellows)
	for _, l := range e.links {
		for _, s := range l.seats {
			if s.other == (MAC{}) || s.fellow == e.fellows[s.other].Name {
				continue
			}
			s.fellow = e.fellows[s.other].Name
			e.changed = true
		}
	}
}

// ask queues a frame to be sent at the link's pace.
func (e *engine) ask(s *seat, w what, c class) {
	q := &s.link.errands[c]
	*q = append(*q, errand{s, s.turn, w})
	e.stirred = true
}

func (e *engine) send(l *link, vip netip.Addr, data []byte) {
	e.out = append(e.out, frame{l, vip.Is6(), data})
}

// tick does what is due, and tells when to come again; the zero Time is never.
func (e *engine) tick(now time.Time) (next time.Time) {
	for len(e.timers) > 0 && !e.timers[0].due.After(now) {
		e.wake(e.timers[0], now)
	}
	for _, l := range e.links {
		if l.dirty && l.index != 0 { // nothing is asked before the answer would be heard
			next = now
			continue
		}
		e.serve(l, now)
		if l.errands.waiting() {
			next = earlier(next, l.pace.next())
		}
	}
	if len(e.timers) > 0 {
		next = earlier(next, e.timers[0].due)
	}
	return next
}

// earlier gives the earlier one; the zero Time is never.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// serve sends what waits on a link, as far as the pace allows.
func (e *engine) serve(l *link, now time.Time) {
	for l.errands.waiting() {
		if !l.pace.take(now) {
			return
		}
		r, _, ok := l.errands.pop()
		if !ok {
			return
		}
		switch r.what {
		case sayProbe:
			e.send(l, r.seat.vip, probeFrame(l.mac, r.seat.vip))
		case sayUnasked, sayDefend:
			e.send(l, r.seat.vip, unasked(l.mac, r.seat.vip))
		case sayReply:
			e.send(l, r.seat.vip, unaskedReply(l.mac, r.seat.vip))
		}
		e.said(r.seat, r.what, now)
	}
}
