package linux

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"weir/lb"
)

// staleFlows selects flows to delete. Some UDP flows had a backend or virtual server that is
// gone. Others are older than weir's frontend or address, so that the box itself replied to them or
// routed them elsewhere.
type staleFlows struct {
	backends  map[lb.RealServer]bool // by ID: true if it is gone, false if it is back
	servers   map[lb.Frontend]bool   // all their backends are gone, unless they are back
	frontends map[lb.Frontend]bool   // of UDP
	addrs     map[netip.Addr]bool
	pools     []netip.Prefix
}

func newStaleFlows() staleFlows {
	return staleFlows{map[lb.RealServer]bool{}, map[lb.Frontend]bool{}, map[lb.Frontend]bool{}, map[netip.Addr]bool{}, nil}
}

func (s staleFlows) empty() bool {
	for _, gone := range s.backends {
		if gone {
			return false
		}
	}
	return len(s.servers)+len(s.frontends)+len(s.addrs)+len(s.pools) == 0
}

// add adds the flows of later changes. A backend that is back has valid flows again.
func (s *staleFlows) add(later staleFlows) {
	if len(later.servers) > 0 {
		maps.DeleteFunc(s.backends, func(rs lb.RealServer, gone bool) bool { return !gone && later.servers[rs.Frontend] })
	}
	maps.Copy(s.backends, later.backends)
	maps.Copy(s.servers, later.servers)
	maps.Copy(s.frontends, later.frontends)
	maps.Copy(s.addrs, later.addrs)
	s.pools = append(s.pools, later.pools...)
}

