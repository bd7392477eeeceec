package lb

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
)

// Route is one VIP address as routers should know it: who would answer a packet
// that they send here. Whether, how and to whom it is announced is not lb's to
// decide.
type Route struct {
	Addr netip.Addr
	// Serves are the Services that can answer here now, sorted: the kernel holds
	// all that they need at this address, its virtual servers were read back, and
	// at least one of their ports has a backend that takes new connections from
	// clients outside. If it is empty, nobody should be sent here.
	Serves []Serving
	// Withheld says why Serves is empty; otherwise it is "".
	Withheld Withheld
}

// Serving is a Service as it serves one address.
type Serving struct {
	Service ServiceID
	Kind    VIPKind
}

func (s Serving) compare(t Serving) int {
	return cmp.Or(s.Service.Compare(t.Service), cmp.Compare(s.Kind, t.Kind))
}

// Withheld says why nobody should be sent to an address. The set is closed; of
// several Services the one that comes nearest to serving decides.
type Withheld string

// Why nobody should be sent to an address, the worst last.
const (
	// NotProgrammed: the kernel does not hold all of it yet, or would not take it.
	NotProgrammed Withheld = "not-programmed"
	// NobodyAnswers: no port has a backend that takes new connections from outside.
	NobodyAnswers Withheld = "no-backend"
	// NotServed: no Service that claims the address has a frontend there.
	NotServed Withheld = "not-served"
	// Gone: no Service claims the address any more.
	Gone Withheld = "gone"
)

// nearness orders the reasons: of two Services at one address the nearer one's
// counts.
var nearness = map[Withheld]int{"": 0, NotProgrammed: 1, NobodyAnswers: 2, NotServed: 3, Gone: 4}

// routes follow which VIPs can be announced.
type routes struct {
	*model
	// claimed are the Services at each address, and of the addresses of each Service.
	claimed map[netip.Addr][]Serving
	of      map[ServiceID][]VIP
	// told are those that Routes has given and that are not gone, and whether with
	// somebody in Serves.
	reported map[netip.Addr]bool
	// dirty may be others than Routes said last. All of them are claimed or told: where
	// nobody calls Routes, it does not grow.
	dirty map[netip.Addr]struct{}
}

func newRoutes(m *model) routes {
	return routes{model: m, claimed: map[netip.Addr][]Serving{}, of: map[ServiceID][]VIP{}, reported: map[netip.Addr]bool{}, dirty: map[netip.Addr]struct{}{}}
}

// claim takes down which addresses a Service has now.
func (t *routes) claim(id ServiceID, vips []VIP) {
	old := t.of[id]
	for _, v := range old {
		t.dirty[v.Addr] = struct{}{}
	}
	if !slices.Equal(old, vips) {
		for _, v := range old {
			t.claimed[v.Addr] = slices.DeleteFunc(t.claimed[v.Addr], func(s Serving) bool { return s.Service == id })
			if len(t.claimed[v.Addr]) > 0 {
				continue
			}
			delete(t.claimed, v.Addr)
			if _, told := t.reported[v.Addr]; !told {
				delete(t.dirty, v.Addr)
			}
		}
		delete(t.of, id)
		for _, v := range vips {
			if v.Kind == NodePort {
				continue
			}
			t.of[id] = append(t.of[id], v)
			t.claimed[v.Addr] = append(t.claimed[v.Addr], Serving{id, v.Kind})
			t.dirty[v.Addr] = struct{}{}
		}
	}
}

// touch notes that something at the address of an object has changed, or at all
// addresses where that concerns them.
func (t *routes) touch(o Object) {
	switch o := o.(type) {
	case RealServer:
		t.touchAddr(o.Frontend.Addr)
	case VirtualServer:
		t.touchAddr(o.Frontend.Addr)
	case Address:
		t.touchAddr(o.Addr)
	case Member:
		if o.Addr.IsValid() {
			t.touchAddr(o.Addr)
		}
	case PoolRoute:
		t.touchAll(o.Prefix.Contains)
	case IPSet:
		t.touchAll(func(a netip.Addr) bool { return FamilyOf(a) == o.Family })
	case Rules:
		t.touchAll(func(a netip.Addr) bool { return FamilyOf(a) == o.Family })
	case Device:
		t.touchAll(func(netip.Addr) bool { return true })
	}
}

func (t *routes) touchAddr(a netip.Addr) {
	_, claimed := t.claimed[a]
	if _, told := t.reported[a]; claimed || told {
		t.dirty[a] = struct{}{}
	}
}

func (t *routes) touchAll(in func(netip.Addr) bool) {
	for a := range t.claimed {
		if in(a) {
			t.dirty[a] = struct{}{}
		}
	}
}

// Routes gives the VIP addresses at which something has happened since the last
// call, sorted, as they are now. Before it says for the first time that somebody
// serves an address, it reads the virtual servers there back from the kernel, unless
// nothing of them was written since an audit read them; if that fails, those addresses wait for the next call, and the error says why. What
// is there is that which routers may be told; what was withheld says so.
//
// Call it after each Sync and Audit.
func (r *Reconciler) Routes(ctx context.Context) ([]Route, error) {
	if !r.have.adopted || len(r.routes.dirty) == 0 {
		return nil, nil
	}
	var out []Route
	var fresh []Route // that nobody was sent to until now
	for _, a := range slices.SortedFunc(maps.Keys(r.routes.dirty), netip.Addr.Compare) {
		route := r.routes.current(a)
		if len(route.Serves) > 0 && !r.routes.reported[a] {
			fresh = append(fresh, route)
			continue
		}
		out = r.routes.report(out, route)
	}
	if len(fresh) == 0 {
		return out, nil
	}
	if err := r.routes.readBack(ctx, r.kernel, fresh); err != nil {
		return out, fmt.Errorf("read back the announced VIPs: %w", err)
	}
	for _, route := range fresh {
		out = r.routes.report(out, r.routes.current(route.Addr))
	}
	slices.SortFunc(out, func(a, b Route) int { return a.Addr.Compare(b.Addr) })
	return out, nil
}

