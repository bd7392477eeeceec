package lb

import (
	"cmp"
	"maps"
	"slices"
)

// MarkKey names what a mark is for: the port of a Service as one family sees it.
// All its VIPs whose traffic policy is Local share the mark.
type MarkKey struct {
	Service ServiceID
	FamilyPort
}

// MaxMark bounds the marks.
const MaxMark = 1<<23 - 1

// A mark tells its protocol by its remainder, which the kernel does not keep:
// UDP flows of a backend that is gone must move at once, connections may end.
var markProtos = [...]Protocol{TCP, UDP, SCTP}

// MarkFrontend is the frontend of a mark in a family.
func MarkFrontend(f Family, mark uint32) Frontend {
	return Frontend{Addr: unspecified(f), Proto: markProtos[mark%uint32(len(markProtos))], Mark: mark}
}

// marks gives out the marks of virtual servers for clients inside the cluster.
// A mark is not given out again while the kernel still holds what bore it, so
// connections that drain never meet another Service's backends.
type marks struct {
	of    map[MarkKey]uint32
	leds  map[uint32]led      // by mark; kept while what it led to drains
	loose map[uint32]struct{} // those that may be of no use any more
	last  uint32
	max   uint32
}

// led is what leads to a mark. One that the kernel held at the start, and that
// no Service has asked for yet, has the zero key.
type led struct {
	key  MarkKey
	vips []Frontend
}

func newMarks() marks {
	return marks{of: map[MarkKey]uint32{}, leds: map[uint32]led{}, loose: map[uint32]struct{}{}, max: MaxMark}
}

func (k MarkKey) compare(other MarkKey) int {
	return cmp.Or(k.Service.Compare(other.Service), cmp.Compare(k.Family, other.Family),
		cmp.Compare(k.Port.Port, other.Port.Port), cmp.Compare(k.Port.Proto, other.Port.Proto))
}

// inside gives what a Service needs marks for, and the frontends of each.
func inside(svc Service, facts *Facts) map[MarkKey][]Frontend {
	var out map[MarkKey][]Frontend
	p := planner{svc: svc, facts: facts}
	for _, vip := range svc.VIPs {
		if !vip.Local || vip.Kind == ClusterIP {
			continue
		}
		for _, port := range svc.Ports {
			frontends := p.mine(vip, port)
			if len(frontends) == 0 {
				continue
			}
			if out == nil {
				out = map[MarkKey][]Frontend{}
			}
			key := MarkKey{svc.ID, FamilyPort{port.Key(), FamilyOf(vip.Addr)}}
			out[key] = append(out[key], frontends...)
		}
	}
	return out
}

// assign makes the marks of a Service those that it needs. The one that the
// kernel leads its frontends to already is kept: a restart changes nothing.
func (r *Reconciler) assign(id ServiceID, svc Service) {
	need := inside(svc, &r.facts)
	for _, key := range r.marked[id] {
		if _, ok := need[key]; !ok {
			r.marks.loose[r.marks.of[key]] = struct{}{}
		}
	}
	delete(r.marked, id)
	for _, key := range slices.SortedFunc(maps.Keys(need), MarkKey.compare) {
		frontends := need[key]
		mark := r.marks.of[key]
		if mark == 0 {
			mark = r.heldMark(key, frontends)
		}
		if mark == 0 {
			mark = r.freeMark(key)
		}
		if mark == 0 {
			continue // all are in use, which Plan notes
		}
		r.marks.of[key] = mark
		r.marks.leds[mark] = led{key, frontends}
		r.marked[id] = append(r.marked[id], key)
	}
}

// heldMark is the mark that the kernel has for some of the frontends, if nobody
// else has got it and it fits.
func (r *Reconciler) heldMark(key MarkKey, frontends []Frontend) uint32 {
	for _, f := range frontends {
		m, ok := r.lead(f)
		if !ok || m.Mark == 0 || m.Mark > MaxMark || r.marks.leds[m.Mark].key != (MarkKey{}) {
			continue
		}
		if face := MarkFrontend(key.Family, m.Mark); face.Proto == key.Port.Proto && !r.facts.Strangers[face] {
			return m.Mark
		}
	}
	return 0
}

// freeMark is a mark that nobody uses, 0 if there is none.
func (r *Reconciler) freeMark(key MarkKey) uint32 {
	for range r.marks.max {
		r.marks.last = r.marks.last%r.marks.max + 1
		f := MarkFrontend(key.Family, r.marks.last)
		if f.Proto != key.Port.Proto {
			continue
		}
		_, used := r.marks.leds[f.Mark]
		_, held := r.have[VirtualServer{Frontend: f}]
		if !used && !held && !r.facts.Strangers[f] {
			return f.Mark
		}
	}
	return 0
}

// adoptMarks learns from the kernel what leads to which mark, so that drains by
// marks go on after a restart.
func (r *Reconciler) adoptMarks() {
	for _, o := range r.have {
		if m, ok := o.(Member); ok && m.Set == SetInternal && m.Mark != 0 {
			f, _ := m.frontend()
			l := r.marks.leds[m.Mark]
			l.vips = append(l.vips, f)
			r.marks.leds[m.Mark] = l
			r.marks.loose[m.Mark] = struct{}{}
		}
	}
}

// releaseMarks forgets the marks that nobody uses and nothing drains by. What
// the kernel still holds of them is found there by freeMark. Its cost is what has
// become loose since the last time: a drain that ends makes its mark loose again.
func (r *Reconciler) releaseMarks() {
	if !r.catalog.Synced() {
		return // what was found at the start may drain later
	}
	for mark := range r.marks.loose {
		l := r.marks.leds[mark]
		used := slices.Contains(r.marked[l.key.Service], l.key)
		if !used && !r.drainsBy(mark) {
			delete(r.marks.leds, mark)
			delete(r.marks.of, l.key)
		}
	}
	clear(r.marks.loose)
}

func (r *Reconciler) drainsBy(mark uint32) bool {
	return r.drains.servers[MarkFrontend(IPv4, mark)] != nil || r.drains.servers[MarkFrontend(IPv6, mark)] != nil
}

// loosen tells that nothing drains any more by the mark of f, if it has one.
func (m *marks) loosen(f Frontend) {
	if f.Mark != 0 {
		m.loose[f.Mark] = struct{}{}
	}
}

// lead gives the member that leads clients inside from vip to a mark, as the
// kernel holds it.
func (r *Reconciler) lead(vip Frontend) (Member, bool) {
	m, ok := r.have[tuple(SetInternal, vip)].(Member)
	return m, ok
}

// leads gives the IDs of all members that lead to the mark of f.
func (r *Reconciler) leads(f Frontend) []Object {
	var out []Object
	for _, vip := range r.marks.leds[f.Mark].vips {
		if m, ok := r.lead(vip); ok && m.Mark == f.Mark {
			out = append(out, m.ID())
		}
	}
	return out
}
