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
	"github.com/osrg/gobgp/v4/pkg/server"
)

// engine makes GoBGP do what is wanted. One goroutine owns it, the Speaker's; a
// call into GoBGP may take as long as GoBGP likes.
type engine struct {
	log   *slog.Logger
	board *board
	quiet *quiet
	// interfaces gives the addresses of each of the box's interfaces.
	interfaces func() [][]netip.Addr

	cfg     Config
	gobgp   *server.BgpServer
	unwatch context.CancelFunc
	listen  []netip.AddrPort
	problem string // why nobody listens
	anew    bool   // GoBGP has to be started again

	peers   []Peer          // with defaults, as GoBGP has them
	missing map[string]bool // but for these, which it refused
	hops    map[string]hops // by peer
	refused map[string]bool // peers that do not take IPv4 routes with IPv6 next hops

	classes  map[string]*class // by classKey
	lastID   uint32
	version  int             // of all policies, counts up when peers or next hops change
	policies map[string]bool // that GoBGP has
	has      map[netip.Prefix]*class
}

func newEngine(log *slog.Logger, b *board) *engine {
	return &engine{log: log, board: b, quiet: &quiet{}, interfaces: interfaces}
}

// configure goes to cfg from whatever is. want is everything that is announced: it
// is there before the first session, so that the first End-of-RIB marker comes
// after it.
func (e *engine) configure(cfg Config, want map[netip.Prefix][]Path) error {
	if e.gobgp != nil && !e.anew && e.sameServer(cfg) {
		return errors.Join(e.setPeers(cfg), e.apply(want))
	}
	e.anew = true // until it is
	if err := e.stop(true); err != nil {
		return err
	}
	if err := e.start(cfg); err != nil {
		return err
	}
	e.cfg = cfg
	e.adopt(e.effective(cfg))
	if err := e.apply(want); err != nil {
		return err
	}
	var errs []error
	for _, p := range e.peers {
		errs = append(errs, e.addPeer(p, true))
	}
	err := errors.Join(errs...)
	e.anew = err != nil
	return err
}

// sameServer tells whether GoBGP can go from one to the other while it runs.
func (e *engine) sameServer(cfg Config) bool {
	return e.cfg.ASN == cfg.ASN && e.cfg.RouterID == cfg.RouterID && e.cfg.ListenPort == cfg.ListenPort &&
		slices.Equal(e.cfg.ListenAddrs, cfg.ListenAddrs)
}

func (e *engine) effective(cfg Config) []Peer {
	var out []Peer
	for _, p := range cfg.Peers {
		out = append(out, p.withDefaults(cfg))
	}
	return out
}

func (e *engine) start(cfg Config) error {
	handler := &listener{log: e.log, board: e.board, quiet: e.quiet}
	e.gobgp = server.NewBgpServer(server.LoggerOption(slog.New(handler), nil))
	go e.gobgp.Serve()
	e.hops, e.refused, e.missing = map[string]hops{}, map[string]bool{}, map[string]bool{}
	e.classes, e.policies, e.has = map[string]*class{}, map[string]bool{}, map[netip.Prefix]*class{}
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
	if err := e.closeDoors(ctx); err != nil {
		return err
	}
	watching, cancel := context.WithCancel(ctx)
	e.unwatch = cancel
	return e.gobgp.WatchEvent(watching, server.WatchEventMessageCallbacks{OnPeerUpdate: e.board.event}, server.WatchPeer())
}

// stop ends GoBGP. With keep, peers that agreed on graceful restart see nothing but
// the end of the connection.
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
	go func() {
		err := gobgp.StopBgp(context.Background(), &api.StopBgpRequest{AllowGracefulRestart: keep})
		gobgp.Stop() // what StopBgp leaves, BFD above all
		done <- err
	}()
	select {
	case err := <-done:
		return err
	case <-time.After(stopPatience):
		return fmt.Errorf("GoBGP did not stop within %s", stopPatience)
	}
}

// stopPatience is how long GoBGP may take to stop; it needs milliseconds.
const stopPatience = 5 * time.Second
