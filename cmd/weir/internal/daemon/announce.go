package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/netip"
	"slices"
	"time"

	"weir/bgp"
	"weir/cmd/weir/internal/config"
	"weir/lb"
)

// What routers are told, and when.
//
// The order is what matters. Up: the kernel is written, read back (that is
// lb.Reconciler.Routes), and then a route goes out. Down: the route goes first,
// routers have leaveWait to take that in, and then the kernel is written. A box that
// starts tells routers nothing before it holds all that it is going to (READY), and
// then everything at once: with graceful restart they drop, of what an earlier run
// told them, just what is not among it.
//
// A kernel that can't be read is no proof of anything: what was announced stays so,
// and nothing new is announced, since that needs reading. If it says that it has no
// IPVS any more, or that it does not hold what a VIP needs and will not take it, that
// is proof, and the routes are withdrawn in the same pass.

// speaker speaks BGP: a bgp.Speaker, or a test's.
type speaker interface {
	Configure(ctx context.Context, cfg bgp.Config) error
	Set(changes map[netip.Prefix][]bgp.Path) error
	Settled(ctx context.Context) error
	Status() bgp.Status
	Heard() bool
	Close() error
	Leave(ctx context.Context) error
}

const (
	// leaveWait is how long routers have to take in a withdrawal before the kernel
	// serves nobody there. BGP has no answer to a withdrawal; what they need is one
	// round trip and the writing of their own tables.
	leaveWait = 200 * time.Millisecond
	// announceRetry is how soon it is tried again to begin, or to read what is to be
	// announced.
	announceRetry = time.Second
	// configureTimeout bounds how long the loop stands still for a new set of peers.
	configureTimeout = 2 * time.Second
)

// announcer tells routers of the VIPs that the kernel serves. The loop owns it.
type announcer struct {
	log      *slog.Logger
	cfg      *config.BGP
	adv      *bgp.Advertiser
	speaker  speaker
	begun    bool       // the speaker has been told its peers
	routerID netip.Addr // that has been found; one that changed would end all sessions
	retry    time.Time  // when what could not be done is tried again
	// owed is what the speaker has not been told yet: aggregates without their
	// unreachable route in the kernel.
	owed    map[netip.Prefix][]bgp.Path
	known   map[netip.Addr]struct{} // the addresses that the Advertiser has
	gated   bool                    // the kernel has said that it serves nobody
	waited  bool                    // in this pass, for routers to take in a withdrawal
	late    bool                    // what is owed has been waited for
	drains  uint64                  // the drainer's version that the Advertiser has
	lent    []netip.Addr            // what masqueraded connections bear
	badErr  error                   // why the speaker would not take what it was told
	readErr error                   // why routes could not be read the last time
	version uint64                  // changes when announcements may have
	measure func(since time.Time)
}

// newAnnouncer makes an announcer that announces nothing until begin.
func newAnnouncer(log *slog.Logger, s speaker, cfg *config.BGP, now time.Time) *announcer {
	a := &announcer{
		log: log, cfg: cfg, speaker: s, adv: bgp.NewAdvertiser(),
		owed: map[netip.Prefix][]bgp.Path{}, known: map[netip.Addr]struct{}{}, measure: func(time.Time) {},
	}
	a.owe(a.adv.Configure(cfg.Policy, now))
	a.advance(now)
	return a
}

// begin has the speaker open its sessions, once there is something true to say, and
// all of it: an aggregate has one more pass to get its unreachable route.
func (a *announcer) begin(ctx context.Context, now time.Time) {
	if a.begun || len(a.owed) > 0 && !a.late {
		a.late = true
		return
	}
	if err := a.open(ctx); err != nil {
		if a.retry = now.Add(announceRetry); errorText(err) != errorText(a.badErr) {
			a.log.Error("BGP can't begin; trying again", "error", err)
		}
		a.badErr = err
		return
	}
	a.begun, a.badErr = true, nil
}

// open tells the speaker its peers.
func (a *announcer) open(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, configureTimeout)
	defer cancel()
	cfg := a.cfg.Speaker
	if !cfg.RouterID.IsValid() {
		if !a.routerID.IsValid() {
			id, err := ownAddress(cfg.Peers)
			if err != nil {
				return err
			}
			a.routerID = id
		}
		cfg.RouterID = a.routerID
	}
	err := a.speaker.Configure(ctx, cfg)
	if ctx.Err() != nil {
		return nil // it is taken over all the same
	}
	return err
}

