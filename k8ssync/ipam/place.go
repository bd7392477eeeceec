package ipam

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	"weir/lb"
)

// owned is an address that a Service already has.
type owned struct {
	addr netip.Addr
	// asked is the pool it requested by name when it got the address.
	asked string
	// sure reports whether the store has confirmed its claim, shown that it is in its status.
	sure, shown bool
}

// place is the address that a Service must have in one family.
type place struct {
	family lb.Family
	addr   netip.Addr // zero is none
	// shown is the address in its status; zero is none.
	shown netip.Addr
	// pending is why it does not have its request; named is a request for one address or
	// pool.
	pending Pending
	named   bool
	wait    bool
}

// owned returns the addresses that a Service has: by a claim, or in its status without an
// objection (the claim follows). wait is that an older Service has the same address in its
// status and has not claimed it yet.
func (a *inventory) owned(d *Decision, r *Request) (own []owned, wait bool) {
	for x := range a.assigned[r.ID] {
		h, _ := a.claims[x].holder(r.ID)
		o := owned{addr: x, asked: h.Pool, sure: h.UID == r.UID && h.Released.IsZero(), shown: slices.Contains(r.Status, x)}
		if o.sure || o.shown {
			own = append(own, o)
		}
	}
	for _, x := range r.Status {
		if _, has := a.assigned[r.ID][x]; has {
			continue
		}
		reason, wait := a.adopt(r, x)
		if wait {
			return nil, true
		}
		if reason != "" {
			d.Notes = append(d.Notes, Note{d.Service, x, Conflict, fmt.Sprintf("%v is %s", x, reason)})
		}
		// The known claim may be older than the known Service: an address is removed only
		// after a check of the claim. A missing claim is created.
		switch c := a.claims[x]; {
		case reason == "" || c == nil:
			own = append(own, owned{addr: x, asked: r.Pool, shown: true})
		case a.checked[r.ID][x] != r.Version:
			d.Writes = append(d.Writes, Write{Claim: *c}) // changes nothing, if the claim is current
		}
	}
	slices.SortFunc(own, func(o, p owned) int { return o.addr.Compare(p.addr) })
	return own, false
}

// adopt returns the objection to an address in a Service's status without a claim; empty is
// none. Limits, reservations and pools do not matter: the Service has the address.
func (a *inventory) adopt(r *Request, x netip.Addr) (reason string, wait bool) {
	if f, flying := a.flights[x]; flying && f.by != r.ID {
		return "", true
	}
	if c := a.claims[x]; c != nil {
		return a.joining(r, x, c), false
	}
	for _, id := range sortIDs(a.listed[x]) {
		switch other := a.requests[id]; {
		case id == r.ID || !other.before(r) || !a.counts(other, x, r.ID.Source):
		case other.Hosts:
			reason = other.place()
		case other.Foreign:
			reason = other.place() + " too, which is older and managed by another controller"
		default:
			return "", true // it claims first
		}
	}
	return reason, false
}

// joining returns why a Service can't share a claim; empty is that it can.
func (a *inventory) joining(r *Request, x netip.Addr, c *Claim) string {
	others, p := c.others(r.ID), a.poolOf(x)
	switch {
	case len(others) == 0 && len(c.Holders) > 0:
		return ""
	case len(others) == 0:
		return "claimed by " + Name(x) + ", with unknown holders"
	case r.Share == "":
		return holders(x, others, a.Retention)
	case p == nil:
		return "no pool has it, so no Service may join " + others[0].Service.String() + " there"
	}
	return p.sharing(r, others)
}

// place decides the address of a Service in a family: the requested one, else the present
// one, else a new one.
func (a *inventory) place(r *Request, own []owned, f lb.Family) place {
	p := place{family: f}
	if o, has := best(own, f, func(o owned) bool { return o.shown }); has {
		p.shown = o.addr
	}
	asked, named := r.asked(f)
	p.named = named || r.Pool != ""
	fits := func(o owned) bool {
		if named {
			return o.addr == asked
		}
		return r.Pool == "" || o.asked == r.Pool || a.inPool(o.addr, r.Pool)
	}
	if o, has := best(own, f, fits); has {
		p.addr = o.addr
		return p
	}
	if named {
		p.pending, p.wait = a.obtain(r, asked)
		p.addr = asked
	} else {
		p.addr, p.pending, p.wait = a.fresh(r, f)
	}
	if p.pending.Reason != "" || p.wait {
		o, _ := best(own, f, func(owned) bool { return true })
		p.addr = o.addr
	}
	return p
}

// best returns the address that a Service shows, else that it has claimed, else the
// lowest, of those of a family that fit.
func best(own []owned, f lb.Family, fits func(owned) bool) (owned, bool) {
	rank := func(o owned) int {
		switch {
		case o.shown:
			return 0
		case o.sure:
			return 1
		}
		return 2
	}
	var fit []owned
	for _, o := range own {
		if lb.FamilyOf(o.addr) == f && fits(o) {
			fit = append(fit, o)
		}
	}
	if len(fit) == 0 {
		return owned{}, false
	}
	return slices.MinFunc(fit, func(o, p owned) int { return cmp.Or(cmp.Compare(rank(o), rank(p)), o.addr.Compare(p.addr)) }), true
}

func find(own []owned, x netip.Addr) (owned, bool) {
	return best(own, lb.FamilyOf(x), func(o owned) bool { return o.addr == x })
}

