package lb

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// question is a Query with the knowledge of the box.
type question struct {
	*model
	Query
	device string
	f      Frontend // that of the Query
	face   Frontend // that the client reaches: f, or that of a mark
}

func (q *question) has(id Object) bool {
	return q.have.Has(id)
}

// served reports whether there is a virtual server for the frontend. Without one, policy and
// source address do not matter.
func (q *question) served() bool { return q.has(VirtualServer{Frontend: q.f}) }

// byRules reports whether virtual servers are rules.
func (q *question) byRules() bool { return q.Names.Chain != nil }

// from returns the place of the client, as the box sees it.
func (q *question) from() string {
	switch dev, host := q.facts.HostAddrs[q.Client]; {
	case host:
		return "this box (" + dev + ")"
	case q.host():
		return "this box (loopback)"
	case q.inside():
		return "inside"
	case q.Detectors.Interfaces:
		return "outside, unless it enters via a pod interface"
	}
	return "outside"
}

// host reports whether the client is the box itself.
func (q *question) host() bool {
	_, host := q.facts.HostAddrs[q.Client]
	return host || q.Client.IsLoopback()
}

// inside reports whether the client is the box itself, or a pod by its address.
func (q *question) inside() bool {
	return q.host() || slices.ContainsFunc(q.Detectors.ClusterCIDRs, func(n netip.Prefix) bool { return n.Contains(q.Client) })
}

// wantedBy returns the owners of the VIP at an address.
func (q *question) wantedBy(id Object) string {
	var names []string
	for _, owner := range q.want.allOf(id) {
		if !owner.draining() && owner.Service != (ServiceID{}) {
			names = append(names, owner.Service.String())
		}
	}
	if q.want.Has(id) && len(names) == 0 {
		return ", until connections that drain have ended"
	}
	if len(names) == 0 {
		return ""
	}
	return ", as a VIP of " + strings.Join(names, ", ")
}

// server returns the virtual server that the packet reaches.
func (q *question) server() (VirtualServer, bool) {
	if !q.has(VirtualServer{Frontend: q.face}) {
		q.face = q.f
	}
	o, _ := q.have.Get(VirtualServer{Frontend: q.face})
	vs, ok := o.(VirtualServer)
	return vs, ok
}

// open counts the backends that take new connections.
func (q *question) open() (n int) {
	for o := range q.have.Of(q.face) {
		if rs, is := o.(RealServer); is && rs.Weight > 0 {
			n++
		}
	}
	return n
}

// steered reports whether a mark mapped the packet to a virtual server. Such a packet keeps the
// mark and its source. The box's own packets are recognized by their connection.
func (q *question) steered() bool { return q.face != q.f && !q.host() }

// source returns the source address of masqueraded connections, the zero Addr for an address of
// this box. The box's own connections always have the latter.
func (q *question) source() netip.Addr {
	if q.host() {
		return netip.Addr{}
	}
	for _, a := range q.Sources {
		if FamilyOf(a) == FamilyOf(q.f.Addr) {
			return a
		}
	}
	return netip.Addr{}
}

// sourceText returns source as text.
func (q *question) sourceText() string {
	if a := q.source(); a.IsValid() {
		return a.String()
	}
	return "an address of this box"
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
