package linux

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"weir/lb"
)

// leftIPVS has the virtual servers of an earlier run in ModeIPVS.
type leftIPVS struct {
	searched bool
	table    *ipvsTable // nil without servers
	servers  []lb.Frontend
	// ended: none is left, but the rules for their connections are still there.
	ended bool
	// udp are the deleted ones with UDP flows that conntrack may still have.
	udp map[lb.Frontend]bool
}

// findIPVS finds weir's virtual servers in IPVS: those that the sets record.
func (m *ruleMode) findIPVS(ctx context.Context, objects *lb.Table) error {
	if m.left.searched {
		return nil
	}
	c := newConn(unix.NETLINK_GENERIC, &m.counters.IPVS)
	family, err := genlFamily(ctx, c, "IPVS")
	if errors.Is(err, unix.ENOENT) {
		c.close()
		m.left.searched = true
		return nil
	}
	if err != nil {
		c.close()
		return fmt.Errorf("list virtual servers of another mode: %w", err)
	}
	table := newTable(c, family, marking{m.config.Mark})
	servers, err := table.services(ctx, false)
	if err != nil {
		c.close()
		return fmt.Errorf("list virtual servers of another mode: %w", err)
	}
	m.left = leftIPVS{searched: true, table: table, udp: map[lb.Frontend]bool{}}
	for _, s := range servers {
		r := m.rules[lb.FamilyOf(s.Frontend.Addr)]
		if r == nil || !recordedServer(s.Frontend, objects) {
			continue
		}
		m.left.servers = append(m.left.servers, s.Frontend)
		r.stage = byBoth
		r.configure(m.config)
	}
	if len(m.left.servers) == 0 {
		c.close()
		m.left.table = nil
	}
	return nil
}

func recordedServer(f lb.Frontend, objects *lb.Table) bool {
	for _, id := range lb.Records(f) {
		if objects.Has(id) {
			return true
		}
	}
	return lb.IsAnchor(f)
}

// forgetIPVS is ForgetOther of mode netfilter.
func (m *ruleMode) forgetIPVS(ctx context.Context, may func(lb.Frontend) bool, cut bool) (left int, err error) {
	if m.left.table == nil {
		return 0, errors.Join(m.endIPVS(ctx), m.dropUDP(ctx, m.left.udp)) // what an earlier call could not do
	}
	all := !slices.ContainsFunc(m.left.servers, func(f lb.Frontend) bool { return !may(f) })
	for _, f := range m.config.Families {
		if r := m.rules[f]; all && (r.stage == byBoth || !r.inPlace) {
			if err := m.setStage(ctx, r, afterIPVS); err != nil {
				return 0, fmt.Errorf("rules %s that refuse connections of IPVS: %w", f, err)
			}
		}
	}
	// The kernel's counters include connections that have ended within two minutes. To exclude
	// them would need a read of the whole table, in the caller's loop.
	keeps := func(f lb.Frontend) bool { return !cut && f.Mark == 0 && f.Proto.Connections() }
	conns, err := m.left.connsOf(ctx, slices.DeleteFunc(slices.Clone(m.left.servers), func(f lb.Frontend) bool { return !may(f) || !keeps(f) }))
	if err != nil {
		return 0, fmt.Errorf("check the virtual servers of mode ipvs: %w", err)
	}
	var ops []lb.Op
	for _, f := range m.left.servers {
		if may(f) && (!keeps(f) || conns[f] == 0) {
			ops = append(ops, lb.Op{Verb: lb.Delete, Object: lb.VirtualServer{Frontend: f}})
		}
	}
	failed, deleted := []error(nil), map[lb.Frontend]bool{}
	for i, err := range m.left.table.applyServices(ctx, ops) {
		if err != nil {
			failed = append(failed, fmt.Errorf("%s of mode ipvs: %w", ops[i], err))
			continue
		}
		f := serverOf(ops[i].Object)
		deleted[f] = true
		if !f.Proto.Connections() {
			m.left.udp[f] = true
		}
	}
	var stay []lb.Frontend
	for _, f := range m.left.servers {
		if !deleted[f] {
			stay = append(stay, f)
		}
	}
	if m.left.servers = stay; len(stay) == 0 {
		m.left.table.conn.close()
		m.left.table, m.left.ended = nil, true
		failed = append(failed, m.endIPVS(ctx))
	}
	failed = append(failed, m.dropUDP(ctx, m.left.udp))
	return len(stay), errors.Join(failed...)
}

// connsOf returns the numbers of connections of virtual servers.
func (l *leftIPVS) connsOf(ctx context.Context, servers []lb.Frontend) (map[lb.Frontend]uint32, error) {
	if len(servers) == 0 {
		return nil, nil
	}
	file, err := os.Open(procNet + "ip_vs")
	if err != nil {
		return l.countedConns(ctx, strings.NewReader(""), servers)
	}
	defer file.Close()
	return l.countedConns(ctx, file, servers)
}

// countedConns reads the numbers of all virtual servers from /proc/net/ip_vs. It asks the kernel for each one that the file
// lacks: it may skip some while others are deleted.
func (l *leftIPVS) countedConns(ctx context.Context, file io.Reader, servers []lb.Frontend) (map[lb.Frontend]uint32, error) {
	conns := map[lb.Frontend]uint32{}
	if err := parseIPVS(file, l.table.marked, func(d dest) { conns[d.Frontend] += d.conns.Active + d.conns.Inactive }); err != nil {
		clear(conns)
	}
	for _, f := range servers {
		if _, counted := conns[f]; counted {
			continue
		}
		dests, err := l.table.dests(ctx, f)
		if err != nil {
			return nil, err
		}
		for _, d := range dests {
			conns[f] += d.conns.Active + d.conns.Inactive
		}
	}
	return conns, nil
}

// endIPVS removes the rules for connections of IPVS.
func (m *ruleMode) endIPVS(ctx context.Context) error {
	if !m.left.ended {
		return nil
	}
	var failed []error
	for _, f := range m.config.Families {
		if r := m.rules[f]; r.stage == afterIPVS || r.stage == byDNAT && !r.inPlace {
			if err := m.setStage(ctx, r, byDNAT); err != nil {
				failed = append(failed, fmt.Errorf("rules %s without connections of IPVS: %w", f, err))
			}
		}
	}
	m.left.ended = len(failed) > 0
	return errors.Join(failed...)
}
