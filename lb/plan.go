package lb

import (
	"fmt"
	"net/netip"
	"slices"
)

// Plan maps one Service to the kernel objects that it needs, sorted and each ID once, and to
// Notes. It is pure: same input, same output.
func Plan(svc Service, facts *Facts) ([]Object, []Note) {
	var t Table
	notes := planInto(&t, svc, facts)
	return slices.SortedFunc(t.All(), Compare), notes
}

// planInto puts the objects of Plan into an empty Table, and returns the Notes.
func planInto(t *Table, svc Service, facts *Facts) []Note {
	p := planner{svc: svc, facts: facts, health: facts.Health[svc.ID], objects: t, notes: slices.Clone(svc.Notes)}
	p.checks()
	if svc.FWMark != 0 {
		if !p.needsIPVS("fwmark needs IPVS: packets with firewall mark %d are not served", svc.FWMark) {
			p.given()
		}
		return sortNotes(p.notes)
	}
	for _, vip := range svc.VIPs {
		for _, port := range svc.Ports {
			p.port(vip, port)
		}
		if n := svc.HealthCheck.Port; n != 0 && facts.admits(n) {
			p.add(portMember(SetHealthCheckNodePort, FamilyOf(vip.Addr), n))
		}
	}
	return sortNotes(p.notes)
}

type planner struct {
	svc     Service
	facts   *Facts
	health  Health
	objects *Table
	notes   []Note
}

func (p *planner) add(o Object) { p.objects.Put(o) }

func (p *planner) note(r Reason, format string, args ...any) {
	p.notes = append(p.notes, Note{p.svc.ID, r, fmt.Sprintf(format, args...)})
}

// needsIPVS reports whether a feature is not there, with a Note.
func (p *planner) needsIPVS(format string, args ...any) bool {
	if p.facts.WithoutIPVS {
		p.note(NeedsIPVS, format, args...)
	}
	return p.facts.WithoutIPVS
}

// port plans one port of one VIP.
func (p *planner) port(vip VIP, port Port) {
	for _, f := range p.permitted(vip, port) {
		p.frontend(f, vip, port)
	}
}

// permitted returns the frontends of a VIP's port that the Service may have: one, or one for
// each address of the node if it is a NodePort.
func (p *planner) permitted(vip VIP, port Port) []Frontend {
	f, ok := vip.frontend(port)
	if !ok || p.claimsHostAddr(vip) || !p.mayServe(f) {
		return nil
	}
	if vip.Kind != NodePort {
		return []Frontend{f}
	}
	var out []Frontend
	for _, addr := range p.facts.nodeAddrs(FamilyOf(vip.Addr)) {
		one := Frontend{Addr: addr, Port: f.Port, Proto: f.Proto}
		switch claimants := p.facts.claims[one]; {
		case len(claimants) > 0 && claimants[0] == p.svc.ID: // by another VIP
		case len(claimants) > 0:
			p.note(Conflict, "%s belongs to %s", one, claimants[0])
		case p.mayServe(one):
			out = append(out, one)
		}
	}
	return out
}

// claimsHostAddr reports whether a VIP that the operator did not choose is an address of the
// box itself.
func (p *planner) claimsHostAddr(vip VIP) bool {
	dev, own := p.facts.HostAddrs[vip.Addr]
	if own && vip.Foreign {
		p.note(NotAllowed, "%s is the box's own address on %s and is not served: choose an unused address", vip.Addr, dev)
	}
	return own && vip.Foreign
}

// mayServe reports whether the Service may have f.
func (p *planner) mayServe(f Frontend) bool {
	if i := indexContaining(p.facts.Exclude, f.Addr); i >= 0 && !f.Given {
		p.note(Excluded, "%s is in %s of exclude_cidrs", f, p.facts.Exclude[i])
		return false
	}
	if winner, ok := p.facts.Taken[f]; ok && winner != p.svc.ID {
		p.note(Conflict, "%s belongs to %s", f, winner)
		return false
	}
	if p.facts.Foreign[f] {
		other := map[bool]string{true: "mark", false: "VIP or port"}[f.Given]
		p.note(ForeignFrontend, "%s is a virtual server that weir did not make; remove it (ipvsadm -D) or choose another %s", f, other)
		return false
	}
	return true
}

