package fleet

import (
	"net/netip"
	"time"

	"weir/bgp/advertise"
	"weir/cluster"
	"weir/cluster/l2"
	"weir/cluster/owner"
	"weir/cmd/weir/internal/config"
	"weir/cmd/weir/internal/fleet/message"
	"weir/lb"
)

// Engine decides. It has no effects: it keeps what it has received, and what it decided.
type Engine struct {
	settings    settings
	gen         generations
	local       local
	sources     message.Sums
	fitness     fitness
	self        self
	members     members
	isolation   isolation
	ownership   ownership
	claims      claims
	publisher   publisher
	differences differences
	// observed are the facts of the last Observe, pending is its part of the next Decision.
	observed Inputs
	pending  Decision
}

// LastRun is what the last run of weir left for this one.
type LastRun struct {
	// Stable is set if the box was a stable member when the run ended, so long Ago.
	Stable bool
	Ago    time.Duration
	Owned  map[netip.Addr]struct{}
}

// NewEngine returns an Engine without a configuration.
func NewEngine(version string, last LastRun, now time.Time) *Engine {
	e := &Engine{
		settings: settings{version: version}, local: local{routes: map[netip.Addr][]lb.Serving{}}, sources: message.Sums{},
		self: self{started: now}, members: newMembers(""),
		ownership: newOwnership(), claims: newClaims(), differences: newDifferences(),
	}
	e.ownership.previous = last.Owned
	if last.Stable {
		e.self.resume(last.Ago)
	}
	return e
}

// Configure brings a configuration into force. host is the name of the box without
// [fleet]; joinErr is the reason that there is no gossip although there is a [fleet].
func (e *Engine) Configure(cfg *config.Config, host string, joinErr error) {
	e.settings = settingsOf(cfg, host, e.settings.version)
	e.settings.joinErr = joinErr
	if f := cfg.Fleet; f != nil {
		preempt := f.PreemptDelay
		if f.Rules.NoPreempt {
			preempt = 0 // owners keep their VIPs
		}
		e.self.configure(preempt, f.RestartGrace)
	}
	if cfg.L2 == nil {
		e.claims.status, e.claims.foreign = l2.Status{}, nil
	}
	e.ownership.recount(e.settings.name)
	e.gen.config++
}

// Join makes the box one that has not joined yet.
func (e *Engine) Join() { e.self.reset() }

// Leave forgets the other members: this box has left the fleet.
func (e *Engine) Leave() {
	e.self.reset()
	e.members = newMembers("")
	e.pending.Peers = e.claims.changedPeers(&e.settings, &e.members)
	e.publisher = publisher{}
	e.gen.config++
}

// Release returns the release of all claims.
func (e *Engine) Release() map[netip.Addr]*l2.Claim { return e.claims.release() }

// Receive takes an Update of a source, for its digest.
func (e *Engine) Receive(u lb.Update) {
	e.sources.Update(u)
	e.gen.sources++
}

// Follow forgets the digests of all sources but some.
func (e *Engine) Follow(sources []string) { e.sources.Keep(sources) }

// Observe takes the facts of one moment. Decide must follow; in between, View answers with
// these facts and the decisions so far, on which the stages of drains depend.
func (e *Engine) Observe(in Inputs) {
	e.observed = in
	d := &e.pending
	if len(in.Routes) > 0 {
		e.ownership.touch(e.local.receive(in.Routes)...)
		e.gen.vips++
	}
	if e.local.noIPVS != in.Box.NoIPVS {
		e.local.noIPVS = in.Box.NoIPVS
		e.gen.kernel++
	}
	if in.L2 != nil {
		took, contested := e.claims.receive(*in.L2)
		d.Took = append(d.Took, took...)
		if contested {
			e.gen.contested++
		}
	}
	e.receiveMembers(in.Members, d, in.Now)
	e.followReturnPath()
	e.fitness.receive(in.Box, in.Links, in.Now)
	if e.publisher.follow(in.Links.MACs) {
		e.gen.macs++
	}
}

// Decide decides by the facts of the last Observe, and by the drains of operators.
func (e *Engine) Decide(drain Drain) Decision {
	in, d := e.observed, e.pending
	e.pending = Decision{}
	d.Roles, d.Late, d.Claims = map[netip.Addr]advertise.Role{}, map[netip.Addr]advertise.Role{}, map[netip.Addr]*l2.Claim{}
	if e.local.receiveDrain(drain) {
		e.gen.drain++
	}
	e.advance(in.Now, &d)
	if e.settings.gossips() && e.self.start(in.Box.Ready, in.Now) {
		d.JoinFleet = true
	}
	e.elect(in.Now, &d)
	d.GratuitousARP = e.claims.garp.fire(in.Now) && e.settings.l2 != nil
	e.publish(in, &d)
	e.differences.compare(e.settings.name, e.publisher.message, comparableSelf(&e.self), &e.members, e.gen, in.Now)
	if e.settings.fleet != nil {
		d.Stable = e.self.now.Published == owner.Stable
		if e.settings.rules().NoPreempt {
			d.Owned = e.ownership.ownedBy(e.settings.name)
		}
	}
	return d
}

