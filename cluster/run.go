package cluster

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/memberlist"
)

// Run takes part in the fleet until ctx ends. It does not announce a leave. An error is a panic; then it may be called again.
func (f *Fleet) Run(ctx context.Context) error {
	for ctx.Err() == nil {
		list, err := f.begin()
		if err != nil {
			f.setError(err)
			sleep(ctx, bindRetry)
			continue
		}
		f.setError(nil)
		if err := f.serve(ctx, list); err != nil {
			f.setError(errPanicked)
			return err
		}
	}
	return nil
}

var errPanicked = errors.New("the gossip has panicked, and is started again")

// begin creates a list for the configuration.
func (f *Fleet) begin() (*memberlist.Memberlist, error) {
	select {
	case <-f.broken: // of the list before, after its end
	default:
	}
	f.mu.Lock()
	cfg, was := f.cfg, f.session.restart
	f.session.restart, f.session.begun, f.session.conflict = false, time.Now(), ""
	f.mu.Unlock()
	if was { // Status.Rejoining has changed, whatever follows
		signal(f.changed)
	}
	lib, err := cfg.library(newDelegate(f))
	if err != nil {
		return nil, err
	}
	if f.hooks.configure != nil {
		if err := f.hooks.configure(lib); err != nil {
			return nil, err
		}
	}
	if lib.Transport == nil {
		if lib.Transport, err = listen(cfg, f.lines, f.caught); err != nil {
			return nil, fmt.Errorf("listen on %s: %w", cfg.Bind, err)
		}
	}
	// Without the lock: the callback for this box itself comes at once.
	list, err := memberlist.Create(lib)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("start the gossip on %s: %w", cfg.Bind, err), lib.Transport.Shutdown())
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.session.list, f.session.cfg, f.lines.ring = list, cfg, lib.Keyring
	if !f.session.restart && !slices.Equal(cfg.Keys, f.cfg.Keys) { // there was no keyring to change
		if err := exchangeKeys(lib.Keyring, cfg.Keys, f.cfg.Keys); err != nil {
			f.log.Error("fleet keys not changed", "error", err)
		}
	}
	return list, nil
}

// end forgets the members of a list, and stops it. The next list tries those that were alive,
// too: they need not be in Config.Join.
func (f *Fleet) end(list *memberlist.Memberlist) {
	f.updating.Lock()
	defer f.updating.Unlock()
	var members map[string]*entry
	f.locked(func() {
		members = f.table.members
		f.table.clear()
		clear(f.joins.answered)
		f.session.number++
		f.session.list = nil
	})
	if err := list.Shutdown(); err != nil {
		f.log.Warn("fleet port not closed", "error", err)
	}
	// Last, since after a panic the table need not be sound.
	f.locked(func() { f.joins.former = f.joins.former.with(members, &f.session) })
}

func (f *Fleet) setError(err error) {
	f.mu.Lock()
	news := fmt.Sprint(err) != fmt.Sprint(f.session.err)
	f.session.err = err
	f.mu.Unlock()
	if news {
		signal(f.changed)
		if err != nil {
			f.log.Error("fleet not joined; retrying", "error", err)
		}
	}
}

