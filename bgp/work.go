package bgp

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/osrg/gobgp/v4/api"

	"weir/bgp/advertise"
)

// run is the Speaker's goroutine. Only it calls GoBGP, so a hanging GoBGP blocks nothing
// else.
func (s *Speaker) run(e *engine) {
	defer close(s.done)
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for {
		look := true
		select {
		case <-s.quit:
			s.finish(e)
			return
		case <-s.wake:
			look = false
		case <-s.polled:
		case <-tick.C:
		}
		s.round(e, look)
	}
}

// job is the work of one round.
type job struct {
	config  *Config // nil: unchanged
	changes map[netip.Prefix][]advertise.Path
	asked   uint64
	look    bool // poll afterwards
}

// round does the ordered work, and polls.
func (s *Speaker) round(e *engine, look bool) {
	now := time.Now()
	if !e.panics.work.over(now) {
		return
	}
	var j job
	defer func() {
		if v := recover(); v != nil { // not of do
			s.failed(e, j, newPanicError(v))
		}
	}()
	j = s.next(e)
	j.look = look && e.panics.polls.over(now)
	s.report(e, j, e.do(j))
}

// do does a job. A panic is its error: the box serves without BGP. If GoBGP may have half of a change then, it is started
// again with all routes. Otherwise the sessions stay.
func (e *engine) do(j job) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err, e.restart = newPanicError(v), e.restart || e.panics.changing
		}
	}()
	e.panics.changing = j.config != nil || len(j.changes) > 0
	if j.config != nil {
		err = e.configure(*j.config, j.changes)
	} else if e.gobgp != nil {
		err = e.apply(j.changes)
	}
	e.panics.changing = false
	if j.look && err == nil && e.gobgp != nil {
		err = e.poll()
	}
	return err
}

// next returns the next job. A new server needs all routes, and so does a new Config.
func (s *Speaker) next(e *engine) job {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.working = time.Now()
	j := job{config: s.orders.config, asked: s.orders.count, changes: map[netip.Prefix][]advertise.Path{}}
	switch {
	case j.config == nil && e.restart:
		again := e.cfg
		j.config = &again
		fallthrough
	case j.config != nil:
		j.changes = maps.Clone(s.orders.want)
		fallthrough
	case e.gobgp != nil:
		for prefix := range s.orders.dirty {
			j.changes[prefix] = s.orders.want[prefix]
		}
		clear(s.orders.dirty)
	}
	s.orders.config = nil
	return j
}

// report passes the result of a round on. Failed work is ordered again.
func (s *Speaker) report(e *engine, j job, err error) {
	var p *panicError
	now := time.Now()
	switch {
	case errors.As(err, &p):
		wait := e.panics.panicked(p, now)
		s.log.Error("BGP panicked", "value", fmt.Sprint(p.value), "sessions_restart", e.restart, "in", wait, "stack", string(p.stack))
	case err != nil && e.limiter.allow(err.Error(), now):
		s.log.Error("BGP update failed", "error", err)
	case err == nil && j.look:
		e.panics.problem = ""
	}
	hops := maps.Clone(e.next.hops)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.working = time.Time{}
	s.shown.update(e, j.changes, hops)
	if err != nil {
		s.shown.problem = err.Error()
		s.orders.again(j)
		return
	}
	s.shown.problem = cmp.Or(e.panics.problem, s.shown.problem)
	if s.orders.applied != j.asked {
		s.orders.applied = j.asked
		close(s.orders.changed)
		s.orders.changed = make(chan struct{})
	}
}

// failed handles a panic before or after a job, which is done again.
func (s *Speaker) failed(e *engine, j job, p *panicError) {
	wait := e.panics.work.begin(time.Now())
	s.mu.Lock()
	s.working, s.shown.problem = time.Time{}, p.Error()
	s.orders.again(j)
	s.mu.Unlock()
	s.log.Error("BGP panicked", "value", fmt.Sprint(p.value), "sessions_restart", e.restart, "in", wait, "stack", string(p.stack))
}

// again orders the work of a job again, unless there are newer orders.
func (o *orders) again(j job) {
	if j.config != nil && o.config == nil {
		o.config = j.config
	}
	for prefix := range j.changes {
		o.dirty[prefix] = struct{}{}
	}
}

