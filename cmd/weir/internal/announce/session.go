package announce

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"time"

	"weir/bgp"
	"weir/bgp/advertise"
	"weir/cmd/weir/internal/status"
)

const (
	// LeaveWait is the time that routers have to apply a withdrawal before the kernel ceases to serve. BGP has no
	// acknowledgement of a withdrawal; routers need a round trip and an update of their tables.
	LeaveWait = 200 * time.Millisecond
	// takeTimeout bounds how long the kernel is kept for a withdrawal that the speaker has not taken: on a busy box that
	// takes a while, and LeaveWait follows. A speaker that hangs costs each pass that withdraws as much.
	takeTimeout = time.Second
	// configureTimeout bounds how long the loop waits for a new set of peers.
	configureTimeout = 2 * time.Second
	// closeTimeout bounds how long routers have to apply the last withdrawal.
	closeTimeout = 5 * time.Second
)

// Speaker speaks BGP: a bgp.Speaker, or that of a test.
type Speaker interface {
	Configure(ctx context.Context, cfg bgp.Config) error
	Set(changes map[netip.Prefix][]advertise.Path) error
	Flush(ctx context.Context) error
	Status() bgp.Status
	AnyEstablished() bool
	Close() error
	Leave(ctx context.Context) error
}

// Options are the inputs of New.
type Options struct {
	Log     *slog.Logger
	Speaker Speaker
	// Announced gets the time from an event until the speaker had the route; nil measures nothing.
	Announced func(time.Duration)
	// Ask runs a function in the loop, and waits for it.
	Ask func(ctx context.Context, f func()) error
}

// session is the speaker and the state of its last calls. The loop owns it.
type session struct {
	speaker   Speaker
	log       *slog.Logger
	announced func(time.Duration)
	begun     bool           // the speaker has its peers
	routerID  netip.Addr     // of the box: a change would end all sessions
	err       error          // of the last call
	measuring sync.WaitGroup // one for each delivery that is measured
	ctx       context.Context
	stop      context.CancelFunc // of the measurements
}

func newSession(o Options) *session {
	s := &session{speaker: o.Speaker, log: o.Log, announced: o.Announced}
	s.ctx, s.stop = context.WithCancel(context.Background())
	return s
}

// begin gives the speaker its peers, and reports whether that was successful.
func (s *session) begin(ctx context.Context, cfg bgp.Config) bool {
	err := s.open(ctx, cfg)
	if err != nil && status.ErrorText(err) != status.ErrorText(s.err) {
		s.log.Error("BGP start failed", "error", err)
	}
	s.begun, s.err = err == nil, err
	return err == nil
}

func (s *session) open(ctx context.Context, cfg bgp.Config) error {
	ctx, cancel := context.WithTimeout(ctx, configureTimeout)
	defer cancel()
	if !cfg.RouterID.IsValid() {
		if !s.routerID.IsValid() {
			id, err := ownAddress(cfg.Peers, sourceTo)
			if err != nil {
				return err
			}
			s.routerID = id
		}
		cfg.RouterID = s.routerID
	}
	err := s.speaker.Configure(ctx, cfg)
	if ctx.Err() != nil {
		return nil // the speaker finishes it in the background
	}
	return err
}

// ownAddress returns the box's IPv4 address towards the first peer with IPv4 that it has a route to: a link that is down
// keeps no other peer waiting.
func ownAddress(peers []bgp.Peer, sourceTo func(netip.Addr) (netip.Addr, error)) (netip.Addr, error) {
	var unreachable error
	for _, p := range peers {
		towards := p.Address
		if p.Range.IsValid() {
			towards = p.Range.Addr().Next()
		}
		if !towards.Is4() {
			continue
		}
		if p.Source.IsValid() {
			return p.Source, nil
		}
		own, err := sourceTo(towards)
		if err == nil {
			return own, nil
		}
		unreachable = cmp.Or(unreachable, fmt.Errorf("find bgp.router_id, the box's own address towards peer %s: %w", p.Name, err))
	}
	return netip.Addr{}, cmp.Or(unreachable, errors.New("no peer has an IPv4 address to derive bgp.router_id from: write router_id"))
}

// sourceTo returns the address that the routing table selects for packets to a router. It sends nothing.
func sourceTo(router netip.Addr) (netip.Addr, error) {
	c, err := net.Dial("udp4", netip.AddrPortFrom(router, bgp.DefaultPort).String())
	if err != nil {
		return netip.Addr{}, err
	}
	own, err := netip.ParseAddrPort(c.LocalAddr().String())
	return own.Addr(), errors.Join(err, c.Close())
}

// set gives the speaker changes, and reports whether it accepted them. since is the begin of their cause; zero is unknown.
func (s *session) set(changes map[netip.Prefix][]advertise.Path, since time.Time) bool {
	err := s.speaker.Set(changes)
	if err != nil && status.ErrorText(err) != status.ErrorText(s.err) {
		s.log.Error("routes not announced", "error", err)
	}
	if err != nil || s.begun { // a speaker that can't start takes routes nevertheless
		s.err = err
	}
	if err != nil {
		return false
	}
	if s.announced != nil && !since.IsZero() {
		s.measuring.Go(func() {
			ctx, cancel := context.WithTimeout(s.ctx, configureTimeout)
			defer cancel()
			if s.speaker.Flush(ctx) == nil {
				s.announced(time.Since(since))
			}
		})
	}
	return true
}

// flush waits until the speaker has taken its changes, and routers have had LeaveWait to apply them.
func (s *session) flush() error {
	ctx, cancel := context.WithTimeout(context.Background(), takeTimeout)
	defer cancel()
	if err := s.speaker.Flush(ctx); err != nil {
		return err
	}
	time.Sleep(LeaveWait)
	return nil
}

// up reports whether a router has a session.
func (s *session) up() bool { return s.begun && s.speaker.AnyEstablished() }

func (s *session) close(leave bool) {
	s.stop()
	s.measuring.Wait()
	up := s.up()
	var err error
	if leave {
		ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
		defer cancel()
		err = s.speaker.Leave(ctx)
	} else {
		err = s.speaker.Close()
	}
	if err != nil {
		s.log.Warn("BGP shutdown failed", "error", err)
	}
	if leave && up {
		time.Sleep(LeaveWait)
	}
}

// Routers returns the names of the peers with an address: those that weir opens sessions with.
func Routers(peers []bgp.Peer) []string {
	var out []string
	for _, p := range peers {
		if p.Address.IsValid() {
			out = append(out, p.Name)
		}
	}
	return out
}
