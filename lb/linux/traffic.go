package linux

import (
	"cmp"
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

// ServerTraffic is the traffic of a virtual server, whoever made it.
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

// reader reads IPVS for people and scrapes over a socket of its own, so that a
// slow look at thousands of services delays no change to one of them.
type reader struct {
	mu    sync.Mutex
	table *ipvsTable
}

func newReader(m ipvsMessages, count *Traffic) *reader {
	return &reader{table: &ipvsTable{
		conn: newConn(unix.NETLINK_GENERIC, count), ipvsMessages: m, limited: map[lb.Frontend]bool{},
	}}
}

// follow takes over IPVS's number, which changes when its module is loaded again.
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

// Traffic reads the counters of all virtual servers and their real servers,
// sorted; with frontends given, of those only.
func (k *Kernel) Traffic(ctx context.Context, only ...lb.Frontend) ([]ServerTraffic, error) {
	if k.byRules() {
		return k.natTraffic(ctx, only)
	}
	if k.reader == nil {
		return nil, nil
	}
	k.reader.mu.Lock()
	defer k.reader.mu.Unlock()
	servers, err := k.reader.servers(ctx, only)
	if err != nil {
		return nil, fmt.Errorf("list virtual servers: %w", err)
	}
	out := make([]ServerTraffic, len(servers))
	for i, s := range servers {
		out[i] = ServerTraffic{Server: s.VirtualServer, Stats: s.stats}
		dests, err := k.reader.table.dests(ctx, s.Frontend, true)
		if err != nil {
			return nil, fmt.Errorf("list real servers of %s: %w", s.Frontend, err)
		}
		out[i].Backends = make([]BackendTraffic, len(dests))
		for j, d := range dests {
			out[i].Backends[j] = BackendTraffic{d.RealServer, d.stats, d.conns}
		}
		slices.SortFunc(out[i].Backends, func(a, b BackendTraffic) int { return lb.Compare(a.Server, b.Server) })
	}
	slices.SortFunc(out, func(a, b ServerTraffic) int { return cmp.Or(lb.Compare(a.Server, b.Server)) })
	return out, nil
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

// Connections calls each for every connection in IPVS's table, until it says no.
// There may be millions: nothing is kept of them here.
func (k *Kernel) Connections(ctx context.Context, each func(Connection) bool) error {
	if k.byRules() {
		return k.natConnections(ctx, each)
	}
	f, err := os.Open("/proc/net/ip_vs_conn")
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

// Timeouts reads how long IPVS keeps idle connections.
func (k *Kernel) Timeouts(ctx context.Context) (Timeouts, error) {
	if k.reader == nil {
		return Timeouts{}, ErrNoIPVS
	}
	k.reader.mu.Lock()
	defer k.reader.mu.Unlock()
	return k.reader.table.timeouts(ctx)
}

// SetTimeouts sets how long IPVS keeps idle connections, for the whole box.
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