// poll does the periodic work: it reads counters, follows the box's addresses, retries
// routers and the port, and drops unused classes.
func (e *engine) poll() error {
	now := time.Now()
	repairs := map[repair][]string{}
	err := e.gobgp.ListPeer(context.Background(), &api.ListPeerRequest{}, func(p *api.Peer) {
		what := e.sessions.update(p, now)
		repairs[what] = append(repairs[what], p.GetState().GetNeighborAddress())
	})
	e.known.pending.end(e.gobgp, e.sessions, repairs[await], now)
	errs := []error{err, e.recreateLost(), e.followSources(), e.followHops(), e.dropUnusedClasses()}
	for _, addr := range repairs[enable] {
		errs = append(errs, e.gobgp.EnablePeer(context.Background(), &api.EnablePeerRequest{Address: addr}))
	}
	for _, addr := range repairs[reset] {
		errs = append(errs, e.gobgp.ResetPeer(context.Background(), &api.ResetPeerRequest{Address: addr}))
	}
	e.restart = e.restart || e.retryListening()
	return errors.Join(errs...)
}

// recreateLost creates missing peers, and GoBGP's peers of lost sessions again, for three reasons. Only a new
// one announces to a router that kept the routes that they still hold (the F bit, RFC
// 4724), so that it does not drop them for a moment. An old one with a pending BFD reset
// would reset the next session. And a new one connects at once.
func (e *engine) recreateLost() error {
	var errs []error
	lost := e.sessions.lost()
	for _, p := range e.peers {
		if e.known.missing[p.Name] && !slices.Contains(lost, p) {
			lost = append(lost, p)
		}
	}
	for _, p := range lost {
		e.panics.changing = true
		e.removePeer(p)
		errs = append(errs, e.addPeer(p, true))
	}
	return errors.Join(errs...)
}

// followHops updates the next hops of peers with a changed session or interface.
func (e *engine) followHops() error {
	var changed []Peer
	on := e.next.interfaces()
	for _, p := range e.peers {
		h := e.next.hops[p.Name]
		if h.extended {
			e.next.refused[p.Name] = e.sessions.refusesExtended(p, e.next.refused[p.Name])
		}
		if p.hasFixedHops() {
			continue
		}
		session := sessionInterface(p, on)
		if now := nextHops(p, session, e.next.refused[p.Name]).keepKnown(h.except(session, on), e.next.refused[p.Name]); now != h {
			e.panics.changing = true
			e.next.hops[p.Name] = now
			changed = append(changed, p)
		}
	}
	if len(changed) == 0 {
		return nil
	}
	e.table.version++
	errs := []error{e.syncPolicies()}
	for _, p := range changed {
		errs = append(errs, e.resend(p))
	}
	return errors.Join(errs...)
}

// retryListening reports whether a port that was taken is free now, if it is needed.
func (e *engine) retryListening() bool {
	if e.problem == "" || e.gobgp == nil {
		return false
	}
	needed := false
	for _, p := range e.peers {
		needed = needed || p.mustListen()
	}
	if !needed {
		return false
	}
	ok, _ := listenable(e.cfg) // an address that GoBGP listens on is not among them
	return slices.ContainsFunc(ok, func(at netip.AddrPort) bool { return !slices.Contains(e.listen, at) })
}

// finish ends the sessions in the ordered way.
func (s *Speaker) finish(e *engine) {
	defer logPanic(s.log)
	s.mu.Lock()
	keep := s.shutdown == graceful
	s.mu.Unlock()
	up := e.sessions.withBFD()
	e.cache.close()
	if !keep && e.gobgp != nil {
		for _, p := range e.peers {
			e.removePeer(p)
		}
	}
	if err := e.stop(keep); err != nil {
		s.log.Error("BGP shutdown failed", "error", err)
	}
	if len(up) > 0 {
		time.Sleep(bfdPause(up))
	}
	for _, b := range up {
		if err := bfdAdminDown(b.Address, b.Local.Addr(), b.peer); err != nil {
			s.log.Debug("BFD shutdown failed", "error", err)
		}
	}
}

// bfdPause returns the time between the end of the connections and that of BFD: the router
// must see the start of the graceful restart first. It is short compared with the
// detection time.
func bfdPause(up []session) time.Duration {
	pause := 200 * time.Millisecond
	for _, s := range up {
		pause = min(pause, s.BFD.Detect/4)
	}
	return pause
}
