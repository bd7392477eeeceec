package daemon

import (
	"cmp"
	"context"
	"fmt"
	"math/bits"
	"net/netip"
	"slices"

	"weir/cmd/weir/internal/status"
	"weir/lb"
)

// Question is what weir explain asks.
type Question struct {
	// Addr is a VIP or any other address; Port 0 asks for all ports it has.
	Addr  netip.Addr
	Port  uint16
	Proto lb.Protocol
	// Client is invalid for somebody outside.
	Client netip.Addr
}

// ParseQuestion reads what is asked: an address with or without a port, a
// protocol, and a client ("" for somebody outside).
func ParseQuestion(vip, proto, client string) (q Question, err error) {
	if ap, bad := netip.ParseAddrPort(vip); bad == nil {
		q.Addr, q.Port = ap.Addr().Unmap(), ap.Port()
	} else if q.Addr, bad = netip.ParseAddr(vip); bad != nil {
		return q, fmt.Errorf("%q is neither an address (192.0.2.1, 2001:db8::1) nor one with a port (192.0.2.1:80, [2001:db8::1]:80)", vip)
	}
	q.Addr = q.Addr.Unmap()
	if q.Proto, err = lb.ParseProtocol(proto); err != nil {
		return q, err
	}
	if client == "" {
		return q, nil
	}
	if q.Client, err = netip.ParseAddr(client); err != nil {
		return q, fmt.Errorf("--from %q is not an address", client)
	}
	if q.Client = q.Client.Unmap(); lb.FamilyOf(q.Client) != lb.FamilyOf(q.Addr) {
		return q, fmt.Errorf("--from %s is %s and %s is %s", q.Client, lb.FamilyOf(q.Client), q.Addr, lb.FamilyOf(q.Addr))
	}
	return q, nil
}

// maxExplained bounds the ports of one VIP that are explained: the loop stands
// still meanwhile.
const maxExplained = 1000

// explain answers a question from what the loop knows.
func (b *box) explain(ctx context.Context, q Question) (doc status.Explanation, err error) {
	err = b.do(ctx, func() { doc = explain(b.rec, q, b.query(q.Addr)) })
	return doc, err
}

// query tells explain how the static rules know who is inside the cluster, what
// things are called, and who else serves an address.
func (b *box) query(addr netip.Addr) lb.Query {
	c := kernelConfig(b.cfg, b.mode, b.node, b.log)
	return lb.Query{
		Detectors: lb.Detectors{ClusterCIDRs: c.ClusterCIDRs, MasqueradeAll: c.MasqueradeAll, Interfaces: len(c.LocalInterfaces) > 0},
		Names:     c.Names(),
		Sources:   b.cfg.Kernel.MasqueradeSource,
		Fleet:     b.fleet.beyond(b.cfg, addr),
	}
}

func explain(rec *lb.Reconciler, q Question, query lb.Query) status.Explanation {
	ask := func(f lb.Frontend) lb.Query {
		query.Frontend, query.Client = f, q.Client
		return query
	}
	if q.Port != 0 {
		packet := rec.Explain(ask(lb.Frontend{Addr: q.Addr, Port: q.Port, Proto: q.Proto}))
		return status.Explanation{Packet: &packet}
	}
	frontends := frontendsOf(rec, q.Addr)
	if len(frontends) == 0 {
		doc := status.Explanation{Why: rec.Explain(ask(lb.Frontend{Addr: q.Addr, Proto: q.Proto})).Why}
		for _, f := range nearestTo(rec, q.Addr) {
			doc.Nearest = append(doc.Nearest, f.String())
		}
		return doc
	}
	asked := frontends[:min(len(frontends), maxExplained)]
	queries := make([]lb.Query, len(asked))
	for i, f := range asked {
		queries[i] = ask(f)
	}
	doc := status.Explanation{More: len(frontends) - len(asked)}
	for _, e := range rec.ExplainAll(queries) {
		p := status.ExplainedPort{Frontend: e.Frontend, Fate: string(e.Fate), Why: e.Why, Survival: e.Survival}
		if len(e.Claims) > 0 {
			p.Service = e.Claims[0].Service
		}
		doc.Ports = append(doc.Ports, p)
	}
	return doc
}

// frontendsOf gives what Services want of an address, sorted: by itself, and as
// one that node ports are served on.
func frontendsOf(rec *lb.Reconciler, a netip.Addr) []lb.Frontend {
	var out []lb.Frontend
	add := func(f lb.Frontend) {
		if f.Addr = a; !slices.Contains(out, f) {
			out = append(out, f)
		}
	}
	_, own := rec.Facts().HostAddrs[a]
	catalog := rec.Catalog()
	for _, id := range catalog.IDs() {
		svc, _ := catalog.Get(id)
		for _, f := range svc.Frontends() {
			if f.Addr == a || own && f.Addr == every(a) {
				add(f)
			}
		}
	}
	slices.SortFunc(out, lb.Frontend.Compare)
	return out
}

// nearestTo gives a few frontends whose addresses have most of their first bits in
// common with a.
func nearestTo(rec *lb.Reconciler, a netip.Addr) []lb.Frontend {
	const most = 5
	var out []lb.Frontend
	catalog := rec.Catalog()
	for _, id := range catalog.IDs() {
		svc, _ := catalog.Get(id)
		for _, f := range svc.Frontends() {
			if !f.Addr.IsUnspecified() && lb.FamilyOf(f.Addr) == lb.FamilyOf(a) {
				out = append(out, f)
			}
		}
	}
	slices.SortFunc(out, func(x, y lb.Frontend) int {
		return cmp.Or(cmp.Compare(common(y.Addr, a), common(x.Addr, a)), x.Compare(y))
	})
	out = slices.Compact(out)
	return out[:min(most, len(out))]
}

// common is how many bits two addresses of one family have in common, from the
// first on.
func common(a, b netip.Addr) int {
	x, y := a.AsSlice(), b.AsSlice()
	for i := range x {
		if x[i] != y[i] {
			return 8*i + bits.LeadingZeros8(x[i]^y[i])
		}
	}
	return 8 * len(x)
}