// fresh finds a new address for a Service: one that is reserved for it, was its own, or
// has its sharing key, else the lowest free one.
func (a *inventory) fresh(r *Request, f lb.Family) (netip.Addr, Pending, bool) {
	if booked := a.ofFamily(a.booked[r.ID], r.Pool, f); len(booked) > 0 {
		x, pending, wait := a.first(r, booked)
		return x, pending, wait
	}
	pools := a.candidates(r, f)
	var mine []netip.Addr
	for x := range a.assigned[r.ID] {
		if p := a.poolOf(x); lb.FamilyOf(x) == f && slices.ContainsFunc(pools, func(q *pool) bool { return q.Pool == p }) {
			mine = append(mine, x)
		}
	}
	if x, pending, wait := a.first(r, sortAddrs(mine)); len(mine) > 0 && (pending.Reason == "" || wait) {
		return x, pending, wait
	}
	if shared := a.sharedBy(r, f); len(shared) > 0 {
		x, pending, wait := a.first(r, shared)
		return x, pending, wait
	}
	if a.full(&a.inFlight, nil) {
		return netip.Addr{}, Pending{Reason: ClaimLimit, Rule: a.refused()}, false
	}
	for _, p := range pools {
		if a.limited(p.Pool, r, f) != "" {
			continue
		}
		for _, s := range p.spans {
			if lb.FamilyOf(s.First) != f {
				continue
			}
			if x := a.lowest(s); x.IsValid() {
				return x, Pending{}, false
			}
		}
	}
	return netip.Addr{}, a.nothing(r, f), false
}

// first returns the first available address, or why the first is not.
func (a *inventory) first(r *Request, addrs []netip.Addr) (x netip.Addr, pending Pending, wait bool) {
	for _, x := range addrs {
		p, wait := a.obtain(r, x)
		if wait || p.Reason == "" {
			return x, p, wait
		}
		pending = cmp.Or(pending, p)
	}
	return netip.Addr{}, pending, false
}

// sharedBy returns the addresses with a Service's sharing key: those of its namespace, and
// of others with which a pool lets it share.
func (a *inventory) sharedBy(r *Request, f lb.Family) []netip.Addr {
	if r.Share == "" {
		return nil
	}
	var out []netip.Addr
	for x := range a.keyed[shareKey{r.ID.Source, r.ID.Namespace, r.Share}] {
		out = append(out, x)
	}
	if slices.ContainsFunc(a.pools, func(p *pool) bool { return p.listed(r.ID.Namespace) }) {
		for x := range a.keyed[shareKey{key: r.Share}] {
			if p := a.poolOf(x); p != nil && p.listed(r.ID.Namespace) && a.anyListed(p, x) {
				out = append(out, x)
			}
		}
	}
	out = a.ofFamily(sortAddrs(out), r.Pool, f)
	return slices.DeleteFunc(out, func(x netip.Addr) bool {
		p := a.poolOf(x)
		return p == nil || p.refuses(r) != "" || !a.mayHave(r.ID, x)
	})
}

// anyListed reports whether a holder of an address is of one of the pool's sharing
// namespaces.
func (a *inventory) anyListed(p *Pool, x netip.Addr) bool {
	c := a.claims[x]
	if f, flying := a.flights[x]; flying {
		c = &f.Claim
	}
	return c != nil && slices.ContainsFunc(c.Holders, func(h Holder) bool { return p.listed(h.Service.Namespace) })
}

// ofFamily returns the addresses of a family that are in a pool; "" is any.
func (l *layout) ofFamily(addrs []netip.Addr, pool string, f lb.Family) []netip.Addr {
	var out []netip.Addr
	for _, x := range addrs {
		if lb.FamilyOf(x) == f && (pool == "" || l.inPool(x, pool)) {
			out = append(out, x)
		}
	}
	return out
}

// obtain returns why a Service can't have an address that it requests and does not own;
// wait is that it is not known yet.
func (a *inventory) obtain(r *Request, x netip.Addr) (pending Pending, wait bool) {
	p := a.poolOf(x)
	switch {
	case p == nil:
		return a.notInPool(r, x), false
	case r.Pool != "" && p.Name != r.Pool:
		return a.wrongPool(r, x, p), false
	case !a.mayHave(r.ID, x):
		return a.refusal(r, x, AddressReserved, "reserved for "+a.reserved[x][0].String()), false
	case !slices.Contains(a.reserved[x], r.ID) && p.refuses(r) != "":
		return a.refusal(r, x, NotAllowed, "refused: "+p.refuses(r)), false
	case !slices.Contains(a.reserved[x], r.ID) && !a.has(r, x) && a.limited(p, r, lb.FamilyOf(x)) != "":
		return Pending{Reason: NamespaceLimit, Pool: p.Name, Rule: a.limited(p, r, lb.FamilyOf(x))}, false
	}
	if f, flying := a.flights[x]; flying && f.by != r.ID {
		return Pending{}, true
	}
	c := a.claims[x]
	if c == nil {
		return a.unclaimed(r, x)
	}
	refused := a.joining(r, x, c)
	switch {
	case refused == "":
		return Pending{}, false
	case r.Share != "" && len(c.Holders) > 0:
		return a.refusal(r, x, ShareRefused, "not to be shared: "+refused), false
	case c.retained():
		return a.refusal(r, x, AddressRetained, refused), false
	}
	return a.refusal(r, x, AddressInUse, refused), false
}

// unclaimed returns why a Service can't have an address without a claim: it is in the
// status of another one.
func (a *inventory) unclaimed(r *Request, x netip.Addr) (Pending, bool) {
	for _, id := range sortIDs(a.listed[x]) {
		if other := a.requests[id]; id != r.ID && a.counts(other, x, r.ID.Source) {
			return a.refusal(r, x, AddressInUse, other.place()), false
		}
	}
	if a.full(&a.inFlight, nil) {
		return Pending{Reason: ClaimLimit, Pool: a.poolName(x), Rule: a.refused()}, false
	}
	return Pending{}, false
}
