package bgp

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"
)

// Speaker keeps sessions with the peers of a Config and announces what Set says.
// Its methods are safe for concurrent use.
type Speaker struct {
	log   *slog.Logger
	board *board

	mu      sync.Mutex
	want    map[netip.Prefix][]Path   // what is Set, canonical
	dirty   map[netip.Prefix]struct{} // where GoBGP does not have it yet
	config  *Config                   // not taken over yet
	asked   uint64                    // counts Set and Configure
	through uint64                    // how many of them GoBGP has
	moved   chan struct{}             // closed when through changes
	working time.Time                 // since when the engine is at it; zero: it is not
	shown   shown
	ending  ending

	wake chan struct{} // something was asked for
	stir chan struct{} // something has changed by itself
	quit chan struct{}
	done chan struct{} // the engine is at rest for good
}

// ending is how a Speaker goes.
type ending int

const (
	stays   ending = iota
	closes         // routers keep the routes
	departs        // routers get a Cease
)

// ErrClosed is what a Speaker answers that was closed.
var ErrClosed = errors.New("bgp: the speaker is closed")

// How often the engine looks around, how long GoBGP may not answer until that is a
// problem, and how long a lost session must have lasted to be made anew.
const (
	lookAround = time.Second
	stuckAfter = 10 * time.Second
	renewAfter = 10 * time.Second
)

// New gives a Speaker that does nothing until it is configured. It has a goroutine,
// which Close and Leave end.
func New(log *slog.Logger) *Speaker {
	s := newSpeaker(log)
	go s.run(newEngine(log, s.board))
	return s
}

func newSpeaker(log *slog.Logger) *Speaker {
	s := &Speaker{
		log:   log,
		want:  map[netip.Prefix][]Path{},
		dirty: map[netip.Prefix]struct{}{},
		moved: make(chan struct{}),
		shown: shown{has: map[netip.Prefix]*class{}},
		wake:  make(chan struct{}, 1),
		stir:  make(chan struct{}, 1),
		quit:  make(chan struct{}),
		done:  make(chan struct{}),
	}
	s.board = &board{log: log, wake: func() { poke(s.stir) }, renewAfter: renewAfter, sessions: map[netip.Addr]*session{}}
	return s
}

// Configure makes the sessions those of cfg. Only what differs is touched: an equal
// Peer keeps its session, as does one where only BFD, next hops, the prefix limit or
// the time to connect again changed; any other is reset alone. A change of the ASN,
// the router ID or the listener starts all sessions anew, routes kept.
//
// Set everything that is to be announced before the first Configure: routers which
// kept the routes over a restart drop what they do not hear again (RFC 4724).
//
// An error is one of cfg, in which case nothing has changed, or that of ctx: then
// cfg is taken over all the same, as soon as may be. A port that can't be bound or a
// router that can't be reached is no error but in Status, and tried again.
func (s *Speaker) Configure(ctx context.Context, cfg Config) error {
	if err := cfg.Check(); err != nil {
		return err
	}
	cfg.Peers, cfg.ListenAddrs = slices.Clone(cfg.Peers), slices.Clone(cfg.ListenAddrs)
	s.mu.Lock()
	if s.ending != stays {
		s.mu.Unlock()
		return ErrClosed
	}
	s.config = &cfg
	s.asked++
	s.mu.Unlock()
	poke(s.wake)
	return s.Settled(ctx)
}

// Set says what is announced of the given prefixes from now on: exactly these paths,
// and none to withdraw. Prefixes that are not in the map stay as they are. A call
// that changes nothing costs nothing and sends nothing.
//
// It never waits for GoBGP or for a router: changes are taken along, the last one of
// a prefix wins, and Settled tells when they are through. What is Set before
// Configure is announced once there are sessions. An error is one of the paths
// (a prefix with host bits, a peer in two paths); then nothing of the map is taken.
func (s *Speaker) Set(changes map[netip.Prefix][]Path) error {
	var errs []error
	for prefix, paths := range changes {
		errs = append(errs, checkPaths(prefix, paths))
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ending != stays {
		return ErrClosed
	}
	if s.take(changes) {
		s.asked++
		poke(s.wake)
	}
	return nil
}

// take notes changes and tells whether there were any.
func (s *Speaker) take(changes map[netip.Prefix][]Path) bool {
	changed := false
	for prefix, paths := range changes {
		paths = canonical(paths)
		if slices.EqualFunc(s.want[prefix], paths, Path.Equal) {
			continue
		}
		changed = true
		s.dirty[prefix] = struct{}{}
		s.want[prefix] = paths
		if len(paths) == 0 {
			delete(s.want, prefix)
		}
	}
	return changed
}

// Settled waits until GoBGP has all that was Set and Configured before. What the
// routers have is another matter: see Status.
func (s *Speaker) Settled(ctx context.Context) error {
	s.mu.Lock()
	until := s.asked
	s.mu.Unlock()
	for {
		s.mu.Lock()
		through, moved := s.through, s.moved
		s.mu.Unlock()
		if through >= until {
			return nil
		}
		select {
		case <-moved:
		case <-s.done:
			return ErrClosed
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Close ends everything without a NOTIFICATION: the routers see the connection end
// and, with graceful restart, keep the routes for the time agreed. That is the way
// to stop when another weir starts soon and the kernel forwards meanwhile. A router
// that has not agreed on graceful restart gets a Cease and drops the routes at once.
// BFD sessions are taken down as on purpose (see the package's documentation).
func (s *Speaker) Close() error { return s.end(context.Background(), closes) }

// Leave withdraws every route, gives the routers until ctx is done, and a second at
// most, to take it, then ends the sessions with a Cease and closes.
func (s *Speaker) Leave(ctx context.Context) error {
	s.mu.Lock()
	nothing := map[netip.Prefix][]Path{}
	for prefix := range maps.Keys(s.want) {
		nothing[prefix] = nil
	}
	s.mu.Unlock()
	err := s.Set(nothing)
	if err == nil {
		err = s.Settled(ctx)
	}
	if err == nil && len(nothing) > 0 {
		select {
		case <-time.After(leavePause):
		case <-ctx.Done():
		}
	}
	return errors.Join(err, s.end(ctx, departs))
}

// leavePause is what routers get to take withdrawals before their session ends.
const leavePause = time.Second

func (s *Speaker) end(ctx context.Context, how ending) error {
	s.mu.Lock()
	if s.ending != stays {
		s.mu.Unlock()
		return ErrClosed
	}
	s.ending = how
	s.mu.Unlock()
	close(s.quit)
	// The engine may hang with GoBGP; a process on its way out doesn't wait for that.
	patience := time.NewTimer(2 * stopPatience)
	defer patience.Stop()
	select {
	case <-s.done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("end the BGP sessions: %w", ctx.Err())
	case <-patience.C:
		return fmt.Errorf("end the BGP sessions: GoBGP does not answer")
	}
}

// poke fills a channel that has room for one.
func poke(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
