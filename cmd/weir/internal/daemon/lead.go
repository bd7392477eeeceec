package daemon

import (
	"context"
	"net/netip"
	"time"

	"weir/bgp"
	"weir/cmd/weir/internal/config"
	"weir/lb"
)

// What the loop does about the fleet: where clients are led.

// setFleet makes the fleet what the configuration in force says.
func (b *box) setFleet(had *config.Fleet, now time.Time) {
	f := b.fleet
	if had == nil && b.cfg.Fleet != nil {
		catalog := b.rec.Catalog()
		for _, id := range catalog.IDs() {
			svc, _ := catalog.Get(id)
			f.sums.take(lb.Update{Source: id.Source, Put: []lb.Service{svc}})
		}
	}
	f.sums.follow(Sources(b.cfg))
	f.set(b.cfg, now)
	b.drainer.lastOne, b.drainer.owner, b.drainer.handsOver = nil, nil, nil
	if b.cfg.Fleet != nil {
		b.drainer.lastOne, b.drainer.owner, b.drainer.handsOver = f.lastOne, f.ownerOf, f.handsOver
	}
}

// leaveFleet says good-bye to the other members.
func (b *box) leaveFleet(ctx context.Context) {
	_ = b.do(ctx, b.fleet.leave) // a loop that has ended needs no good-bye: nobody will
}

// meetFleet takes in that something has happened outside: a member, a cable, a session.
func (b *box) meetFleet(ctx context.Context, now time.Time) {
	b.fleet.news = true
	pending := b.stirred // that pass is yet to come
	b.stirred = now
	b.lead(ctx, nil, now)
	b.stirred = pending
	b.publish()
}

// share decides what this box does about VIPs, by how it and the fleet are now, and
// has it claim what it is to answer for. routes are those at which something has
// happened.
func (b *box) share(routes []lb.Route, now time.Time) outcome {
	f := b.fleet
	if f == nil {
		b.drainOn(now)
		return outcome{}
	}
	f.take(routes)
	f.gate(b.gone())
	f.listen(now)
	stages := b.drainer.version
	b.drainOn(now)
	if stages != b.drainer.version {
		f.share.all, f.say.stale = true, true
	}
	f.advance(b.factsNow(now), b.outtake(), now)
	f.begin(b.ready, now)
	out := f.decide(now)
	f.answer.tell(out.claims)
	f.answer.announce(now)
	f.speak(now)
	f.compare(now)
	return out
}

// factsNow is what fitness is judged by.
func (b *box) factsNow(now time.Time) facts {
	f, seen := b.fleet, b.fleet.signs.read()
	facts := facts{ready: b.ready, kernel: b.audits.err, dark: seen.dark, darkNames: seen.darkNames, heard: seen.heard, quiet: seen.quiet}
	f.say.tellMACs(seen.macs)
	f.unread.follow(b.audits.err != nil, now)
	facts.unread = f.unread.since
	if b.checks != nil {
		facts.still = f.pulse.still(b.checks.Stats(), b.cfg.Checks, now)
	}
	if a := b.announcer; a != nil {
		f.asked.follow(a.begun || a.badErr != nil, now) // one that can't begin has no sessions either
		facts.routers, facts.asked = namedRouters(b.cfg.BGP.Speaker.Peers), f.asked.since
	}
	return facts
}

// outtake is what somebody takes off this box.
func (b *box) outtake() outtake {
	d := &b.drainer
	wanted := d.wanted()
	return outtake{
		all: !wanted.all.IsZero(), done: d.all() == bgp.Drained, vips: wanted.vips,
		gone: func(a netip.Addr) bool { return d.stage(a) == bgp.Drained },
	}
}

// spell is since when something is so.
type spell struct{ since time.Time }

func (s *spell) follow(is bool, now time.Time) {
	switch {
	case !is:
		s.since = time.Time{}
	case s.since.IsZero():
		s.since = now
	}
}
