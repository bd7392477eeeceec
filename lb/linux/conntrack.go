package linux

import (
	"net/netip"

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
func (c *conntrack) adopt(mapped []lb.Member) {
	for _, m := range mapped {
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

// From include/uapi/linux/netfilter/nfnetlink_conntrack.h and, for the bit,
// net/netfilter/nf_internals.h.
const (
	ctaFilter          = 25
	ctaFilterOrigFlags = 1
	filterIPDst        = 1 << 1
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
