package linux

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"weir/lb"
)

// addresses has the dummy device, its addresses, and the local routes of whole pools.
//
// The device is never set up. Its only purpose is the route that the kernel adds to its local
// table for each address. While it is down, it answers no ARP request and no neighbour
// solicitation, and no IPv6 address on it waits for duplicate detection.
//
// Pool routes use lo. A down device can't have IPv6 routes, and lo always exists and is up. So
// the pools survive the deletion of the dummy device by another program.
type addresses struct {
	conn   *conn
	device string
	index  atomic.Int32 // of the device, 0 if unknown; Watch reads it too
}

func newAddresses(device string, count *Traffic) *addresses {
	return &addresses{conn: newConn(unix.NETLINK_ROUTE, count), device: device}
}

// applyDevices makes and removes the dummy device.
func (a *addresses) applyDevices(ctx context.Context, ops []lb.Op) []error {
	errs := make([]error, len(ops))
	for i, op := range ops {
		name := op.Object.(lb.Device).Name
		a.index.Store(0)
		if op.Verb == lb.Delete {
			errs[i] = a.deleteDevice(ctx, name)
		} else {
			errs[i] = a.createDevice(ctx, name)
		}
	}
	return errs
}

func (a *addresses) createDevice(ctx context.Context, name string) error {
	err := a.conn.exchange(ctx, 1, func(e *encoder, _ int) { putDevice(e, name) })[0]
	switch {
	case errors.Is(err, unix.EEXIST):
		l, err := a.link(ctx, name)
		if err == nil && l.kind != "dummy" {
			err = fmt.Errorf("interface %s exists and is no dummy device (%s): give weir another device name", name, l.kind)
		}
		return err
	case errors.Is(err, unix.EOPNOTSUPP):
		return missingModule("dummy", err)
	}
	return err
}

func (a *addresses) deleteDevice(ctx context.Context, name string) error {
	return a.deleteLink(ctx, name, func(l link) error {
		if l.kind != "dummy" {
			return fmt.Errorf("interface %s is no dummy device, so not weir's", name)
		}
		return nil
	})
}

// deleteLink deletes an interface, unless foreign returns the reason why it is not weir's.
func (a *addresses) deleteLink(ctx context.Context, name string, foreign func(link) error) error {
	l, err := a.link(ctx, name)
	if err == nil {
		err = foreign(l)
	}
	if err == nil {
		err = a.conn.exchange(ctx, 1, func(e *encoder, _ int) { putLinkIndex(e, unix.RTM_DELLINK, l.index) })[0]
	}
	if errors.Is(err, unix.ENODEV) {
		return nil
	}
	return err
}

// link finds an interface by name; the error wraps unix.ENODEV if there is none.
func (a *addresses) link(ctx context.Context, name string) (l link, err error) {
	err = a.conn.query(ctx, func(e *encoder) { putLinkName(e, name) }, func() {}, func(m message) {
		l = parseLink(m.body)
	})
	return l, err
}

// applyAddresses puts addresses on the device and takes them off.
func (a *addresses) applyAddresses(ctx context.Context, ops []lb.Op) []error {
	errs := make([]error, len(ops))
	// Another program may have replaced the device since the last call.
	for range 2 {
		if err := a.resolve(ctx); err != nil {
			return a.noDevice(ops, errs, err)
		}
		index := a.index.Load()
		errs = a.conn.exchange(ctx, len(ops), func(e *encoder, i int) {
			typ, flags := addressVerb(ops[i].Verb)
			putAddress(e, typ, flags, index, ops[i].Object.(lb.Address).Addr)
		})
		if !errors.Is(firstError(errs), unix.ENODEV) {
			break
		}
		a.index.Store(0)
	}
	a.awaitRoutes(ctx, ops, errs)
	for i, err := range errs {
		errs[i] = explainAddress(err, ops[i].Verb)
	}
	return errs
}

// routeWait is how long awaitRoutes waits for all addresses of a call.
const routeWait = time.Second

