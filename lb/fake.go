package lb

import (
	"context"
	"fmt"
	"maps"
	"math"
	"net/netip"
	"sync"
)

// Fake is a working kernel in memory: it applies Ops, refuses those that a real kernel refuses,
// and computes the path of a packet (Connect). The zero Fake is an empty kernel, ready for use,
// and safe for concurrent use. With nf_tables, the removal of Rules also removes the sets of the family. A Fake
// keeps them, as a kernel with ipset does.
type Fake struct {
	// Fail, if set, is called before each Op; its error is the Op's.
	Fail func(Op) error
	// After, if set, is called after each Op that was applied.
	After func(Op)
	// ClusterCIDRs and MasqueradeAll are the options of the static rules.
	ClusterCIDRs  []netip.Prefix
	MasqueradeAll bool
	// HostAddrs are the addresses of the box's other interfaces. They must not change
	// during a call of a method.
	HostAddrs map[netip.Addr]string
	// Keeps are the objects that Observe keeps while no other program changes the Fake.
	Keeps Kept

	mu   sync.Mutex
	held Snapshot
	of   map[Frontend]Snapshot // of held: the objects of one frontend
	nets Snapshot              // of held: the objects of whole pools
	// noDevice reports that the device was deleted. At first there is one: its name is not part
	// of an Address.
	noDevice bool
	conns    map[Object]Conns
	calls    int
	observed bool // since the last change of another program
}

var _ Kernel = (*Fake)(nil)

// Observe implements Kernel.
func (k *Fake) Observe(_ context.Context, expected *Table, only ...Frontend) (Observation, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	obs := Observation{Objects: Expecting(expected), HostAddrs: maps.Clone(k.HostAddrs)}
	if len(only) == 0 {
		k.keep(&obs, expected)
		for _, o := range k.held {
			if !obs.kept.has(o.kind()) {
				obs.Objects.Put(o)
			}
		}
		return obs, nil
	}
	for _, f := range only {
		for _, o := range k.of[f] {
			if o.kind() != kindMember {
				obs.Objects.Put(o)
			}
		}
	}
	return obs, nil
}

// keep begins a reading of the whole kernel.
func (k *Fake) keep(obs *Observation, expected *Table) {
	if expected != nil && k.observed {
		obs.Keep(k.Keeps)
	}
	k.observed = true
}

// Apply implements Kernel.
func (k *Fake) Apply(_ context.Context, ops []Op) []error {
	errs := make([]error, len(ops))
	for i, op := range ops {
		if errs[i] = k.applyOne(op); errs[i] == nil && k.After != nil {
			k.After(op)
		}
	}
	return errs
}

// Watch implements Kernel. Another program never changes a Fake.
func (k *Fake) Watch(ctx context.Context, _ func(Event)) error {
	<-ctx.Done()
	return nil
}

func (k *Fake) applyOne(op Op) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.calls++
	if k.Fail != nil {
		if err := k.Fail(op); err != nil {
			return err
		}
	}
	id := op.Object.ID()
	if op.Verb == Delete {
		if set, ok := id.(IPSet); ok && k.has(set) && !set.Set.ofMarks() && k.has(Rules{Family: set.Family}) {
			return fmt.Errorf("%s is in use by rules", set)
		}
		k.remove(id)
		return nil
	}
	if err := k.refuses(op.Object); err != nil {
		return err
	}
	k.put(op.Object)
	return nil
}

