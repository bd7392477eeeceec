package lb

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
	"time"
)

// drains are the unwanted real servers that still have connections. Each frontend with such
// servers is an owner of its own in the State (Owner.Drain): it wants those servers with weight
// 0, and the objects on the path of their packets. When their connections have ended or their
// time is over, the owner releases them, and the ordinary Diff deletes them.
//
// One case has no drain of its own: a Service with traffic policy Local loses one of several
// VIPs. Inside connections to that VIP live as long as its outer face drains. The connections
// of a mark are those of all its VIPs, and the kernel does not count them one by one.
//
// Nothing of this is on disk: a process that starts finds unwanted servers in the kernel and
// continues to drain them, with a new deadline.
type drains struct {
	*model
	marks       *marks
	orphans     *orphans
	defaultTime time.Duration // the time of servers of an unknown Service

	servers   map[Frontend]map[netip.AddrPort]draining
	times     map[ServiceID]time.Duration // the time of each Service
	drained   map[Object]struct{}         // drained, and about to be deleted
	inner     map[Frontend][]Frontend     // by VIP: draining frontends with a mark that need it
	stale     map[Frontend]struct{}       // to be updated at the end of the plans
	nextPoll  time.Time                   // when to check them
	nextCount time.Time                   // the earliest time of the next count
	counting  bool                        // a count was requested, and has no result yet
}

// draining is one real server that drains.
type draining struct {
	deadline time.Time
	// countRequested is the first request of a count since the kernel has weight 0. An earlier
	// count may lack a connection that began after it; zero is none yet.
	countRequested time.Time
}

func newDrains(m *model, marks *marks, orphans *orphans) drains {
	return drains{
		model: m, marks: marks, orphans: orphans,

		servers: map[Frontend]map[netip.AddrPort]draining{},
		times:   map[ServiceID]time.Duration{},
		drained: map[Object]struct{}{},
		inner:   map[Frontend][]Frontend{},
		stale:   map[Frontend]struct{}{},
	}
}

// pollEvery is the interval of checks; it grows with their number, so that checks stay cheap.
func (ds *drains) pollEvery() time.Duration {
	return time.Second * time.Duration(1+len(ds.servers)/500)
}

// start starts to drain a real server, unless it is wanted, not in the kernel, or has nothing
// to drain. updateStale must follow.
func (ds *drains) start(rs RealServer, deadline, now time.Time) {
	id, f := rs.ID(), rs.Frontend
	if _, drains := ds.servers[f][rs.Addr]; drains || ds.want.Has(id) {
		return
	}
	_, over := ds.drained[id]
	if !ds.have.Has(id) || over || !f.Proto.Connections() {
		return
	}
	if !deadline.After(now) || ds.facts.refusal(Backend{Addr: rs.Addr}, false) != "" {
		ds.drained[id] = struct{}{}
		return
	}
	if ds.servers[f] == nil {
		ds.servers[f] = map[netip.AddrPort]draining{}
	}
	ds.servers[f][rs.Addr] = draining{deadline: deadline}
	ds.stale[f] = struct{}{}
	if ds.nextPoll.IsZero() {
		ds.nextPoll = now.Add(ds.pollEvery())
		if ds.nextCount.Before(ds.nextPoll) {
			ds.nextCount = ds.nextPoll
		}
	}
}

// startUnwanted drains the real servers in the kernel that no Service wants: those of an
// earlier run, of removed Services, and those that an audit has found.
func (ds *drains) startUnwanted(now time.Time) {
	waits := !ds.catalog.Synced()
	frontends := slices.Values(ds.have.found)
	if ds.full {
		frontends = maps.Keys(ds.have.fronts)
	}
	for f := range frontends {
		v := ds.have.fronts[f]
		if v == nil || v == ds.want.wanted.fronts[f] {
			continue // all of it is wanted
		}
		for _, server := range v.reals {
			if rs := server.server(f); !waits || !ds.orphans.has(rs) {
				ds.start(rs, now.Add(ds.timeOf(f)), now)
			}
		}
	}
	ds.have.found = nil
}

