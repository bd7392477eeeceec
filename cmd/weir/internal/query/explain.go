// Package query answers read-only questions about services, traffic, ownership, packets and planned changes. It never
// changes the kernel, a route or the state of the daemon.
package query

import (
	"cmp"
	"fmt"
	"math/bits"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"weir/cmd/weir/internal/kernelmode"
	"weir/cmd/weir/internal/status/explain"
	"weir/lb"
)

// Question is the input of weir explain.
type Question struct {
	// Addr is a VIP or any other address; with Port 0 the question is about all of its ports.
	Addr  netip.Addr
	Port  uint16
	Proto lb.Protocol
	// Client is invalid for a client outside.
	Client netip.Addr
	// Mark is a given firewall mark in place of an address. Addr is then the unspecified address
	// of the family.
	Mark uint32
}

// ParseQuestion reads an address with or without a port, or "fwmark:7"; a protocol, and a client ("" for one outside).
func ParseQuestion(vip, proto, client string) (q Question, err error) {
	if text, ok := strings.CutPrefix(vip, "fwmark:"); ok {
		return markQuestion(text, client)
	}
	m, err := parseMatch(vip)
	if err != nil || vip == "" {
		return q, badAddress(vip)
	}
	q.Addr, q.Port = m.addr, m.port
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

// markQuestion reads a firewall mark and a client, which decides about the family; that is IPv4 without one.
func markQuestion(text, client string) (q Question, err error) {
	mark, err := strconv.ParseUint(text, 0, 32)
	if err != nil || mark == 0 {
		return q, fmt.Errorf("%q is not a firewall mark: write for instance fwmark:7", "fwmark:"+text)
	}
	q.Mark, q.Addr, q.Proto = uint32(mark), netip.IPv4Unspecified(), lb.TCP
	if client == "" {
		return q, nil
	}
	if q.Client, err = netip.ParseAddr(client); err != nil {
		return q, fmt.Errorf("--from %q is not an address", client)
	}
	q.Client = q.Client.Unmap()
	q.Addr = kernelmode.AnyAddr(q.Client)
	return q, nil
}

// maxExplained bounds the explained ports of one VIP: the loop waits meanwhile.
const maxExplained = 1000

// Explain answers a question from a Reconciler. base holds the detectors and names of the static rules, and the other
// members that serve the address.
func Explain(rec *lb.Reconciler, q Question, base lb.Query) explain.Answer {
	ask := func(f lb.Frontend) lb.Query {
		base.Frontend, base.Client = f, q.Client
		return base
	}
	if q.Mark != 0 {
		packet := rec.Explain(ask(lb.GivenFrontend(lb.FamilyOf(q.Addr), q.Mark)))
		return explain.Answer{Packet: &packet}
	}
	if q.Port != 0 {
		packet := rec.Explain(ask(lb.Frontend{Addr: q.Addr, Port: q.Port, Proto: q.Proto}))
		return explain.Answer{Packet: &packet}
	}
	frontends := frontendsOf(rec, q.Addr)
	if len(frontends) == 0 {
		doc := explain.Answer{Reason: rec.Explain(ask(lb.Frontend{Addr: q.Addr, Proto: q.Proto})).Reason}
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
	doc := explain.Answer{More: len(frontends) - len(asked)}
	for _, e := range rec.ExplainAll(queries) {
		p := explain.Port{Frontend: e.Frontend, Fate: string(e.Fate), Reason: e.Reason, Survival: e.Survival}
		if len(e.Claims) > 0 {
			p.Service = e.Claims[0].Service
		}
		doc.Ports = append(doc.Ports, p)
	}
	return doc
}

// frontendsOf returns the frontends of Services at an address, sorted: its own, and those of node ports on it.
func frontendsOf(rec *lb.Reconciler, a netip.Addr) []lb.Frontend {
	var out []lb.Frontend
	_, own := rec.Facts().HostAddrs[a]
	for f := range frontends(rec) {
		if !f.Given && (f.Addr == a || own && f.Addr == kernelmode.AnyAddr(a)) {
			f.Addr = a
			out = append(out, f)
		}
	}
	slices.SortFunc(out, lb.Frontend.Compare)
	return slices.Compact(out)
}

// nearestTo returns a few frontends with addresses that share the longest prefixes with a.
func nearestTo(rec *lb.Reconciler, a netip.Addr) []lb.Frontend {
	const most = 5
	var out []lb.Frontend
	for f := range frontends(rec) {
		if !f.Addr.IsUnspecified() && lb.FamilyOf(f.Addr) == lb.FamilyOf(a) {
			out = append(out, f)
		}
	}
	slices.SortFunc(out, func(x, y lb.Frontend) int {
		return cmp.Or(cmp.Compare(commonBits(y.Addr, a), commonBits(x.Addr, a)), x.Compare(y))
	})
	out = slices.Compact(out)
	return out[:min(most, len(out))]
}

// frontends returns the frontends of all Services.
func frontends(rec *lb.Reconciler) func(yield func(lb.Frontend) bool) {
	catalog := rec.Catalog()
	return func(yield func(lb.Frontend) bool) {
		for _, id := range catalog.IDs() {
			svc, _ := catalog.Get(id)
			for _, f := range svc.Frontends() {
				if !yield(f) {
					return
				}
			}
		}
	}
}

// commonBits returns the number of leading bits that two addresses of one family share.
func commonBits(a, b netip.Addr) int {
	x, y := a.AsSlice(), b.AsSlice()
	for i := range x {
		if x[i] != y[i] {
			return 8*i + bits.LeadingZeros8(x[i]^y[i])
		}
	}
	return 8 * len(x)
}
