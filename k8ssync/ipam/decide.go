package ipam

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	"weir/lb"
)

// Decide says what to do for one Service now, in the queue or not.
func (a *Allocator) Decide(id lb.ServiceID, now time.Time) Decision {
	d := Decision{Service: id}
	r := a.requests[id]
	if r != nil {
		d.UID, d.Version = r.UID, r.Version
	}
	wait := a.busy[id] > 0 || !a.synced[id.Source]
	var keep []netip.Addr
	if !wait && r != nil && !r.Foreign {
		keep, wait = a.assign(&d, r)
	}
	if wait {
		a.waiting[id] = struct{}{}
		return Decision{Service: id, UID: d.UID, Version: d.Version, Waiting: true}
	}
	a.letGo(&d, r, keep, now)
	for _, w := range d.Writes {
		a.fly(id, w)
	}
	if len(d.Writes) == 0 {
		a.remember(r, d)
	}
	return d
}

// remember keeps what was said last, and who wants more than he has.
func (a *Allocator) remember(r *Request, d Decision) {
	delete(a.said, d.Service)
	delete(a.wanting, d.Service)
	if r == nil {
		return
	}
	a.said[d.Service] = d
	left := func(n Note) bool { return n.Reason == FamilyLeft }
	if d.Pending.Reason != "" || slices.ContainsFunc(d.Notes, left) {
		a.wanting[d.Service] = struct{}{}
	}
}

// assign decides where a Service is to be, and writes that into d. It gives what the
// Service does not let go of; wait is that nothing can be said yet.
func (a *Allocator) assign(d *Decision, r *Request) (keep []netip.Addr, wait bool) {
	d.Apply = true
	own, wait := a.owned(d, r)
	if wait || len(d.Writes) > 0 {
		d.Addrs = r.Status
		return slices.AppendSeq(slices.Clone(r.Status), maps.Keys(a.holds[r.ID])), wait
	}
	families := sortFamilies(r.Required, r.Preferred)
	places := make([]place, len(families))
	for i, f := range families {
		places[i] = a.place(r, own, f)
		if places[i].wait {
			return nil, true
		}
	}
	weigh(d, r, places)
	for _, p := range places {
		if !p.addr.IsValid() {
			continue
		}
		if !a.take(d, r, own, p.addr) {
			return nil, true
		}
		keep = append(keep, p.addr)
	}
	a.show(d, r, own, places)
	return append(keep, d.Addrs...), false
}

// weigh says what is missing. A Service that lacks what it must have gets nothing new.
func weigh(d *Decision, r *Request, places []place) {
	none := true
	for _, p := range places {
		none = none && !p.addr.IsValid()
	}
	d.Pending = r.contradiction()
	lacks := d.Pending.Reason != ""
	for _, p := range places {
		required := slices.Contains(r.Required, p.family)
		switch {
		case p.pending.Reason == "":
			continue
		case required || p.named || none:
			d.Pending = cmp.Or(d.Pending, p.pending)
		default:
			d.Notes = append(d.Notes, Note{d.Service, netip.Addr{}, FamilyLeft, p.pending.Text})
		}
		lacks = lacks || required
	}
	for i := range places {
		if lacks {
			places[i].addr = places[i].shown
		}
	}
}

// take adds what the claim of a place is to say; false is that it is being written.
func (a *Allocator) take(d *Decision, r *Request, own []owned, x netip.Addr) bool {
	c := a.claims[x]
	asked := r.Pool
	if o, has := find(own, x); has && r.Pool != "" && !a.inPool(x, r.Pool) {
		asked = o.asked // it has not got what it asks for now
	}
	old, had := c.holder(r.ID)
	want, refused := record(r, asked, old, c.others(r.ID))
	if refused != "" && d.Pending.Reason == "" {
		text := fmt.Sprintf("%v stays at %v with what it shared before: %s; to part, ask for another address with annotation %saddresses", r.ID, x, refused, prefix)
		d.Pending = Pending{ShareRefused, a.poolName(x), text}
	}
	if had && want.equal(old) {
		return true
	}
	if _, flying := a.flights[x]; flying {
		return false
	}
	w := Write{Claim: Claim{Addr: x}}
	if c != nil {
		w.Claim = *c
	}
	w.Claim = w.Claim.with(want)
	d.Writes = append(d.Writes, w)
	return true
}

// show says which addresses are in the status, and what there is to know of them. A
// new address comes when its claim is confirmed, and the old one goes then; a Service
// that must have two families gets them together.
func (a *Allocator) show(d *Decision, r *Request, own []owned, places []place) {
	ready := true
	for _, p := range places {
		o, has := find(own, p.addr)
		ready = ready && (has && o.sure || !slices.Contains(r.Required, p.family))
	}
	for _, p := range places {
		x := p.addr
		o, has := find(own, x)
		if !has || !o.shown && (!o.sure || !ready) {
			o, has = best(own, p.family, func(o owned) bool { return o.shown })
			x = o.addr
		}
		if !has {
			continue
		}
		d.Addrs = append(d.Addrs, x)
		if why := a.stranded(r, x, a.claims[x].others(r.ID)); why != "" && p.pending.Reason == "" {
			d.Notes = append(d.Notes, Note{d.Service, x, PoolStranded, why + "; it stays until the Service asks for another"})
		}
	}
	d.Addrs = sortAddrs(d.Addrs)
}

// letGo releases what a Service has no more, once its status says so, and lets go for
// good of what was held for it long enough.
func (a *Allocator) letGo(d *Decision, r *Request, keep []netip.Addr, now time.Time) {
	for x := range a.holds[d.Service] {
		c := a.claims[x]
		h, _ := c.holder(d.Service)
		shown := r != nil && slices.Contains(r.Status, x)
		if r != nil && r.Foreign && shown {
			d.Apply = true
		}
		w := Write{Claim: *c}
		switch {
		case shown || slices.Contains(keep, x):
			continue
		case h.Released.IsZero():
			h.Released = now.UTC().Round(0)
			w.Claim = c.with(h)
		case !now.Before(h.Released.Add(a.ReleaseAfter)):
			w.Claim.Holders = c.others(d.Service)
			w.Delete = len(w.Claim.Holders) == 0
		default:
			continue
		}
		if _, flying := a.flights[x]; flying {
			a.waiting[d.Service] = struct{}{}
			continue
		}
		d.Writes = append(d.Writes, w)
	}
	slices.SortFunc(d.Writes, func(v, w Write) int { return v.Claim.Addr.Compare(w.Claim.Addr) })
}
