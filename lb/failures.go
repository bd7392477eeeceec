package lb

import (
	"errors"
	"net/netip"
	"time"
)

// failures are the Ops that the kernel refused, and those that wait for one of them, by the ID
// of their object.
type failures struct {
	of map[Object]failure
	// servers are the IDs of the real servers in of, by the address of the backend.
	servers map[netip.Addr]map[RealServer]struct{}
}

// failure is an Op that the kernel refused.
type failure struct {
	op    Op
	err   error
	tries int
	next  time.Time
}

// Failed Ops are retried after retryMin, doubling up to retryMax. Outdated rules usually wait
// for another program, and up to retryEarlier only.
const (
	retryMin     = time.Second
	retryEarlier = 4 * time.Second
	retryMax     = time.Minute
)

func newFailures() failures {
	return failures{of: map[Object]failure{}, servers: map[netip.Addr]map[RealServer]struct{}{}}
}

// add records that op failed, and reports whether that is new: it does not only wait, and did
// not fail for this reason the last time.
func (x *failures) add(op Op, err error, now time.Time) (fresh bool) {
	id := op.Object.ID()
	f := x.of[id]
	fresh = !errors.Is(err, errWaits) && (f.err == nil || f.err.Error() != err.Error())
	f.op, f.err = op, err
	most := retryMax
	if errors.Is(err, ErrEarlier) {
		most = retryEarlier
	}
	f.next = now.Add(min(retryMin<<min(f.tries, 10), most))
	f.tries++
	x.of[id] = f
	if rs, ok := id.(RealServer); ok {
		a := rs.Addr.Addr()
		if x.servers[a] == nil {
			x.servers[a] = map[RealServer]struct{}{}
		}
		x.servers[a][rs] = struct{}{}
	}
	return fresh
}

// forget removes the IDs that are applied.
func (x *failures) forget(settled func(id Object) bool) {
	for id := range x.of {
		if !settled(id) {
			continue
		}
		delete(x.of, id)
		if rs, ok := id.(RealServer); ok {
			a := rs.Addr.Addr()
			if delete(x.servers[a], rs); len(x.servers[a]) == 0 {
				delete(x.servers, a)
			}
		}
	}
}

// due adds the IDs to retry now to touched.
func (x *failures) due(now time.Time, touched map[Object]struct{}) {
	for id, f := range x.of {
		if !f.next.After(now) {
			touched[id] = struct{}{}
		}
	}
}

// next returns the time of the next retry; zero is never.
func (x *failures) next() (next time.Time) {
	for _, f := range x.of {
		next = earliest(next, f.next)
	}
	return next
}

// blocksAddress returns a real server that could not be deleted, and that has an address which
// o, an Address or PoolRoute, would make the box's own.
func (x *failures) blocksAddress(o Object, have *kernelState) Object {
	held := func(servers map[RealServer]struct{}) Object {
		for id := range servers {
			if have.Has(id) {
				return id
			}
		}
		return nil
	}
	switch o := o.(type) {
	case Address:
		return held(x.servers[o.Addr])
	case PoolRoute: // there are few of them
		for addr, servers := range x.servers {
			if o.Prefix.Contains(addr) {
				if id := held(servers); id != nil {
					return id
				}
			}
		}
	}
	return nil
}

// each calls yield for each ID and failure that does not only wait for another one.
func (x *failures) each(yield func(id Object, f failure)) {
	for id, f := range x.of {
		if !errors.Is(f.err, errWaits) {
			yield(id, f)
		}
	}
}

// owners returns a function that returns the owner of an ID, nil if only drains want it.
func (x *failures) owners(want *State) func(id Object) *Owner {
	ids := make(map[Object]struct{}, len(x.of))
	for id := range x.of {
		ids[id] = struct{}{}
	}
	shared := want.firstOf(ids)
	return func(id Object) *Owner {
		owner := shared[id]
		if at, _ := locate(id); at != inLoops && at != inAddrs {
			owner = want.first(id)
		}
		if owner != nil && !owner.draining() {
			return owner
		}
		return nil
	}
}

// errWaits is the error of an Op that was not tried.
var errWaits = errors.New("waits for")
