// Package announce decides when routes of VIPs are announced and withdrawn, in step with the kernel, and reports that to
// operators. It never announces a VIP before the kernel, read back, serves it; peers and attributes are package advertise's.
//
// The order matters. Up: the kernel is written, read back (lb.Reconciler.Routes), then the route is announced. Down: the
// route is withdrawn, routers have LeaveWait to apply that, then the kernel is written. A box that starts announces
// nothing until it is ready, and then everything at once: with graceful restart routers delete the routes of an earlier
// run that are not among them.
//
// A kernel that can't be read proves nothing: announced routes stay, and no new one is announced. A kernel without IPVS,
// or one that refuses an object of a VIP, does prove something, and the routes are withdrawn in the same pass. They return
// in the pass that repairs the cause.
//
// A speaker that can't start (its port is in use, an address of the box is missing) makes the box degraded and is
// retried. It never keeps a Service from being served.
package announce

import (
	"context"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"time"

	"weir/bgp/advertise"
	"weir/cmd/weir/internal/config"
	"weir/cmd/weir/internal/status"
	"weir/lb"
)

// Retry is the time until BGP is started again after a failure, or routes are read again.
const Retry = time.Second

// Announcer announces the VIPs that the kernel serves. The loop owns it; Reader is for every goroutine. Nil announces
// nothing.
type Announcer struct {
	log     *slog.Logger
	cfg     *config.BGP
	adv     *advertise.Advertiser
	session *session
	reader  *Reader

	// pending are the changes that the speaker does not have yet: aggregates that lack their unreachable route in the
	// kernel, and changes that it refused.
	pending map[netip.Prefix][]advertise.Path
	late    bool                    // Begin has waited a pass for what is pending
	waited  bool                    // this pass has waited for a withdrawal
	known   map[netip.Addr]struct{} // the addresses that the Advertiser has
	noIPVS  bool
	drains  uint64       // the version of the drain state that the Advertiser has
	sources []netip.Addr // of masqueraded connections
	readErr error        // of the last read of routes
	retry   time.Time    // of what failed
	version uint64       // changes with the announcements
}

// New returns an Announcer that announces nothing until Begin.
func New(o Options, cfg *config.BGP, now time.Time) *Announcer {
	a := &Announcer{
		log: o.Log, cfg: cfg, adv: advertise.New(), session: newSession(o),
		pending: map[netip.Prefix][]advertise.Path{}, known: map[netip.Addr]struct{}{},
	}
	a.reader = newReader(a, o)
	a.queue(a.adv.Configure(cfg.Policy, now))
	a.advance(now)
	a.Publish()
	return a
}

// Inputs are the facts by which routes are decided in one pass.
type Inputs struct {
	Drains        advertise.Drains
	DrainsVersion uint64 // changes with Drains
	NoIPVS        bool   // the kernel serves no VIP at all
	// Roles and Late are roles of the box in the fleet; Late ones apply after Routes.
	Roles, Late map[netip.Addr]advertise.Role
	// Routes are the addresses that have changed; Route returns any other.
	Routes []lb.Route
	Route  func(netip.Addr) lb.Route
	Labels func(lb.ServiceID) map[string]string
	// Sources are the addresses of masqueraded connections: replies to them must come to this box.
	Sources []netip.Addr
}

// NewPass begins a pass: Withdraw may wait once in it.
func (a *Announcer) NewPass() {
	if a != nil {
		a.waited = false
	}
}

// Update applies the facts after a pass.
func (a *Announcer) Update(in Inputs, now time.Time) {
	if a.drains != in.DrainsVersion {
		a.drains = in.DrainsVersion
		a.queue(a.adv.Drain(in.Drains, now))
		a.version++
	}
	a.gate(in, now)
	a.Assign(in.Roles, now)
	a.take(in.Routes, in.Labels, now)
	a.announceSources(in.Sources, now)
	a.Assign(in.Late, now)
	a.advance(now)
}