// frontend plans one virtual server and the objects that bring packets to it.
func (p *planner) frontend(f Frontend, vip VIP, port Port) {
	p.add(tuple(vip.Kind.record(), f))
	p.add(tuple(SetIPVSPorts, f))
	p.add(p.virtualServer(f))
	if vip.Kind != NodePort {
		p.address(f.Addr)
	}
	p.keepSource(f, vip)
	if p.svc.Ranges.covers(vip.Kind) {
		p.ranges(f)
	}
	near := p.backends(f, f, vip, port, vip.Local)
	if p.svc.Group && !p.needsIPVS("a group needs IPVS: %s selects backends by itself", f) {
		p.group(f, port)
	}
	if !vip.Local {
		if near == 0 {
			p.note(NoBackends, "%s has no %s backend: clients are refused", f, FamilyOf(f.Addr))
		}
		return
	}
	p.local(f, vip, port, near)
}

func (p *planner) virtualServer(f Frontend) VirtualServer {
	vs := VirtualServer{Frontend: f, Scheduler: p.svc.Scheduler, Affinity: uint32(p.svc.Affinity.Seconds())}
	if p.svc.OnePacket && f.Proto == UDP {
		vs.Scheduler.Flags |= OnePacket
	}
	return vs
}

// group plans the virtual server of all ports of a Service, which has the real servers of each
// frontend f. Without a mark, each port selects a backend for itself.
func (p *planner) group(f Frontend, port Port) {
	mark := p.facts.Marks[p.svc.markKey(port, FamilyOf(f.Addr))]
	if mark == 0 {
		p.note(Failed, "%s: all marks are in use, so it is not in the group of its Service", f)
		return
	}
	lead, one := tuple(SetGroup, f), MarkFrontend(FamilyOf(f.Addr), mark)
	lead.Mark = mark
	p.add(lead)
	p.add(markMember(one))
	p.add(p.virtualServer(one))
	for _, r := range p.objects.edit(f).reals {
		rs := r.server(one)
		rs.Addr = netip.AddrPortFrom(rs.Addr.Addr(), 0)
		p.add(rs)
	}
}

// given plans a Service with FWMark. Its packets come by rules of the administrator, and their
// addresses are unknown: no set can admit or masquerade them. lb/linux has a rule for each given
// mark instead.
func (p *planner) given() {
	served := false
	for _, f := range p.svc.Frontends() {
		if !p.mayServe(f) {
			continue
		}
		served = true
		p.add(markMember(f))
		p.add(p.virtualServer(f))
		if p.backends(f, f, VIP{}, p.svc.Ports[0], false) == 0 {
			p.note(NoBackends, "%s has no backend: clients are refused", f)
		}
	}
	for _, vip := range p.svc.VIPs {
		if i := indexContaining(p.facts.Exclude, vip.Addr); i >= 0 {
			p.note(Excluded, "%s is in %s of exclude_cidrs", vip.Addr, p.facts.Exclude[i])
		} else if served && !p.claimsHostAddr(vip) {
			p.address(vip.Addr)
		}
	}
}

// local plans the additions of traffic policy Local to a frontend with so many backends of this
// node: the other virtual server, for clients inside, and SetNoLocal if there is no backend for
// clients outside.
func (p *planner) local(f Frontend, vip VIP, port Port, near int) {
	family := FamilyOf(f.Addr)
	wide := 0
	for _, be := range port.Backends {
		if be.Scope.In(false) && FamilyOf(be.Addr.Addr()) == family && p.facts.refusal(be, p.svc.Apart) == "" {
			wide++
		}
	}
	switch {
	case near > 0:
	case wide > 0:
		p.add(tuple(SetNoLocal, f))
		p.note(NoLocal, "%s has no backend on this node, and its traffic policy is Local: clients are dropped", f)
	default:
		p.note(NoBackends, "%s has no %s backend: clients are refused", f, family)
	}
	if vip.Kind == ClusterIP {
		return
	}
	key := p.svc.markKey(port, family)
	mark := p.facts.Marks[key]
	if mark == 0 {
		p.note(Failed, "%s: all marks are in use, so clients inside are served as those outside are", f)
		return
	}
	inside := MarkFrontend(family, mark)
	lead := tuple(SetInternal, f)
	lead.Mark = mark
	vs := p.virtualServer(inside)
	if vs.Port = key.Target; key.Mixed {
		vs.Affinity = 0
		p.note(MixedPorts, "the backends of %s have several ports: clients inside are without affinity", f)
	}
	p.add(lead)
	p.add(markMember(inside))
	p.add(vs)
	p.backends(inside, f, vip, port, false)
}

// keepSource plans whether backends see the clients' addresses.
func (p *planner) keepSource(f Frontend, vip VIP) {
	for _, m := range masquerading {
		if m.all == vip.Kind.record() && (p.svc.Keep || vip.Local) {
			p.add(tuple(m.kept, f))
		}
	}
}

