package lb

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
)

// observe reads the kernel into have, finds the strangers and gives the objects
// that are not as weir left them.
func (r *Reconciler) observe(ctx context.Context) ([]Object, error) {
	obs, err := r.kernel.Observe(ctx)
	if err != nil {
		return nil, fmt.Errorf("read the kernel: %w", err)
	}
	ours, strangers := r.sortOut(obs.Objects)
	r.shared = r.holdsStrangers(ours, obs.Objects)
	var drift []Object
	if r.adopted {
		drift = r.drift(ours)
	}
	first := !r.adopted
	r.have, r.adopted, r.full = ours, true, true
	if first {
		r.adoptOrphans()
		r.adoptMarks()
	}
	clear(r.orphans.held)
	clear(r.laid)
	for _, o := range ours {
		if pool, ok := o.(PoolRoute); ok {
			r.laid[pool.Prefix] = struct{}{}
		}
	}
	r.meet(strangers, obs.HostAddrs)
	for _, o := range drift {
		r.routes.touch(o)
	}
	return drift, nil
}

// drift gives the objects that are not as weir left them, sorted. Kernel
// parameters that nobody wants any more are not looked at.
func (r *Reconciler) drift(ours Snapshot) []Object {
	var out []Object
	for id, o := range r.have {
		got, ok := ours[id]
		if _, wanted := r.want.Get(id); got != o && (ok || wanted || id.kind() != kindSysctl) {
			out = append(out, o)
		}
	}
	for id, o := range ours {
		if _, ok := r.have[id]; !ok {
			out = append(out, o)
		}
	}
	slices.SortFunc(out, Compare)
	return out
}

// meet takes in strangers' virtual servers and the box's own addresses, and
// plans the Services again that they concern.
func (r *Reconciler) meet(strangers map[Frontend]bool, hosts map[netip.Addr]string) {
	concerned := func(f Frontend) bool {
		return strangers[f] != r.facts.Strangers[f] || hosts[f.Addr] != r.facts.HostAddrs[f.Addr]
	}
	moved := !maps.Equal(hosts, r.facts.HostAddrs)
	if moved || !maps.Equal(strangers, r.facts.Strangers) {
		for id, svc := range r.catalog.services {
			// An address of the box in a pool concerns all of the pool.
			if moved && (len(r.facts.Pools) > 0 || svc.asksHost()) || slices.ContainsFunc(svc.Frontends(), concerned) {
				r.dirty[id] = struct{}{}
			}
		}
	}
	before := r.facts.HostAddrs
	r.facts.Strangers, r.facts.HostAddrs = strangers, hosts
	if moved {
		r.catalog.meet(hosts, r.facts.Taken, r.dirty)
		r.concern(r.movedVIPs(before, hosts))
		r.cut()
	}
}

// asksHost tells whether the plan of s depends on the box's own addresses, beside
// its VIPs: where its NodePorts are, whether its ranges admit the box, and whether
// a backend is the box.
func (s Service) asksHost() bool {
	return s.Restricted || s.Apart || slices.ContainsFunc(s.VIPs, func(v VIP) bool { return v.Kind == NodePort })
}

// sortOut parts what is weir's from what is not, as the package comment says
// under Ownership.
func (r *Reconciler) sortOut(objects Snapshot) (ours Snapshot, strangers map[Frontend]bool) {
	ours, strangers = make(Snapshot, len(objects)), map[Frontend]bool{}
	for id, o := range objects {
		switch o := o.(type) {
		case VirtualServer:
			if !r.owns(o.Frontend, objects) {
				strangers[o.Frontend] = true
				continue
			}
		case RealServer:
			if !r.owns(o.Frontend, objects) {
				continue
			}
		case SyncDaemon:
			if !r.runs(o) {
				continue
			}
		case Address:
			if _, recorded := objects[Member{Set: SetIPVSIPs, Addr: o.Addr}]; !recorded && !r.knows(id) {
				continue
			}
		}
		ours[id] = o
	}
	return ours, strangers
}

// holdsStrangers tells whether somebody else has put an address on weir's device.
func (r *Reconciler) holdsStrangers(ours, objects Snapshot) bool {
	for id, o := range objects {
		if _, address := o.(Address); address && ours[id] == nil {
			return true
		}
	}
	return false
}

// knows tells whether this process has written the object or wants it.
func (r *Reconciler) knows(id Object) bool {
	if _, ok := r.have[id]; ok {
		return true
	}
	_, ok := r.want.Get(id)
	return ok
}

// runs tells whether a synchronization daemon is weir's: one that this process has
// started or would. Nothing in the kernel tells who has.
func (r *Reconciler) runs(o SyncDaemon) bool {
	wanted, _ := r.want.Get(o.ID())
	return r.have[o.ID()] == o || wanted == o
}

// owns tells whether the virtual server at f is weir's. What this process has
// made stays its own, to be taken away, even if f is excluded by now.
func (r *Reconciler) owns(f Frontend, objects Snapshot) bool {
	if _, ok := r.have[VirtualServer{Frontend: f}]; ok {
		return true
	}
	if f.Mark == 0 && slices.ContainsFunc(r.opts.Exclude, func(n netip.Prefix) bool { return n.Contains(f.Addr) }) {
		return false
	}
	for _, id := range recordsOf(f) {
		if _, ok := objects[id]; ok {
			return true
		}
	}
	return IsAnchor(f)
}
