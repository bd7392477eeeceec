package ipam

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"
)

// choice makes the Decision for one Request.
type choice struct {
	*inventory
	r   *Request
	d   Decision
	own []owned
}

// assign decides the addresses of a Service. It returns those that the Service does not
// release; wait is that a decision is not possible yet.
func (c *choice) assign() (keep []netip.Addr, wait bool) {
	c.d.Apply = true
	r := c.r
	c.own, wait = c.owned(&c.d, r)
	if wait || len(c.d.Writes) > 0 {
		c.d.Addrs = r.Status
		return slices.AppendSeq(slices.Clone(r.Status), maps.Keys(c.assigned[r.ID])), wait
	}
	families := sortFamilies(r.Required, r.Preferred)
	places := make([]place, len(families))
	for i, f := range families {
		places[i] = c.place(r, c.own, f)
		if places[i].wait {
			return nil, true
		}
	}
	c.pend(places)
	for _, p := range places {
		if !p.addr.IsValid() {
			continue
		}
		if !c.claim(p.addr) {
			return nil, true
		}
		keep = append(keep, p.addr)
	}
	c.show(places)
	return append(keep, c.d.Addrs...), false
}

// pend decides what is missing. A Service without all that it requires gets nothing new.
func (c *choice) pend(places []place) {
	none := true
	for _, p := range places {
		none = none && !p.addr.IsValid()
	}
	c.d.Pending = c.r.contradiction()
	lacks := c.d.Pending.Reason != ""
	for _, p := range places {
		required := slices.Contains(c.r.Required, p.family)
		c.d.short = c.d.short || p.pending.Reason == ClaimLimit
		switch {
		case p.pending.Reason == "":
			continue
		case required || p.named || none:
			c.d.Pending = cmp.Or(c.d.Pending, p.pending)
		default:
			c.d.Notes = append(c.d.Notes, Note{c.d.Service, netip.Addr{}, FamilyLeft, p.pending.Rule})
		}
		lacks = lacks || required
	}
	for i := range places {
		if lacks {
			places[i].addr = places[i].shown
		}
	}
}

// claim adds the write of the claim of an address; false is that one is in flight.
func (c *choice) claim(x netip.Addr) bool {
	r, known := c.r, c.claims[x]
	pool := r.Pool
	if o, has := find(c.own, x); has && r.Pool != "" && !c.inPool(x, r.Pool) {
		pool = o.asked // it has not got its present request
	}
	old, had := known.holder(r.ID)
	want, refused := record(r, pool, old, known.others(r.ID))
	if refused != "" && c.d.Pending.Reason == "" {
		text := fmt.Sprintf("%v stays at %v and shares it as before: %s; for another address use annotation %saddresses", r.ID, x, refused, r.AnnotationPrefix)
		c.d.Pending = Pending{Reason: ShareRefused, Pool: c.poolName(x), Rule: text}
	}
	if had && want.equal(old) {
		return true
	}
	if known == nil && c.full(&c.inFlight, c.d.Writes) {
		c.d.short = true
		return true
	}
	if _, flying := c.flights[x]; flying {
		return false
	}
	w := Write{Claim: Claim{Addr: x}}
	if known != nil {
		w.Claim = *known
	}
	w.Claim = w.Claim.with(want)
	c.d.Writes = append(c.d.Writes, w)
	return true
}

// show decides the addresses of the status, and their Notes. A new address appears when
// its claim is confirmed, and replaces the old one then; a Service that requires two
// families gets them together.
func (c *choice) show(places []place) {
	ready := true
	for _, p := range places {
		o, has := find(c.own, p.addr)
		ready = ready && (has && o.sure || !slices.Contains(c.r.Required, p.family))
	}
	for _, p := range places {
		x := p.addr
		o, has := find(c.own, x)
		if !has || !o.shown && (!o.sure || !ready) {
			o, has = best(c.own, p.family, func(o owned) bool { return o.shown })
			x = o.addr
		}
		if !has {
			continue
		}
		c.d.Addrs = append(c.d.Addrs, x)
		if reason := c.outsidePool(c.r, x, c.claims[x].others(c.r.ID)); reason != "" && p.pending.Reason == "" {
			c.d.Notes = append(c.d.Notes, Note{c.d.Service, x, OutsidePool, reason + "; it stays until the Service requests another"})
		}
	}
	c.d.Addrs = sortAddrs(c.d.Addrs)
}

// release releases the addresses that are no longer in the status of a Service, and
// removes those after the end of their retention. It reports whether a write in flight delays
// some of that.
func (c *choice) release(keep []netip.Addr, now time.Time) (wait bool) {
	for x := range c.assigned[c.d.Service] {
		known := c.claims[x]
		h, _ := known.holder(c.d.Service)
		shown := c.r != nil && slices.Contains(c.r.Status, x)
		if c.r != nil && c.r.Foreign && shown {
			c.d.Apply = true
		}
		w := Write{Claim: *known}
		switch {
		case shown || slices.Contains(keep, x):
			continue
		case h.Released.IsZero():
			h.Released = now.UTC().Round(0)
			w.Claim = known.with(h)
		case !now.Before(h.Released.Add(c.Retention)):
			w.Claim.Holders = known.others(c.d.Service)
			w.Delete = len(w.Claim.Holders) == 0
		default:
			continue
		}
		if _, flying := c.flights[x]; flying {
			wait = true
			continue
		}
		c.d.Writes = append(c.d.Writes, w)
	}
	slices.SortFunc(c.d.Writes, func(v, w Write) int { return v.Claim.Addr.Compare(w.Claim.Addr) })
	return wait
}