// Next returns when the passing of time may change a decision; the zero time if never.
func (e *Engine) Next() time.Time {
	next := Soonest(e.self.next, e.isolation.next, e.publisher.throttle.due, e.claims.garp.due, e.ownership.handoversEnd(), e.differences.due)
	if e.settings.fleet != nil {
		next = Soonest(next, e.members.graceEnds(e.settings.fleet.RestartGrace))
	}
	return next
}

// receiveMembers takes the state of the gossip; nil: only time has passed.
func (e *Engine) receiveMembers(s *cluster.Status, d *Decision, now time.Time) {
	if s != nil {
		if last := &e.members.status; s.Rejoining || s.Rejoins != last.Rejoins {
			e.self.rejoin(s.Rejoining || last.NameConflict != "", now)
		}
		e.members.begin(e.settings.fleet.Gossip.Fleet, s.Rejoins)
		r := e.members.receive(*s, !e.self.joined, now)
		if r.changed {
			e.gen.members++
		}
		if r.messages {
			e.gen.messages++
		}
		e.ownership.touch(r.touched...)
		d.Events = append(d.Events, r.events...)
		if r.joined {
			e.claims.garp.request(0, now)
		}
		d.Peers = e.claims.changedPeers(&e.settings, &e.members)
	}
	var grace time.Duration
	if e.settings.fleet != nil {
		grace = e.settings.fleet.RestartGrace
	}
	changed, answered := e.members.observe(grace, now)
	if changed {
		e.gen.members++
	}
	if answered {
		// The network may have been split, with another owner on the other side.
		e.claims.garp.request(garpEvery, now)
	}
}

// followReturnPath follows whether this box answers for all floating addresses: where
// backends reply through a gateway, a box without it serves no client, since the replies
// go by another box. Routers must not see it as the owner before it has both.
func (e *Engine) followReturnPath() {
	if len(e.settings.floating) == 0 {
		return
	}
	if has := e.claims.holdsAll(e.settings.floating); has != e.ownership.returnPath {
		e.ownership.returnPath = has
		e.gen.returnPath++
	}
}

// advance takes the state of this box.
func (e *Engine) advance(now time.Time, d *Decision) {
	s, before := &e.self, e.self.now
	s.reason = e.fitness.reason(now)
	if twin := e.members.status.NameConflict; twin != "" {
		s.reason = "the box at " + twin + " has the name " + e.settings.name + " too: give this one another fleet.member"
	}
	if !s.joined && (!e.settings.gossips() || s.knows(&e.members, now)) {
		s.joined, s.wasJoined = true, true
		if e.members.forget(now) {
			e.gen.members++
			if peers := e.claims.changedPeers(&e.settings, &e.members); peers != nil {
				d.Peers = peers
			}
		}
	}
	if e.fitness.box.Ready && s.reason != "" {
		s.machine.StableUntil, s.machine.CountedUntil = 0, 0 // it is not what it was in the last run
	}
	if e.settings.fleet == nil {
		s.now, s.next = stable, e.fitness.next(now)
	} else if s.advance(&e.fitness, e.local.drain.All, e.members.anyStable(), now) {
		d.Events = append(d.Events, info("member state changed", "state", s.now.Published, "reason", s.reason))
	}
	requester := e.claims.requester(e.settings.floating, e.members.silent, now)
	isolated := e.isolation.follow(&e.settings, &e.fitness, &e.members, requester, now)
	if isolated {
		d.Events = append(d.Events, warning("isolation changed", "isolated", e.isolation.is(), "reason", e.isolation.reason))
	}
	if isolated || s.now.Effective != before.Effective {
		e.gen.self++
	}
}

// publish publishes the message of this box if it is time to.
func (e *Engine) publish(in Inputs, d *Decision) {
	if !e.settings.gossips() || !e.self.gossiping {
		return
	}
	state := e.self.report(&e.settings, e.local.drain, e.isolation.releaseReason(&e.settings))
	if !e.publisher.due(state, e.gen, in.Now) {
		return
	}
	m := e.message(in.Orders)
	d.Publish = &Publication{e.publisher.publish(state, m, e.gen), m}
	e.gen.published++
}

// rulesSource is the name under which the digest of the rules is published.
const rulesSource = "[fleet]"

// message returns the message of this box.
func (e *Engine) message(orders map[lb.Frontend]uint64) message.Message {
	m := message.Message{
		VIPs: map[netip.Addr]message.Flags{}, Sources: e.sources.Digests(), Orders: map[string]string{}, MACs: e.publisher.macs, Answers: e.settings.l2 != nil,
	}
	m.Sources[rulesSource] = e.settings.digest
	for a := range e.local.routes {
		m.VIPs[a] = e.flags(a)
	}
	for a := range e.settings.floating {
		m.VIPs[a] = e.flags(a)
	}
	for frontend, digest := range orders {
		m.Orders[frontend.String()] = string(message.DigestOf(digest))
	}
	return m
}

// flags returns the part of this box in a VIP.
func (e *Engine) flags(a netip.Addr) (f message.Flags) {
	if e.local.serves(&e.settings, a) {
		f |= message.Serves
		if e.settings.l2 != nil && !e.local.answersFor(&e.settings, a) {
			f |= message.Mute
		}
	}
	if e.ownership.verdicts[a].Owner == e.settings.name && (!e.settings.needsReturnPath() || e.ownership.returnPath) {
		f |= message.Owns
	}
	if e.local.drains(a) {
		f |= message.Drains
	}
	if e.claims.contested(a) {
		f |= message.Contested
	}
	return f
}
