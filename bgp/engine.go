package bgp

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/osrg/gobgp/v4/api"
	"github.com/osrg/gobgp/v4/pkg/apiutil"
	"github.com/osrg/gobgp/v4/pkg/server"
)

// engine makes GoBGP do what is wanted. One goroutine owns it, the Speaker's; a
// call into GoBGP may take as long as GoBGP likes.
type engine struct {
	log   *slog.Logger
	board *board
	quiet *quiet

	cfg     Config
	gobgp   *server.BgpServer
	unwatch context.CancelFunc
	listen  []netip.AddrPort
	problem string // why nobody listens
	anew    bool   // GoBGP has to be started again

	peers   []Peer          // with defaults, as GoBGP has them
	hops    map[string]hops // by peer
	refused map[string]bool // peers that do not take IPv4 routes with IPv6 next hops

	classes  map[string]*class // by classKey
	lastID   uint32
	version  int             // of all policies, counts up when peers or next hops change
	policies map[string]bool // that GoBGP has
	has      map[netip.Prefix]*class
}

func newEngine(log *slog.Logger, b *board) *engine {
	return &engine{log: log, board: b, quiet: &quiet{}}
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
	e.hops, e.refused = map[string]hops{}, map[string]bool{}
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

// closeDoors lets nothing in but weir's own routes, and nothing out yet.
func (e *engine) closeDoors(ctx context.Context) error {
	own := &api.Policy{Name: "own", Statements: []*api.Statement{{
		Name:       "own",
		Conditions: &api.Conditions{RouteType: api.Conditions_ROUTE_TYPE_LOCAL},
		Actions:    &api.Actions{RouteAction: api.RouteAction_ROUTE_ACTION_ACCEPT},
	}}}
	if err := e.gobgp.AddPolicy(ctx, &api.AddPolicyRequest{Policy: own}); err != nil {
		return fmt.Errorf("add policy: %w", err)
	}
	return errors.Join(
		e.assign(api.PolicyDirection_POLICY_DIRECTION_IMPORT, []*api.Policy{own}),
		e.assign(api.PolicyDirection_POLICY_DIRECTION_EXPORT, nil))
}

// assign makes policies all there are of a direction. What they do not accept is
// rejected.
func (e *engine) assign(d api.PolicyDirection, policies []*api.Policy) error {
	return e.gobgp.SetPolicyAssignment(context.Background(), &api.SetPolicyAssignmentRequest{Assignment: &api.PolicyAssignment{
		Name: "global", Direction: d, Policies: policies, DefaultAction: api.RouteAction_ROUTE_ACTION_REJECT,
	}})
}

// adopt takes peers as those to make policies for.
func (e *engine) adopt(peers []Peer) {
	e.peers = peers
	e.board.configure(peers, e.cfg.GracefulRestart)
	for _, p := range peers {
		e.hops[p.Name] = nextHops(p, besides(p), e.refused[p.Name])
	}
	e.version++
}

// setPeers goes to the peers of cfg. A peer that is new comes with its policies,
// one that goes takes its sessions along first.
func (e *engine) setPeers(cfg Config) error {
	old, restart := map[string]Peer{}, e.cfg.GracefulRestart
	for _, p := range e.peers {
		old[p.Name] = p
	}
	wanted := e.effective(cfg)
	var errs []error
	var fresh, eased []Peer
	for _, p := range wanted {
		was, there := old[p.Name]
		delete(old, p.Name)
		switch {
		case there && was.sameSession(p) && restart == cfg.GracefulRestart:
			if was != p {
				eased = append(eased, p)
			}
		case there:
			errs = append(errs, e.removePeer(was))
			fresh = append(fresh, p)
		default:
			fresh = append(fresh, p)
		}
	}
	for _, p := range old {
		errs = append(errs, e.removePeer(p))
	}
	e.cfg = cfg
	e.adopt(wanted)
	errs = append(errs, e.syncPolicies())
	for _, p := range eased {
		errs = append(errs, e.easePeer(p))
	}
	for _, p := range fresh {
		errs = append(errs, e.addPeer(p, false))
	}
	return errors.Join(errs...)
}

// sameSession tells whether q needs no new session where there is one with p.
func (p Peer) sameSession(q Peer) bool {
	p.BFD, p.NextHops, p.ConnectRetry, p.MaxPrefixes = q.BFD, q.NextHops, q.ConnectRetry, q.MaxPrefixes
	return p == q && !p.Range.IsValid()
}

// easePeer changes a peer with its session left alone.
func (e *engine) easePeer(p Peer) error {
	if _, err := e.gobgp.UpdatePeer(context.Background(), &api.UpdatePeerRequest{Peer: apiPeer(p, e.cfg.GracefulRestart, false)}); err != nil {
		return fmt.Errorf("change peer %q: %w", p.Name, err)
	}
	return e.sendAgain(p)
}

// sendAgain has GoBGP send a peer everything that it should have.
func (e *engine) sendAgain(p Peer) error {
	var errs []error
	for _, addr := range e.board.addresses(p) {
		errs = append(errs, e.gobgp.ResetPeer(context.Background(), &api.ResetPeerRequest{
			Address: addr.String(), Soft: true, Direction: api.ResetPeerRequest_DIRECTION_OUT,
		}))
	}
	return errors.Join(errs...)
}

func (e *engine) addPeer(p Peer, restarting bool) error {
	ctx := context.Background()
	if !p.Range.IsValid() {
		if err := e.gobgp.AddPeer(ctx, &api.AddPeerRequest{Peer: apiPeer(p, e.cfg.GracefulRestart, restarting)}); err != nil {
			return fmt.Errorf("add peer %q: %w", p.Name, err)
		}
		return nil
	}
	if err := e.gobgp.AddPeerGroup(ctx, &api.AddPeerGroupRequest{PeerGroup: apiGroup(p, e.cfg.GracefulRestart, restarting)}); err != nil {
		return fmt.Errorf("add range %q: %w", p.Name, err)
	}
	err := e.gobgp.AddDynamicNeighbor(ctx, &api.AddDynamicNeighborRequest{
		DynamicNeighbor: &api.DynamicNeighbor{Prefix: p.Range.String(), PeerGroup: p.Name},
	})
	if err != nil {
		return fmt.Errorf("add range %q: %w", p.Name, err)
	}
	return nil
}

func (e *engine) removePeer(p Peer) error {
	ctx := context.Background()
	if p.Range.IsValid() {
		errs := []error{e.gobgp.DeleteDynamicNeighbor(ctx, &api.DeleteDynamicNeighborRequest{Prefix: p.Range.String(), PeerGroup: p.Name})}
		for _, addr := range e.board.addresses(p) {
			// One that has gone by itself meanwhile is no error.
			_ = e.gobgp.DeletePeer(ctx, &api.DeletePeerRequest{Address: addr.String()})
		}
		return errors.Join(append(errs, e.gobgp.DeletePeerGroup(ctx, &api.DeletePeerGroupRequest{Name: p.Name}))...)
	}
	if p.Password != "" {
		// Only a change of the password makes GoBGP take it off its listener.
		p.Password = ""
		_, err := e.gobgp.UpdatePeer(ctx, &api.UpdatePeerRequest{Peer: apiPeer(p, e.cfg.GracefulRestart, false)})
		if err != nil {
			return fmt.Errorf("remove peer %q: %w", p.Name, err)
		}
	}
	if err := e.gobgp.DeletePeer(ctx, &api.DeletePeerRequest{Address: p.Address.String()}); err != nil {
		return fmt.Errorf("remove peer %q: %w", p.Name, err)
	}
	return nil
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

// paths are chunked so that GoBGP's other work gets its turn between.
const chunk = 256

// apply makes GoBGP announce what changes says, additions first. What it got
// through, it has noted in e.has; the rest is in the error.
func (e *engine) apply(changes map[netip.Prefix][]Path) error {
	var adds, dels []netip.Prefix
	next := map[netip.Prefix]*class{}
	for prefix, paths := range changes {
		c := e.classFor(!prefix.Addr().Is4(), paths)
		switch {
		case c == e.has[prefix]:
		case c == nil:
			dels = append(dels, prefix)
		default:
			next[prefix] = c
			adds = append(adds, prefix)
		}
	}
	if err := e.syncPolicies(); err != nil {
		return err
	}
	slices.SortFunc(adds, netip.Prefix.Compare)
	slices.SortFunc(dels, netip.Prefix.Compare)
	for part := range slices.Chunk(adds, chunk) {
		if err := e.announce(part, next); err != nil {
			return err
		}
	}
	for part := range slices.Chunk(dels, chunk) {
		if err := e.withdraw(part); err != nil {
			return err
		}
	}
	return nil
}

// classFor is the class of paths, a new one if need be; nil if nobody gets any.
func (e *engine) classFor(v6 bool, paths []Path) *class {
	if len(paths) == 0 {
		return nil
	}
	key := classKey(v6, paths)
	c := e.classes[key]
	if c == nil {
		e.lastID++
		c = &class{id: e.lastID, v6: v6, paths: paths}
		e.classes[key] = c
	}
	return c
}

func (e *engine) announce(prefixes []netip.Prefix, next map[netip.Prefix]*class) error {
	req := apiutil.AddPathRequest{}
	for _, prefix := range prefixes {
		path, err := next[prefix].route(prefix)
		if err != nil {
			return fmt.Errorf("announce %s: %w", prefix, err)
		}
		req.Paths = append(req.Paths, path)
	}
	if _, err := e.gobgp.AddPath(req); err != nil {
		return fmt.Errorf("announce %s and %d more: %w", prefixes[0], len(prefixes)-1, err)
	}
	for _, prefix := range prefixes {
		e.note(prefix, next[prefix])
	}
	return nil
}

func (e *engine) withdraw(prefixes []netip.Prefix) error {
	req := apiutil.DeletePathRequest{}
	for _, prefix := range prefixes {
		path, err := e.has[prefix].route(prefix)
		if err != nil {
			return fmt.Errorf("withdraw %s: %w", prefix, err)
		}
		req.Paths = append(req.Paths, path)
	}
	if err := e.gobgp.DeletePath(req); err != nil {
		return fmt.Errorf("withdraw %s and %d more: %w", prefixes[0], len(prefixes)-1, err)
	}
	for _, prefix := range prefixes {
		e.note(prefix, nil)
	}
	return nil
}

// note keeps book of what GoBGP has.
func (e *engine) note(prefix netip.Prefix, c *class) {
	if was := e.has[prefix]; was != nil {
		was.routes--
	}
	if c == nil {
		delete(e.has, prefix)
		return
	}
	c.routes++
	e.has[prefix] = c
}

// retire forgets classes that no route is of any more.
func (e *engine) retire() error {
	for key, c := range e.classes {
		if c.routes == 0 {
			delete(e.classes, key)
		}
	}
	return e.syncPolicies()
}

// syncPolicies gives GoBGP the policies of all classes: new ones first, then the
// change to them all at once, then the old ones go.
func (e *engine) syncPolicies() error {
	want := map[string]*class{}
	for c := range maps.Values(e.classes) {
		want[fmt.Sprintf("%d.%d", c.id, e.version)] = c
	}
	if maps.EqualFunc(want, e.policies, func(*class, bool) bool { return true }) {
		return nil
	}
	ctx := context.Background()
	if err := e.neighborSets(ctx); err != nil {
		return err
	}
	for name, c := range want {
		if e.policies[name] {
			continue
		}
		if err := e.gobgp.AddPolicy(ctx, &api.AddPolicyRequest{Policy: c.policy(name, e.peers, e.hops)}); err != nil {
			return fmt.Errorf("add policy: %w", err)
		}
		e.policies[name] = true
	}
	var all []*api.Policy
	for _, name := range slices.Sorted(maps.Keys(want)) {
		all = append(all, &api.Policy{Name: name})
	}
	if err := e.assign(api.PolicyDirection_POLICY_DIRECTION_EXPORT, all); err != nil {
		return fmt.Errorf("assign policies: %w", err)
	}
	for name := range e.policies {
		if want[name] != nil {
			continue
		}
		if err := e.gobgp.DeletePolicy(ctx, &api.DeletePolicyRequest{Policy: &api.Policy{Name: name}, All: true}); err != nil {
			return fmt.Errorf("remove policy: %w", err)
		}
		delete(e.policies, name)
	}
	return nil
}

func (e *engine) neighborSets(ctx context.Context) error {
	for _, p := range e.peers {
		err := e.gobgp.AddDefinedSet(ctx, &api.AddDefinedSetRequest{Replace: true, DefinedSet: &api.DefinedSet{
			DefinedType: api.DefinedType_DEFINED_TYPE_NEIGHBOR, Name: p.Name, List: []string{p.prefix().String()},
		}})
		if err != nil {
			return fmt.Errorf("name peer %q: %w", p.Name, err)
		}
	}
	return nil
}