// Withdraw withdraws routes before the kernel ceases to serve them: it is about to be written. Once a pass it waits until
// routers have applied that, if there is a session. Everything else that is pending waits for Deliver.
func (a *Announcer) Withdraw(in Inputs, now time.Time) {
	a.Assign(in.Roles, now)
	defer a.Assign(in.Late, now)
	a.take(in.Routes, in.Labels, now)
	urgent := a.withdrawn(in.Routes)
	if len(urgent) == 0 {
		return
	}
	a.send(urgent, now)
	if a.waited || !a.session.up() {
		return
	}
	a.waited = true
	if err := a.session.flush(); err != nil {
		a.log.Warn("withdrawal not taken by the BGP speaker in time", "effect", "clients can meet a refusal", "error", err)
	}
}

// Configure brings another configuration into force.
func (a *Announcer) Configure(ctx context.Context, cfg *config.BGP, now time.Time) {
	a.cfg = cfg
	a.queue(a.adv.Configure(cfg.Policy, now))
	a.advance(now)
	a.version++
	if a.session.begun {
		a.session.begun, a.late = false, true
		a.Begin(ctx, now)
	}
}

// Begin starts the sessions when the routes are complete: an aggregate has one more pass to get its unreachable route.
func (a *Announcer) Begin(ctx context.Context, now time.Time) {
	if a.session.begun || len(a.pending) > 0 && !a.late {
		a.late = true
		return
	}
	if !a.session.begin(ctx, a.cfg.Speaker) {
		a.retry = now.Add(Retry)
	}
}

// Read records whether the routes of the kernel could be read.
func (a *Announcer) Read(err error, now time.Time) {
	if a == nil {
		return
	}
	if err != nil {
		a.retry = now.Add(Retry)
		if status.ErrorText(err) != status.ErrorText(a.readErr) {
			a.log.Warn("kernel unreadable; new routes wait", "error", err)
		}
	}
	a.readErr = err
}

// Assign applies roles of the box in the fleet.
func (a *Announcer) Assign(roles map[netip.Addr]advertise.Role, now time.Time) {
	if len(roles) > 0 {
		a.version++
		a.queue(a.adv.Assign(roles, now))
	}
}

// queue records changes for the speaker.
func (a *Announcer) queue(changes map[netip.Prefix][]advertise.Path) {
	if len(changes) > 0 {
		maps.Copy(a.pending, changes)
		a.version++
	}
}

// take applies the current state of addresses.
func (a *Announcer) take(routes []lb.Route, labels func(lb.ServiceID) map[string]string, now time.Time) {
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
	if a.noIPVS {
		routes = notProgrammed(routes)
	}
	a.version++ // the reason may change without a change for routers
	a.queue(a.adv.Take(routes, labels, now))
}

// announceSources announces the addresses of masqueraded connections like VIPs of a static service: replies to them must
// come to this box, independently of the VIPs.
func (a *Announcer) announceSources(sources []netip.Addr, now time.Time) {
	if slices.Equal(a.sources, sources) {
		return
	}
	had := a.sources
	a.sources = slices.Clone(sources)
	var routes []lb.Route
	for _, addr := range slices.Concat(had, sources) {
		routes = append(routes, sourceRoute(addr, a.sources))
	}
	a.take(routes, nil, now)
}

// sourceRoute returns the route to an address, which is one of masqueraded connections or was.
func sourceRoute(addr netip.Addr, sources []netip.Addr) lb.Route {
	if !slices.Contains(sources, addr) {
		return lb.Route{Addr: addr, Withheld: lb.Gone}
	}
	return lb.Route{Addr: addr, Serves: []lb.Serving{{Service: config.MasqueradeID}}}
}

// gate withdraws all routes of a kernel without IPVS, and restores them when it has IPVS again.
func (a *Announcer) gate(in Inputs, now time.Time) {
	if a.noIPVS == in.NoIPVS {
		return
	}
	a.noIPVS = in.NoIPVS
	if a.noIPVS {
		a.log.Error("all routes withdrawn: the kernel has no IPVS", "vips", len(a.known))
	} else {
		a.log.Info("routes announced again: the kernel has IPVS")
	}
	var routes []lb.Route
	for _, addr := range slices.SortedFunc(maps.Keys(a.known), netip.Addr.Compare) {
		if slices.Contains(a.sources, addr) {
			routes = append(routes, sourceRoute(addr, a.sources))
			continue
		}
		routes = append(routes, in.Route(addr))
	}
	a.take(routes, in.Labels, now)
}

