package linux

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"io"
	"maps"
	"net/netip"
	"os"

	"weir/lb"
)

// CountConns counts the connections of real servers, by their IDs: zero for one that the
// kernel does not have. Only open connections count (Connection.Open). It may take minutes with
// many connections. It delays no change, and ends with ctx.
func (k *Kernel) CountConns(ctx context.Context, servers []lb.RealServer) (map[lb.Object]lb.Conns, error) {
	conns := make(map[lb.Object]lb.Conns, len(servers))
	for _, rs := range servers {
		conns[rs.ID()] = lb.Conns{}
	}
	count := k.reader.countLive
	if k.byRules() {
		count = k.byRule.countFlows
	}
	if err := count(ctx, conns); err != nil {
		return nil, needPrivilege(fmt.Errorf("count connections: %w", err))
	}
	return conns, nil
}

// countLive fills in conns from IPVS.
func (r *reader) countLive(ctx context.Context, conns map[lb.Object]lb.Conns) error {
	if r == nil {
		return nil
	}
	if err := r.count(ctx, conns); err != nil {
		return err
	}
	if !anyInactive(conns) {
		return nil
	}
	f, err := os.Open(procNet + "ip_vs_conn")
	if err != nil {
		return nil // without that file all of them count
	}
	defer f.Close()
	listed, err := leaveOutEnded(ctx, f, conns)
	if err != nil {
		return err
	}
	now := make(map[lb.Object]lb.Conns, len(listed))
	for id := range listed {
		now[id] = lb.Conns{}
	}
	if err := r.count(ctx, now); err != nil {
		return err
	}
	addUnlisted(conns, listed, now)
	return nil
}

// count fills in conns from the kernel's counters.
func (r *reader) count(ctx context.Context, conns map[lb.Object]lb.Conns) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	frontends := map[lb.Frontend]struct{}{}
	for id := range conns {
		frontends[serverOf(id)] = struct{}{}
	}
	for f := range frontends {
		dests, err := r.table.dests(ctx, f)
		if err != nil {
			return fmt.Errorf("list real servers of %s: %w", f, err)
		}
		for _, d := range dests {
			if _, asked := conns[d.ID()]; asked {
				conns[d.ID()] = d.conns
			}
		}
	}
	return nil
}

// anyInactive reports whether the table of connections has to be read: IPVS keeps a closed TCP
// connection for two minutes, and a drain need not wait for it. The whole table is read, so it
// is done only for real servers without an active connection: before Linux 6.14, the kernel
// walks the table from its beginning at each read(2).
func anyInactive(conns map[lb.Object]lb.Conns) bool {
	for _, c := range conns {
		if onlyInactive(c) {
			return true
		}
	}
	return false
}

func onlyInactive(c lb.Conns) bool { return c.Active == 0 && c.Inactive > 0 }

