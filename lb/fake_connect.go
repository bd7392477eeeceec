package lb

import (
	"net/netip"
	"slices"
)

// Connect returns the result of a new connection, by the static rules and IPVS of lb/linux. Explain
// has a walk of its own: TestLawExplainIsRight compares the two.
func (k *Fake) Connect(client netip.Addr, f Frontend) Outcome {
	k.mu.Lock()
	defer k.mu.Unlock()
	// IPVS takes the box's own packets at LOCAL_OUT: before they are routed, and not via filter
	// INPUT.
	if f.Given {
		if !k.has(VirtualServer{Frontend: f}) {
			return Outcome{Fate: Unrouted}
		}
		return k.balance(client, f, f, true)
	}
	local, own := k.local(f.Addr), k.own(client)
	if !local && !own {
		return Outcome{Fate: Unrouted}
	}
	face, guarded, marked := f, false, false
	if k.has(Rules{Family: FamilyOf(f.Addr)}) {
		if k.has(tuple(SetFirewall, f)) && !k.inRange(client, f) {
			return Outcome{Fate: Dropped}
		}
		lead, led := k.held[tuple(SetInternal, f)].(Member)
		group, grouped := k.held[tuple(SetGroup, f)].(Member)
		if grouped {
			face, marked = MarkFrontend(FamilyOf(f.Addr), group.Mark), true
		} else if led && k.inside(client) {
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

// balance returns the result of a client's connection to a face of f. Its packets may be
// marked.
func (k *Fake) balance(client netip.Addr, f, face Frontend, marked bool) Outcome {
	out := Outcome{Fate: Refused}
	loops := 0
	vs, _ := k.held[VirtualServer{Frontend: face}].(VirtualServer)
	for _, o := range k.of[face] {
		rs, ok := o.(RealServer)
		if !ok || rs.Weight == 0 {
			continue
		}
		if face.Mark != 0 && !vs.matchesPort(f.Port, rs) {
			return Outcome{Fate: Refused} // for some clients
		}
		at := rs.At(f.Port)
		out.Backends = append(out.Backends, at)
		if rs.Forward.Direct() {
			out.Direct = append(out.Direct, at)
			continue
		}
		if at.Addr() == client && k.has(loopBack(at, f.Proto)) && k.has(Rules{Family: FamilyOf(f.Addr)}) {
			loops++
		}
	}
	if len(out.Backends) == 0 {
		return out
	}
	hidden := len(out.Backends) - len(out.Direct)
	if hidden < len(out.Backends) && k.own(client) {
		return Outcome{Fate: Dropped} // the box drops replies that have its own address as source
	}
	out.Fate = Served
	// A packet has one mark: that of a virtual server is not replaced by that of masquerading, but
	// may demand it, too. The box's own packets are recognized by their connection, and a client
	// that reaches itself by its address.
	demanded := marked && face.mapped() && face.Mark&MasqueradedMark != 0
	out.Masqueraded = hidden > 0 && (demanded || k.masquerades(client, f) && (!marked || k.own(client)) || loops == hidden)
	out.Loops = loops > 0 && !out.Masqueraded
	slices.SortFunc(out.Backends, netip.AddrPort.Compare)
	slices.SortFunc(out.Direct, netip.AddrPort.Compare)
	return out
}

// own reports whether an address is the box's own: one of its interfaces', or
// loopback.
func (k *Fake) own(a netip.Addr) bool {
	_, host := k.HostAddrs[a]
	return host || a.IsLoopback()
}

// inside reports whether a client is a pod or the box itself.
func (k *Fake) inside(client netip.Addr) bool {
	return k.own(client) || slices.ContainsFunc(k.ClusterCIDRs, func(n netip.Prefix) bool { return n.Contains(client) })
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
	if !k.has(Rules{Family: FamilyOf(f.Addr)}) {
		return false
	}
	host := k.own(client)
	for _, m := range masquerading {
		if k.has(tuple(m.all, f)) && (!k.has(tuple(m.kept, f)) || host) {
			return true
		}
	}
	return k.has(tuple(SetClusterIP, f)) && (k.MasqueradeAll || host || len(k.ClusterCIDRs) > 0 && !k.inside(client))
}