// updateStale updates each drain once that the plans have changed. An update costs as much as all
// real servers of the frontend.
func (ds *drains) updateStale() {
	for f := range ds.stale {
		ds.update(f)
	}
	clear(ds.stale)
}

// update makes the drain of f want the objects that its servers need, or nothing. It forgets the
// servers that are wanted again, and those that the kernel no longer has.
func (ds *drains) update(f Frontend) {
	var objects []Object
	for _, addr := range slices.SortedFunc(maps.Keys(ds.servers[f]), netip.AddrPort.Compare) {
		rs, held := ds.have.RealServer(f, addr)
		if !held || ds.want.wantedByService(rs) {
			delete(ds.servers[f], addr)
			continue
		}
		if rs.Weight, rs.Misplaced = 0, false; rs.Forward == LocalNode {
			rs.Forward = Masquerading
		}
		objects = append(objects, rs)
	}
	if len(objects) == 0 {
		delete(ds.servers, f)
		ds.marks.drainEnded(f)
		ds.want.Replace(Owner{Drain: f}, nil, ds.touched)
		return
	}
	path := map[Object]struct{}{} // several VIPs of a mark share some of it
	for _, id := range ds.path(f) {
		o, found := ds.onPath(f, id)
		if _, known := path[id]; found && !known {
			path[id] = struct{}{}
			objects = append(objects, o)
		}
	}
	for _, vip := range ds.marks.vipsOf(f) {
		if !slices.Contains(ds.inner[vip], f) {
			ds.inner[vip] = append(ds.inner[vip], f)
		}
	}
	ds.want.Replace(Owner{Drain: f}, objects, ds.touched)
}

// onPath returns the object of an ID on the path to f: as the drain of f wants it, or as the kernel
// has it when the drain begins. So a foreign change is repaired.
func (ds *drains) onPath(f Frontend, id Object) (Object, bool) {
	if o, ok := ds.want.owners[Owner{Drain: f}].get(id); ok {
		return o, true
	}
	o, ok := ds.have.Get(id)
	if vs, is := o.(VirtualServer); is {
		vs.Damaged = false
		o = vs
	}
	return o, ok
}

// path returns the IDs that packets of established connections to f may need. Source ranges are
// not among them: no new connection can begin. If a Service owns the frontend, it keeps the
// path, as its new connections need it.
func (ds *drains) path(f Frontend) []Object {
	var ids []Object
	if !ds.want.wantedByService(VirtualServer{Frontend: f}) {
		ids = append(recordsOf(f), VirtualServer{Frontend: f})
		if f.Mark == 0 {
			ids = append(ids, ds.entry(f)...)
		}
	}
	for _, vip := range ds.marks.vipsOf(f) {
		if ds.want.wantedByService(VirtualServer{Frontend: vip}) {
			continue
		}
		// Without its own virtual server, admitted packets would reach a daemon of the host.
		// After a restart, the mapping to the mark is the only record of this path.
		ids = append(append(ids, recordsOf(vip)...), VirtualServer{Frontend: vip})
		ids = append(ids, ds.entry(vip)...)
		for _, s := range mappingSets {
			if m, ok := ds.onPath(f, tuple(s, vip)); ok && m.(Member).Mark == f.Mark {
				ids = append(ids, m.ID())
			}
		}
	}
	return ids
}

// entry returns the IDs that bring packets for f to IPVS, and decide on masquerading there.
func (ds *drains) entry(f Frontend) []Object {
	ids := []Object{guardOf(f.Addr), Address{f.Addr}}
	for s := range numSets {
		if r := s.role(); r == roleKeep || r == roleAdmission {
			ids = append(ids, tuple(s, f))
		}
	}
	for _, pools := range []map[netip.Prefix]struct{}{ds.have.pools, ds.want.pools} {
		for prefix := range pools {
			if prefix.Contains(f.Addr) {
				ids = append(ids, PoolRoute{Prefix: prefix}, Member{Set: SetIPVSNets, Net: prefix})
			}
		}
	}
	return ids
}

