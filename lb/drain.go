package lb

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"slices"
	"time"
)

// drains are the real servers that nobody wants any more and that still have
// connections. Each frontend with such servers is an owner of its own in the
// State (Owner.Drain): it wants those servers with weight 0, and what their
// packets pass on the way. When their connections have ended or their time is
// up, the owner lets go, and the ordinary Diff takes them away.
//
// One thing is not drained by itself: when a Service with a traffic policy of Local
// loses one of several VIPs, those who are inside and came by that one have as long
// as the VIP's outer face drains. The connections of a mark are those of all its VIPs,
// and the kernel does not count them one by one.
//
// Nothing of this is kept on disk: a process that starts finds unwanted servers
// in the kernel and goes on draining them, with a new deadline.
type drains struct {
	servers map[Frontend]map[netip.AddrPort]time.Time // deadlines
	times   map[ServiceID]time.Duration               // how long each Service drains
	over    map[Object]struct{}                       // drained, and about to be deleted
	inner   map[Frontend][]Frontend                   // by VIP: frontends with a mark that drain and need it
	next    time.Time                                 // when to look at them again
}

func newDrains() drains {
	return drains{
		servers: map[Frontend]map[netip.AddrPort]time.Time{},
		times:   map[ServiceID]time.Duration{},
		over:    map[Object]struct{}{},
		inner:   map[Frontend][]Frontend{},
	}
}

// pollEvery is how often draining servers are looked at; with many of them less
// often, so that looking stays cheap.
func (d *drains) pollEvery() time.Duration {
	return time.Second * time.Duration(1+len(d.servers)/500)
}

// drain starts to drain a real server, unless somebody wants it, it is not in
// the kernel, or it has nothing to drain.
func (r *Reconciler) drain(rs RealServer, deadline, now time.Time) {
	id, f := rs.ID(), rs.Frontend
	if _, wanted := r.want.Get(id); wanted {
		return
	}
	_, held := r.have[id]
	_, over := r.drains.over[id]
	if !held || over || !f.Proto.Connections() {
		return
	}
	if !deadline.After(now) || r.facts.bars(rs.Addr.Addr(), false) != "" {
		r.drains.over[id] = struct{}{}
		return
	}
	if r.drains.servers[f] == nil {
		r.drains.servers[f] = map[netip.AddrPort]time.Time{}
	}
	r.drains.servers[f][rs.Addr] = deadline
	r.claimDrain(f)
	if r.drains.next.IsZero() {
		r.drains.next = now.Add(r.drains.pollEvery())
	}
}

// drainUnwanted drains every real server in the kernel that nobody wants: what a
// process finds when it starts, or what Services left behind.
func (r *Reconciler) drainUnwanted(now time.Time) {
	waits := !r.catalog.Synced()
	for _, o := range r.have {
		if rs, ok := o.(RealServer); ok && (!waits || !r.orphans.has(rs)) {
			r.drain(rs, now.Add(r.drainTime(rs.Frontend)), now)
		}
	}
}

// claimDrain makes the drain of f want what its servers need, or nothing.
func (r *Reconciler) claimDrain(f Frontend) {
	var objects []Object
	for addr := range r.drains.servers[f] {
		if o, ok := r.have[RealServer{Frontend: f, Addr: addr}]; ok {
			rs := o.(RealServer)
			rs.Weight, rs.Misplaced = 0, false
			objects = append(objects, rs)
		}
	}
	if len(objects) == 0 {
		delete(r.drains.servers, f)
		r.marks.loosen(f)
		r.want.Replace(Owner{Drain: f}, nil, r.touched)
		return
	}
	path := map[Object]struct{}{} // several VIPs of a mark share some of it
	for _, id := range r.path(f) {
		o, held := r.have[id]
		if _, known := path[id]; held && !known {
			path[id] = struct{}{}
			objects = append(objects, o)
		}
	}
	for _, vip := range r.marks.leds[f.Mark].vips {
		if !slices.Contains(r.drains.inner[vip], f) {
			r.drains.inner[vip] = append(r.drains.inner[vip], f)
		}
	}
	r.want.Replace(Owner{Drain: f}, objects, r.touched)
}

// path gives the IDs of what packets of established connections to f may need.
// Source ranges are not among them: no new connection can begin. A living owner
// of the frontend keeps the path, and keeps it as new connections want it.
func (r *Reconciler) path(f Frontend) []Object {
	var ids []Object
	if !r.wantedAlive(VirtualServer{Frontend: f}) {
		ids = append(recordsOf(f), VirtualServer{Frontend: f})
		if f.Mark == 0 {
			ids = append(ids, r.way(f)...)
		}
	}
	if f.Mark == 0 {
		return ids
	}
	for _, vip := range r.marks.leds[f.Mark].vips {
		if r.wantedAlive(VirtualServer{Frontend: vip}) {
			continue
		}
		// Without its own virtual server what is admitted would reach a daemon of
		// the host. What leads to the mark tells a restarted process of this way.
		ids = append(append(ids, recordsOf(vip)...), VirtualServer{Frontend: vip})
		ids = append(ids, r.way(vip)...)
		if m, ok := r.lead(vip); ok && m.Mark == f.Mark {
			ids = append(ids, m.ID())
		}
	}
	return ids
}