// leaveOutEnded replaces the inactive connections of real servers without an active one by the
// open ones of a table. It returns how many connections of each of these the table has, the
// ended ones included.
//
// The table does not show the mark of a connection. For a real server by mark, all open
// connections to the backend count: too many rather than too few.
func leaveOutEnded(ctx context.Context, table io.Reader, conns map[lb.Object]lb.Conns) (listed map[lb.Object]uint32, err error) {
	open := map[lb.Object]uint32{}
	listed = map[lb.Object]uint32{}
	byMark := map[netip.Addr][]lb.Object{}
	for id, c := range conns {
		if !onlyInactive(c) {
			continue
		}
		open[id], listed[id] = 0, 0
		if rs := id.(lb.RealServer); rs.Frontend.Mark != 0 {
			byMark[rs.Addr.Addr()] = append(byMark[rs.Addr.Addr()], id)
		}
	}
	seed, seen := maphash.MakeSeed(), map[uint64]struct{}{}
	var of []lb.Object
	err = parseConnections(table, func(c Connection) bool {
		if c.Client.Port() == 0 { // a template, which the counters leave out (ip_vs_sched_persist in ip_vs_core.c)
			return ctx.Err() == nil
		}
		of = of[:0]
		id := lb.RealServer{Frontend: c.Frontend(), Addr: c.Backend}
		if _, asked := open[id]; asked {
			of = append(of, id)
		}
		for _, id := range byMark[c.Backend.Addr()] {
			rs := id.(lb.RealServer)
			anyProto := rs.Addr.Port() == 0 || rs.Frontend.Given
			if rs.At(c.Backend.Port()) == c.Backend && (anyProto || rs.Frontend.Proto == c.Proto) {
				of = append(of, id)
			}
		}
		if len(of) == 0 {
			return ctx.Err() == nil
		}
		// A list beside a change of the table's size may have connections twice, and others not at all. To take one for
		// another delays a drain only.
		hash := maphash.Comparable(seed, Connection{Client: c.Client, VIP: c.VIP, Backend: c.Backend, Proto: c.Proto})
		if _, twice := seen[hash]; twice {
			return ctx.Err() == nil
		}
		seen[hash] = struct{}{}
		for _, id := range of {
			listed[id]++
			if c.Open() {
				open[id]++
			}
		}
		return ctx.Err() == nil
	})
	if err := errors.Join(err, ctx.Err()); err != nil {
		return nil, fmt.Errorf("read "+procNet+"ip_vs_conn: %w", err)
	}
	for id, n := range open {
		conns[id] = lb.Conns{Inactive: min(n, conns[id].Inactive)}
	}
	return listed, nil
}

// addUnlisted counts the connections that the table did not list as open, by the counters after
// the list. Linux 7.x leaves connections out while it resizes its table (ip_vs_conn_array in
// ip_vs_conn.c). The next count of a drain has them.
//
// It adds too few for a real server by mark if the backend has connections of other frontends.
func addUnlisted(conns map[lb.Object]lb.Conns, listed map[lb.Object]uint32, now map[lb.Object]lb.Conns) {
	for id, c := range now {
		unlisted := c.Inactive - min(c.Inactive, listed[id])
		conns[id] = lb.Conns{Active: c.Active, Inactive: conns[id].Inactive + unlisted}
	}
}

// countFlows fills in conns from conntrack, with one dump for each family.
func (m *ruleMode) countFlows(ctx context.Context, conns map[lb.Object]lb.Conns) error {
	m.mu.Lock()
	faces := maps.Clone(m.faces) // their slices are never changed in place
	m.mu.Unlock()
	families := map[lb.Family]bool{}
	for id := range conns {
		families[lb.FamilyOf(serverOf(id).Addr)] = true
	}
	m.flowReader.mu.Lock()
	defer m.flowReader.mu.Unlock()
	for family := range families {
		tally := map[lb.Object]lb.Conns{}
		err := m.flowReader.conntrack.nat(ctx, family, func() { clear(tally) }, func(n natFlow) {
			for _, f := range faces.of(n) {
				id := lb.RealServer{Frontend: f, Addr: n.backend}
				if _, asked := conns[id]; asked {
					tally[id] = n.countIn(tally[id])
				}
			}
		})
		if err != nil {
			return err
		}
		maps.Copy(conns, tally)
	}
	return nil
}

// Orders returns a digest of the real servers of each virtual server with scheduler mh,
// foreign ones included: their addresses, ports and weights in the order of the kernel, as
// last read or written. Two boxes with the same digest of a frontend map each of its clients
// to the same backend. It may be called at any time. It is empty where virtual servers are
// rules.
func (k *Kernel) Orders() map[lb.Frontend]uint64 {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.ipvs == nil {
		return nil
	}
	o := &k.ipvs.orders
	for f, list := range o.lists {
		if _, known := o.digests[f]; !known {
			o.digests[f] = digest(list)
		}
	}
	return maps.Clone(o.digests)
}
