package bgp

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"

	"weir/bgp/advertise"
)

// Speaker keeps sessions with the peers of a Config and announces the routes of Set. Its
// methods are safe for concurrent use.
type Speaker struct {
	log      *slog.Logger
	sessions *sessions

	mu       sync.Mutex
	orders   orders
	working  time.Time // since when the engine has been busy; zero: it is not
	shown    shown
	shutdown shutdown

	wake   chan struct{} // there are new orders
	polled chan struct{} // a session has changed
	quit   chan struct{}
	done   chan struct{} // the engine has stopped
}

// orders are the calls of Set and Configure. Speaker.mu guards them.
type orders struct {
	want    map[netip.Prefix][]advertise.Path // everything that is Set, canonical
	dirty   map[netip.Prefix]struct{}         // prefixes that GoBGP does not have yet
	config  *Config                           // not applied yet
	count   uint64                            // of calls
	applied uint64                            // of calls that GoBGP has
	changed chan struct{}                     // closed when applied changes
}

// shutdown is the way in which a Speaker stops.
type shutdown int

const (
	running  shutdown = iota
	graceful          // routers keep the routes
	cease             // routers get a Cease
)

// ErrClosed is the error of calls after Close.
var ErrClosed = errors.New("bgp: the speaker is closed")

// The interval of polls, the time after which a silent GoBGP is a problem, and how long a
// lost session must have lasted to be created again.
const (
	pollEvery     = time.Second
	stuckAfter    = 10 * time.Second
	recreateAfter = 10 * time.Second
)

// New returns a Speaker that does nothing until it is configured. Close and Leave end its
// goroutine.
func New(log *slog.Logger) *Speaker {
	s := newSpeaker(log)
	go s.run(newEngine(log, s.sessions))
	return s
}

func newSpeaker(log *slog.Logger) *Speaker {
	s := &Speaker{
		log: log,
		orders: orders{
			want:    map[netip.Prefix][]advertise.Path{},
			dirty:   map[netip.Prefix]struct{}{},
			changed: make(chan struct{}),
		},
		shown:  shown{has: map[netip.Prefix]*class{}},
		wake:   make(chan struct{}, 1),
		polled: make(chan struct{}, 1),
		quit:   make(chan struct{}),
		done:   make(chan struct{}),
	}
	s.sessions = &sessions{log: log, changed: func() { poke(s.polled) }, recreateAfter: recreateAfter, sessions: map[netip.Addr]*session{}}
	s.sessions.filter.attach = attachTTLFilter
	return s
}

// Configure applies cfg. Only differences matter: an equal Peer keeps its session. One with
// an address also keeps it if only BFD, next hops, the prefix limit or the connect retry
// changed, but a change of BFD makes GoBGP silent for 1 s, and then the router may end both
// sessions. Other peers are reset one by one, and all if GracefulRestart changes. A change of the ASN, the router ID
// or the listener restarts all sessions, with routes kept.
//
// Set everything that must be announced before the first Configure: routers that kept the
// routes over a restart drop those that are not announced again (RFC 4724).
//
// An error is one of cfg, in which case nothing has changed, or that of ctx: then cfg is
// still applied. A port that cannot be bound or an unreachable router is no error: it is
// in Status, and retried.
func (s *Speaker) Configure(ctx context.Context, cfg Config) error {
	if err := cfg.Check(); err != nil {
		return err
	}
	cfg.Peers, cfg.ListenAddrs = slices.Clone(cfg.Peers), slices.Clone(cfg.ListenAddrs)
	s.mu.Lock()
	if s.shutdown != running {
		s.mu.Unlock()
		return ErrClosed
	}
	s.orders.config = &cfg
	s.orders.count++
	s.mu.Unlock()
	poke(s.wake)
	return s.Flush(ctx)
}