// way gives the IDs of what brings packets for f to IPVS and treats them there.
func (r *Reconciler) way(f Frontend) []Object {
	ids := []Object{
		tuple(SetLoadBalancerLocal, f), tuple(SetExternalIPLocal, f), tuple(SetIPVSPorts, f),
		tuple(SetNodePortSCTP, f), tuple(SetNodePortLocalSCTP, f),
		Member{Set: SetIPVSIPs, Addr: f.Addr}, Address{f.Addr},
	}
	for prefix := range r.laid {
		if prefix.Contains(f.Addr) {
			ids = append(ids, PoolRoute{Prefix: prefix}, Member{Set: SetIPVSNets, Net: prefix})
		}
	}
	return ids
}

// reclaimDrains looks again at what the drains of objects' frontends need, after
// their owner has come or gone.
func (r *Reconciler) reclaimDrains(objects []Object) {
	if len(r.drains.servers) == 0 {
		return
	}
	for _, o := range objects {
		vs, ok := o.(VirtualServer)
		if !ok {
			continue
		}
		if r.drains.servers[vs.Frontend] != nil {
			r.claimDrain(vs.Frontend)
		}
		for _, inner := range r.drains.inner[vs.Frontend] {
			if r.drains.servers[inner] != nil {
				r.claimDrain(inner)
			}
		}
	}
}

// unretire lets servers drain again that have been drained and are wanted since.
func (r *Reconciler) unretire() {
	for id := range r.drains.over {
		if r.wantedAlive(id) {
			delete(r.drains.over, id)
		}
	}
}

// drainTime is how long the servers of a frontend drain that nobody is known to
// have wanted: as long as the Service there says, if there is one.
func (r *Reconciler) drainTime(f Frontend) time.Duration {
	ids := slices.Concat(r.catalog.Claimants(f), r.catalog.Claimants(everyAddress(f)))
	if f.Mark != 0 {
		ids = []ServiceID{r.marks.leds[f.Mark].key.Service}
	}
	for _, id := range ids {
		if svc, ok := r.catalog.Get(id); ok {
			return svc.Drain
		}
	}
	return r.opts.Drain
}

// pollDrains ends the drains that are over.
func (r *Reconciler) pollDrains(ctx context.Context, now time.Time) error {
	if len(r.drains.servers) == 0 {
		r.drains.next = time.Time{}
		clear(r.drains.inner)
		return nil
	}
	if r.drains.next.After(now) {
		return nil
	}
	r.drains.next = now.Add(r.drains.pollEvery())
	frontends := make([]Frontend, 0, len(r.drains.servers))
	for f := range r.drains.servers {
		frontends = append(frontends, f)
	}
	obs, err := r.kernel.Observe(ctx, frontends...)
	if err != nil {
		return fmt.Errorf("look at draining backends: %w", err)
	}
	for _, f := range frontends {
		for addr, deadline := range r.drains.servers[f] {
			id := RealServer{Frontend: f, Addr: addr}.ID()
			conns, known := obs.Conns[id]
			ended := !known || conns.Active+conns.Inactive == 0 || !deadline.After(now)
			switch {
			case r.wantedAlive(id):
				delete(r.drains.servers[f], addr)
			case ended && r.quiet(id):
				delete(r.drains.servers[f], addr)
				r.drains.over[id] = struct{}{}
			}
		}
		r.claimDrain(f)
	}
	return nil
}

// wantedAlive tells whether somebody else than a drain wants the object.
func (r *Reconciler) wantedAlive(id Object) bool {
	c, ok := r.want.objects[id]
	return ok && !c.owner.draining()
}

// quiet tells whether the kernel has taken the real server's weight away, so
// that no connection can begin any more.
func (r *Reconciler) quiet(id Object) bool {
	rs, ok := r.have[id].(RealServer)
	return !ok || rs.Weight == 0
}

// Drain is a backend that gets no new connections while its old ones end.
type Drain struct {
	Frontend Frontend
	Backend  netip.AddrPort
	Deadline time.Time
}

// Drains gives the backends that are being drained, sorted.
func (r *Reconciler) Drains() []Drain {
	var out []Drain
	for f, servers := range r.drains.servers {
		for addr, deadline := range servers {
			// One that has come back is forgotten at the next look.
			if !r.wantedAlive(RealServer{Frontend: f, Addr: addr}) {
				out = append(out, Drain{f, addr, deadline})
			}
		}
	}
	slices.SortFunc(out, func(a, b Drain) int {
		return cmp.Or(a.Frontend.Compare(b.Frontend), a.Backend.Compare(b.Backend))
	})
	return out
}

// Draining is how many Drains has at most, without making them: one that has come back
// counts until the next look.
func (r *Reconciler) Draining() (n int) {
	for _, servers := range r.drains.servers {
		n += len(servers)
	}
	return n
}
