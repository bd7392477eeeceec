package linux

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"weir/lb"
)

// conntrack deletes stale flows: UDP flows of a removed backend, and flows of any protocol
// that are older than their frontend or its address. UDP has no end that conntrack could detect: a
// client that keeps sending from one port would keep its flow to the old backend, or past ip_vs.
// And a packet that this box routed elsewhere, while it did not have the VIP, leaves an entry
// without address translation for two minutes. A retransmitted SYN, or a new one from the same
// port, would meet that entry: the box would not masquerade it, and the backend could not reply.
type conntrack struct {
	conn *conn
	// byMark are the UDP frontends with a virtual server by mark, until that is deleted: conntrack
	// only knows the destination of a flow.
	byMark map[lb.Frontend]map[lb.Frontend]bool
}

func newConntrack(count *Traffic) *conntrack {
	return &conntrack{newConn(unix.NETLINK_NETFILTER, count), map[lb.Frontend]map[lb.Frontend]bool{}}
}

// adopt records the marks of a whole observation.
func (c *conntrack) adopt(obs *lb.Observation) {
	for m := range obs.Objects.Mappings() {
		c.addMark(m)
	}
}

func (c *conntrack) addMark(m lb.Member) {
	to := lb.MarkFrontend(m.Family(), m.Mark)
	if m.Proto != lb.UDP || m.Mark == 0 {
		return
	}
	if c.byMark[to] == nil {
		c.byMark[to] = map[lb.Frontend]bool{}
	}
	c.byMark[to][frontendOf(m)] = true
}

func frontendOf(m lb.Member) lb.Frontend {
	return lb.Frontend{Addr: m.Addr, Port: m.Port, Proto: m.Proto}
}

// staleFlows selects flows to delete. Some UDP flows had a backend or virtual server that is
// gone. Others are older than weir's frontend or address, so that the box itself replied to them or
// routed them elsewhere.
type staleFlows struct {
	backends  map[lb.RealServer]bool // by ID
	servers   map[lb.Frontend]bool
	frontends map[lb.Frontend]bool // of UDP
	addrs     map[netip.Addr]bool
	pools     []netip.Prefix
}

// stale returns the flows that ops have made stale. byRules reports whether virtual servers
// are rules.
func (c *conntrack) stale(ops []lb.Op, errs []error, byRules bool) staleFlows {
	s := staleFlows{map[lb.RealServer]bool{}, map[lb.Frontend]bool{}, map[lb.Frontend]bool{}, map[netip.Addr]bool{}, nil}
	for i, op := range ops {
		switch o := op.Object.(type) {
		case lb.RealServer:
			switch {
			case errs[i] != nil || !c.serves(o.Frontend):
			case op.Verb == lb.Delete:
				c.goneBackend(o, s)
			case op.Verb == lb.Add && byRules:
				c.newBackend(o.Frontend, s)
			}
		case lb.VirtualServer:
			if op.Verb == lb.Delete && errs[i] == nil && c.serves(o.Frontend) {
				s.servers[o.Frontend] = true
				delete(c.byMark, o.Frontend)
			}
		case lb.Member:
			if op.Verb != lb.Delete && errs[i] == nil && o.Proto == lb.UDP {
				c.newMember(o, s)
			}
		case lb.Address:
			if op.Verb == lb.Add && errs[i] == nil {
				s.addrs[o.Addr] = true
			}
		case lb.PoolRoute:
			if op.Verb == lb.Add && errs[i] == nil {
				s.pools = append(s.pools, o.Prefix)
			}
		}
	}
	return s
}

// serves reports whether a virtual server has UDP flows. One by mark may have all protocols.
func (c *conntrack) serves(f lb.Frontend) bool {
	return f.Proto == lb.UDP || len(c.byMark[f]) > 0
}

// goneBackend makes flows to a backend stale. Some flows to a frontend with a mark may be of
// clients outside, and alive: they keep their addresses and their backend, so that conntrack
// restores them with their next packet.
func (c *conntrack) goneBackend(o lb.RealServer, s staleFlows) {
	s.backends[lb.RealServer{Frontend: o.Frontend, Addr: o.Addr}] = true
	for fe := range c.byMark[o.Frontend] {
		s.backends[lb.RealServer{Frontend: fe, Addr: o.At(fe.Port)}] = true
	}
}

