package lb

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
)

// Route is one VIP address with the Services that would answer there. lb does not decide
// whether, how and to which routers it is announced.
type Route struct {
	Addr netip.Addr
	// Serves are the Services that can answer here now, sorted. The kernel has all of their
	// objects at this address, its virtual servers were read back, and at least one port has a
	// backend that takes new connections from clients outside. If it is empty, no traffic
	// should be routed here.
	Serves []Serving
	// Withheld is the reason why Serves is empty; otherwise it is "".
	Withheld Withheld
}

// Serving is a Service that serves an address.
type Serving struct {
	Service ServiceID
	Kind    VIPKind
}

func (s Serving) compare(t Serving) int {
	return cmp.Or(s.Service.Compare(t.Service), cmp.Compare(s.Kind, t.Kind))
}

// Withheld is the reason why no traffic should be routed to an address. The set is closed. Of
// several Services, the one that is nearest to serving decides.
type Withheld string

// The reasons, the worst last.
const (
	// NotProgrammed: the kernel does not have all of it yet, or refused it.
	NotProgrammed Withheld = "not-programmed"
	// NoLiveBackend: no port has a backend that takes new connections from outside.
	NoLiveBackend Withheld = "no-backend"
	// NotServed: no Service that claims the address has a frontend there.
	NotServed Withheld = "not-served"
	// Gone: no Service claims the address any more.
	Gone Withheld = "gone"
)

// nearness orders the reasons: of two Services at one address, the nearer one's reason counts.
var nearness = map[Withheld]int{"": 0, NotProgrammed: 1, NoLiveBackend: 2, NotServed: 3, Gone: 4}

// routes follow which VIPs can be announced.
type routes struct {
	*model
	// claimed are the Services at each address, and of the addresses of each Service.
	claimed map[netip.Addr][]Serving
	of      map[ServiceID][]VIP
	// reported are the addresses that Routes has returned and that are not gone; true if Serves
	// was not empty.
	reported map[netip.Addr]bool
	// dirty are the addresses that may differ from their last report. All of them are claimed
	// or reported, so the map does not grow where Routes is never called.
	dirty  map[netip.Addr]struct{}
	repair repair
}

func newRoutes(m *model) routes {
	return routes{model: m, claimed: map[netip.Addr][]Serving{}, of: map[ServiceID][]VIP{}, reported: map[netip.Addr]bool{}, dirty: map[netip.Addr]struct{}{}}
}

// claim records the addresses of a Service.
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

