package linux

import (
	"context"
	"errors"
	"fmt"
	"net/netip"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"weir/lb"
)

// conntrack forgets UDP flows whose backend is gone. UDP has no end that conntrack
// could see: a client that keeps sending from one port would keep its flow, which
// leads to the old backend, for as long as it sends.
type conntrack struct{ conn *conn }

func newConntrack(count *Traffic) *conntrack {
	return &conntrack{newConn(unix.NETLINK_NETFILTER, count)}
}

// goneUDP are the flows to forget.
type goneUDP struct {
	backends map[lb.RealServer]bool // by ID
	servers  map[lb.Frontend]bool
}

// removedUDP picks from ops, as they were carried out, what ended UDP flows.
func removedUDP(ops []lb.Op, errs []error) goneUDP {
	g := goneUDP{map[lb.RealServer]bool{}, map[lb.Frontend]bool{}}
	for i, op := range ops {
		if op.Verb != lb.Delete || errs[i] != nil {
			continue
		}
		switch o := op.Object.ID().(type) {
		case lb.RealServer:
			if o.Frontend.Proto == lb.UDP {
				g.backends[o] = true
			}
		case lb.VirtualServer:
			if o.Frontend.Proto == lb.UDP {
				g.servers[o.Frontend] = true
			}
		}
	}
	return g
}

func (g goneUDP) families() map[lb.Family]bool {
	out := map[lb.Family]bool{}
	for rs := range g.backends {
		out[lb.FamilyOf(rs.Frontend.Addr)] = true
	}
	for fe := range g.servers {
		out[lb.FamilyOf(fe.Addr)] = true
	}
	return out
}

// has tells whether a flow leads to something that is gone.
func (g goneUDP) has(f flow) bool {
	fe := lb.Frontend{Addr: f.vip.Addr(), Port: f.vip.Port(), Proto: lb.UDP}
	return g.servers[fe] || g.backends[lb.RealServer{Frontend: fe, Addr: f.backend}]
}

// forget removes the flows that lead to what is gone: one dump a family, however
// much it is. Nothing else is touched.
func (c *conntrack) forget(ctx context.Context, g goneUDP) error {
	var all []error
	for family := range g.families() {
		var gone []flow
		put := func(e *encoder) { putFlowDump(e, family) }
		err := c.conn.query(ctx, put, func() { gone = gone[:0] }, func(m message) {
			if f, ok := parseFlow(m.body); ok && g.has(f) {
				gone = append(gone, f.clone())
			}
		})
		if errors.Is(err, unix.EINVAL) { // nfnetlink knows no conntrack
			return missingModule("nf_conntrack_netlink", err)
		}
		if err != nil {
			return fmt.Errorf("list connections of UDP backends that are gone: %w", err)
		}
		errs := c.conn.exchange(ctx, len(gone), func(e *encoder, i int) { putFlowDelete(e, family, gone[i]) })
		for _, err := range errs {
			if err != nil && !errors.Is(err, unix.ENOENT) {
				all = append(all, fmt.Errorf("forget connections of UDP backends that are gone: %w", err))
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
)

func beginConntrack(e *encoder, cmd uint16, flags uint16, f lb.Family) {
	family := byte(unix.AF_INET)
	if f == lb.IPv6 {
		family = unix.AF_INET6
	}
	e.message(unix.NFNL_SUBSYS_CTNETLINK<<8|cmd, flags)
	e.raw(family, unix.NFNETLINK_V0, 0, 0)
}

// putFlowDump asks for the UDP flows of a family. Kernels before 5.8 don't know
// the filter and give all flows.
func putFlowDump(e *encoder, f lb.Family) {
	beginConntrack(e, nl.IPCTNL_MSG_CT_GET, unix.NLM_F_DUMP, f)
	tuple := e.nest(nl.CTA_TUPLE_ORIG)
	proto := e.nest(nl.CTA_TUPLE_PROTO)
	e.u8(nl.CTA_PROTO_NUM, uint8(lb.UDP))
	e.end(proto)
	e.end(tuple)
	filter := e.nest(ctaFilter)
	e.u32(ctaFilterOrigFlags, filterProtoNum)
	e.end(filter)
}

// putFlowDelete removes one flow; its number keeps a newer one with the same
// addresses safe.
func putFlowDelete(e *encoder, family lb.Family, f flow) {
	beginConntrack(e, nl.IPCTNL_MSG_CT_DELETE, 0, family)
	e.bytes(nl.CTA_TUPLE_ORIG|unix.NLA_F_NESTED, f.orig)
	if f.zone != nil {
		e.bytes(nl.CTA_ZONE, f.zone)
	}
	e.bytes(nl.CTA_ID, f.id)
}

// flow is a UDP connection in conntrack: what the client sent to, who answers,
// and what names it to the kernel.
type flow struct {
	vip, backend   netip.AddrPort
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
		case nl.CTA_ZONE:
			f.zone = v
		}
	}
	proto, _, dst := parseTuple(f.orig)
	if proto != lb.UDP {
		return f, false
	}
	_, src, _ := parseTuple(reply)
	f.vip, f.backend = dst, src
	return f, dst.IsValid() && src.IsValid() && len(f.id) == 4
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