// Set replaces the paths of the given prefixes; no paths withdraw a prefix. Other prefixes
// stay. A call that changes nothing sends nothing.
//
// It does not wait for GoBGP or a router: changes are queued, the last one of a prefix
// wins, and Flush waits for them. Routes that are Set before Configure are announced
// once there are sessions. An error is one of the paths (a prefix with host bits, a peer
// in two paths); then nothing of the map is applied.
func (s *Speaker) Set(changes map[netip.Prefix][]advertise.Path) error {
	var errs []error
	for prefix, paths := range changes {
		errs = append(errs, checkPaths(prefix, paths))
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.shutdown != running {
		return ErrClosed
	}
	if s.take(changes) {
		s.orders.count++
		poke(s.wake)
	}
	return nil
}

// take applies changes, and reports whether there were any.
func (s *Speaker) take(changes map[netip.Prefix][]advertise.Path) bool {
	changed := false
	for prefix, paths := range changes {
		paths = canonical(paths)
		if slices.EqualFunc(s.orders.want[prefix], paths, advertise.Path.Equal) {
			continue
		}
		changed = true
		s.orders.dirty[prefix] = struct{}{}
		s.orders.want[prefix] = paths
		if len(paths) == 0 {
			delete(s.orders.want, prefix)
		}
	}
	return changed
}

// Flush waits until GoBGP has everything from earlier calls of Set and Configure. Status
// shows the routes that routers have.
func (s *Speaker) Flush(ctx context.Context) error {
	s.mu.Lock()
	until := s.orders.count
	s.mu.Unlock()
	for {
		s.mu.Lock()
		through, moved := s.orders.applied, s.orders.changed
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

// Close ends everything without a NOTIFICATION: the routers see the connection end and,
// with graceful restart, keep the routes for the agreed time. Use it when weir restarts
// soon and the kernel forwards meanwhile. A router without graceful restart gets a Cease
// and drops the routes at once. BFD sessions end as on purpose (see the package's
// documentation).
func (s *Speaker) Close() error { return s.end(context.Background(), graceful) }

// Leave withdraws every route, waits until ctx is done, or a second at most, then ends the
// sessions with a Cease and closes.
func (s *Speaker) Leave(ctx context.Context) error {
	s.mu.Lock()
	nothing := map[netip.Prefix][]advertise.Path{}
	for prefix := range maps.Keys(s.orders.want) {
		nothing[prefix] = nil
	}
	s.mu.Unlock()
	err := s.Set(nothing)
	if err == nil {
		err = s.Flush(ctx)
	}
	if err == nil && len(nothing) > 0 {
		select {
		case <-time.After(leavePause):
		case <-ctx.Done():
		}
	}
	return errors.Join(err, s.end(ctx, cease))
}

// leavePause is the time for routers to process withdrawals.
const leavePause = time.Second

func (s *Speaker) end(ctx context.Context, how shutdown) error {
	s.mu.Lock()
	if s.shutdown != running {
		s.mu.Unlock()
		return ErrClosed
	}
	s.shutdown = how
	s.mu.Unlock()
	close(s.quit)
	// The engine may block with GoBGP; a process that ends does not wait for it.
	patience := time.NewTimer(2 * stopPatience)
	defer patience.Stop()
	select {
	case <-s.done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("end the BGP sessions: %w", ctx.Err())
	case <-patience.C:
		return errors.New("end the BGP sessions: GoBGP does not answer")
	}
}

// poke fills a channel that has room for one.
func poke(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// AnyEstablished reports whether any session is established. Unlike Status, its cost does not
// depend on the number of routes.
func (s *Speaker) AnyEstablished() bool { return s.sessions.anyEstablished() }

// Status returns the state of the Speaker.
func (s *Speaker) Status() Status {
	s.mu.Lock()
	now := s.shown
	now.has = maps.Clone(now.has)
	if !s.working.IsZero() && time.Since(s.working) > stuckAfter {
		now.problem = fmt.Sprintf("GoBGP has not answered for %s: route changes are not sent; restart weir",
			time.Since(s.working).Truncate(time.Second))
	}
	s.mu.Unlock()
	out := Status{ASN: now.cfg.ASN, RouterID: now.cfg.RouterID, Listen: now.listen, Problem: now.problem}
	out.Peers = s.sessions.all(len(now.listen) > 0)
	sessions := map[string][]*PeerStatus{}
	for i := range out.Peers {
		if p := &out.Peers[i]; p.State == Established {
			sessions[p.Name] = append(sessions[p.Name], p)
			p.Problem = now.hops[p.Name].problem(p.Families)
			if p.BFD.Enabled && p.Problem == "" {
				p.Problem = s.sessions.filter.problem()
			}
		}
	}
	families := carriers(out.Peers)
	for prefix, c := range now.has {
		for _, path := range c.paths {
			out.Routes = append(out.Routes, now.route(prefix, path, sessions, families))
		}
	}
	slices.SortFunc(out.Routes, func(a, b RouteStatus) int {
		return cmp.Or(a.Prefix.Compare(b.Prefix), cmp.Compare(a.Path.Peers[0], b.Path.Peers[0]))
	})
	return out
}