// newBackend makes flows stale that a frontend without backends refused. A flow of the box
// itself is in conntrack before INPUT refuses it, and would never pass a rule of table nat
// again.
func (c *conntrack) newBackend(fe lb.Frontend, s staleFlows) {
	if fe.Mark == 0 {
		s.frontends[fe] = true
	}
	for marked := range c.byMark[fe] {
		s.frontends[marked] = true
	}
}

func (c *conntrack) newMember(m lb.Member, s staleFlows) {
	switch m.Set {
	case lb.SetInternal, lb.SetGroup:
		c.addMark(m)
	case lb.SetIPVSPorts:
		s.frontends[frontendOf(m)] = true
	}
}

// dumps returns the lists of flows that have all of s.
func (s staleFlows) dumps() map[flowDump]bool {
	out := map[flowDump]bool{}
	for rs := range s.backends {
		out[flowDump{lb.FamilyOf(rs.Frontend.Addr), true}] = true
	}
	for fe := range s.servers {
		out[flowDump{lb.FamilyOf(fe.Addr), true}] = true
	}
	for fe := range s.frontends {
		out[flowDump{lb.FamilyOf(fe.Addr), true}] = true
	}
	local := func(a netip.Addr) {
		out[flowDump{lb.FamilyOf(a), true}] = true
		out[flowDump{lb.FamilyOf(a), false}] = true
	}
	for a := range s.addrs {
		local(a)
	}
	for _, p := range s.pools {
		local(p.Addr())
	}
	return out
}

// local reports whether the box did not have an address before.
func (s staleFlows) local(a netip.Addr) bool {
	return s.addrs[a] || slices.ContainsFunc(s.pools, func(p netip.Prefix) bool { return p.Contains(a) })
}

// has reports whether a flow must be deleted. One that was answered ends by itself, except with
// UDP.
func (s staleFlows) has(f flow) bool {
	fe := lb.Frontend{Addr: f.vip.Addr(), Port: f.vip.Port(), Proto: f.proto}
	if f.vip == f.backend && (s.frontends[fe] || s.local(fe.Addr)) {
		return f.proto == lb.UDP || !f.replied
	}
	return f.proto == lb.UDP && (s.servers[fe] || s.backends[lb.RealServer{Frontend: fe, Addr: f.backend}])
}

// forget deletes stale flows, with at most two dumps for each family. It changes nothing else.
func (c *conntrack) forget(ctx context.Context, s staleFlows) error {
	var all []error
	for dump := range s.dumps() {
		var gone []flow
		err := c.conn.query(ctx, dump.put, func() { gone = gone[:0] }, func(m message) {
			if f, ok := parseFlow(m.body); ok && s.has(f) {
				gone = append(gone, f.clone())
			}
		})
		if errors.Is(err, unix.EINVAL) { // nfnetlink does not know conntrack
			return missingModule("nf_conntrack_netlink", err)
		}
		if err != nil {
			return fmt.Errorf("list stale connections: %w", err)
		}
		errs := c.conn.exchange(ctx, len(gone), func(e *encoder, i int) { putFlowDelete(e, dump.family, gone[i]) })
		for _, err := range errs {
			if err != nil && !errors.Is(err, unix.ENOENT) {
				all = append(all, fmt.Errorf("remove stale connections: %w", err))
				break
			}
		}
	}
	return errors.Join(all...)
}

// From include/uapi/linux/netfilter/nfnetlink_conntrack.h and, for the bit,
// net/netfilter/nf_internals.h.
const (
	ctaFilter          = 25
	ctaFilterOrigFlags = 1
	filterProtoNum     = 1 << 3
	seenReply          = 1 << 1 // IPS_SEEN_REPLY of nf_conntrack_common.h
)

func beginConntrack(e *encoder, cmd uint16, flags uint16, f lb.Family) {
	family := byte(unix.AF_INET)
	if f == lb.IPv6 {
		family = unix.AF_INET6
	}
	e.message(unix.NFNL_SUBSYS_CTNETLINK<<8|cmd, flags)
	e.raw(family, unix.NFNETLINK_V0, 0, 0)
}