// address makes the VIP local and refuses its other ports. An address that the box has anyway
// stays as it is: otherwise the operator would be locked out.
func (p *planner) address(a netip.Addr) {
	if dev, ok := p.facts.HostAddrs[a]; ok {
		p.note(HostAddress, "%s is an address of this box on %s: only the service ports are served", a, dev)
		return
	}
	if i := slices.IndexFunc(p.facts.Pools, func(r PoolRoute) bool { return r.Prefix.Contains(a) }); i >= 0 {
		pool := p.facts.Pools[i]
		host, holds := p.facts.hostIn(pool.Prefix)
		if !holds {
			p.add(pool)
			p.add(Member{Set: SetIPVSNets, Net: pool.Prefix})
			return
		}
		p.note(PoolCoversHost, "pool %s contains %s, an address of this box: one route for it would cut the box off, so its VIPs become single addresses", pool.Prefix, host)
	}
	p.add(Address{a})
	p.add(guardOf(a))
}

// ranges restricts f to its source ranges. A range of all addresses restricts nothing (and
// hash:net types do not accept it). The box itself is a client with its own addresses, although
// its packets to a VIP have that VIP as their source.
func (p *planner) ranges(f Frontend) {
	if !p.svc.Restricted {
		return
	}
	var members []Member
	for _, r := range p.svc.SourceRanges {
		if r.Addr().Is4() != f.Addr.Is4() {
			continue
		}
		if r.Bits() == 0 {
			return
		}
		members = append(members, Member{Set: SetSourceCIDR, Addr: f.Addr, Port: f.Port, Proto: f.Proto, Net: r.Masked()})
		if p.admitsSelf(r) {
			members = append(members, Member{Set: SetSourceIP, Addr: f.Addr, Port: f.Port, Proto: f.Proto, Net: single(f.Addr)})
		}
	}
	if len(members) == 0 {
		p.note(ClosedFamily, "no source range is %s, so no client may connect to %s", FamilyOf(f.Addr), f)
	}
	p.add(tuple(SetFirewall, f))
	for _, m := range members {
		p.add(m)
	}
}

// admitsSelf reports whether a source range admits the box itself.
func (p *planner) admitsSelf(r netip.Prefix) bool {
	known := false
	for _, a := range p.svc.Self {
		known = known || FamilyOf(a) == FamilyOf(r.Addr())
		if r.Contains(a) {
			return true
		}
	}
	if known {
		return false
	}
	_, in := p.facts.hostIn(r)
	return in
}

// backends adds the real servers of f for a traffic policy, and returns their number. With a
// mark, f is the inner face of outer; otherwise they are the same.
//
// A backend that its check calls down stays with weight 0, so that its working connections live
// on; schedulers skip it. A UDP flow would stay with it, so it is removed there. It is also
// removed with scheduler dh, which refuses clients that hash to a weight of 0
// (ip_vs_dh_schedule).
func (p *planner) backends(f, outer Frontend, vip VIP, port Port, local bool) (n int) {
	backends, ignoreHealth := p.choose(outer, port)
	family := p.svc.backendFamily(port, FamilyOf(f.Addr))
	mixed := family != FamilyOf(f.Addr)
	v := p.objects.edit(f)
	v.reals = slices.Grow(v.reals, len(backends))
	for _, be := range backends {
		if FamilyOf(be.Addr.Addr()) != family || !be.Scope.In(local) {
			continue
		}
		if mixed && be.Forward != Tunnel {
			p.note(BadObject, "backend %s is not used for %s: only a tunnel reaches a backend of the other family", be.Addr, outer)
			continue
		}
		if reason := p.facts.refusal(be, p.svc.Apart); reason != "" {
			p.note(NotAllowed, "backend %s is %s and is not used: it would be reached past the box's firewall", be.Addr, reason)
			continue
		}
		if be.Forward.Direct() && p.needsIPVS("%s needs IPVS: backend %s is not used", be.Forward, be.Addr) {
			continue
		}
		n++
		if p.down(be) && !ignoreHealth {
			if !outer.Proto.Connections() || p.svc.Scheduler.Name == "dh" {
				continue
			}
			be.Weight = 0
		}
		p.add(RealServer{Frontend: f, Addr: be.Addr, Weight: be.Weight, Upper: be.Upper, Lower: be.Lower, Forward: be.Forward, Encap: be.Encap})
		if !be.Forward.Direct() && !f.Given && (vip.Kind == ClusterIP || p.svc.Keep || vip.Local) {
			p.add(loopBack(be.Addr, outer.Proto))
		}
	}
	return n
}
