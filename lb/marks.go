package lb

import (
	"cmp"
	"hash/fnv"
	"maps"
	"net/netip"
	"slices"
)

// MarkKey names the use of a mark: a port of a Service in one family. All its VIPs with traffic
// policy Local share the mark. That of a group (Service.Group) has all ports, and port 0 here.
//
// With affinity, the ports of the backends are part of it. If VirtualServer.Port changed,
// packets would not match the backends until all of them were replaced. So clients inside are
// mapped to another virtual server.
type MarkKey struct {
	Service ServiceID
	FamilyPort
	// Target is VirtualServer.Port. Mixed reports that the backends have several ports, so that
	// there is no target.
	Target uint16
	Mixed  bool
	// Masquerade reports that the rules masquerade all packets with the mark.
	Masquerade bool
	// Backend is set for the mark of checks that go to one backend (checks.go), and for it only.
	Backend netip.Addr
}

// Group reports whether the mark is that of a group.
func (k MarkKey) Group() bool { return k.Port.Port == 0 && !k.Checks() }

// set returns the set that maps clients to the mark.
func (k MarkKey) set() Set {
	if k.Group() {
		return SetGroup
	}
	return SetInternal
}

// groupKey returns the key of a group. Its protocol is one with connections, if it has any.
func (s Service) groupKey(family Family) MarkKey {
	port := PortKey{Proto: UDP}
	for _, p := range s.Ports {
		if p.Proto.Connections() && (port.Proto == UDP || p.Proto < port.Proto) {
			port.Proto = p.Proto
		}
	}
	return MarkKey{Service: s.ID, FamilyPort: FamilyPort{port, family}, Masquerade: !s.Keep}
}

// markKey returns the key of a port. It depends on the backends only with affinity.
func (s Service) markKey(port Port, family Family) MarkKey {
	if s.Group {
		return s.groupKey(family)
	}
	key := MarkKey{Service: s.ID, FamilyPort: FamilyPort{port.Key(), family}}
	if s.Affinity == 0 {
		return key
	}
	target := uint16(0)
	see := func(a netip.AddrPort) {
		if FamilyOf(a.Addr()) == family {
			key.Mixed = key.Mixed || target != 0 && target != a.Port()
			target = a.Port()
		}
	}
	for _, be := range port.Backends {
		if be.Scope.In(false) {
			see(be.Addr)
		}
	}
	if s.WhenDown == UseFallback {
		for _, a := range s.Fallback {
			see(a)
		}
	}
	for _, vip := range s.VIPs {
		f, ok := vip.frontend(port)
		if ok && vip.Local && vip.Kind != ClusterIP && FamilyOf(vip.Addr) == family && f.Port != target && !key.Mixed {
			key.Target = target
		}
	}
	return key
}

// marks assigns the marks of virtual servers for clients inside the cluster, and of groups. A mark
// is not assigned again while the kernel still has a virtual server of it, so draining connections
// never reach another Service's backends.
type marks struct {
	*model
	of          map[MarkKey]uint32
	given       map[ServiceID][]MarkKey // the keys of each Service
	byMark      map[uint32]markUse      // by mark; kept while its virtual server drains
	maybeUnused map[uint32]struct{}     // marks that may be free now
	rechecked   map[ServiceID]struct{}  // with other marks of checks since the last CheckMarks
	last        uint32
	max         uint32
}

// markUse is the use of a mark. One that the kernel had at the start, and that no Service has
// requested yet, has the zero key.
type markUse struct {
	key  MarkKey
	vips []Frontend
}

func newMarks(m *model) marks {
	return marks{model: m, of: map[MarkKey]uint32{}, given: map[ServiceID][]MarkKey{}, byMark: map[uint32]markUse{}, maybeUnused: map[uint32]struct{}{}, rechecked: map[ServiceID]struct{}{}, max: MasqueradedMark - 1}
}

func (k MarkKey) compare(other MarkKey) int {
	return cmp.Or(k.Service.Compare(other.Service), cmp.Compare(k.Family, other.Family),
		cmp.Compare(k.Port.Port, other.Port.Port), cmp.Compare(k.Port.Proto, other.Port.Proto),
		cmp.Compare(k.Target, other.Target), k.Backend.Compare(other.Backend))
}

// markedFrontends returns the keys of the marks that a Service needs, and the frontends of
// each. Those of checks have none.
func markedFrontends(svc Service, facts *Facts) map[MarkKey][]Frontend {
	out := map[MarkKey][]Frontend{}
	for key := range svc.checkedBackends() {
		out[key] = nil
	}
	p := planner{svc: svc, facts: facts}
	for _, vip := range svc.VIPs {
		if !svc.Group && (!vip.Local || vip.Kind == ClusterIP) {
			continue
		}
		for _, port := range svc.Ports {
			frontends := p.permitted(vip, port)
			if len(frontends) == 0 {
				continue
			}
			key := svc.markKey(port, FamilyOf(vip.Addr))
			out[key] = append(out[key], frontends...)
		}
	}
	return out
}

