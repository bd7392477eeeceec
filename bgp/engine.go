package bgp

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"time"

	"github.com/osrg/gobgp/v4/api"
	"github.com/osrg/gobgp/v4/pkg/apiutil"
	"github.com/osrg/gobgp/v4/pkg/server"

	"weir/bgp/advertise"
)

// engine drives GoBGP. Only the goroutine of the Speaker uses it; a call into GoBGP may
// block.
type engine struct {
	log      *slog.Logger
	sessions *sessions
	limiter  *limiter
	cache    *addressCache

	cfg     Config
	gobgp   *server.BgpServer
	unwatch context.CancelFunc
	listen  []netip.AddrPort
	problem string // the reason why the port is not bound
	restart bool   // GoBGP must be started again
	panics  panics

	peers []Peer // with defaults, as GoBGP has them
	known peering
	next  nextHopTable
	table classTable
}

// peering is what is known of the peers of the present GoBGP.
type peering struct {
	missing map[string]bool // peers that it refused
	pending pending
	sources map[string]netip.Addr // of BFD sessions, by peer
}

// nextHopTable has the next hops of each peer.
type nextHopTable struct {
	interfaces func() [][]netip.Addr // the addresses of each interface of the box
	hops       map[string]hops
	refused    map[string]bool // peers that do not accept IPv4 routes with IPv6 next hops
}

// classTable has the classes and the prefixes that GoBGP has.
type classTable struct {
	classes  map[string]*class // by classKey
	lastID   uint32
	version  int             // of all policies; it changes with peers and next hops
	policies map[string]bool // that GoBGP has
	has      map[netip.Prefix]*class
}

func newEngine(log *slog.Logger, b *sessions) *engine {
	cache := &addressCache{}
	return &engine{log: log, sessions: b, limiter: &limiter{}, cache: cache, next: nextHopTable{interfaces: cache.get}}
}

// configure applies cfg. want is everything that is announced: it must be complete before
// the first session, so that the first End-of-RIB marker follows it.
func (e *engine) configure(cfg Config, want map[netip.Prefix][]advertise.Path) error {
	if e.gobgp != nil && !e.restart && e.sameServer(cfg) {
		return errors.Join(e.setPeers(cfg), e.apply(want))
	}
	e.restart = true // until it has succeeded
	e.sessions.stopped(time.Now())
	if err := e.stop(true); err != nil {
		return err
	}
	if err := e.start(cfg); err != nil {
		return err
	}
	e.cfg = cfg
	e.setActivePeers(withDefaults(cfg))
	if err := e.apply(want); err != nil {
		return err
	}
	var errs []error
	for _, p := range e.peers {
		errs = append(errs, e.addPeer(p, true))
	}
	err := errors.Join(errs...)
	e.restart = err != nil
	return err
}

// sameServer reports whether GoBGP can apply cfg while it runs.
func (e *engine) sameServer(cfg Config) bool {
	return e.cfg.ASN == cfg.ASN && e.cfg.RouterID == cfg.RouterID && e.cfg.ListenPort == cfg.ListenPort &&
		slices.Equal(e.cfg.ListenAddrs, cfg.ListenAddrs)
}

// withDefaults returns the peers of cfg with all defaults.
func withDefaults(cfg Config) []Peer {
	var out []Peer
	for _, p := range cfg.Peers {
		out = append(out, p.WithDefaults(cfg))
	}
	return out
}

func (e *engine) start(cfg Config) error {
	number := e.sessions.current()
	handler := &logHandler{log: e.log, sessions: e.sessions, limiter: e.limiter, number: number}
	e.gobgp = server.NewBgpServer(server.LoggerOption(slog.New(handler), nil))
	go e.gobgp.Serve()
	e.next.hops, e.next.refused = map[string]hops{}, map[string]bool{}
	e.known = peering{missing: map[string]bool{}, sources: map[string]netip.Addr{}}
	e.table.classes, e.table.policies, e.table.has = map[string]*class{}, map[string]bool{}, map[netip.Prefix]*class{}
	e.peers = nil

	global := &api.Global{Asn: cfg.ASN, RouterId: cfg.RouterID.String(), ListenPort: -1}
	e.listen, e.problem = listenable(cfg)
	if len(e.listen) > 0 {
		global.ListenPort = int32(cfg.ListenPort)
		for _, a := range e.listen {
			global.ListenAddresses = append(global.ListenAddresses, a.Addr().String())
		}
	}
	ctx := context.Background()
	if err := e.gobgp.StartBgp(ctx, &api.StartBgpRequest{Global: global}); err != nil {
		return fmt.Errorf("start GoBGP: %w", err)
	}
	if err := e.rejectAll(ctx); err != nil {
		return err
	}
	watching, cancel := context.WithCancel(ctx)
	e.unwatch = cancel
	event := func(ev *apiutil.WatchEventMessage_PeerEvent, at time.Time) { e.sessions.event(number, ev, at) }
	return e.gobgp.WatchEvent(watching, server.WatchEventMessageCallbacks{OnPeerUpdate: event}, server.WatchPeer())
}

// stop stops GoBGP. With keep, peers that agreed on graceful restart only see the end of
// the connection.
func (e *engine) stop(keep bool) error {
	if e.gobgp == nil {
		return nil
	}
	gobgp := e.gobgp
	e.gobgp = nil
	if e.unwatch != nil {
		e.unwatch()
	}
	done := make(chan error, 1)
	go func() { done <- stopGoBGP(gobgp, keep) }()
	select {
	case err := <-done:
		return err
	case <-time.After(stopPatience):
		return fmt.Errorf("GoBGP did not stop within %s", stopPatience)
	}
}

// stopGoBGP stops GoBGP. It returns a panic as an error.
func stopGoBGP(gobgp *server.BgpServer, keep bool) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = newPanicError(v)
		}
	}()
	err = gobgp.StopBgp(context.Background(), &api.StopBgpRequest{AllowGracefulRestart: keep})
	gobgp.Stop() // the rest, BFD above all
	return err
}

// stopPatience is how long GoBGP may take to stop; it needs milliseconds.
const stopPatience = 5 * time.Second