// notProgrammed returns the routes of a kernel that serves no VIP.
func notProgrammed(routes []lb.Route) []lb.Route {
	out := slices.Clone(routes)
	for i, r := range out {
		if r.Withheld != lb.Gone {
			out[i] = lb.Route{Addr: r.Addr, Withheld: lb.NotProgrammed}
		}
	}
	return out
}

// advance makes the transitions that are due: the end of a reannounce delay, for instance.
func (a *Announcer) advance(now time.Time) {
	if !now.Before(a.retry) {
		a.retry = time.Time{}
	}
	a.queue(a.adv.Advance(now))
}

// Next returns the time of the next transition or retry; the zero time if there is none.
func (a *Announcer) Next() time.Time {
	if a == nil {
		return time.Time{}
	}
	next := a.retry
	if t := a.adv.Next(); !t.IsZero() && (next.IsZero() || t.Before(next)) {
		next = t
	}
	return next
}

// Deliver gives the speaker its changes, except aggregates without an unreachable route in the kernel (laid), and the
// withdrawals of the VIPs in them. since is the begin of their cause.
func (a *Announcer) Deliver(laid func(netip.Prefix) bool, since time.Time) {
	var lacking []netip.Prefix
	for p, paths := range a.pending {
		if len(paths) > 0 && !p.IsSingleIP() && !laid(p) {
			lacking = append(lacking, p)
		}
	}
	now := map[netip.Prefix][]advertise.Path{}
	for p, paths := range a.pending {
		switch {
		case len(paths) == 0 && slices.ContainsFunc(lacking, func(l netip.Prefix) bool { return covers(l, p) }):
			// Without it the VIPs in the aggregate would have no route at all.
		case len(paths) > 0 && slices.Contains(lacking, p):
		default:
			now[p] = paths
		}
	}
	a.send(now, since)
}

// covers reports whether a prefix is inside a wider one.
func covers(wide, p netip.Prefix) bool { return wide.Bits() < p.Bits() && wide.Contains(p.Addr()) }

// send gives the speaker some of its changes. Those that it refuses stay pending.
func (a *Announcer) send(now map[netip.Prefix][]advertise.Path, since time.Time) {
	if len(now) == 0 {
		return
	}
	if !a.session.set(now, since) {
		a.retry = time.Now().Add(Retry)
		return
	}
	for p := range now {
		delete(a.pending, p)
	}
	logRoutes(a.log, a.adv, now)
}

// withdrawn returns the pending withdrawals of the routes to some addresses, for any reason.
func (a *Announcer) withdrawn(routes []lb.Route) map[netip.Prefix][]advertise.Path {
	var wide []netip.Prefix
	for p, paths := range a.pending {
		if len(paths) == 0 && !p.IsSingleIP() {
			wide = append(wide, p)
		}
	}
	out := map[netip.Prefix][]advertise.Path{}
	for _, r := range routes {
		host := netip.PrefixFrom(r.Addr, r.Addr.BitLen())
		if paths, pending := a.pending[host]; pending && len(paths) == 0 {
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

// Aggregates returns the aggregates that are or will be announced. The kernel must refuse packets for their unserved
// addresses as long.
func (a *Announcer) Aggregates() []netip.Prefix { return a.adv.Aggregates() }

// Advertiser returns the current decisions, for the loop.
func (a *Announcer) Advertiser() *advertise.Advertiser { return a.adv }

// Started reports whether Begin was successful or failed: a speaker that can't start has no sessions either.
func (a *Announcer) Started() bool { return a.session.begun || a.session.err != nil }

// SessionUp reports whether a router has a session. It is safe for concurrent use.
func (a *Announcer) SessionUp() bool { return a.session.speaker.AnyEstablished() }

// Reader returns what other goroutines read; nil without an Announcer.
func (a *Announcer) Reader() *Reader {
	if a == nil {
		return nil
	}
	return a.reader
}

// Close ends the sessions. Routers keep the routes (graceful restart), unless the box leaves: then it withdraws them, and
// waits until routers have applied that.
func (a *Announcer) Close(leave bool) { a.session.close(leave) }