// tell adds a Route that is said now.
func (t *routes) report(out []Route, route Route) []Route {
	delete(t.dirty, route.Addr)
	if route.Withheld == Gone {
		delete(t.reported, route.Addr)
	} else {
		t.reported[route.Addr] = len(route.Serves) > 0
	}
	return append(out, route)
}

// readBack reads the virtual servers of routes from the kernel, as far as they were written
// since they were read. It records what is missing or differs: the next Sync repairs that.
func (t *routes) readBack(ctx context.Context, k Kernel, fresh []Route) error {
	var frontends []Frontend
	expected := map[Object]Object{}
	for _, route := range fresh {
		for _, s := range route.Serves {
			for _, o := range t.objectsAt(s.Service, route.Addr) {
				switch f, _ := frontendOf(o); o.kind() {
				case kindVirtualServer:
					if _, unread := t.have.unread[f]; unread {
						frontends = append(frontends, f)
						expected[o.ID()] = o
					}
				case kindRealServer:
					if _, unread := t.have.unread[f]; unread {
						expected[o.ID()] = o
					}
				}
			}
		}
	}
	if len(frontends) == 0 {
		return nil
	}
	obs, err := k.Observe(ctx, nil, frontends...)
	if err != nil {
		return err
	}
	missing := map[Frontend]bool{}
	for id, o := range expected {
		if now, _ := obs.Objects.Get(id); now != o {
			f, _ := frontendOf(id)
			missing[f] = true
			t.have.record(id, nil)
			t.touched[id] = struct{}{}
		}
	}
	for _, f := range frontends {
		if !missing[f] {
			delete(t.have.unread, f)
		}
	}
	return nil
}

// Route is how an address is now, as far as weir knows without reading the kernel.
func (r *Reconciler) Route(a netip.Addr) Route { return r.routes.current(a) }

func (t *routes) current(a netip.Addr) Route {
	route := Route{Addr: a, Withheld: Gone}
	for _, s := range t.claimed[a] {
		why := t.withheld(s.Service, a)
		if why == "" {
			route.Serves = append(route.Serves, s)
		}
		if nearness[why] < nearness[route.Withheld] {
			route.Withheld = why
		}
	}
	slices.SortFunc(route.Serves, Serving.compare)
	return route
}

// at gives what a Service wants at an address, of the faces for clients outside.
func (t *routes) objectsAt(id ServiceID, a netip.Addr) []Object {
	var out []Object
	for _, o := range t.want.Objects(Owner{Service: id}) {
		if at, ok := addressOf(o); ok && at == a {
			out = append(out, o)
		}
	}
	return out
}

// addressOf gives the address that an object is for, if it is for one alone.
func addressOf(o Object) (netip.Addr, bool) {
	switch o := o.(type) {
	case Address:
		return o.Addr, true
	case VirtualServer:
		return o.Frontend.Addr, o.Frontend.Mark == 0
	case RealServer:
		return o.Frontend.Addr, o.Frontend.Mark == 0
	case Member:
		// A backend that may loop is one of any address.
		return o.Addr, o.Addr.IsValid() && o.Set != SetLoopBack
	}
	return netip.Addr{}, false
}

// serves tells why a Service does not serve an address; "" is that it does.
func (t *routes) withheld(id ServiceID, a netip.Addr) Withheld {
	objects := t.objectsAt(id, a)
	if !slices.ContainsFunc(objects, func(o Object) bool { return o.kind() == kindVirtualServer }) {
		return NotServed
	}
	if !hasLiveBackend(objects) {
		return NobodyAnswers
	}
	for _, o := range objects {
		if !t.applied(o.ID()) {
			return NotProgrammed
		}
	}
	if !t.reachable(a) {
		return NotProgrammed
	}
	return ""
}

// answers tells whether one of the frontends among objects has a backend that takes
// new connections from outside.
func hasLiveBackend(objects []Object) bool {
	for _, o := range objects {
		if rs, ok := o.(RealServer); ok && rs.Weight > 0 && !slices.Contains(objects, Object(tuple(SetNoLocal, rs.Frontend))) {
			return true
		}
	}
	return false
}

// reachable tells whether the kernel has what all VIPs stand on: the address,
// by itself or in a pool, if it is not the box's own; the rules and the sets.
func (t *routes) reachable(a netip.Addr) bool {
	family := FamilyOf(a)
	_, own := t.facts.HostAddrs[a]
	if !own && t.have.localBy(a) == nil || !t.applied(Rules{family}) {
		return false
	}
	for _, s := range Sets() {
		if !t.applied(IPSet{s, family}) {
			return false
		}
	}
	return true
}

// leaving gives the addresses that were said to serve somebody and will not when ops are
// applied, sorted.
func (t *routes) withdrawals(ops []Op) (gone []netip.Addr) {
	if len(t.reported) == 0 {
		return nil
	}
	seen := map[netip.Addr]bool{}
	look := func(a netip.Addr) {
		if seen[a] || !t.reported[a] {
			return
		}
		seen[a] = true
		if !slices.ContainsFunc(t.claimed[a], func(s Serving) bool { return hasLiveBackend(t.objectsAt(s.Service, a)) }) {
			gone = append(gone, a)
		}
	}
	for _, op := range ops {
		if a, ok := addressOf(op.Object); ok && op.Verb != Add {
			look(a)
		}
	}
	slices.SortFunc(gone, netip.Addr.Compare)
	return gone
}
