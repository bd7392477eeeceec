package linux

import (
	"maps"
	"net/netip"
	"slices"
	"sync"

	"weir/lb"
)

// ledger has weir's objects on links that the kernel has, as observed and applied. With it
// Watch distinguishes foreign changes from weir's own: weir removes an object from the ledger
// before it deletes it.
type ledger struct {
	mu      sync.Mutex
	objects lb.Table
	hosts   map[netip.Addr]string // nil before the first observation
	// altered are the IDs that changed during an observation of everything; nil without one.
	altered map[lb.Object]bool
}

// watched reports whether the kernel announces the removal of an object.
func watched(o lb.Object) bool {
	switch o.(type) {
	case lb.Device, lb.Address, lb.PoolRoute, lb.Unreachable, lb.TunnelDevice:
		return true
	}
	return false
}

// begin prepares an observation of everything. adopt takes over the result of ledgerOf, except
// objects that changed meanwhile; nil is a failed one.
func (l *ledger) begin() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.altered = map[lb.Object]bool{}
}

func (l *ledger) adopt(read *ledger) {
	l.mu.Lock()
	defer l.mu.Unlock()
	altered := l.altered
	if l.altered = nil; read == nil {
		return
	}
	for id := range altered {
		read.objects.Delete(id)
		if o, held := l.objects.Get(id); held {
			read.objects.Put(o)
		}
	}
	l.objects, l.hosts = read.objects, read.hosts
}

// ledgerOf makes the ledger of an observation.
func ledgerOf(obs *lb.Observation) *ledger {
	l := &ledger{hosts: obs.HostAddrs}
	for o := range obs.Objects.OnLinks() {
		l.objects.Put(o)
	}
	return l
}

// alter records a change of an ID.
func (l *ledger) alter(id lb.Object) {
	if l.altered != nil {
		l.altered[id] = true
	}
}

// forget must be called before ops are carried out, note after it.
func (l *ledger) forget(ops []lb.Op) {
	if !watched(ops[0].Object) {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, op := range ops {
		l.alter(op.Object.ID())
		l.objects.Delete(op.Object)
		if _, ok := op.Object.(lb.Device); ok && op.Verb == lb.Delete {
			for _, o := range slices.Collect(l.objects.OnLinks()) {
				if _, on := o.(lb.Address); on {
					l.alter(o)
					l.objects.Delete(o)
				}
			}
		}
	}
}

func (l *ledger) note(ops []lb.Op, errs []error) {
	if !watched(ops[0].Object) {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for i, op := range ops {
		if errs[i] == nil && op.Verb != lb.Delete {
			l.objects.Put(op.Object)
		}
	}
}

func (l *ledger) has(id lb.Object) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.objects.Has(id)
}

// compare returns the objects that are gone or altered in an observation of links, and removes
// them from the ledger. hosts reports whether addresses of other interfaces have changed.
func (l *ledger) compare(obs *lb.Observation) (lost []lb.Object, hosts bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for o := range l.objects.OnLinks() {
		if now, _ := obs.Objects.Get(o); now != o {
			lost = append(lost, o.ID())
		}
	}
	for _, id := range lost {
		l.alter(id)
		l.objects.Delete(id)
	}
	slices.SortFunc(lost, lb.Compare)
	hosts = l.hosts != nil && !maps.Equal(l.hosts, obs.HostAddrs)
	l.hosts = obs.HostAddrs
	return lost, hosts
}
