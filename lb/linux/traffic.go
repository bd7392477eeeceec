package linux

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"sync"

	"golang.org/x/sys/unix"

	"weir/lb"
)

// ServerTraffic is the traffic of a virtual server, which may be foreign.
type ServerTraffic struct {
	Server   lb.VirtualServer
	Stats    Stats
	Backends []BackendTraffic
}

// BackendTraffic is the traffic of a real server.
type BackendTraffic struct {
	Server lb.RealServer
	Stats  Stats
	Conns  lb.Conns
}

// reader reads IPVS for status and metrics over its own socket, so that a slow read of
// thousands of services delays no change.
type reader struct {
	mu    sync.Mutex
	table *ipvsTable
}

func newReader(m ipvsMessages, count *Traffic) *reader {
	return &reader{table: &ipvsTable{
		conn: newConn(unix.NETLINK_GENERIC, count), ipvsMessages: m, detailed: map[lb.Frontend]bool{},
	}}
}

// follow updates IPVS's number in generic netlink, which changes when its module is loaded
// again.
func (r *reader) follow(family uint16) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.table.family = family
}

func (r *reader) close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.table.conn.close()
}

// Traffic returns the counters of all virtual servers and their real servers, sorted; with
// frontends, of those only.
func (k *Kernel) Traffic(ctx context.Context, only ...lb.Frontend) (out []ServerTraffic, err error) {
	err = k.EachTraffic(ctx, func(s ServerTraffic) {
		s.Backends = slices.Clone(s.Backends)
		out = append(out, s)
	}, only...)
	return out, err
}

// EachTraffic calls each with the counters of one virtual server after the other, sorted; with
// frontends, of those only. Backends is valid during the call, so that 100,000 of them are
// never in memory together. each must not use the Kernel.
func (k *Kernel) EachTraffic(ctx context.Context, each func(ServerTraffic), only ...lb.Frontend) error {
	if k.byRules() {
		all, err := k.byRule.natTraffic(ctx, only)
		for _, s := range all {
			each(s)
		}
		return err
	}
	if k.reader == nil {
		return nil
	}
	k.reader.mu.Lock()
	defer k.reader.mu.Unlock()
	servers, err := k.reader.servers(ctx, only)
	if err != nil {
		return fmt.Errorf("list virtual servers: %w", err)
	}
	slices.SortFunc(servers, func(a, b server) int { return a.Frontend.Compare(b.Frontend) })
	var dests []dest
	var backends []BackendTraffic
	for _, s := range servers {
		dests, err = k.reader.table.appendDests(ctx, dests[:0], s.Frontend, true)
		if err != nil {
			return fmt.Errorf("list real servers of %s: %w", s.Frontend, err)
		}
		backends = backends[:0]
		for _, d := range dests {
			backends = append(backends, BackendTraffic{d.RealServer, d.stats, d.conns})
		}
		slices.SortFunc(backends, func(a, b BackendTraffic) int { return a.Server.Addr.Compare(b.Server.Addr) })
		each(ServerTraffic{s.VirtualServer, s.stats, backends})
	}
	return nil
}

func (r *reader) servers(ctx context.Context, only []lb.Frontend) ([]server, error) {
	if len(only) == 0 {
		return r.table.services(ctx, true)
	}
	var out []server
	for _, fe := range only {
		s, ok, err := r.table.one(ctx, fe)
		if err != nil {
			return nil, err
		}
		if ok {
			out = append(out, s)
		}
	}
	return out, nil
}

// Connections calls each for every connection in IPVS's table, until it returns false. There
// may be millions: none is kept here.
func (k *Kernel) Connections(ctx context.Context, each func(Connection) bool) error {
	if k.byRules() {
		return k.byRule.natConnections(ctx, each)
	}
	f, err := os.Open(procNet + "ip_vs_conn")
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("list connections: %w", cause(err))
	}
	defer f.Close()
	err = parseConnections(f, func(c Connection) bool { return ctx.Err() == nil && each(c) })
	return errors.Join(err, ctx.Err())
}

// Timeouts returns the timeouts of idle connections in IPVS.
func (k *Kernel) Timeouts(ctx context.Context) (Timeouts, error) {
	if k.reader == nil {
		return Timeouts{}, ErrNoIPVS
	}
	k.reader.mu.Lock()
	defer k.reader.mu.Unlock()
	return k.reader.table.timeouts(ctx)
}

// SetTimeouts sets the timeouts of idle connections in IPVS, for the whole box.
func (k *Kernel) SetTimeouts(ctx context.Context, t Timeouts) error {
	if k.reader == nil {
		return ErrNoIPVS
	}
	k.reader.mu.Lock()
	defer k.reader.mu.Unlock()
	table := k.reader.table
	err := table.conn.exchange(ctx, 1, func(e *encoder, _ int) { table.setTimeouts(e, t) })[0]
	if err != nil {
		return fmt.Errorf("set IPVS timeouts: %w", err)
	}
	return nil
}
