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
	of   map[MarkKey]uint32
	leds map[uint32]led // by mark; kept while what it led to drains
	last uint32
}

// led is what leads to a mark.
type led struct {
	key  MarkKey
	vips []Frontend
}

func newMarks() marks {
	return marks{of: map[MarkKey]uint32{}, leds: map[uint32]led{}}
}

func (k MarkKey) compare(other MarkKey) int {
	return cmp.Or(k.Service.Compare(other.Service), cmp.Compare(k.Family, other.Family),
		cmp.Compare(k.Port.Port, other.Port.Port), cmp.Compare(k.Port.Proto, other.Port.Proto))
}

// inside gives what a Service needs marks for, and the frontends of each.
func inside(svc Service) map[MarkKey][]Frontend {
	var out map[MarkKey][]Frontend
	for _, vip := range svc.VIPs {
		if !vip.Local || vip.Kind == ClusterIP {
			continue
		}
		for _, port := range svc.Ports {
			if f, ok := vip.frontend(port); ok {
				if out == nil {
					out = map[MarkKey][]Frontend{}
				}
				key := MarkKey{svc.ID, FamilyPort{port.Key(), FamilyOf(vip.Addr)}}
				out[key] = append(out[key], f)
			}
		}
	}
	return out
}

// assign makes the marks of a Service those that it needs. The one that the
// kernel leads its frontends to already is kept: a restart changes nothing.
func (r *Reconciler) assign(id ServiceID, svc Service) {
	need := inside(svc)
	for _, key := range r.marked[id] {
		if _, ok := need[key]; !ok {
			delete(r.marks.of, key)
		}
	}
	delete(r.marked, id)
	for _, key := range slices.SortedFunc(maps.Keys(need), MarkKey.compare) {
		frontends := need[key]
		mark, ok := r.marks.of[key]
		if !ok {
			mark = r.heldMark(frontends)
		}
		if mark == 0 {
			mark = r.freeMark(key)
		}
		if mark == 0 {
			continue // all are in use: clients inside are served as those outside are
		}
		r.marks.of[key] = mark
		r.marks.leds[mark] = led{key, frontends}
		r.marked[id] = append(r.marked[id], key)
	}
}

// heldMark is the mark that the kernel has for some of the frontends, if nobody
// else has got it.
func (r *Reconciler) heldMark(frontends []Frontend) uint32 {
	for _, f := range frontends {
		m, ok := r.have[tuple(SetInternal, f)].(Member)
		if _, used := r.marks.leds[m.Mark]; ok && !used {
			return m.Mark
		}
	}
	return 0
}

// freeMark is a mark that nobody uses, 0 if there is none.
func (r *Reconciler) freeMark(key MarkKey) uint32 {
	for range MaxMark {
		r.marks.last = r.marks.last%MaxMark + 1
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

// releaseMarks forgets the marks that nobody uses and nothing drains by. What
// the kernel still holds of them is found there by freeMark.
func (r *Reconciler) releaseMarks() {
	if len(r.marks.leds) == len(r.marks.of) {
		return
	}
	for mark, l := range r.marks.leds {
		draining := r.drains.servers[MarkFrontend(l.key.Family, mark)] != nil
		if r.marks.of[l.key] != mark && !draining {
			delete(r.marks.leds, mark)
		}
	}
}
