package daemon

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"slices"
	"time"

	"weir/bgp"
	"weir/cmd/weir/internal/config"
	"weir/lb"
	"weir/lb/linux"
)

// What the loop does about routes.

// newRoutes gives the announcer of a box; nil without [bgp].
func newRoutes(cfg *config.Config, log *slog.Logger, now time.Time) *announcer {
	if cfg.BGP == nil {
		return nil
	}
	return newAnnouncer(log, bgp.New(log), cfg.BGP, now)
}

// lbOptions are those of a configuration, with what announcing needs.
func (b *box) lbOptions(cfg *config.Config, n node) lb.Options {
	out := lbOptions(cfg, b.mode, n)
	if leadsElsewhere(cfg) {
		out.Leaving = b.leaving
	}
	if b.announcer != nil {
		out.Base.Unreachable = b.unreachable
	}
	return out
}

// announce tells routers and the fleet what a pass has changed, after it. err is why it
// could not read the kernel.
func (b *box) announce(ctx context.Context, err error, now time.Time) {
	a := b.announcer
	if a != nil {
		a.waited = false
	}
	var routes []lb.Route
	if err == nil && !b.gone() && leadsElsewhere(b.cfg) {
		var unread error
		if routes, unread = b.rec.Routes(ctx); a != nil {
			a.read(unread, now)
		}
	}
	b.lead(ctx, routes, now)
}

// gone tells whether the kernel has said that it has no IPVS any more.
func (b *box) gone() bool { return errors.Is(b.audits.err, linux.ErrNoIPVS) }

// lead has clients led here, or elsewhere. routes are those at which something has
// happened.
func (b *box) lead(ctx context.Context, routes []lb.Route, now time.Time) {
	shared := b.share(routes, now)
	a := b.announcer
	if a == nil {
		return
	}
	a.drain(&b.drainer, now)
	a.gate(b.gone(), b.rec.Route, b.labels, now)
	a.assign(shared.roles, now)
	a.take(routes, b.labels, now)
	a.lend(b.cfg.Kernel.MasqueradeSource, now)
	a.assign(shared.late, now)
	a.advance(now)
	// Before routers send packets to an aggregate what nobody serves of it must be
	// refused, and as long as they do.
	b.pave(slices.Concat(b.unreachable, a.adv.Aggregates()))
	a.deliver(b.isPaved, b.stirred)
	b.stirred = time.Time{}
	if b.ready && b.fleet.mayAnnounce() {
		b.pave(a.adv.Aggregates())
		a.begin(ctx, now)
	}
}

// labels are those of a Service.
func (b *box) labels(id lb.ServiceID) map[string]string {
	svc, _ := b.rec.Catalog().Get(id)
	return svc.Labels
}

// leaving is lb.Options.Leaving.
func (b *box) leaving(addrs []netip.Addr) {
	routes := make([]lb.Route, len(addrs))
	for i, a := range addrs {
		routes[i] = b.rec.Route(a)
	}
	now := time.Now()
	shared := b.share(routes, now)
	if a := b.announcer; a != nil {
		a.assign(shared.roles, now)
		a.leave(routes, b.labels, now)
		a.assign(shared.late, now)
	}
}

// pave makes the kernel refuse what nobody serves of the given prefixes; the next
// pass does it.
func (b *box) pave(prefixes []netip.Prefix) {
	slices.SortFunc(prefixes, netip.Prefix.Compare)
	prefixes = slices.Compact(prefixes)
	if slices.Equal(prefixes, b.unreachable) {
		return
	}
	b.unreachable, b.again = prefixes, true
	b.causes.add("routes to aggregates")
	b.rec.Configure(b.lbOptions(b.cfg, b.node))
}

func (b *box) isPaved(p netip.Prefix) bool {
	_, held := b.rec.Have()[lb.Unreachable{Prefix: p}]
	return held
}

// keepUnreachable keeps what an earlier run has paved until it is known what is
// announced: routers may still have the aggregates.
func (b *box) keepUnreachable(ctx context.Context) {
	if b.announcer == nil || !b.cfg.BGP.Aggregates || b.rec.Adopt(ctx) != nil {
		return // a kernel that can't be read is for the first Sync to complain about
	}
	for _, o := range b.rec.Have() {
		if u, ok := o.(lb.Unreachable); ok {
			b.unreachable = append(b.unreachable, u.Prefix)
		}
	}
	slices.SortFunc(b.unreachable, netip.Prefix.Compare)
	b.rec.Configure(b.lbOptions(b.cfg, b.node))
}
