package lb

import (
	"context"
	"fmt"
	"maps"
	"math"
	"net/netip"
	"slices"
	"sync"
)

// Fake is a working kernel in memory: it keeps what is applied, refuses what a
// real kernel refuses, and tells what would happen to a packet (Connect). The
// zero Fake is an empty kernel, ready for use, and safe for concurrent use.
type Fake struct {
	// Fail, if set, is asked before each Op; its error is the Op's.
	Fail func(Op) error
	// After, if set, is called after each Op that was applied.
	After func(Op)
	// ClusterCIDRs and MasqueradeAll are what the static rules were made with.
	ClusterCIDRs  []netip.Prefix
	MasqueradeAll bool

	mu   sync.Mutex
	held Snapshot
	of   map[Frontend]Snapshot // of held: what serves one frontend
	nets Snapshot              // of held: what is for whole pools
	// noDevice tells that somebody has deleted the device. At first there is one: its
	// name is not part of an Address.
	noDevice bool
	conns    map[Object]Conns
	hosts    map[netip.Addr]string
	calls    int
}

var _ Kernel = (*Fake)(nil)

// Observe implements Kernel.
func (k *Fake) Observe(_ context.Context, only ...Frontend) (Observation, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	obs := Observation{Objects: Snapshot{}, Conns: map[Object]Conns{}, HostAddrs: maps.Clone(k.hosts)}
	for id, o := range k.held {
		f, server := frontendOf(o)
		if _, member := o.(Member); len(only) > 0 && (member || !server || !slices.Contains(only, f)) {
			continue
		}
		obs.Objects[id] = o
		if rs, ok := o.(RealServer); ok {
			obs.Conns[id] = k.conns[rs.ID()]
		}
	}
	return obs, nil
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

// Watch implements Kernel. Nobody else changes a Fake unnoticed.
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
		if set, ok := id.(IPSet); ok && k.has(set) && set.Set.inRules() && k.has(Rules{set.Family}) {
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

// refuses says why a real kernel would not take an object.
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
		case FamilyOf(o.Addr.Addr()) != FamilyOf(o.Frontend.Addr):
			return fmt.Errorf("%s is not of the family of %s", o.Addr, o.Frontend)
		case o.Weight > math.MaxInt32:
			return fmt.Errorf("weight %d is too great", o.Weight)
		case o.Lower > o.Upper:
			return fmt.Errorf("the lower limit is above the upper one")
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

// needs is what a real kernel wants to have first.
func needs(o Object) (out []Object) {
	switch o := o.(type) {
	case Member:
		out = append(out, IPSet{o.Set, o.Family()})
	case RealServer:
		out = append(out, VirtualServer{Frontend: o.Frontend})
	case Rules:
		for _, s := range Sets() {
			if s.inRules() {
				out = append(out, IPSet{s, o.Family})
			}
		}
	}
	return out
}

// inRules reports whether the static rules refer to a set. The others are for weir itself,
// and for those who know kube-proxy's sets.
func (s Set) inRules() bool {
	_, number := numbers[s]
	return !number && s != SetMarks
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

// index is where an object is found faster than in held.
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

// remove takes away an object with everything that goes with it in a real
// kernel.
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

// Put makes objects appear as if somebody else had made them.
func (k *Fake) Put(objects ...Object) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, o := range objects {
		k.put(o)
	}
}

// Remove takes objects away as if somebody else had.
func (k *Fake) Remove(ids ...Object) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, id := range ids {
		k.remove(id)
	}
}

// SetConns says how many connections a real server has.
func (k *Fake) SetConns(rs RealServer, c Conns) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.conns == nil {
		k.conns = map[Object]Conns{}
	}
	k.conns[rs.ID()] = c
}

// SetHostAddrs says which addresses the box's other interfaces have.
func (k *Fake) SetHostAddrs(hosts map[netip.Addr]string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.hosts = hosts
}

// Held copies what the kernel holds.
func (k *Fake) Held() Snapshot {
	k.mu.Lock()
	defer k.mu.Unlock()
	out := make(Snapshot, len(k.held))
	for id, o := range k.held {
		out[id] = o
	}
	return out
}

// Calls is how many Ops have been tried.
func (k *Fake) Calls() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.calls
}

