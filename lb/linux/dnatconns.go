package linux

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"weir/lb"
)

// Without IPVS, conntrack has the connections: each keeps its backend, whatever happens to the
// rules. So the connections of a deleted real server, which has drained or must not, are
// deleted here; their further packets are answered with a reset.
//
// Conntrack does not record the face of a frontend by which a connection came in
// (Frontend.Mark). One that may have come in by either counts for both, and is cut when
// neither has its backend any more.

// natFlow is a connection in conntrack with a changed destination.
type natFlow struct {
	proto                lb.Protocol
	client, vip, backend netip.AddrPort
	state                uint8
	expires              time.Duration
	flow                 flow // its identity for the kernel
}

// faces are the virtual servers by mark of frontends, until their last connection.
type faces map[lb.Frontend][]lb.Frontend

// note records an object that may map a frontend to a mark.
func (s faces) note(o lb.Object) {
	m, ok := o.(lb.Member)
	if !ok || !m.Set.MarksPackets() || m.Mark == 0 {
		return
	}
	f := lb.Frontend{Addr: m.Addr, Port: m.Port, Proto: m.Proto}
	if inner := lb.MarkFrontend(m.Family(), m.Mark); !slices.Contains(s[f], inner) {
		s[f] = append(slices.Clip(s[f]), inner)
	}
}

// forget removes the mark of a deleted virtual server.
func (s faces) forget(inner lb.Frontend) {
	for f, all := range s {
		if all = slices.DeleteFunc(slices.Clone(all), func(x lb.Frontend) bool { return x == inner }); len(all) == 0 {
			delete(s, f)
			continue
		}
		s[f] = all
	}
}

// of returns all virtual servers by which a connection may have come in.
func (s faces) of(n natFlow) []lb.Frontend {
	f := lb.Frontend{Addr: n.vip.Addr(), Port: n.vip.Port(), Proto: n.proto}
	return append([]lb.Frontend{f}, s[f]...)
}

// countIn adds a connection to a count. One that both sides have closed does not count.
func (n natFlow) countIn(c lb.Conns) lb.Conns {
	switch state := n.word(); {
	case state == "ESTABLISHED" || n.proto == lb.UDP:
		c.Active++
	case !(Connection{State: state}).ended():
		c.Inactive++
	}
	return c
}

// The states of enum tcp_conntrack and enum sctp_conntrack, from
// include/uapi/linux/netfilter/nf_conntrack_tcp.h and nf_conntrack_sctp.h, with the names of
// IPVS.
var (
	tcpStates  = [...]string{"NONE", "SYN_SENT", "SYN_RECV", "ESTABLISHED", "FIN_WAIT", "CLOSE_WAIT", "LAST_ACK", "TIME_WAIT", "CLOSE", "SYN_SENT"}
	sctpStates = [...]string{"NONE", "CLOSED", "COOKIE_WAIT", "COOKIE_ECHOED", "ESTABLISHED", "SHUTDOWN_SENT", "SHUTDOWN_RECEIVED", "SHUTDOWN_ACK_SENT", "ESTABLISHED"}
)

// word returns the name of a connection's state.
func (n natFlow) word() string {
	states := tcpStates[:]
	switch n.proto {
	case lb.UDP:
		return "UDP"
	case lb.SCTP:
		states = sctpStates[:]
	}
	if int(n.state) >= len(states) {
		return "NONE"
	}
	return states[n.state]
}

// maxGone limits the deleted servers of a family with connections that could not be ended.
const maxGone = 10000

// cutConns ends the connections of the servers that ops have deleted, except UDP flows
// (conntrack.go). After an error the next call ends them.
func (m *ruleMode) cutConns(ctx context.Context, family lb.Family, ops []lb.Op, errs []error) error {
	gone := m.gone[family]
	for i, op := range ops {
		if op.Verb == lb.Delete && errs[i] == nil && serverOf(op.Object).Proto.Connections() {
			if gone == nil {
				gone = map[lb.Object]bool{}
			}
			gone[op.Object.ID()] = true
		}
	}
	if len(gone) == 0 {
		return nil
	}
	err := m.conntrack.drop(ctx, family, m.conntrack.nat, func(n natFlow) bool { return m.ended(n, gone) })
	if err != nil && len(gone) <= maxGone {
		m.gone[family] = gone
		return err
	}
	delete(m.gone, family)
	for id := range gone {
		vs, ok := id.(lb.VirtualServer)
		if _, back := m.rules[family].nat.services[serverOf(id)]; ok && vs.Frontend.Mark != 0 && !back {
			m.faces.forget(vs.Frontend)
		}
	}
	return err
}