// ownAddress is the box's IPv4 address towards the first peer that has one.
func ownAddress(peers []bgp.Peer) (netip.Addr, error) {
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
		c, err := net.Dial("udp4", netip.AddrPortFrom(towards, bgp.DefaultPort).String()) // sends nothing
		if err != nil {
			return netip.Addr{}, fmt.Errorf("the box's own address towards peer %s, which is to be its bgp.router_id: %w", p.Name, err)
		}
		own, err := netip.ParseAddrPort(c.LocalAddr().String())
		return own.Addr(), errors.Join(err, c.Close())
	}
	return netip.Addr{}, errors.New("no peer has an IPv4 address, by which bgp.router_id would be known: write router_id")
}

// configure brings another configuration into force.
func (a *announcer) configure(ctx context.Context, cfg *config.BGP, now time.Time) {
	a.cfg = cfg
	a.owe(a.adv.Configure(cfg.Policy, now))
	a.advance(now)
	a.version++
	if a.begun {
		a.begun, a.late = false, true
		a.begin(ctx, now)
	}
}

// owe takes down what the speaker is to be told.
func (a *announcer) owe(changes map[netip.Prefix][]bgp.Path) {
	if len(changes) > 0 {
		maps.Copy(a.owed, changes)
		a.version++
	}
}

// take takes in how addresses are now.
func (a *announcer) take(routes []lb.Route, labels func(lb.ServiceID) map[string]string, now time.Time) {
	if len(routes) == 0 {
		return
	}
	for _, r := range routes {
		if r.Withheld == lb.Gone {
			delete(a.known, r.Addr)
		} else {
			a.known[r.Addr] = struct{}{}
		}
	}
	if a.gated {
		routes = gatedRoutes(routes)
	}
	a.version++ // why something is withheld may differ without a change for routers
	a.owe(a.adv.Take(routes, labels, now))
}

// assign takes in what the box is to some VIPs.
func (a *announcer) assign(roles map[netip.Addr]bgp.Role, now time.Time) {
	if len(roles) > 0 {
		a.version++
		a.owe(a.adv.Assign(roles, now))
	}
}

// lend takes in which addresses masqueraded connections bear: replies to them must come
// to this box, wherever the VIPs do. They are announced as VIPs of a static service are.
func (a *announcer) lend(sources []netip.Addr, now time.Time) {
	if slices.Equal(a.lent, sources) {
		return
	}
	had := a.lent
	a.lent = slices.Clone(sources)
	var routes []lb.Route
	for _, addr := range slices.Concat(had, sources) {
		routes = append(routes, a.lentRoute(addr))
	}
	a.take(routes, nil, now)
}

// lentRoute is the route to an address that masqueraded connections bear, or did.
func (a *announcer) lentRoute(addr netip.Addr) lb.Route {
	if !slices.Contains(a.lent, addr) {
		return lb.Route{Addr: addr, Withheld: lb.Gone}
	}
	return lb.Route{Addr: addr, Serves: []lb.Serving{{Service: config.MasqueradeID}}}
}

// gate takes in that the kernel serves nobody at all, or, at the end of that, as
// route says.
func (a *announcer) gate(gated bool, route func(netip.Addr) lb.Route, labels func(lb.ServiceID) map[string]string, now time.Time) {
	if a.gated == gated {
		return
	}
	a.gated = gated
	if gated {
		a.log.Error("the kernel has no IPVS any more: all routes are withdrawn", "vips", len(a.known))
	} else {
		a.log.Info("the kernel serves again: routes are announced as before")
	}
	var routes []lb.Route
	for _, addr := range slices.SortedFunc(maps.Keys(a.known), netip.Addr.Compare) {
		if slices.Contains(a.lent, addr) {
			routes = append(routes, a.lentRoute(addr))
			continue
		}
		routes = append(routes, route(addr))
	}
	a.take(routes, labels, now)
}

// gatedRoutes are routes of a kernel that serves nobody.
func gatedRoutes(routes []lb.Route) []lb.Route {
	out := slices.Clone(routes)
	for i, r := range out {
		if r.Withheld != lb.Gone {
			out[i] = lb.Route{Addr: r.Addr, Withheld: lb.NotProgrammed}
		}
	}
	return out
}

// read takes in whether routes could be read.
func (a *announcer) read(err error, now time.Time) {
	if err != nil {
		a.retry = now.Add(announceRetry)
		if errorText(err) != errorText(a.readErr) {
			a.log.Warn("nothing new is announced until the kernel can be read", "error", err)
		}
	}
	a.readErr = err
}

// advance does what is due by now: the end of a hold-down, for instance.
func (a *announcer) advance(now time.Time) {
	if !now.Before(a.retry) {
		a.retry = time.Time{}
	}
	a.owe(a.adv.Advance(now))
}

