package linux

import (
	"maps"
	"net/netip"
	"slices"
	"sync"

	"weir/lb"
)

// ledger is what the kernel holds of weir's on links, by what was observed and
// applied. Watch looks into it to tell others' changes from weir's own: when
// weir deletes something, it is out of the ledger first.
type ledger struct {
	mu    sync.Mutex
	held  lb.Snapshot
	hosts map[netip.Addr]string // nil before the first observation
}

// watched tells whether the kernel announces the end of an object.
func watched(o lb.Object) bool {
	switch o.(type) {
	case lb.Device, lb.Address, lb.PoolRoute, lb.Unreachable:
		return true
	}
	return false
}

// adopt takes over a whole observation.
func (l *ledger) adopt(obs lb.Observation) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.held = lb.Snapshot{}
	for id, o := range obs.Objects {
		if watched(o) {
			l.held[id] = o
		}
	}
	l.hosts = obs.HostAddrs
}

// forget is called before ops are carried out, note after it.
func (l *ledger) forget(ops []lb.Op) {
	if !watched(ops[0].Object) {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, op := range ops {
		delete(l.held, op.Object.ID())
		if _, ok := op.Object.(lb.Device); ok && op.Verb == lb.Delete {
			maps.DeleteFunc(l.held, func(_, o lb.Object) bool { _, on := o.(lb.Address); return on })
		}
	}
}

func (l *ledger) note(ops []lb.Op, errs []error) {
	if !watched(ops[0].Object) {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.held == nil {
		l.held = lb.Snapshot{}
	}
	for i, op := range ops {
		if errs[i] == nil && op.Verb != lb.Delete {
			l.held[op.Object.ID()] = op.Object
		}
	}
}

func (l *ledger) has(id lb.Object) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, ok := l.held[id]
	return ok
}

// compare finds what is gone or altered in an observation of links, takes it out
// of the ledger, and tells whether other interfaces' addresses have changed.
func (l *ledger) compare(obs lb.Observation) (lost []lb.Object, hosts bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for id, o := range l.held {
		if obs.Objects[id] != o {
			lost = append(lost, id)
			delete(l.held, id)
		}
	}
	slices.SortFunc(lost, lb.Compare)
	hosts = l.hosts != nil && !maps.Equal(l.hosts, obs.HostAddrs)
	l.hosts = obs.HostAddrs
	return lost, hosts
}