// dropUDP deletes UDP flows to frontends that IPVS served. While their client sends, conntrack
// would take them past the rules. Those without an error leave servers.
func (m *ruleMode) dropUDP(ctx context.Context, servers map[lb.Frontend]bool) error {
	families := map[lb.Family]bool{}
	for f := range servers {
		families[lb.FamilyOf(f.Addr)] = true
	}
	var all []error
	for family := range families {
		err := m.conntrack.drop(ctx, family, m.conntrack.plainUDP, func(n natFlow) bool {
			return slices.ContainsFunc(m.faces.of(n), func(f lb.Frontend) bool { return servers[f] })
		})
		if err == nil {
			maps.DeleteFunc(servers, func(f lb.Frontend, _ bool) bool { return lb.FamilyOf(f.Addr) == family })
		}
		all = append(all, err)
	}
	return errors.Join(all...)
}

// ended reports whether a connection came in by a deleted server only.
func (m *ruleMode) ended(n natFlow, gone map[lb.Object]bool) bool {
	hit := false
	for _, f := range m.faces.of(n) {
		rs := lb.RealServer{Frontend: f, Addr: n.backend}
		hit = hit || gone[rs] || gone[lb.VirtualServer{Frontend: f}]
		if p, ok := m.rules[lb.FamilyOf(f.Addr)].nat.services[f]; ok {
			if _, held := p.find(n.backend); held {
				return false
			}
		}
	}
	return hit
}

// lister reads connections of a family. It calls reset before it begins, and before it starts
// over after a lost reply.
type lister func(ctx context.Context, family lb.Family, reset func(), each func(natFlow)) error

// drop lists connections and deletes those that end.
func (c *conntrack) drop(ctx context.Context, family lb.Family, list lister, ends func(natFlow) bool) error {
	var gone []flow
	err := list(ctx, family, func() { gone = gone[:0] }, func(n natFlow) {
		if ends(n) {
			gone = append(gone, n.flow.clone())
		}
	})
	if err != nil {
		return fmt.Errorf("list connections of removed backends: %w", err)
	}
	for _, err := range c.conn.exchange(ctx, len(gone), func(e *encoder, i int) { putFlowDelete(e, family, gone[i]) }) {
		if err != nil && !errors.Is(err, unix.ENOENT) {
			return fmt.Errorf("end connections of removed backends: %w", err)
		}
	}
	return nil
}

// From include/uapi/linux/netfilter/nf_conntrack_common.h and
// nfnetlink_conntrack.h.
const (
	statusDNAT    = 1 << 5 // IPS_DST_NAT
	ctaStatusMask = 26
	ctaProtoTCP   = 1
	ctaProtoSCTP  = 3
	ctaProtoState = 1
)

// nat calls each for the connections of a family with a changed destination. Kernels before
// 5.17 ignore the filter and send all of them.
func (c *conntrack) nat(ctx context.Context, family lb.Family, reset func(), each func(natFlow)) error {
	return c.flows(ctx, func(e *encoder) {
		beginConntrack(e, nl.IPCTNL_MSG_CT_GET, unix.NLM_F_DUMP, family)
		e.be32(nl.CTA_STATUS, statusDNAT)
		e.be32(ctaStatusMask, statusDNAT)
	}, reset, func(n natFlow, dnat bool) {
		if dnat {
			each(n)
		}
	})
}

// plainUDP calls each for the UDP flows of a family with an unchanged destination.
func (c *conntrack) plainUDP(ctx context.Context, family lb.Family, reset func(), each func(natFlow)) error {
	return c.flows(ctx, flowDump{family: family, udp: true}.put, reset, func(n natFlow, dnat bool) {
		if n.proto == lb.UDP && !dnat {
			each(n)
		}
	})
}

func (c *conntrack) flows(ctx context.Context, put func(*encoder), reset func(), each func(n natFlow, dnat bool)) error {
	err := c.conn.query(ctx, put, reset, func(m message) {
		if n, dnat, ok := parseNATFlow(m.body); ok {
			each(n, dnat)
		}
	})
	if errors.Is(err, unix.EINVAL) { // nfnetlink does not know conntrack
		return missingModule("nf_conntrack_netlink", err)
	}
	return err
}

