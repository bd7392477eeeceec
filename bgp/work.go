package bgp

import (
	"context"
	"errors"
	"maps"
	"net/netip"
	"time"

	"github.com/osrg/gobgp/v4/api"
)

// run is the Speaker's goroutine. It alone calls GoBGP, so when GoBGP hangs, this
// hangs and nobody else does.
func (s *Speaker) run(e *engine) {
	defer close(s.done)
	tick := time.NewTicker(lookAround)
	defer tick.Stop()
	for {
		look := true
		select {
		case <-s.quit:
			s.finish(e)
			return
		case <-s.wake:
			look = false
		case <-s.stir:
		case <-tick.C:
		}
		s.round(e, look)
	}
}

// job is what there is to do in one round.
type job struct {
	config  *Config // nil: as it is
	changes map[netip.Prefix][]Path
	asked   uint64
}

// round does what was asked for, and looks around.
func (s *Speaker) round(e *engine, look bool) {
	if look && e.retryListening() {
		e.anew = true
	}
	j := s.next(e)
	var err error
	if j.config != nil {
		err = e.configure(*j.config, j.changes)
	} else if e.gobgp != nil {
		err = e.apply(j.changes)
	}
	if look && err == nil && e.gobgp != nil {
		err = e.lookAround()
	}
	s.report(e, j, err)
}

// next takes what there is to do. A new server has to have everything, so does a
// Config that may need one.
func (s *Speaker) next(e *engine) job {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.working = time.Now()
	j := job{config: s.config, asked: s.asked, changes: map[netip.Prefix][]Path{}}
	s.config = nil
	switch {
	case j.config == nil && e.anew:
		again := e.cfg
		j.config = &again
		fallthrough
	case j.config != nil:
		j.changes = maps.Clone(s.want)
		fallthrough
	case e.gobgp != nil:
		for prefix := range s.dirty {
			j.changes[prefix] = s.want[prefix]
		}
		clear(s.dirty)
	}
	return j
}

// report tells the rest of the Speaker how a round went. What was not done is asked
// for again.
func (s *Speaker) report(e *engine, j job, err error) {
	if err != nil && e.quiet.say(err.Error(), time.Now()) {
		s.log.Error("bgp", "err", err)
	}
	hops := maps.Clone(e.hops)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.working = time.Time{}
	s.shown.note(e, j.changes, hops)
	if err != nil {
		s.shown.problem = err.Error()
		if j.config != nil && s.config == nil {
			s.config = j.config
		}
		for prefix := range j.changes {
			s.dirty[prefix] = struct{}{}
		}
		return
	}
	if s.through != j.asked {
		s.through = j.asked
		close(s.moved)
		s.moved = make(chan struct{})
	}
}

// lookAround does what nobody asks for: it takes over counters, follows the box's
// addresses, gives routers another chance, and forgets what is not needed any more.
func (e *engine) lookAround() error {
	now := time.Now()
	var pardoned []string
	err := e.gobgp.ListPeer(context.Background(), &api.ListPeerRequest{}, func(p *api.Peer) {
		if e.board.polled(p, now) {
			pardoned = append(pardoned, p.State.NeighborAddress)
		}
	})
	errs := []error{err, e.renewLost(), e.followHops(), e.retire()}
	for _, addr := range pardoned {
		errs = append(errs, e.gobgp.EnablePeer(context.Background(), &api.EnablePeerRequest{Address: addr}))
	}
	return errors.Join(errs...)
}

// renewLost makes GoBGP's side of lost sessions anew, for three reasons. Only a new
// one tells a router that kept the routes that they still hold (the F bit, RFC 4724),
// so that it does not drop them for the moment until it has them again. An old one
// that BFD wanted to reset when the session was over already would reset the next.
// And a new one connects at once.
func (e *engine) renewLost() error {
	var errs []error
	for _, p := range e.board.lost() {
		e.removePeer(p)
		errs = append(errs, e.addPeer(p, true))
	}
	return errors.Join(errs...)
}

// followHops changes the next hops of peers whose session, or whose interface, turns
// out not to be what it was.
func (e *engine) followHops() error {
	var changed []Peer
	on := e.interfaces()
	for _, p := range e.peers {
		h := e.hops[p.Name]
		if h.extended {
			e.refused[p.Name] = e.board.refusesExtended(p, e.refused[p.Name])
		}
		if p.knowsHops() {
			continue
		}
		if now := nextHops(p, besides(p, on), e.refused[p.Name]).orStill(h, e.refused[p.Name]); now != h {
			e.hops[p.Name] = now
			changed = append(changed, p)
		}
	}
	if len(changed) == 0 {
		return nil
	}
	e.version++
	errs := []error{e.syncPolicies()}
	for _, p := range changed {
		errs = append(errs, e.sendAgain(p))
	}
	return errors.Join(errs...)
}

// retryListening tells whether a port that was taken has become free, if somebody
// needs it.
func (e *engine) retryListening() bool {
	if e.problem == "" || e.gobgp == nil {
		return false
	}
	needed := false
	for _, p := range e.peers {
		needed = needed || p.waits()
	}
	if !needed {
		return false
	}
	ok, _ := listenable(e.cfg)
	return len(ok) > len(e.listen)
}

// finish ends the sessions, each in the way that was asked for.
func (s *Speaker) finish(e *engine) {
	s.mu.Lock()
	keep := s.ending == closes
	s.mu.Unlock()
	up := e.board.withBFD()
	if !keep && e.gobgp != nil {
		for _, p := range e.peers {
			e.removePeer(p)
		}
	}
	if err := e.stop(keep); err != nil {
		s.log.Error("bgp", "err", err)
	}
	if len(up) > 0 {
		time.Sleep(bfdPause(up))
	}
	for _, b := range up {
		if err := bfdAdminDown(b.Address, b.Local.Addr(), b.peer); err != nil {
			s.log.Debug("bgp", "err", err)
		}
	}
}

// bfdPause is between the end of the connections and that of BFD: first a router
// should know that a graceful restart has begun. It is short beside the time within
// which BFD finds out by itself.
func bfdPause(up []session) time.Duration {
	pause := 200 * time.Millisecond
	for _, s := range up {
		pause = min(pause, s.BFD.Detect/4)
	}
	return pause
}
