package daemon

import (
	"context"
	"net/netip"
	"slices"
	"time"

	"weir/bgp"
	"weir/cmd/weir/internal/announce"
	"weir/cmd/weir/internal/config"
	"weir/cmd/weir/internal/drain"
	"weir/cmd/weir/internal/fleet"
	"weir/cmd/weir/internal/kernelmode"
	"weir/cmd/weir/internal/membership"
	"weir/lb"
)

// steering steers clients to this box or to others: by routers, the fleet and drains. The loop owns it; announcer and fleet
// are set once.
type steering struct {
	*telemetry
	target    *target
	progress  *progress
	announcer *announce.Announcer // nil without [bgp]
	fleet     *membership.Member
	drains    drain.State
}

// newAnnouncer returns the Announcer of the box; nil without [bgp].
func (s *steering) newAnnouncer(cfg *config.Config, ask func(context.Context, func()) error, now time.Time) *announce.Announcer {
	if cfg.BGP == nil {
		return nil
	}
	return announce.New(announce.Options{
		Log: s.log, Speaker: bgp.New(s.log), Ask: ask,
		Announced: func(d time.Duration) { s.metrics.Announced(d) },
	}, cfg.BGP, now)
}

// announce publishes the changes of a pass to routers and the fleet. err is the error of reading the kernel; since is the
// time of the first change of the pass.
func (s *steering) announce(ctx context.Context, err error, since, now time.Time) {
	s.announcer.NewPass()
	var routes []lb.Route
	if err == nil && !s.progress.audits.NoIPVS() && drain.Possible(s.target.cfg) {
		var unread error
		routes, unread = s.target.rec.Routes(ctx)
		s.announcer.Read(unread, now)
	}
	s.steer(ctx, routes, since, now)
}

// steer steers clients to this box, or to others. routes are the addresses that have changed.
func (s *steering) steer(ctx context.Context, routes []lb.Route, since, now time.Time) {
	decision := s.decide(routes, now)
	a := s.announcer
	if a == nil {
		return
	}
	a.Update(s.inputs(decision, routes), now)
	// The kernel must refuse packets for unserved addresses of an aggregate before it is announced, and as long as it is.
	s.target.refuse(slices.Concat(s.target.unreachable, a.Aggregates()))
	a.Deliver(s.target.refuses, since)
	if s.progress.ready && s.fleet.View().MayAnnounce() {
		s.target.refuse(a.Aggregates())
		a.Begin(ctx, now)
	}
}

// inputs returns the facts by which routes are decided.
func (s *steering) inputs(decision fleet.Decision, routes []lb.Route) announce.Inputs {
	return announce.Inputs{
		Drains: s.drains.Stages(), DrainsVersion: s.drains.Version(), NoIPVS: s.progress.audits.NoIPVS(),
		Roles: decision.Roles, Late: decision.Late, Routes: routes, Route: s.target.rec.Route,
		Labels: func(id lb.ServiceID) map[string]string {
			svc, _ := s.target.rec.Catalog().Get(id)
			return svc.Labels
		},
		Sources: s.target.cfg.Kernel.MasqueradeSource,
	}
}

// withdraw is lb.Options.Leaving: it withdraws the routes to addresses before the kernel ceases to serve them.
func (s *steering) withdraw(addrs []netip.Addr) {
	routes := make([]lb.Route, len(addrs))
	for i, a := range addrs {
		routes[i] = s.target.rec.Route(a)
	}
	now := time.Now()
	decision := s.decide(routes, now)
	if s.announcer != nil {
		s.announcer.Withdraw(s.inputs(decision, routes), now)
	}
}

// configure applies the configuration in force to the fleet and the drains.
func (s *steering) configure() {
	var known []lb.Service
	catalog := s.target.rec.Catalog()
	for _, id := range catalog.IDs() {
		svc, _ := catalog.Get(id)
		known = append(known, svc)
	}
	s.fleet.Configure(s.target.cfg, kernelmode.Sources(s.target.cfg), known)
	s.drains.Fleet = drain.Fleet{}
	if s.target.cfg.Fleet != nil {
		v := s.fleet.View()
		s.drains.Fleet = drain.Fleet{LastOne: v.LastOne, Owner: v.OwnerOf, HandsOver: v.HandsOver}
	}
}

// decide advances the drains and has the fleet decide. A drain depends on the other members that serve a VIP, so the
// fleet receives them first. routes are the VIPs that have changed in the kernel.
func (s *steering) decide(routes []lb.Route, now time.Time) fleet.Decision {
	s.fleet.Observe(fleet.Inputs{Now: now, Box: s.facts(), Routes: routes})
	s.drains.Step(now, s.target.cfg, s.target.rec.Catalog())
	return s.fleet.Decide(s.drains.Snapshot())
}

// facts returns the facts about this box on which its fitness depends.
func (s *steering) facts() fleet.Box {
	out := fleet.Box{Ready: s.progress.ready, NoIPVS: s.progress.audits.NoIPVS(), KernelErr: s.progress.audits.Err, CheckGroups: s.target.cfg.Checks}
	if s.target.checks != nil {
		stats := s.target.checks.Stats()
		out.Checks = &stats
	}
	if a := s.announcer; a != nil {
		out.BGPStarted = a.Started()
		out.Routers = announce.Routers(s.target.cfg.BGP.Speaker.Peers)
	}
	return out
}