// drain takes in how far drains have come.
func (a *announcer) drain(d *drainer, now time.Time) {
	if a.drains == d.version {
		return
	}
	a.drains = d.version
	a.owe(a.adv.Drain(d.stages, now))
	a.version++
}

// next is when advance or begin has something to do; the zero time: not by itself.
func (a *announcer) next() time.Time {
	if a == nil {
		return time.Time{}
	}
	next := a.retry
	if t := a.adv.Next(); !t.IsZero() && (next.IsZero() || t.Before(next)) {
		next = t
	}
	return next
}

// deliver tells the speaker what it is owed, but for aggregates that lack their
// unreachable route, and what they will cover. since is when the cause of it began.
func (a *announcer) deliver(laid func(netip.Prefix) bool, since time.Time) {
	var lacking []netip.Prefix
	for p, paths := range a.owed {
		if len(paths) > 0 && !p.IsSingleIP() && !laid(p) {
			lacking = append(lacking, p)
		}
	}
	now := map[netip.Prefix][]bgp.Path{}
	for p, paths := range a.owed {
		switch {
		case len(paths) == 0 && slices.ContainsFunc(lacking, func(l netip.Prefix) bool { return covers(l, p) }):
			// Until then the VIPs in it would have no route at all.
		case len(paths) > 0 && slices.Contains(lacking, p):
		default:
			now[p] = paths
		}
	}
	a.tell(now, since)
}

// tell tells the speaker some of what it is owed. What it does not take stays owed.
func (a *announcer) tell(now map[netip.Prefix][]bgp.Path, since time.Time) {
	if len(now) == 0 {
		return
	}
	if err := a.speaker.Set(now); err != nil {
		if errorText(err) != errorText(a.badErr) {
			a.log.Error("routes can't be announced; trying again", "error", err)
		}
		a.badErr, a.retry = err, time.Now().Add(announceRetry)
		return
	}
	a.badErr = nil
	for p := range now {
		delete(a.owed, p)
	}
	a.logRoutes(now)
	a.measure(since)
}

// covers tells whether all of a prefix is in a wider one.
func covers(wide, p netip.Prefix) bool { return wide.Bits() < p.Bits() && wide.Contains(p.Addr()) }

// leave withdraws routes before the kernel ceases to serve them: now is the moment
// before it is written. Once a pass it waits until routers have taken that in, if
// there are any. Whatever else is owed can wait for deliver.
func (a *announcer) leave(routes []lb.Route, labels func(lb.ServiceID) map[string]string, now time.Time) {
	a.take(routes, labels, now)
	urgent := a.withdrawn(routes)
	if len(urgent) == 0 {
		return
	}
	a.tell(urgent, now)
	if a.waited || !a.heard() {
		return
	}
	a.waited = true
	ctx, cancel := context.WithTimeout(context.Background(), leaveWait)
	defer cancel()
	if err := a.speaker.Settled(ctx); err != nil {
		a.log.Warn("routes may be withdrawn later than the kernel ceases to serve", "error", err)
		return
	}
	<-ctx.Done()
}

// withdrawn gives the withdrawals that are owed of what leads to some addresses,
// whatever the reason for them was.
func (a *announcer) withdrawn(routes []lb.Route) map[netip.Prefix][]bgp.Path {
	var wide []netip.Prefix
	for p, paths := range a.owed {
		if len(paths) == 0 && !p.IsSingleIP() {
			wide = append(wide, p)
		}
	}
	out := map[netip.Prefix][]bgp.Path{}
	for _, r := range routes {
		host := netip.PrefixFrom(r.Addr, r.Addr.BitLen())
		if paths, owed := a.owed[host]; owed && len(paths) == 0 {
			out[host] = nil
		}
		for _, p := range wide {
			if p.Contains(r.Addr) {
				out[p] = nil
			}
		}
	}
	return out
}

// heard tells whether there is a router with a session.
func (a *announcer) heard() bool {
	return a.begun && a.speaker.Heard()
}

// close ends the sessions so that routers keep the routes (graceful restart); leave
// is for a box that will not serve: it withdraws them first, and routers have time to
// take that in.
func (a *announcer) close(leave bool) {
	if !leave {
		if err := a.speaker.Close(); err != nil {
			a.log.Warn("BGP does not end well", "error", err)
		}
		return
	}
	heard := a.heard()
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	if err := a.speaker.Leave(ctx); err != nil {
		a.log.Warn("BGP does not end well", "error", err)
	}
	if heard {
		time.Sleep(leaveWait)
	}
}

// closeTimeout bounds how long routers have to take a last withdrawal.
const closeTimeout = 5 * time.Second