// parseNATFlow decodes a connection, and reports whether its destination was changed.
func parseNATFlow(body []byte) (n natFlow, dnat, ok bool) {
	if len(body) < 4 {
		return n, false, false
	}
	var reply, info []byte
	for typ, v := range attributes(body[4:]) {
		switch typ {
		case nl.CTA_TUPLE_ORIG:
			n.flow.orig = v
		case nl.CTA_TUPLE_REPLY:
			reply = v
		case nl.CTA_ID:
			n.flow.id = v
		case nl.CTA_ZONE:
			n.flow.zone = v
		case nl.CTA_STATUS:
			dnat = getBE32(v)&statusDNAT != 0
		case nl.CTA_TIMEOUT:
			n.expires = time.Duration(getBE32(v)) * time.Second
		case nl.CTA_PROTOINFO:
			info = v
		}
	}
	n.proto, n.client, n.vip = parseTuple(n.flow.orig)
	_, n.backend, _ = parseTuple(reply)
	kind := uint16(ctaProtoTCP)
	if n.proto == lb.SCTP {
		kind = ctaProtoSCTP
	}
	n.state = getU8(attribute(attribute(info, kind), ctaProtoState))
	return n, dnat, n.vip.IsValid() && n.backend.IsValid() && len(n.flow.id) == 4
}

// flowReader reads conntrack for status and metrics over its own socket: a slow read of many
// connections delays no change.
type flowReader struct {
	mu        sync.Mutex
	conntrack *conntrack
}

func (o *flowReader) close() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.conntrack != nil {
		o.conntrack.conn.close()
	}
}

// natServices returns the NAT services of all families and their faces, which are never
// changed in place.
func (m *ruleMode) natServices(ctx context.Context) (map[lb.Frontend]natService, faces, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	all := map[lb.Frontend]natService{}
	for _, r := range m.rules {
		if !r.nat.known {
			if err := r.nat.load(ctx); err != nil {
				return nil, nil, needPrivilege(err)
			}
		}
		maps.Copy(all, r.nat.services)
	}
	return all, maps.Clone(m.faces), nil
}

// natFlows calls each for the connections of NAT services.
func (m *ruleMode) natFlows(ctx context.Context, services map[lb.Frontend]natService, reset func(family lb.Family), each func(natFlow)) error {
	m.flowReader.mu.Lock()
	defer m.flowReader.mu.Unlock()
	for family := range m.rules {
		err := m.flowReader.conntrack.nat(ctx, family, func() { reset(family) }, func(n natFlow) {
			f := lb.Frontend{Addr: n.vip.Addr(), Port: n.vip.Port(), Proto: n.proto}
			if _, ours := services[f]; ours {
				each(n)
			}
		})
		if err != nil {
			return needPrivilege(fmt.Errorf("list connections: %w", err))
		}
	}
	return nil
}

// natConnections calls each for the connections of NAT services, like Connections for those of
// IPVS.
func (m *ruleMode) natConnections(ctx context.Context, each func(Connection) bool) error {
	services, _, err := m.natServices(ctx)
	if err != nil {
		return err
	}
	all := map[lb.Family][]Connection{}
	err = m.natFlows(ctx, services, func(family lb.Family) { all[family] = nil }, func(n natFlow) {
		c := Connection{Client: n.client, VIP: n.vip, Backend: n.backend, Proto: n.proto, State: n.word(), Expires: n.expires}
		family := lb.FamilyOf(n.vip.Addr())
		all[family] = append(all[family], c)
	})
	if err != nil {
		return err
	}
	for _, c := range slices.Concat(all[lb.IPv4], all[lb.IPv6]) {
		if ctx.Err() != nil || !each(c) {
			break
		}
	}
	return ctx.Err()
}

// natTraffic returns the virtual servers with the connections of their backends. Rules have no
// other counters that survive a change.
func (m *ruleMode) natTraffic(ctx context.Context, only []lb.Frontend) ([]ServerTraffic, error) {
	services, faces, err := m.natServices(ctx)
	if err != nil {
		return nil, err
	}
	if len(only) == 0 {
		only = slices.Collect(maps.Keys(services))
	}
	tally := map[lb.Object]lb.Conns{}
	reset := func(family lb.Family) {
		maps.DeleteFunc(tally, func(o lb.Object, _ lb.Conns) bool { return lb.FamilyOf(serverOf(o).Addr) == family })
	}
	err = m.natFlows(ctx, services, reset, func(n natFlow) {
		for _, f := range faces.of(n) {
			id := lb.RealServer{Frontend: f, Addr: n.backend}
			tally[id] = n.countIn(tally[id])
		}
	})
	if err != nil {
		return nil, err
	}
	var out []ServerTraffic
	for _, f := range slices.SortedFunc(slices.Values(only), lb.Frontend.Compare) {
		p, ok := services[f]
		if !ok {
			continue
		}
		t := ServerTraffic{Server: p.server}
		for _, rs := range p.reals {
			t.Backends = append(t.Backends, BackendTraffic{Server: rs, Conns: tally[rs.ID()]})
		}
		out = append(out, t)
	}
	return out, nil
}