// touch marks the address of an object dirty, or all addresses that depend on the object.
func (t *routes) touch(o Object) {
	if f, ok := frontendOf(o); ok {
		t.touchFrontend(f)
		return
	}
	switch o := o.(type) {
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

// touchFrontend marks the address of a frontend dirty, and for a given mark those of its Services in
// the family.
func (t *routes) touchFrontend(f Frontend) {
	if !f.Given {
		t.touchAddr(f.Addr)
		return
	}
	for _, id := range t.catalog.Claimants(f) {
		for _, vip := range t.of[id] {
			if FamilyOf(vip.Addr) == FamilyOf(f.Addr) {
				t.touchAddr(vip.Addr)
			}
		}
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

// Routes returns the VIP addresses that may have changed since the last call, sorted, in their
// present state. Before the first report that a Service serves an address, it reads the virtual
// servers there back from the kernel, unless an audit has read them since they were written. If
// that fails, those addresses wait for the next call, and the error is the reason. Call it
// after each Sync and Audit.
func (r *Reconciler) Routes(ctx context.Context) ([]Route, error) {
	if !r.have.adopted || len(r.routes.dirty) == 0 {
		return nil, nil
	}
	var out []Route
	var fresh []Route // that no Service served until now
	for _, a := range slices.SortedFunc(maps.Keys(r.routes.dirty), netip.Addr.Compare) {
		route := r.routes.current(a)
		if len(route.Serves) > 0 && !r.routes.reported[a] {
			fresh = append(fresh, route)
			continue
		}
		out = r.routes.report(out, route)
	}
	lacking, err := r.routes.readBack(ctx, r.kernel, fresh)
	if err != nil {
		return out, fmt.Errorf("read back the announced VIPs: %w", err)
	}
	if lacking {
		// What is missing of a given mark is missing at all of its addresses, also at those in out.
		again := func(route Route) bool { _, dirty := r.routes.dirty[route.Addr]; return dirty }
		out, fresh = slices.DeleteFunc(out, again), nil
		for a := range r.routes.dirty {
			fresh = append(fresh, r.routes.current(a))
		}
	}
	for _, route := range fresh {
		out = r.routes.report(out, route)
	}
	slices.SortFunc(out, func(a, b Route) int { return a.Addr.Compare(b.Addr) })
	return out, nil
}

// report adds a Route to out, and records that it is reported.
func (t *routes) report(out []Route, route Route) []Route {
	delete(t.dirty, route.Addr)
	if route.Withheld == Gone {
		delete(t.reported, route.Addr)
	} else {
		t.reported[route.Addr] = len(route.Serves) > 0
	}
	return append(out, route)
}

// Route returns the state of an address without a reading of the kernel.
func (r *Reconciler) Route(a netip.Addr) Route { return r.routes.current(a) }

func (t *routes) current(a netip.Addr) Route {
	route := Route{Addr: a, Withheld: Gone}
	for _, s := range t.claimed[a] {
		reason := t.withheld(s.Service, a)
		if reason == "" {
			route.Serves = append(route.Serves, s)
		}
		if nearness[reason] < nearness[route.Withheld] {
			route.Withheld = reason
		}
	}
	slices.SortFunc(route.Serves, Serving.compare)
	return route
}

// objectsAt returns the objects that a Service wants at an address, without inner faces. Those of a
// given mark are at each of its addresses.
func (t *routes) objectsAt(id ServiceID, a netip.Addr) []Object {
	var out []Object
	plan := t.want.owners[Owner{Service: id}]
	if plan == nil {
		return nil
	}
	for o := range plan.all() {
		at, ok := addressOf(o)
		if f, _ := frontendOf(o); ok && at == a || f.Given && FamilyOf(f.Addr) == FamilyOf(a) {
			out = append(out, o)
		}
	}
	return out
}

// addressOf returns the address of an object, if it is for one only.
func addressOf(o Object) (netip.Addr, bool) {
	switch o := o.(type) {
	case Address:
		return o.Addr, true
	case VirtualServer:
		return o.Frontend.Addr, o.Frontend.Mark == 0
	case RealServer:
		return o.Frontend.Addr, o.Frontend.Mark == 0
	case Member:
		// A member of SetLoopBack is for any address.
		return o.Addr, o.Addr.IsValid() && o.Set != SetLoopBack
	}
	return netip.Addr{}, false
}

// withheld returns why a Service does not serve an address, "" if it does.
func (t *routes) withheld(id ServiceID, a netip.Addr) Withheld {
	objects := t.objectsAt(id, a)
	if !slices.ContainsFunc(objects, func(o Object) bool { return o.kind() == kindVirtualServer }) {
		return NotServed
	}
	if !hasLiveBackend(objects) {
		return NoLiveBackend
	}
	if !t.programmed(objects, t.reported[a]) || !t.reachable(a) {
		return NotProgrammed
	}
	return ""
}

// programmed reports whether the kernel has all objects of a Service. Those of a frontend are next to
// each other. If it has been served, postponed real servers don't count where others take connections.
func (t *routes) programmed(objects []Object, served bool) bool {
	var whole *virtual // the last record that have and want share
	var grows Frontend // the last frontend with postponed real servers, beside live ones
	for _, o := range objects {
		at, f := locate(o)
		if at == inFront && whole != nil && whole.at == f {
			continue
		}
		if held := t.have.fronts[f]; at == inFront && held != nil && held == t.want.wanted.fronts[f] {
			whole = held
			continue
		}
		if t.applied(o.ID()) {
			continue
		}
		if at != inFront || !served || !t.later.has(o.ID()) {
			return false
		}
		if grows != f && t.have.fronts[f].live() == 0 {
			return false
		}
		grows = f
	}
	return true
}

// hasLiveBackend reports whether one of the frontends among objects has a backend that takes
// new connections from outside.
func hasLiveBackend(objects []Object) bool {
	for _, o := range objects {
		if rs, ok := o.(RealServer); ok && rs.Weight > 0 && !slices.Contains(objects, Object(tuple(SetNoLocal, rs.Frontend))) {
			return true
		}
	}
	return false
}

// reachable reports whether the kernel has the prerequisites of every VIP: the address, by
// itself or in a pool, if it is not the box's own; the sets and the rules. The rules of an
// earlier configuration serve too: the sets have all Services.
func (t *routes) reachable(a netip.Addr) bool {
	family := FamilyOf(a)
	_, own := t.facts.HostAddrs[a]
	if !own && t.have.localBy(a) == nil || !t.have.Has(Rules{Family: family}) {
		return false
	}
	for _, s := range Sets() {
		if !t.applied(IPSet{s, family}) {
			return false
		}
	}
	return true
}

// withdrawals returns the reported addresses that no Service will serve after ops, sorted.
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
		if op.Verb == Add {
			continue
		}
		if a, ok := addressOf(op.Object); ok {
			look(a)
		}
		if f, _ := frontendOf(op.Object); f.Given {
			for a := range t.reported {
				look(a)
			}
		}
	}
	slices.SortFunc(gone, netip.Addr.Compare)
	return gone
}
