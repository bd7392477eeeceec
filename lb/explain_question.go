package lb

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// question is a Query beside what the box knows.
type question struct {
	*model
	Query
	device string
	f      Frontend // that of the Query
	face   Frontend // that the client meets: f, or that of a mark
}

func (q *question) has(id Object) bool {
	return q.have.Has(id)
}

// served reports whether there is a virtual server for the frontend: nothing else is
// worth a word on its policy and its clients' addresses.
func (q *question) served() bool { return q.has(VirtualServer{Frontend: q.f}) }

// byRules reports whether virtual servers are rules.
func (q *question) byRules() bool { return q.Names.Chain != nil }

// from says what the client is to the box.
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

// wantedBy says whose VIP an address is.
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

// server is the virtual server that the packet comes to.
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

// steered reports whether the packet bears a mark that led it to a virtual server. It
// keeps that one, and its source. The box's own is known by its connection.
func (q *question) steered() bool { return q.face != q.f && !q.host() }

// source is what masqueraded connections bear, the zero Addr for an address of this box,
// which those of the box itself always bear.
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

// sourceText is source in words.
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