// refresh records the drains of frontends with another owner. updateStale must follow.
func (ds *drains) refresh(changed []*virtual) {
	if len(ds.servers) == 0 {
		return
	}
	for _, v := range changed {
		if !v.serves {
			continue
		}
		for _, f := range slices.Concat([]Frontend{v.at}, ds.inner[v.at]) {
			if ds.servers[f] != nil {
				ds.stale[f] = struct{}{}
			}
		}
	}
}

// forget forgets the drained servers that are wanted again, or that the kernel no longer
// has.
func (ds *drains) forget() {
	for id := range ds.drained {
		if ds.want.wantedByService(id) || !ds.have.Has(id) {
			delete(ds.drained, id)
		}
	}
}

// timeOf returns the drain time of a frontend without a known former owner: that of the Service
// there, if there is one.
func (ds *drains) timeOf(f Frontend) time.Duration {
	ids := slices.Concat(ds.catalog.Claimants(f), ds.catalog.Claimants(everyAddress(f)))
	if f.mapped() {
		ids = []ServiceID{ds.marks.byMark[f.Mark].key.Service}
	}
	for _, id := range ids {
		if svc, ok := ds.catalog.Get(id); ok {
			return svc.Drain
		}
	}
	return ds.defaultTime
}

// poll ends the drains at their deadline. It reads nothing: connections are counted elsewhere
// (UncountedDrains).
func (ds *drains) poll(now time.Time) {
	if len(ds.servers) == 0 {
		ds.nextPoll = time.Time{}
		clear(ds.inner)
		return
	}
	if ds.nextPoll.After(now) {
		return
	}
	ds.nextPoll = now.Add(ds.pollEvery())
	clear(ds.inner) // entries of ended drains; update adds the others
	for f, servers := range ds.servers {
		for addr, d := range servers {
			id := RealServer{Frontend: f, Addr: addr}
			if !d.deadline.After(now) && ds.have.quiesced(id) {
				ds.end(id)
			}
		}
		ds.update(f)
	}
}

// end releases a real server that has drained.
func (ds *drains) end(id RealServer) {
	delete(ds.servers[id.Frontend], id.Addr)
	if ds.have.Has(id) {
		ds.drained[id] = struct{}{}
	}
}

// dropLocal ends the drain of each server that must not be a backend any more: its address has
// become a VIP, or is in a pool. Deferred deletions of such servers are checked again.
func (ds *drains) dropLocal() {
	for f, servers := range ds.servers {
		before := len(servers)
		for addr := range servers {
			if ds.facts.refusal(Backend{Addr: addr}, false) != "" {
				ds.drained[RealServer{Frontend: f, Addr: addr}] = struct{}{}
				delete(servers, addr)
			}
		}
		if len(servers) < before {
			ds.update(f)
		}
	}
	for id := range ds.orphans.deferred {
		if rs, ok := id.(RealServer); ok && ds.facts.refusal(Backend{Addr: rs.Addr}, false) != "" {
			ds.touched[id] = struct{}{}
		}
	}
}

// drainsMark reports whether real servers of a mark drain.
func (ds *drains) drainsMark(mark uint32) bool {
	return ds.servers[MarkFrontend(IPv4, mark)] != nil || ds.servers[MarkFrontend(IPv6, mark)] != nil
}

// Drain is a backend without new connections, until its old ones end.
type Drain struct {
	Frontend Frontend
	Backend  netip.AddrPort
	Deadline time.Time
}

// Drains returns the draining backends, sorted.
func (r *Reconciler) Drains() []Drain {
	var out []Drain
	for f, servers := range r.drains.servers {
		for addr, d := range servers {
			out = append(out, Drain{f, addr, d.deadline})
		}
	}
	slices.SortFunc(out, func(a, b Drain) int {
		return cmp.Or(a.Frontend.Compare(b.Frontend), a.Backend.Compare(b.Backend))
	})
	return out
}

// Draining returns the length of Drains without making it.
func (r *Reconciler) Draining() (n int) {
	for _, servers := range r.drains.servers {
		n += len(servers)
	}
	return n
}