// Connect tells what happens to a new connection, as the static rules and IPVS
// of lb/linux treat it.
func (k *Fake) Connect(client netip.Addr, f Frontend) Outcome {
	k.mu.Lock()
	defer k.mu.Unlock()
	// IPVS takes the box's own packets at LOCAL_OUT: before they are routed, and past
	// filter INPUT.
	local, own := k.local(f.Addr), k.own(client)
	if !local && !own {
		return Outcome{Fate: Unrouted}
	}
	face, guarded, marked := f, false, false
	if k.has(Rules{FamilyOf(f.Addr)}) {
		if k.has(tuple(SetFirewall, f)) && !k.inRange(client, f) {
			return Outcome{Fate: Dropped}
		}
		lead, led := k.held[tuple(SetInternal, f)].(Member)
		if led && k.inside(client) {
			face, marked = MarkFrontend(FamilyOf(f.Addr), lead.Mark), true
		} else if k.has(tuple(SetNoLocal, f)) {
			return Outcome{Fate: Dropped}
		}
		guarded = !k.has(tuple(SetIPVSPorts, f)) && k.guarded(f.Addr)
		if guarded && !own {
			return Outcome{Fate: Refused}
		}
	}
	if !k.has(VirtualServer{Frontend: face}) {
		face = f
	}
	switch {
	case k.has(VirtualServer{Frontend: face}):
		return k.balance(client, f, face, marked)
	case !local:
		return Outcome{Fate: Unrouted}
	case guarded:
		return Outcome{Fate: Refused}
	}
	return Outcome{Fate: HostPort}
}

// balance is what the backends of a face of f make of a client's connection, whose
// packets may be marked.
func (k *Fake) balance(client netip.Addr, f, face Frontend, marked bool) Outcome {
	out := Outcome{Fate: Refused}
	loops := 0
	for _, o := range k.of[face] {
		rs, ok := o.(RealServer)
		if !ok || rs.Weight == 0 {
			continue
		}
		out.Backends = append(out.Backends, rs.Addr)
		if rs.Addr.Addr() == client && k.has(loopBack(rs.Addr, f.Proto)) && k.has(Rules{FamilyOf(f.Addr)}) {
			loops++
		}
	}
	if len(out.Backends) == 0 {
		return out
	}
	out.Fate = Served
	// A packet has one mark: what leads to a virtual server is not taken off again for
	// that of masquerading. The box's own is known by its connection. Who gets itself
	// is known by its address.
	out.Masqueraded = k.masquerades(client, f) && (!marked || k.own(client)) || loops == len(out.Backends)
	out.Loops = loops > 0 && !out.Masqueraded
	slices.SortFunc(out.Backends, netip.AddrPort.Compare)
	return out
}

// own tells whether an address is the box's own: one of its interfaces', or
// loopback.
func (k *Fake) own(a netip.Addr) bool {
	_, host := k.hosts[a]
	return host || a.IsLoopback()
}

// inside tells whether a client is a pod or the box itself.
func (k *Fake) inside(client netip.Addr) bool {
	return k.own(client) || slices.ContainsFunc(k.ClusterCIDRs, func(n netip.Prefix) bool { return n.Contains(client) })
}

func (k *Fake) has(id Object) bool {
	_, ok := k.held[id]
	return ok
}

func (k *Fake) local(a netip.Addr) bool {
	if k.own(a) || k.has(Address{a}) {
		return true
	}
	for _, o := range k.nets {
		if pool, ok := o.(PoolRoute); ok && pool.Prefix.Contains(a) {
			return true
		}
	}
	return false
}

func (k *Fake) guarded(a netip.Addr) bool {
	for _, o := range k.nets {
		if m, ok := o.(Member); ok && m.Net.Contains(a) {
			return true
		}
	}
	return k.has(Member{Set: SetIPVSIPs, Addr: a})
}

func (k *Fake) inRange(client netip.Addr, f Frontend) bool {
	if k.own(client) {
		return k.has(Member{Set: SetSourceIP, Addr: f.Addr, Port: f.Port, Proto: f.Proto, Net: single(f.Addr)})
	}
	for _, o := range k.of[f] {
		if m, ok := o.(Member); ok && m.Set == SetSourceCIDR && m.Net.Contains(client) {
			return true
		}
	}
	return false
}

func (k *Fake) masquerades(client netip.Addr, f Frontend) bool {
	if !k.has(Rules{FamilyOf(f.Addr)}) {
		return false
	}
	host := k.own(client)
	for local, set := range keptBy {
		all, kept := tuple(set, f), tuple(local, f)
		if proto, nodePort := numbers[set]; nodePort {
			if all = tuple(SetNodePorts, f); proto != f.Proto { // no rule looks at the numbers of all
				continue
			}
			if local.Type() == bitmapPort {
				kept = portMember(local, FamilyOf(f.Addr), f.Port)
			}
		}
		if k.has(all) && (!k.has(kept) || host) {
			return true
		}
	}
	return k.has(tuple(SetClusterIP, f)) && (k.MasqueradeAll || host || len(k.ClusterCIDRs) > 0 && !k.inside(client))
}