// awaitRoutes waits until the kernel has the local routes of added IPv6 addresses. It adds
// them in a work queue, after it has acknowledged the address (addrconf_dad_start in
// net/ipv6/addrconf.c): of 3,000 addresses 986 had none yet, for up to 4 ms. Until then the
// box replies to clients with ICMPv6 "no route". A route that does not come in time is no
// error: rules before the local table can hide it from this lookup.
func (a *addresses) awaitRoutes(ctx context.Context, ops []lb.Op, errs []error) {
	ctx, cancel := context.WithTimeout(ctx, routeWait)
	defer cancel()
	for i, op := range ops {
		addr := op.Object.(lb.Address).Addr
		if op.Verb == lb.Delete || errs[i] != nil || addr.Is4() {
			continue
		}
		for pause := 100 * time.Microsecond; !a.isLocal(ctx, addr); pause *= 2 {
			select {
			case <-ctx.Done():
				return
			case <-time.After(pause):
			}
		}
	}
}

// isLocal reports whether the kernel delivers packets to an address locally.
func (a *addresses) isLocal(ctx context.Context, addr netip.Addr) (local bool) {
	err := a.conn.query(ctx, func(e *encoder) { putRouteGet(e, addr) }, func() {}, func(m message) {
		local = parseRouteType(m.body) == unix.RTN_LOCAL
	})
	return err == nil && local
}

func addressVerb(v lb.Verb) (typ, flags uint16) {
	if v == lb.Delete {
		return unix.RTM_DELADDR, 0
	}
	return unix.RTM_NEWADDR, unix.NLM_F_CREATE | unix.NLM_F_EXCL
}

func explainAddress(err error, v lb.Verb) error {
	switch {
	case v == lb.Delete && (errors.Is(err, unix.EADDRNOTAVAIL) || errors.Is(err, unix.ENODEV)):
		return nil
	case v != lb.Delete && errors.Is(err, unix.EEXIST):
		return nil
	case errors.Is(err, unix.EACCES), errors.Is(err, unix.EOPNOTSUPP), errors.Is(err, unix.EAFNOSUPPORT):
		return fmt.Errorf("%w (is IPv6 off? see net.ipv6.conf.default.disable_ipv6, or set %s)", err, ipv4Only)
	}
	return err
}

// noDevice returns the errors without the device. Its addresses are gone with it.
func (a *addresses) noDevice(ops []lb.Op, errs []error, err error) []error {
	for i, op := range ops {
		if op.Verb != lb.Delete || !errors.Is(err, unix.ENODEV) {
			errs[i] = fmt.Errorf("device %s: %w", a.device, err)
		}
	}
	return errs
}

func (a *addresses) resolve(ctx context.Context) error {
	if a.index.Load() != 0 {
		return nil
	}
	l, err := a.link(ctx, a.device)
	if err == nil {
		a.index.Store(l.index)
	}
	return err
}

// applyRoutes adds and removes pool routes.
func (a *addresses) applyRoutes(ctx context.Context, ops []lb.Op) []error {
	lo, err := a.link(ctx, "lo")
	if err != nil {
		errs := make([]error, len(ops))
		fill(errs, fmt.Errorf("device lo: %w", err))
		return errs
	}
	errs := a.conn.exchange(ctx, len(ops), func(e *encoder, i int) {
		r := ops[i].Object.(lb.PoolRoute)
		if ops[i].Verb == lb.Delete {
			putRoute(e, unix.RTM_DELROUTE, 0, lo.index, r)
			return
		}
		putRoute(e, unix.RTM_NEWROUTE, unix.NLM_F_CREATE|unix.NLM_F_REPLACE, lo.index, r)
	})
	for i, err := range errs {
		errs[i] = explainRoute(err, ops[i])
	}
	return errs
}

func explainRoute(err error, op lb.Op) error {
	src := op.Object.(lb.PoolRoute).Src
	switch {
	case op.Verb == lb.Delete && errors.Is(err, unix.ESRCH):
		return nil
	case op.Verb != lb.Delete && errors.Is(err, unix.EINVAL) && src.IsValid():
		return fmt.Errorf("%w (is %s an address of this box?)", err, src)
	}
	return err
}

