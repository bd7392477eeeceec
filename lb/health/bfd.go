package health

import (
	"container/heap"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"time"

	"weir/lb/health/bfd"
)

// sessions has the BFD sessions of all checks, one for each address and port. They run while the
// Checker does. The check of a backend reads the state of its session.
type sessions struct {
	changed func(netip.AddrPort) // called without the lock after each change

	mu      sync.Mutex
	ctx     context.Context // of the Checker's Run, nil outside of it
	all     map[netip.AddrPort]*session
	running sync.WaitGroup
}

type session struct {
	peer   bfd.Peer
	stop   context.CancelFunc // nil if it does not run
	status bfd.Status
	// A check waits until the session has been up, or had its timeout since began or the last fault
	// of this box, so that a restart of weir takes no backend out.
	wasUp bool
	began time.Time
	news  chan struct{} // closed by the next change
}

// port returns the port that c checks at all backends, 0 for their own.
func (c *Check) port() uint16 {
	if c.Kind == BFD {
		return c.BFDPort()
	}
	return c.Port
}

// LinkBFDPort is the port of sessions over one link, which those of BGP peers have too.
const LinkBFDPort = bfd.Port

// BFDPort returns the port of the packets in both directions.
func (c *Check) BFDPort() uint16 {
	switch {
	case c.Port != 0:
		return c.Port
	case c.BFD.MaxHops > 0:
		return bfd.MultihopPort
	}
	return LinkBFDPort
}

// set replaces all sessions. Those that stay the same continue.
func (s *sessions) set(peers map[netip.AddrPort]bfd.Peer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for at, old := range s.all {
		if peers[at] != old.peer {
			if old.stop != nil {
				old.stop()
			}
			delete(s.all, at)
		}
	}
	for at, p := range peers {
		if s.all[at] == nil {
			s.all[at] = &session{peer: p, status: noStatus, news: make(chan struct{})}
			s.run(s.all[at])
		}
	}
}

// start runs all sessions until ctx ends.
func (s *sessions) start(ctx context.Context) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ctx = ctx
	for _, x := range s.all {
		s.run(x)
	}
}

// wait waits until all sessions have ended.
func (s *sessions) wait() {
	s.mu.Lock()
	s.ctx = nil
	s.mu.Unlock()
	s.running.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, x := range s.all {
		x.stop, x.status, x.wasUp = nil, noStatus, false
	}
}

func (s *sessions) run(x *session) {
	if s.ctx == nil {
		return
	}
	ctx, stop := context.WithCancel(s.ctx)
	x.stop, x.began = stop, time.Now()
	s.running.Go(func() {
		defer stop()
		bfd.Run(ctx, x.peer, func(now bfd.Status) { s.store(x, now) })
	})
}

func (s *sessions) store(x *session, now bfd.Status) {
	s.mu.Lock()
	if lacksMeans(x.status.Err) {
		x.began = time.Now()
	}
	x.status = now
	x.wasUp = x.wasUp || now.Up
	close(x.news)
	x.news = make(chan struct{})
	s.mu.Unlock()
	s.changed(x.peer.Address)
}

// ask is the asker of bfd. It waits for a new session, until ctx ends.
func (s *sessions) ask(ctx context.Context, _ Dial, t target) error {
	at, err := netip.ParseAddrPort(t.address)
	if err != nil {
		return err
	}
	for {
		s.mu.Lock()
		x := s.all[at]
		if x == nil {
			s.mu.Unlock()
			return errNoSession
		}
		status, wait, news := x.status, time.Until(x.began.Add(t.timeout)), x.news
		if x.wasUp {
			wait = 0
		}
		s.mu.Unlock()
		switch {
		case status.Up:
			return nil
		case wait <= 0 || lacksMeans(status.Err):
			return fmt.Errorf("BFD session down: %w", status.Err)
		case ctx.Err() != nil:
			return errNoSession // a new one needs more time than this check has
		}
		select {
		case <-news:
		case <-time.After(wait):
		case <-ctx.Done():
		}
	}
}

var errNoSession = errors.New("BFD session removed or replaced")

// noStatus is the status before the first one of a session.
var noStatus = bfd.Status{Err: errors.New("no packet of the peer")}

// peers returns the peers of all checks of kind BFD.
func (t *table) peers() map[netip.AddrPort]bfd.Peer {
	out := map[netip.AddrPort]bfd.Peer{}
	for at, probes := range t.bfd {
		peer := probes[0].check.BFD
		peer.Address = at
		out[at] = peer
	}
	return out
}

// recheck makes the checks of kind BFD of an address due now, or when they are back.
func (t *table) recheck(at netip.AddrPort, now time.Time) {
	for _, p := range t.bfd[at] {
		if p.out {
			p.again = now
			continue
		}
		p.due = now
		heap.Fix(&t.due, p.place)
	}
}