// serve does the work of a list, until ctx ends, another list is needed, or a goroutine has panicked. Then it stops the list.
func (f *Fleet) serve(ctx context.Context, list *memberlist.Memberlist) (err error) {
	defer func() {
		select {
		case err = <-f.broken:
		default:
		}
	}()
	defer f.end(list) // after a panic, too: the next list needs the port
	defer f.caught()
	end := ctx
	ctx, cancel := context.WithCancel(ctx)
	f.mu.Lock()
	every := f.cfg.Timing.memberlist().ProbeInterval
	f.mu.Unlock()
	var background sync.WaitGroup
	for _, run := range []func(context.Context){
		(&joiner{Fleet: f, list: list, begun: time.Now()}).run, func(ctx context.Context) { f.rejoinDead(ctx, list) }, prober{f, list, every}.run,
	} {
		background.Go(func() {
			defer f.caught()
			run(ctx)
		})
	}
	defer func() {
		cancel()
		// A request to a silent host takes up to ten seconds. A list waits for it before
		// another one follows, or it would report that one's members.
		if end.Err() == nil {
			background.Wait()
			f.exchange.answers.Wait()
		}
	}()
	published := State{}
	tick := time.NewTicker(housekeeping)
	defer tick.Stop()
	for {
		f.mu.Lock()
		state, restart, leaving := f.own.state, f.session.restart, f.session.leaving
		moves, wait := !f.cfg.found(f.session.cfg), f.session.cfg.Timing.leaveTime()
		f.mu.Unlock()
		if restart {
			// A box that keeps its name and address is back before it is missed. Otherwise
			// members would keep the old address until they consider it dead.
			if moves && !leaving {
				leaveFormer(f, list, wait)
			}
			return nil
		}
		if state != published && !leaving {
			func() {
				f.updating.Lock()
				defer f.updating.Unlock()
				if announce(list, state.Stamp) {
					published = state
				}
			}()
		}
		f.correct(list, time.Now())
		f.request(list, time.Now())
		select {
		case <-ctx.Done():
			return nil
		case err := <-f.broken:
			return err
		case <-f.wake:
		case now := <-tick.C:
			f.expire(now)
		case r := <-f.exchange.requests:
			f.answer(ctx, list, r)
		}
	}
}

// leaveFormer announces that this box leaves its former address. Under another name it does not come back to the former
// one, which must not count as dead.
func leaveFormer(f *Fleet, list *memberlist.Memberlist, wait time.Duration) {
	set := func(leaving bool) (s Stamp) {
		f.locked(func() {
			f.own.state.Leaving = leaving || f.session.leaving
			f.own.state.Sequence++
			s = f.own.state.Stamp
		})
		return s
	}
	f.updating.Lock()
	defer f.updating.Unlock()
	renamed := false
	f.locked(func() { renamed = f.cfg.Name != f.session.cfg.Name || f.cfg.Fleet != f.session.cfg.Fleet })
	if !renamed {
		_ = list.Leave(wait)
		return
	}
	leave(list, set(true), wait)
	set(false)
}

// announce has a list announce this box with the state of a stamp, or a later one, in the background. Fleet.updating
// must be locked. It reports false if the list has not taken the state: memberlist drops an update during which it
// contradicts another member's view of this box. That takes microseconds, so the next attempt mostly succeeds.
func announce(list *memberlist.Memberlist, s Stamp) bool {
	for range 3 {
		_ = list.UpdateNode(noWait) // the error is a timeout
		// It changes only while updating is locked.
		if taken, err := decodeStamp(list.LocalNode().Meta); err == nil && !taken.before(s) {
			return true
		}
	}
	return false
}

// expire forgets members that have been gone for long, and a name conflict that is over.
func (f *Fleet) expire(now time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.table.expire(now)
	f.epochs.expire(&f.table)
	if s := &f.session; s.conflict != "" && now.Sub(s.conflictSeen) > conflictLasts {
		s.conflict = ""
		signal(f.changed)
	}
}

// library returns memberlist's configuration.
func (c Config) library(d delegate) (*memberlist.Config, error) {
	m := c.Timing.memberlist()
	m.Name, m.Label = c.Name, c.Fleet
	m.BindAddr, m.BindPort = c.Bind.Addr().String(), int(c.Bind.Port())
	advertise, err := c.advertised()
	if err != nil {
		return nil, err
	}
	m.AdvertiseAddr, m.AdvertisePort = advertise.Addr().String(), int(advertise.Port())
	if len(c.Keys) > 0 {
		var keys [][]byte
		for _, k := range c.Keys {
			keys = append(keys, []byte(k.secret))
		}
		ring, err := memberlist.NewKeyring(keys, keys[0])
		if err != nil {
			return nil, err
		}
		m.Keyring = ring
	}
	for _, p := range c.AllowedCIDRs {
		p = p.Masked()
		m.CIDRsAllowed = append(m.CIDRsAllowed, net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())})
	}
	// A member that comes back with another address is accepted as soon as the old one
	// counts as dead.
	m.DeadNodeReclaimTime = time.Second
	m.Logger = d.lines.logger()
	m.Delegate, m.Events, m.Conflict, m.Alive, m.Ping = d, d, d, d, d
	return m, nil
}