// observe reads the device, its addresses, the pool routes, and the addresses of all other
// interfaces. After an error it puts nothing into obs.
func (a *addresses) observe(ctx context.Context, families []lb.Family, obs *lb.Observation) error {
	links, err := a.links(ctx)
	if err != nil {
		return err
	}
	found, err := a.list(ctx)
	if err != nil {
		return err
	}
	var routes []lb.Object
	for _, f := range families {
		local, err := a.routes(ctx, f)
		if err != nil {
			return err
		}
		unreachable, err := a.unreachable(ctx, f)
		if err != nil {
			return err
		}
		for _, r := range local {
			routes = append(routes, r)
		}
		for _, r := range unreachable {
			routes = append(routes, r)
		}
	}
	own := int32(0)
	for _, l := range links {
		if l.name == a.device && l.kind == "dummy" {
			own = l.index
			obs.Objects.Put(lb.Device{Name: a.device})
		}
		if d, ok := l.tunnel(found); ok {
			obs.Objects.Put(d)
		}
	}
	a.index.Store(own)
	obs.HostAddrs = hostAddresses(found, links, own)
	for _, f := range found {
		// A device that another program has set up has a link-local address.
		if f.index == own && f.prefix.IsSingleIP() && !f.prefix.Addr().IsLinkLocalUnicast() {
			obs.Objects.Put(lb.Address{Addr: f.prefix.Addr()})
		}
	}
	for _, r := range routes {
		obs.Objects.Put(r)
	}
	return nil
}

// hostAddresses returns the addresses of all interfaces but the dummy device, with the
// interface's name. Addresses that never leave their link are left out.
func hostAddresses(found []ifAddress, links map[int32]link, own int32) map[netip.Addr]string {
	out := map[netip.Addr]string{}
	for _, f := range found {
		a := f.prefix.Addr()
		if f.index == own || a.IsLoopback() || a.IsLinkLocalUnicast() {
			continue
		}
		out[a] = links[f.index].name
	}
	return out
}

func (a *addresses) links(ctx context.Context) (map[int32]link, error) {
	links := map[int32]link{}
	err := a.conn.query(ctx, putLinkDump, func() { clear(links) }, func(m message) {
		l := parseLink(m.body)
		links[l.index] = l
	})
	if err != nil {
		return nil, fmt.Errorf("list interfaces: %w", err)
	}
	return links, nil
}

// list returns all addresses of the box.
func (a *addresses) list(ctx context.Context) ([]ifAddress, error) {
	var out []ifAddress
	err := a.conn.query(ctx, putAddressDump, func() { out = out[:0] }, func(m message) {
		if f, ok := parseAddress(m.body); ok {
			out = append(out, f)
		}
	})
	if err != nil {
		return nil, fmt.Errorf("list addresses: %w", err)
	}
	return out, nil
}

// applyUnreachable adds and removes unreachable routes. It never uses NLM_F_REPLACE: the route
// of an interface must stay.
func (a *addresses) applyUnreachable(ctx context.Context, ops []lb.Op) []error {
	errs := a.conn.exchange(ctx, len(ops), func(e *encoder, i int) {
		typ, flags := uint16(unix.RTM_NEWROUTE), uint16(unix.NLM_F_CREATE|unix.NLM_F_EXCL)
		if ops[i].Verb == lb.Delete {
			typ, flags = unix.RTM_DELROUTE, 0
		}
		putUnreachable(e, typ, flags, ops[i].Object.(lb.Unreachable))
	})
	for i, err := range errs {
		if errors.Is(err, unix.EEXIST) || ops[i].Verb == lb.Delete && errors.Is(err, unix.ESRCH) {
			errs[i] = nil
		}
	}
	return errs
}

// routes reads the pool routes of a family.
func (a *addresses) routes(ctx context.Context, f lb.Family) ([]lb.PoolRoute, error) {
	return dumpRoutes(ctx, a.conn, f, unix.RT_TABLE_LOCAL, unix.RTN_LOCAL, parseRoute)
}

// unreachable reads the unreachable routes of a family.
func (a *addresses) unreachable(ctx context.Context, f lb.Family) ([]lb.Unreachable, error) {
	return dumpRoutes(ctx, a.conn, f, unix.RT_TABLE_MAIN, unix.RTN_UNREACHABLE, parseUnreachable)
}

// dumpRoutes reads the routes of a family that are weir's.
func dumpRoutes[R any](ctx context.Context, c *conn, f lb.Family, table, typ byte, parse func([]byte) (R, bool)) ([]R, error) {
	var out []R
	put := func(e *encoder) { putRouteDump(e, f, table, typ) }
	err := c.query(ctx, put, func() { out = out[:0] }, func(m message) {
		if r, ok := parse(m.body); ok {
			out = append(out, r)
		}
	})
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.EOPNOTSUPP) {
		return nil, nil // the family is off, or its table was never used
	}
	if err != nil {
		return nil, fmt.Errorf("list %s routes: %w", f, err)
	}
	return out, nil
}