// assign assigns the marks that a Service needs. Frontends that the kernel maps to a mark keep
// it: a restart changes nothing.
func (ms *marks) assign(id ServiceID, svc Service) {
	need := markedFrontends(svc, &ms.facts)
	before := ms.given[id]
	for _, key := range before {
		if _, ok := need[key]; !ok {
			ms.maybeUnused[ms.of[key]] = struct{}{}
		}
	}
	delete(ms.given, id)
	for _, key := range slices.SortedFunc(maps.Keys(need), MarkKey.compare) {
		frontends := need[key]
		mark := ms.of[key]
		if mark == 0 {
			mark = ms.existing(key, frontends)
		}
		if mark == 0 {
			mark = ms.free(key)
		}
		if mark == 0 {
			continue // none is free; Plan adds a Note
		}
		ms.of[key] = mark
		ms.byMark[mark] = markUse{key, frontends}
		ms.given[id] = append(ms.given[id], key)
	}
	if now := ms.given[id]; !slices.Equal(before, now) && slices.ContainsFunc(slices.Concat(before, now), MarkKey.Checks) {
		ms.rechecked[id] = struct{}{}
	}
}

// existing returns the mark that the kernel has for some of the frontends, if it fits and has
// no other use.
func (ms *marks) existing(key MarkKey, frontends []Frontend) uint32 {
	for _, f := range frontends {
		m, ok := ms.have.mapping(key.set(), f)
		if !ok || m.Mark == 0 || m.Mark > MaxMark || ms.byMark[m.Mark].key != (MarkKey{}) || key.Masquerade != (m.Mark&MasqueradedMark != 0) {
			continue
		}
		face := MarkFrontend(key.Family, m.Mark)
		o, _ := ms.have.Get(VirtualServer{Frontend: face})
		vs, held := o.(VirtualServer)
		if face.Proto == key.Port.Proto && !ms.facts.Foreign[face] && (!held || vs.Port == key.Target) {
			return m.Mark
		}
	}
	return 0
}

// free returns an unused mark, 0 if there is none. The search for that of a group begins at a
// hash of its name: boxes that sync connections should have the same. That for checks begins at
// one, too, so that a restart finds their virtual server in the kernel.
func (ms *marks) free(key MarkKey) uint32 {
	last, masquerade := &ms.last, uint32(0)
	if key.Group() || key.Checks() {
		h := fnv.New32a()
		h.Write([]byte(key.Service.String()))
		h.Write(key.Backend.AsSlice())
		start := h.Sum32() % ms.max
		last = &start
	}
	if key.Masquerade {
		masquerade = MasqueradedMark
	}
	for range ms.max {
		*last = *last%ms.max + 1
		f := MarkFrontend(key.Family, *last|masquerade)
		if f.Proto != key.Port.Proto {
			continue
		}
		_, used := ms.byMark[f.Mark]
		held := ms.have.Has(VirtualServer{Frontend: f})
		if key.Checks() {
			held = ms.have.takenFor(f, key.Backend)
		}
		if !used && !held && !ms.facts.Foreign[f] {
			return f.Mark
		}
	}
	return 0
}

// adopt reads the mappings of the kernel, so that drains of marks continue after a restart.
func (ms *marks) adopt() {
	for f, v := range ms.have.fronts {
		for _, mark := range [...]uint32{v.mark, v.group} {
			if mark != 0 {
				l := ms.byMark[mark]
				l.vips = append(l.vips, f)
				ms.byMark[mark] = l
				ms.maybeUnused[mark] = struct{}{}
			}
		}
	}
}

// release forgets the marks that no Service uses and no drain needs. If the kernel still has
// objects of one, free finds them. The cost is the number of marks that may have become unused
// since the last call.
func (ms *marks) release(draining func(mark uint32) bool) {
	if !ms.catalog.Synced() {
		return // objects of the start may drain later
	}
	for mark := range ms.maybeUnused {
		l := ms.byMark[mark]
		used := slices.Contains(ms.given[l.key.Service], l.key)
		if !used && !draining(mark) {
			delete(ms.byMark, mark)
			delete(ms.of, l.key)
		}
	}
	clear(ms.maybeUnused)
}

// drainEnded marks the mark of f as possibly unused.
func (ms *marks) drainEnded(f Frontend) {
	if f.mapped() {
		ms.maybeUnused[f.Mark] = struct{}{}
	}
}

// vipsOf returns the frontends that are or were mapped to f.
func (ms *marks) vipsOf(f Frontend) []Frontend {
	if !f.mapped() {
		return nil
	}
	return ms.byMark[f.Mark].vips
}

// mappings returns the IDs of all members that map to the mark of f.
func (ms *marks) mappings(f Frontend) []Object {
	var out []Object
	for _, vip := range ms.vipsOf(f) {
		for _, s := range mappingSets {
			if m, ok := ms.have.mapping(s, vip); ok && m.Mark == f.Mark {
				out = append(out, m.ID())
			}
		}
	}
	return out
}

// servicesOf returns the Services that an ID belongs or belonged to, if they are known, and its
// present owner.
func (ms *marks) servicesOf(id Object, owner *Owner) []ServiceID {
	var out []ServiceID
	if owner != nil {
		out = append(out, owner.Service)
	}
	f, ok := frontendOf(id)
	switch {
	case !ok:
		return out
	case f.mapped():
		return append(out, ms.byMark[f.Mark].key.Service)
	}
	return append(append(out, ms.catalog.Claimants(f)...), ms.catalog.Claimants(everyAddress(f))...)
}