// flowDump is a list of the flows of a family: all of UDP, or those of all protocols without a reply.
// The latter are few, except with direct routing and tunnels.
type flowDump struct {
	family lb.Family
	udp    bool
}

// put requests the list. Kernels before 5.8 (protocol) and 5.17 (status) ignore the filter and return
// all flows.
func (d flowDump) put(e *encoder) {
	beginConntrack(e, nl.IPCTNL_MSG_CT_GET, unix.NLM_F_DUMP, d.family)
	if !d.udp {
		e.be32(nl.CTA_STATUS, 0)
		e.be32(ctaStatusMask, seenReply)
		return
	}
	tuple := e.nest(nl.CTA_TUPLE_ORIG)
	proto := e.nest(nl.CTA_TUPLE_PROTO)
	e.u8(nl.CTA_PROTO_NUM, uint8(lb.UDP))
	e.end(proto)
	e.end(tuple)
	filter := e.nest(ctaFilter)
	e.u32(ctaFilterOrigFlags, filterProtoNum)
	e.end(filter)
}

// putFlowDelete deletes one flow. Its number protects a newer one with the same addresses.
func putFlowDelete(e *encoder, family lb.Family, f flow) {
	beginConntrack(e, nl.IPCTNL_MSG_CT_DELETE, 0, family)
	e.bytes(nl.CTA_TUPLE_ORIG|unix.NLA_F_NESTED, f.orig)
	if f.zone != nil {
		e.bytes(nl.CTA_ZONE, f.zone)
	}
	e.bytes(nl.CTA_ID, f.id)
}

// flow is a connection in conntrack: its destination, the backend, and its identity for the
// kernel.
type flow struct {
	vip, backend   netip.AddrPort
	proto          lb.Protocol
	replied        bool
	orig, id, zone []byte
}

func (f flow) clone() flow {
	f.orig = append([]byte(nil), f.orig...)
	f.id = append([]byte(nil), f.id...)
	if f.zone != nil {
		f.zone = append([]byte(nil), f.zone...)
	}
	return f
}

func parseFlow(body []byte) (f flow, ok bool) {
	if len(body) < 4 {
		return f, false
	}
	var reply []byte
	for typ, v := range attributes(body[4:]) {
		switch typ {
		case nl.CTA_TUPLE_ORIG:
			f.orig = v
		case nl.CTA_TUPLE_REPLY:
			reply = v
		case nl.CTA_ID:
			f.id = v
		case nl.CTA_STATUS:
			f.replied = getBE32(v)&seenReply != 0
		case nl.CTA_ZONE:
			f.zone = v
		}
	}
	_, f.backend, _ = parseTuple(reply)
	f.proto, _, f.vip = parseTuple(f.orig)
	return f, f.vip.IsValid() && f.backend.IsValid() && len(f.id) == 4
}

func parseTuple(b []byte) (proto lb.Protocol, src, dst netip.AddrPort) {
	var from, to netip.Addr
	for typ, v := range attributes(attribute(b, nl.CTA_TUPLE_IP)) {
		switch typ {
		case nl.CTA_IP_V4_SRC:
			from = getAddr(unix.AF_INET, v)
		case nl.CTA_IP_V4_DST:
			to = getAddr(unix.AF_INET, v)
		case nl.CTA_IP_V6_SRC:
			from = getAddr(unix.AF_INET6, v)
		case nl.CTA_IP_V6_DST:
			to = getAddr(unix.AF_INET6, v)
		}
	}
	var sport, dport uint16
	for typ, v := range attributes(attribute(b, nl.CTA_TUPLE_PROTO)) {
		switch typ {
		case nl.CTA_PROTO_NUM:
			proto = lb.Protocol(getU8(v))
		case nl.CTA_PROTO_SRC_PORT:
			sport = getBE16(v)
		case nl.CTA_PROTO_DST_PORT:
			dport = getBE16(v)
		}
	}
	return proto, netip.AddrPortFrom(from, sport), netip.AddrPortFrom(to, dport)
}
