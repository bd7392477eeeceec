package ipam

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	"weir/lb"
)

// owned is an address that a Service has already.
type owned struct {
	addr netip.Addr
	// asked is the pool it asked for by name when it got it.
	asked string
	// sure is that the store has confirmed its claim, shown that it is in its status.
	sure, shown bool
}

// place is where a Service is to be in one family.
type place struct {
	family lb.Family
	addr   netip.Addr // zero is nowhere
	// shown is where it is now, as its status says; zero is nowhere.
	shown netip.Addr
	// pending is why it is not where it asks to be; named that it asks for just that.
	pending Pending
	named   bool
	wait    bool
}

// owned finds what a Service has: by a claim, or in its status with nobody against it
// (then the claim is to be made). wait is that an older Service has the same in its
// status and has not claimed it yet.
func (a *Allocator) owned(d *Decision, r *Request) (own []owned, wait bool) {
	for x := range a.holds[r.ID] {
		h, _ := a.claims[x].holder(r.ID)
		o := owned{addr: x, asked: h.Pool, sure: h.UID == r.UID && h.Released.IsZero(), shown: slices.Contains(r.Status, x)}
		if o.sure || o.shown {
			own = append(own, o)
		}
	}
	for _, x := range r.Status {
		if _, has := a.holds[r.ID][x]; has {
			continue
		}
		why, wait := a.adopt(r, x)
		if wait {
			return nil, true
		}
		if why != "" {
			d.Notes = append(d.Notes, Note{d.Service, x, Conflict, fmt.Sprintf("%v is %s", x, why)})
		}
		// What is known of the claim may be late, as what is known of the Service is not:
		// who takes an address away is sure of it. Where there is no claim, there will be.
		switch c := a.claims[x]; {
		case why == "" || c == nil:
			own = append(own, owned{addr: x, asked: r.Pool, shown: true})
		case a.checked[r.ID][x] != r.Version:
			d.Writes = append(d.Writes, Write{Claim: *c}) // changes nothing, if it is so
		}
	}
	slices.SortFunc(own, func(o, p owned) int { return o.addr.Compare(p.addr) })
	return own, false
}

// adopt tells who is against a Service that has an address in its status without a
// claim; empty is nobody. Neither limits nor reservations matter, nor that it is of no
// pool: it is there.
func (a *Allocator) adopt(r *Request, x netip.Addr) (why string, wait bool) {
	if f, flying := a.flights[x]; flying && f.by != r.ID {
		return "", true
	}
	if c := a.claims[x]; c != nil {
		return a.joining(r, x, c), false
	}
	for _, id := range sortIDs(a.listed[x]) {
		switch other := a.requests[id]; {
		case id == r.ID || !other.before(r):
		case other.Foreign:
			why = "in the status of " + id.String() + " too, which is older and not weir's to assign"
		default:
			return "", true // it claims first
		}
	}
	return why, false
}

// joining tells why a Service can't share a claim; empty is that it can.
func (a *Allocator) joining(r *Request, x netip.Addr, c *Claim) string {
	others, p := c.others(r.ID), a.poolOf(x)
	switch {
	case len(others) == 0 && len(c.Holders) > 0:
		return ""
	case len(others) == 0:
		return "claimed by " + Name(x) + ", whose holders are not known"
	case r.Share == "":
		return holders(x, others, a.ReleaseAfter)
	case p == nil:
		return "no pool has it, so nobody may join " + others[0].Service.String() + " there"
	}
	return p.sharing(r, others)
}

// place decides where a Service is to be in a family: where it asks to be; else where
// it is; else somewhere new.
func (a *Allocator) place(r *Request, own []owned, f lb.Family) place {
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

// best gives the address that a Service is seen at, else that it has claimed, else the
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

// fresh finds an address for a Service that has none of the family, or none where it
// wants one: what is reserved for it, what was its own, what its share key leads to,
// else the lowest free one.
func (a *Allocator) fresh(r *Request, f lb.Family) (netip.Addr, Pending, bool) {
	if booked := a.ofFamily(a.booked[r.ID], r.Pool, f); len(booked) > 0 {
		x, why, wait := a.first(r, booked)
		return x, why, wait
	}
	pools := a.candidates(r, f)
	var mine []netip.Addr
	for x := range a.holds[r.ID] {
		if p := a.poolOf(x); lb.FamilyOf(x) == f && slices.ContainsFunc(pools, func(q *pool) bool { return q.Pool == p }) {
			mine = append(mine, x)
		}
	}
	if x, why, wait := a.first(r, sortAddrs(mine)); len(mine) > 0 && (why.Reason == "" || wait) {
		return x, why, wait
	}
	if shared := a.sharedBy(r, f); len(shared) > 0 {
		x, why, wait := a.first(r, shared)
		return x, why, wait
	}
	for _, p := range pools {
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

// first gives the first address that can be had, or why the first can't.
func (a *Allocator) first(r *Request, addrs []netip.Addr) (x netip.Addr, why Pending, wait bool) {
	for _, x := range addrs {
		p, wait := a.obtain(r, x)
		if wait || p.Reason == "" {
			return x, p, wait
		}
		why = cmp.Or(why, p)
	}
	return netip.Addr{}, why, false
}

// candidates are the pools of a family that a Service may get an address of: the one
// that it names, or those that need not be named.
func (a *Allocator) candidates(r *Request, f lb.Family) []*pool {
	var out []*pool
	for _, p := range a.pools {
		if a.admits(p, r) && p.has(f) {
			out = append(out, p)
		}
	}
	return out
}

func (a *Allocator) admits(p *pool, r *Request) bool {
	return (r.Pool == "" && p.AutoAssign || r.Pool == p.Name) && p.refuses(r) == ""
}

// sharedBy are the addresses that a Service's share key leads to: those of its
// namespace, and of others with which a pool lets it share.
func (a *Allocator) sharedBy(r *Request, f lb.Family) []netip.Addr {
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

// anyListed tells whether somebody has an address whose namespace is in the pool's
// sharing namespaces.
func (a *Allocator) anyListed(p *Pool, x netip.Addr) bool {
	c := a.claims[x]
	if f, flying := a.flights[x]; flying {
		c = &f.Claim
	}
	return c != nil && slices.ContainsFunc(c.Holders, func(h Holder) bool { return p.listed(h.Service.Namespace) })
}

// ofFamily picks the addresses of a family that are in a pool; "" is any.
func (a *Allocator) ofFamily(addrs []netip.Addr, pool string, f lb.Family) []netip.Addr {
	var out []netip.Addr
	for _, x := range addrs {
		if lb.FamilyOf(x) == f && (pool == "" || a.inPool(x, pool)) {
			out = append(out, x)
		}
	}
	return out
}

// obtain tells why a Service can't have an address that is not its own, though it asks
// for just that; or that this can't be told yet.
func (a *Allocator) obtain(r *Request, x netip.Addr) (why Pending, wait bool) {
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
	case c.held():
		return a.refusal(r, x, AddressHeld, refused), false
	}
	return a.refusal(r, x, AddressTaken, refused), false
}

// unclaimed tells whether an address without a claim is in somebody's status.
func (a *Allocator) unclaimed(r *Request, x netip.Addr) (Pending, bool) {
	for _, id := range sortIDs(a.listed[x]) {
		if id != r.ID {
			return a.refusal(r, x, AddressTaken, "in the status of "+id.String()), false
		}
	}
	return Pending{}, false
}
