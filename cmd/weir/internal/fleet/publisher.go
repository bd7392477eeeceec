package fleet

import (
	"slices"
	"time"

	"weir/cluster"
	"weir/cmd/weir/internal/fleet/message"
)

const (
	// publishEvery is the minimum time between two messages. A change of digests only waits
	// for longer: they change with every Service, and no decision depends on them.
	publishEvery        = 200 * time.Millisecond
	publishDigestsEvery = 5 * time.Second
	// A message of manyVIPs takes a while to write, and to read for all others: it waits
	// for longer while the VIPs change. The state of the box does not.
	publishManyEvery = time.Second
	manyVIPs         = 1000
)

// publisher is what this box has published, and when it publishes again.
type publisher struct {
	throttle throttle
	state    cluster.State // without digests
	message  message.Message
	macs     []string
	// digest is of all sources of message, serves the number of its VIPs.
	digest cluster.Digest
	serves int
	// seen and sources are the inputs of message, and of its digests.
	seen    generations
	sources uint64
}

// follow takes the MACs of this box and reports whether they have changed.
func (p *publisher) follow(macs []string) bool {
	if slices.Equal(macs, p.macs) {
		return false
	}
	p.macs = macs
	return true
}

// due reports whether it is time to publish, and that the caller does.
func (p *publisher) due(state cluster.State, g generations, now time.Time) bool {
	stale := p.seen != g.message()
	switch {
	case state != p.state, stale && len(p.message.VIPs) < manyVIPs:
		p.throttle.request(publishEvery, now)
	case stale:
		p.throttle.request(publishManyEvery, now)
	case p.sources != g.sources:
		p.throttle.request(publishDigestsEvery, now)
	}
	return p.throttle.fire(now)
}

// publish records a message and returns the state that goes with it.
func (p *publisher) publish(state cluster.State, m message.Message, g generations) cluster.State {
	p.state, p.message, p.seen, p.sources = state, m, g.message(), g.sources
	p.digest, p.serves = message.DigestOfAll(m.Sources), m.Count(message.Serves)
	state.Digest = p.digest
	return state
}

// throttle limits the rate of an action.
type throttle struct {
	last time.Time
	due  time.Time // zero: there is nothing to do
}

// request asks for the action, at most once in a time.
func (t *throttle) request(every time.Duration, now time.Time) {
	at := t.last.Add(every)
	if at.Before(now) {
		at = now
	}
	t.due = Soonest(t.due, at)
}

// fire reports whether the action is due, and assumes that the caller does it.
func (t *throttle) fire(now time.Time) bool {
	if t.due.IsZero() || now.Before(t.due) {
		return false
	}
	t.last, t.due = now, time.Time{}
	return true
}
