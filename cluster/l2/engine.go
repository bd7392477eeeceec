package l2

import (
	"maps"
	"net/netip"
	"slices"
	"time"
)

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
			e.bind(vip, claim, now)
		}
	}
	for _, l := range e.links {
		for _, s := range l.bindings {
			if s.state == Answered && s.burstStep >= len(burst) {
				e.scheduleGratuitous(s, now)
			}
		}
	}
	e.dropUnusedLinks()
}

// set changes claims; nil removes one.
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
				e.unbind(l, vip)
			}
			continue
		}
		claim := *changes[a]
		claim.Interfaces = slices.Clone(claim.Interfaces)
		e.claims[vip] = claim
		e.bind(vip, claim, now)
	}
	e.dropUnusedLinks()
}

// bind binds a claim to each of its interfaces, and to no other.
func (e *engine) bind(vip netip.Addr, claim Claim, now time.Time) {
	names := claim.Interfaces
	if names == nil {
		names = e.config.Interfaces
	}
	for name, l := range e.links {
		if !slices.Contains(names, name) {
			e.unbind(l, vip)
		}
	}
	for _, name := range names {
		l := e.link(name)
		if s := l.bindings[vip]; s != nil {
			s.cautious, s.orphaned = claim.Cautious, claim.Orphaned
			s.other.objected = s.other.objected && s.orphaned
			continue
		}
		s := &binding{vip: vip, link: l, cautious: claim.Cautious, orphaned: claim.Orphaned, since: now, heapIndex: notQueued}
		l.bindings[vip] = s
		l.count[Idle]++
		l.bindingChanges++
		e.statusChanges++
		e.reset(s, now)
	}
}

// unbind removes a binding without sending anything.
func (e *engine) unbind(l *link, vip netip.Addr) {
	s := l.bindings[vip]
	if s == nil {
		return
	}
	s.generation++
	e.timers.set(s, time.Time{})
	delete(l.bindings, vip)
	l.count[s.state]--
	l.bindingChanges++
	e.statusChanges++
}

// link returns the link of a name, which need not exist in the kernel.
func (e *engine) link(name string) *link {
	l := e.links[name]
	if l == nil {
		l = &link{name: name, bindings: map[netip.Addr]*binding{}}
		e.links[name] = l
		e.statusChanges++
		e.linksAdded++
	}
	return l
}

// dropUnusedLinks forgets links that neither the Config nor a claim names.
func (e *engine) dropUnusedLinks() {
	for name, l := range e.links {
		if len(l.bindings) == 0 && !slices.Contains(e.config.Interfaces, name) {
			delete(e.links, name)
			e.statusChanges++
		}
	}
	e.own = macsOf(e.links)
}

// macsOf returns the MAC addresses of links.
func macsOf(links map[string]*link) map[MAC]bool {
	out := map[MAC]bool{}
	for _, l := range links {
		if l.mac.single() {
			out[l.mac] = true
		}
	}
	return out
}

// setLink sets the state of an interface.
func (e *engine) setLink(name string, now linkState, at time.Time) {
	l := e.links[name]
	if l == nil || l.linkState == now {
		return
	}
	before, mac := l.ready(), l.mac
	another := l.index != now.index
	l.linkState = now
	e.statusChanges++
	e.own = macsOf(e.links)
	switch {
	case before != l.ready() || another:
		for _, s := range l.inOrder() {
			e.reset(s, at)
		}
	case mac != l.mac: // every answered VIP has moved
		for _, s := range l.inOrder() {
			if s.state == Answered {
				e.announce(s, priorityMove)
			}
		}
	}
}

// setPort sets the state of the sockets of a link.
func (e *engine) setPort(name string, now portState, at time.Time) {
	l := e.links[name]
	if l == nil || l.port == now {
		return
	}
	before := l.ready()
	l.port = now
	e.statusChanges++
	if before != l.ready() {
		for _, s := range l.inOrder() {
			e.reset(s, at)
		}
	}
}

func (l *link) inOrder() []*binding {
	return slices.SortedFunc(maps.Values(l.bindings), func(a, b *binding) int { return a.vip.Compare(b.vip) })
}

// announceAll announces every answered VIP again.
func (e *engine) announceAll() {
	for _, l := range e.links {
		for _, s := range l.inOrder() {
			if s.state == Answered {
				e.announce(s, priorityRepeat)
			}
		}
	}
}

// receive handles a message that was received on a link.
func (e *engine) receive(l *link, m message, now time.Time) {
	if e.own[m.from] || !l.ready() { // a frame that came back, or one of another interface of this box
		return
	}
	if s := l.bindings[m.used]; s != nil {
		e.conflict(s, m.from, now)
	}
	s := l.bindings[m.asked]
	switch {
	case s == nil:
	case s.state == Answered:
		x, member := e.members[m.from]
		if member && m.probes() && (now.Sub(s.requested) >= requestedGap || x.Name != s.requester) {
			s.requested, s.requester = now, x.Name
			e.statusChanges++
			e.timers.affirm(s, now)
		}
		l.Answered++
		e.out = append(e.out, frame{l, s.vip.Is6(), answer(l.mac, m)})
	case s.state != Idle && m.probes():
		e.competingProbe(s, m.from, now)
	}
}

// setMembers replaces the members.
func (e *engine) setMembers(members map[MAC]Member) {
	e.members = maps.Clone(members)
	for _, l := range e.links {
		for _, s := range l.bindings {
			if name := e.members[s.other.mac].Name; s.other.mac != (MAC{}) && s.other.member != name {
				s.other.member = name
				e.statusChanges++
			}
		}
	}
}

// tick does the work that is due.
func (e *engine) tick(now time.Time) {
	for len(e.timers) > 0 && !e.timers[0].due.After(now) {
		e.timeout(e.timers[0], now)
	}
	for _, l := range e.links {
		if !l.filtersStale() { // no probe is sent before its answer would be received
			e.flush(l, now)
		}
	}
}

// filtersStale reports whether the sockets do not receive frames about all bindings yet.
func (l *link) filtersStale() bool { return l.bindingChanges != l.filtered && l.index != 0 }

// next returns when tick must be called next; the zero Time is never.
func (e *engine) next(now time.Time) (next time.Time) {
	for _, l := range e.links {
		switch {
		case l.filtersStale():
			next = earlier(next, now)
		case l.queue.waiting():
			next = earlier(next, l.pace.next())
		}
	}
	if len(e.timers) > 0 {
		next = earlier(next, e.timers[0].due)
	}
	return next
}

// earlier returns the earlier time; the zero Time is never.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// flush sends the queued frames of a link, as far as the pace allows.
func (e *engine) flush(l *link, now time.Time) {
	for l.queue.waiting() {
		if !l.pace.take(now) {
			return
		}
		r, _, ok := l.queue.pop()
		if !ok {
			return
		}
		e.out = append(e.out, frame{l, r.binding.vip.Is6(), r.frame(l.mac)})
		e.sent(r.binding, r.kind, now)
	}
}