// stale returns the flows that ops have made stale. byRules reports whether virtual servers
// are rules.
func (c *conntrack) stale(ops []lb.Op, errs []error, byRules bool) staleFlows {
	s := newStaleFlows()
	for i, op := range ops {
		switch o := op.Object.(type) {
		case lb.RealServer:
			switch {
			case errs[i] != nil || !c.serves(o.Frontend):
			case op.Verb == lb.Delete:
				c.setBackend(o, true, s)
			case op.Verb == lb.Add:
				c.setBackend(o, false, s)
				if byRules {
					c.newBackend(o.Frontend, s)
				}
			}
		case lb.VirtualServer:
			switch {
			case errs[i] != nil || !c.serves(o.Frontend):
			case op.Verb == lb.Delete:
				if o.Frontend.Mark == 0 {
					s.servers[o.Frontend] = true
				}
				delete(c.byMark, o.Frontend)
			case op.Verb == lb.Add: // another program may have deleted it
				c.newBackend(o.Frontend, s)
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

// setBackend makes flows to a backend stale if it is gone, and otherwise valid. Some flows to a
// frontend with a mark may be of clients outside, and alive: they keep their addresses and their
// backend, so that conntrack restores them with their next packet.
func (c *conntrack) setBackend(o lb.RealServer, gone bool, s staleFlows) {
	if o.Frontend.Mark == 0 {
		s.backends[lb.RealServer{Frontend: o.Frontend, Addr: o.Addr}] = gone
	}
	for fe := range c.byMark[o.Frontend] {
		s.backends[lb.RealServer{Frontend: fe, Addr: o.At(fe.Port)}] = gone
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

// local reports whether the box did not have an address before.
func (s staleFlows) local(a netip.Addr) bool {
	return s.addrs[a] || slices.ContainsFunc(s.pools, func(p netip.Prefix) bool { return p.Contains(a) })
}

// has reports whether a flow must be deleted. One that was answered ends by itself, except with
// UDP.
func (s staleFlows) has(f flow) bool {
	rs := f.server()
	if f.vip == f.backend && (s.frontends[rs.Frontend] || s.local(rs.Frontend.Addr)) {
		return f.proto == lb.UDP || !f.replied
	}
	gone, known := s.backends[rs]
	return f.proto == lb.UDP && (gone || !known && s.servers[rs.Frontend])
}

// back reports whether the backend of a flow is back.
func (s staleFlows) back(f flow) bool {
	gone, known := s.backends[f.server()]
	return known && !gone
}

// server returns the ID of the real server of a flow.
func (f flow) server() lb.RealServer {
	return lb.RealServer{Frontend: lb.Frontend{Addr: f.vip.Addr(), Port: f.vip.Port(), Proto: f.proto}, Addr: f.backend}
}

// dumps returns the lists of flows that have all of s. For each of them the kernel walks its whole
// table, and returning a flow takes longer than passing it. So there is one list, if all flows have one
// destination of IPv4, as with a new VIP. Otherwise there are at most two for each family.
func (s staleFlows) dumps() (out []flowDump) {
	var all []netip.Addr // the destinations
	for rs, gone := range s.backends {
		if gone {
			all = append(all, rs.Frontend.Addr)
		}
	}
	for fe := range s.servers {
		all = append(all, fe.Addr)
	}
	for fe := range s.frontends {
		all = append(all, fe.Addr)
	}
	all = slices.AppendSeq(all, maps.Keys(s.addrs))
	slices.SortFunc(all, netip.Addr.Compare)
	for _, f := range []lb.Family{lb.IPv4, lb.IPv6} {
		other := func(a netip.Addr) bool { return lb.FamilyOf(a) != f }
		to := slices.DeleteFunc(slices.Compact(slices.Clone(all)), other)
		pools := slices.ContainsFunc(s.pools, func(p netip.Prefix) bool { return !other(p.Addr()) })
		switch {
		case len(to) == 1 && !pools && f == lb.IPv4:
			out = append(out, flowDump{family: f, to: to[0], udp: !s.local(to[0])})
		case len(to) > 0 || pools:
			out = append(out, flowDump{family: f, udp: true})
			if pools || slices.ContainsFunc(to, s.local) {
				out = append(out, flowDump{family: f})
			}
		}
	}
	return out
}

// flowDump is a list of the flows of a family to one address, if to is valid, and of UDP, if udp is
// set. With neither it is that of all flows without a reply. They are few, except with direct routing
// and tunnels.
type flowDump struct {
	family lb.Family
	to     netip.Addr // IPv4: Linux 6.1 lists all IPv6 flows but those to it (ctnetlink_filter_match_tuple)
	udp    bool
}

// put requests the list. Kernels before 5.8 (address, protocol) and 5.17 (status) ignore the filter
// and return all flows.
func (d flowDump) put(e *encoder) {
	beginConntrack(e, nl.IPCTNL_MSG_CT_GET, unix.NLM_F_DUMP, d.family)
	if !d.to.IsValid() && !d.udp {
		e.be32(nl.CTA_STATUS, 0)
		e.be32(ctaStatusMask, seenReply)
		return
	}
	flags := uint32(0)
	tuple := e.nest(nl.CTA_TUPLE_ORIG)
	if d.to.IsValid() {
		flags |= filterIPDst
		ip := e.nest(nl.CTA_TUPLE_IP)
		e.addr(nl.CTA_IP_V4_DST, d.to)
		e.end(ip)
	}
	if d.udp {
		flags |= filterProtoNum
		proto := e.nest(nl.CTA_TUPLE_PROTO)
		e.u8(nl.CTA_PROTO_NUM, uint8(lb.UDP))
		e.end(proto)
	}
	e.end(tuple)
	filter := e.nest(ctaFilter)
	e.u32(ctaFilterOrigFlags, flags)
	e.end(filter)
}

// forget deletes stale flows that are not valid again after their search, and changes nothing else.
func (c *conntrack) forget(ctx context.Context, s staleFlows, valid func(flow) bool) error {
	var all []error
	for _, dump := range s.dumps() {
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
		gone = slices.DeleteFunc(gone, valid)
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

// flowRemover deletes stale flows. A walk of 250,000 of them takes the kernel 80 ms and more, and no
// other change should wait for that: it goes on beside them after flowsPatience.
type flowRemover struct {
	conntrack *conntrack // with a socket of its own, for one goroutine at a time
	log       *slog.Logger

	mu   sync.Mutex
	due  staleFlows    // of changes since the walk in progress began
	idle chan struct{} // closed at the end of the walks in progress; nil if there are none

	closing chan struct{} // closed when no failed walk is repeated any more
	stop    func()        // closes it once
}

// flowsPatience is long enough for a walk of some 10,000 flows.
const flowsPatience = 10 * time.Millisecond

// A failed walk is repeated after a pause, a few times in turn.
const (
	flowsTries = 5
	flowsPause = time.Second
)

func newFlowRemover(count *Traffic, log *slog.Logger) *flowRemover {
	closing := make(chan struct{})
	return &flowRemover{
		conntrack: newConntrack(count), log: log, due: newStaleFlows(),
		closing: closing, stop: sync.OnceFunc(func() { close(closing) }),
	}
}

// remove deletes stale flows. It returns when they are gone, or after flowsPatience. During a walk it
// returns at once, so that the many steps of a pass do not wait one by one: they share the next walk.
func (r *flowRemover) remove(s staleFlows) {
	r.mu.Lock()
	walking := r.idle != nil
	if walking || !s.empty() {
		r.due.add(s)
	}
	begin := !walking && !s.empty()
	if begin {
		r.idle = make(chan struct{})
		go r.walk()
	}
	r.mu.Unlock()
	if begin {
		r.wait(time.After(flowsPatience))
	}
}

// walk deletes what is due until nothing is. What an error leaves is due once more.
func (r *flowRemover) walk() {
	for failed := 0; ; {
		r.mu.Lock()
		s := r.due
		if r.due = newStaleFlows(); s.empty() {
			close(r.idle)
			r.idle = nil
		}
		r.mu.Unlock()
		if s.empty() {
			return
		}
		err := r.conntrack.forget(context.Background(), s, r.valid)
		if err == nil {
			failed = 0
			continue
		}
		r.log.Warn("removal of stale flows failed", "error", err)
		if failed++; failed < flowsTries && !errors.As(err, new(*MissingError)) && r.pause() {
			r.mu.Lock()
			s.add(r.due)
			r.due = s
			r.mu.Unlock()
		} else {
			failed = 0
		}
	}
}

// pause pauses before a repetition, and reports whether there is one.
func (r *flowRemover) pause() bool {
	select {
	case <-time.After(flowsPause):
		return true
	case <-r.closing:
		return false
	}
}

// valid reports whether the backend of a flow is back since the walk in progress began. Only a flow
// that begins and is listed before Apply returns from that addition can still be deleted.
func (r *flowRemover) valid(f flow) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.due.back(f)
}

// wait waits for the end of the walks, or of the patience.
func (r *flowRemover) wait(patience <-chan time.Time) {
	r.mu.Lock()
	idle := r.idle
	r.mu.Unlock()
	if idle == nil {
		return
	}
	select {
	case <-idle:
	case <-patience:
	}
}

// close waits for the walks in progress, and repeats none.
func (r *flowRemover) close() {
	r.stop()
	r.wait(nil)
	r.conntrack.conn.close()
}