// refuses returns the reason why a real kernel would refuse an object.
func (k *Fake) refuses(o Object) error {
	for _, need := range needs(o) {
		if !k.has(need) {
			return fmt.Errorf("%s does not exist", need)
		}
	}
	switch o := o.(type) {
	case VirtualServer:
		if _, known := Schedulers[o.Scheduler.Name]; !known {
			return fmt.Errorf("there is no scheduler %q", o.Scheduler.Name)
		}
	case RealServer:
		switch {
		case o.mixed() && o.Forward != Tunnel:
			return fmt.Errorf("%s is not of the family of %s", o.Addr, o.Frontend)
		case o.mixed() && k.any(func(o Object) bool { return o.kind() == kindSyncDaemon }):
			return fmt.Errorf("%s is not of the family of %s, and connections are synced", o.Addr, o.Frontend)
		case o.Weight > math.MaxInt32:
			return fmt.Errorf("weight %d is too great", o.Weight)
		case o.Lower > o.Upper:
			return fmt.Errorf("the lower limit is above the upper one")
		}
	case SyncDaemon:
		if k.any(func(o Object) bool { rs, ok := o.(RealServer); return ok && rs.mixed() }) {
			return fmt.Errorf("a real server is not of the family of its virtual server")
		}
	case Address:
		if k.noDevice {
			return fmt.Errorf("there is no device")
		}
	case PoolRoute:
		if o.Src.IsValid() && !k.local(o.Src) {
			return fmt.Errorf("%s is no address of this box", o.Src)
		}
	}
	return nil
}

// any reports whether there is an object that matches.
func (k *Fake) any(match func(Object) bool) bool {
	for _, o := range k.held {
		if match(o) {
			return true
		}
	}
	return false
}

// needs returns the objects that a real kernel requires before o.
func needs(o Object) (out []Object) {
	switch o := o.(type) {
	case Member:
		out = append(out, IPSet{o.Set, o.Family()})
	case RealServer:
		out = append(out, VirtualServer{Frontend: o.Frontend})
	case Rules:
		for _, s := range Sets() {
			if !s.ofMarks() {
				out = append(out, IPSet{s, o.Family})
			}
		}
	}
	return out
}

func (k *Fake) put(o Object) {
	if k.held == nil {
		k.held = Snapshot{}
	}
	if o.kind() == kindDevice {
		k.noDevice = false
	}
	k.held[o.ID()] = o
	k.index(o.ID())[o.ID()] = o
}

// index returns the index with an object, which is faster than held.
func (k *Fake) index(id Object) Snapshot {
	f, ok := frontendOf(id)
	if m, member := id.(Member); id.kind() == kindPoolRoute || member && m.Set == SetIPVSNets {
		if k.nets == nil {
			k.nets = Snapshot{}
		}
		return k.nets
	}
	if !ok {
		return Snapshot{}
	}
	if k.of[f] == nil {
		if k.of == nil {
			k.of = map[Frontend]Snapshot{}
		}
		k.of[f] = Snapshot{}
	}
	return k.of[f]
}

// remove removes an object, with everything that a real kernel removes with it.
func (k *Fake) remove(id Object) {
	k.drop(id)
	if id.kind() == kindDevice {
		k.noDevice = true
	}
	if id.kind() != kindVirtualServer && id.kind() != kindSet && id.kind() != kindDevice {
		return
	}
	for other, o := range k.held {
		gone := false
		switch o := o.(type) {
		case RealServer:
			gone = id == VirtualServer{Frontend: o.Frontend}
		case Member:
			gone = id == IPSet{o.Set, o.Family()}
		case Address: // pool routes are over lo
			gone = id.kind() == kindDevice
		}
		if gone {
			k.drop(other)
		}
	}
}

func (k *Fake) drop(id Object) {
	delete(k.held, id)
	delete(k.index(id), id)
}

// Put adds objects as another program would.
func (k *Fake) Put(objects ...Object) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.observed = false
	for _, o := range objects {
		k.put(o)
	}
}

// Remove removes objects as another program would.
func (k *Fake) Remove(ids ...Object) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.observed = false
	for _, id := range ids {
		k.remove(id)
	}
}

// CountConns returns the connections of real servers, by their IDs.
func (k *Fake) CountConns(_ context.Context, servers []RealServer) (map[Object]Conns, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	out := map[Object]Conns{}
	for _, rs := range servers {
		out[rs.ID()] = Conns{}
		if k.has(rs.ID()) {
			out[rs.ID()] = k.conns[rs.ID()]
		}
	}
	return out, nil
}

// Objects returns a copy of all objects.
func (k *Fake) Objects() Snapshot {
	k.mu.Lock()
	defer k.mu.Unlock()
	out := make(Snapshot, len(k.held))
	for id, o := range k.held {
		out[id] = o
	}
	return out
}

func (k *Fake) has(id Object) bool {
	_, ok := k.held[id]
	return ok
}
