package lb

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// walk goes the packet's way: the rules of lb/linux (rules.go), then IPVS; or where
// virtual servers are rules, through these (dnatrules.go).
func (x *explainer) walk() {
	if !x.route() {
		return
	}
	if !x.held(Rules{FamilyOf(x.f.Addr)}) {
		x.step("rules", Rules{FamilyOf(x.f.Addr)}, "are not there: nothing is filtered or masqueraded")
		if x.byRules() {
			x.deliver("nothing leads to a virtual server")
		} else {
			x.balance()
		}
		return
	}
	if !x.ranges() || !x.policy() {
		return
	}
	x.masquerade()
	if x.byRules() {
		x.translate()
	} else if x.admit() {
		x.balance()
	}
}

// byRules tells whether virtual servers are rules.
func (x *explainer) byRules() bool { return x.q.Names.Chain != nil }

// served tells whether there is a virtual server for the frontend: nothing else is
// worth a word on its policy and its clients' addresses.
func (x *explainer) served() bool { return x.held(VirtualServer{Frontend: x.f}) }

// route tells whether the address is on this box, and why.
func (x *explainer) route() bool {
	if dev, host := x.facts.HostAddrs[x.f.Addr]; host {
		x.e.Here = "the box's own address on " + dev
	} else if x.f.Addr.IsLoopback() {
		x.e.Here = "the box's own, on loopback"
	} else if id := (Address{x.f.Addr}); x.held(id) {
		x.e.Here = strings.TrimSpace("on "+x.opts.Base.Device) + x.wantedBy(id)
	} else {
		for prefix := range x.laid {
			if prefix.Contains(x.f.Addr) {
				x.e.Here = "in pool " + prefix.String() + ", which one route makes local" + x.wantedBy(Member{Set: SetIPVSIPs, Addr: x.f.Addr})
			}
		}
	}
	switch {
	case x.e.Here == "" && x.host():
		// Virtual servers get the box's own packets before they are routed.
		x.step("address", nil, "%s is not on this box", x.f.Addr)
		return true
	case x.e.Here == "":
		x.end(Unrouted, "address", nil, "%s is not on this box", x.f.Addr)
		return false
	}
	x.step("address", nil, "%s is %s", x.f.Addr, x.e.Here)
	return true
}

// wantedBy says whose VIP an address is.
func (x *explainer) wantedBy(id Object) string {
	var names []string
	for owner := range x.owners(id) {
		if !owner.draining() && owner.Service != (ServiceID{}) {
			names = append(names, owner.Service.String())
		}
	}
	if _, wanted := x.want.Get(id); wanted && len(names) == 0 {
		return ", until connections that drain have ended"
	}
	if len(names) == 0 {
		return ""
	}
	return ", as a VIP of " + strings.Join(names, ", ")
}

// owners are those who want an object, in their order.
func (x *explainer) owners(id Object) func(yield func(Owner) bool) {
	return func(yield func(Owner) bool) {
		c, ok := x.want.objects[id]
		if !ok || !yield(*c.owner) {
			return
		}
		for _, other := range c.rest {
			if !yield(*other.owner) {
				return
			}
		}
	}
}

// ranges is mangle PREROUTING (and OUTPUT): source ranges.
func (x *explainer) ranges() bool {
	const what = "ranges"
	fw := tuple(SetFirewall, x.f)
	if !x.held(fw) {
		x.step(what, nil, "any client may connect")
		return true
	}
	var ranges []string
	admitted := !x.q.Client.IsValid()
	for _, o := range x.about[x.f] {
		if m, ok := o.(Member); ok && m.Set == SetSourceCIDR {
			ranges = append(ranges, m.Net.String())
			admitted = admitted || !x.host() && m.Net.Contains(x.q.Client)
		}
	}
	slices.Sort(ranges)
	own := Member{Set: SetSourceIP, Addr: x.f.Addr, Port: x.f.Port, Proto: x.f.Proto, Net: single(x.f.Addr)}
	switch admit := strings.Join(ranges, ", "); {
	case x.host() && x.held(own):
		x.step(what, own, "an address of this box is in its source ranges")
		return true
	case admitted:
		x.step(what, fw, "admits %s", admit)
		return true
	case admit == "":
		x.end(Dropped, what, fw, "it has no source range of %s, so nobody may connect", FamilyOf(x.f.Addr))
	case x.host():
		x.end(Dropped, what, fw, "no address of this box is in %s", admit)
	default:
		x.end(Dropped, what, fw, "%s is not in %s", x.q.Client, admit)
	}
	return false
}

// policy is mangle PREROUTING and OUTPUT: the two faces of a traffic policy.
func (x *explainer) policy() bool {
	const what = "policy"
	lead, led := x.lead(x.f)
	switch {
	case led && x.inside():
		x.face = MarkFrontend(FamilyOf(x.f.Addr), lead.Mark)
		x.step(what, lead, "a client inside may have backends on all nodes")
		return true
	case x.held(tuple(SetNoLocal, x.f)):
		x.end(Dropped, what, tuple(SetNoLocal, x.f), "the traffic policy is Local, and no backend is on this node")
		return false
	case led && x.q.Detectors.Interfaces:
		x.step(what, lead, "Local: a client outside gets backends of this node, one that comes in by an interface of pods may have all")
	case led:
		x.step(what, lead, "Local: a client outside gets backends of this node")
	case x.won && x.vip.Local:
		x.step(what, nil, "Local: backends of this node")
	case x.served():
		x.step(what, nil, "Cluster: backends on all nodes")
	}
	return true
}

// masquerade is nat PREROUTING, OUTPUT and POSTROUTING.
func (x *explainer) masquerade() {
	const what = "source"
	x.e.Source = SourceKept
	by, hidden := x.hides()
	id, d := tuple(SetClusterIP, x.f), x.q.Detectors
	outside := !x.inside() && len(d.ClusterCIDRs) > 0
	switch {
	case x.led():
		x.step(what, nil, "kept")
	case hidden:
		x.e.Source = SourceMasqueraded
		x.step(what, by, "masqueraded: the backend sees %s", x.bears())
	case !x.held(id) && x.served():
		x.step(what, nil, "kept")
	case !x.held(id):
	case d.MasqueradeAll || x.host():
		x.e.Source = SourceMasqueraded
		x.step(what, id, "masqueraded: the backend sees %s", x.bears())
	case d.Interfaces && !x.inside():
		x.e.Source = SourceEither
		x.step(what, id, "masqueraded, unless the client comes in by an interface of pods")
	case outside:
		x.e.Source = SourceMasqueraded
		x.step(what, id, "masqueraded: the client is outside the cluster")
	default:
		x.step(what, id, "kept: the client is inside the cluster, or nothing tells who is")
	}
	if x.e.Source != SourceKept {
		x.e.Bears = x.source()
	}
}

// led tells whether the packet bears a mark that led it to a virtual server. It
// keeps that one, and its source. The box's own is known by its connection.
func (x *explainer) led() bool { return x.face != x.f && !x.host() }

// hides gives the member by which clients of other VIPs than ClusterIPs are
// masqueraded.
func (x *explainer) hides() (Object, bool) {
	for _, local := range [...]Set{SetLoadBalancerLocal, SetExternalIPLocal, SetNodePortLocalTCP, SetNodePortLocalUDP, SetNodePortLocalSCTP} {
		set := keptBy[local]
		all, kept := tuple(set, x.f), tuple(local, x.f)
		if proto, number := numbers[set]; number {
			if all = tuple(SetNodePorts, x.f); proto != x.f.Proto {
				continue
			}
			if local.Type() == bitmapPort {
				kept = portMember(local, FamilyOf(x.f.Addr), x.f.Port)
			}
		}
		if x.held(all) && (x.host() || !x.held(kept)) {
			return all, true
		}
	}
	return nil, false
}

// admit is filter INPUT: what is no service port of a VIP is refused.
func (x *explainer) admit() bool {
	const what = "filter"
	if id := tuple(SetIPVSPorts, x.f); x.held(id) {
		x.step(what, id, "admitted past the host's firewall")
		return true
	}
	guard, guarded := Object(Member{Set: SetIPVSIPs, Addr: x.f.Addr}), x.held(Member{Set: SetIPVSIPs, Addr: x.f.Addr})
	for prefix := range x.laid {
		if id := (Member{Set: SetIPVSNets, Net: prefix}); prefix.Contains(x.f.Addr) && x.held(id) {
			guard, guarded = id, true
		}
	}
	if _, served := x.server(); x.host() && (x.e.Here == "" || served && !x.byRules()) {
		x.step(what, nil, "the box's own packets do not pass it")
		return true
	}
	if guarded {
		x.end(Refused, what, guard, "a VIP has no other ports than its Services'")
		return false
	}
	x.step(what, nil, "left to the host's own firewall")
	return true
}

// balance is IPVS: it looks for a mark first, then for the address.
func (x *explainer) balance() {
	vs, ok := x.server()
	if !ok {
		x.deliver("no virtual server")
		return
	}
	n := x.open()
	if n == 0 {
		x.end(Refused, "ipvs", vs, "no backend takes new connections")
		return
	}
	x.end(Served, "ipvs", vs, "chooses one of %s", count(n, "backend"))
	x.loop(n)
}

// server is the virtual server that the packet comes to.
func (x *explainer) server() (VirtualServer, bool) {
	if !x.held(VirtualServer{Frontend: x.face}) {
		x.face = x.f
	}
	vs, ok := x.have[VirtualServer{Frontend: x.face}.ID()].(VirtualServer)
	return vs, ok
}

// open counts the backends that take new connections.
func (x *explainer) open() (n int) {
	for _, o := range x.about[x.face] {
		if rs, is := o.(RealServer); is && rs.Weight > 0 {
			n++
		}
	}
	return n
}

// deliver is what becomes of a packet that no virtual server of weir's gets.
func (x *explainer) deliver(because string) {
	if x.facts.Strangers[x.f] {
		x.end(Foreign, "ipvs", VirtualServer{Frontend: x.f}.ID(), "is a virtual server that weir did not make")
		return
	}
	if x.e.Here == "" {
		x.end(Unrouted, "address", nil, "%s is not on this box, and %s", x.f.Addr, because)
		return
	}
	x.end(HostPort, "host", nil, "%s: what listens there on the box gets it, if anything does", because)
}

// source is what masqueraded connections bear, the zero Addr for an address of this box,
// which those of the box itself always bear.
func (x *explainer) source() netip.Addr {
	if x.host() {
		return netip.Addr{}
	}
	for _, a := range x.q.Sources {
		if FamilyOf(a) == FamilyOf(x.f.Addr) {
			return a
		}
	}
	return netip.Addr{}
}

// bears is source in words.
func (x *explainer) bears() string {
	if a := x.source(); a.IsValid() {
		return a.String()
	}
	return "an address of this box"
}

// loop tells a client that is one of n backends what happens if it gets itself.
func (x *explainer) loop(n int) {
	var by []Member
	for _, o := range x.about[x.face] {
		rs, ok := o.(RealServer)
		if !ok || rs.Addr.Addr() != x.q.Client || rs.Weight == 0 {
			continue
		}
		if id := loopBack(rs.Addr, x.f.Proto); x.held(id) && x.held(Rules{FamilyOf(x.f.Addr)}) {
			by = append(by, id)
		}
	}
	switch {
	case len(by) == 0:
	case len(by) == n:
		x.e.Source, x.e.Bears = SourceMasqueraded, netip.Addr{}
		x.step("loop", by[0], "masqueraded: the client gets itself, and could not answer its own address")
	default:
		if x.e.Source == SourceKept {
			x.e.Source = SourceEither
		}
		x.step("loop", by[0], "if the client gets itself, it sees an address of this box")
	}
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// candidates are the backends of the winner, and what else the kernel has for
// the frontend.
func (x *explainer) candidates() {
	if x.e.Fate != Served {
		x.e.Source = ""
	}
	seen := map[netip.AddrPort]bool{}
	add := func(be Backend) {
		if !seen[be.Addr] {
			seen[be.Addr] = true
			x.e.Candidates = append(x.e.Candidates, x.candidate(be))
		}
	}
	if x.won {
		for _, be := range x.port.Backends {
			add(be)
		}
		for _, a := range x.svc.Fallback {
			add(Backend{Addr: a, Weight: 1})
		}
	}
	for _, o := range x.about[x.face] {
		if rs, ok := o.(RealServer); ok {
			add(Backend{Addr: rs.Addr, Scope: Both})
		}
	}
	order := map[CandidateState]int{InUse: 0, Closed: 1, Out: 2}
	slices.SortFunc(x.e.Candidates, func(a, b Candidate) int {
		if d := order[a.State] - order[b.State]; d != 0 {
			return d
		}
		return a.Addr.Compare(b.Addr)
	})
}

func (x *explainer) candidate(be Backend) Candidate {
	id := RealServer{Frontend: x.face, Addr: be.Addr}.ID()
	rs, there := x.have[id].(RealServer)
	switch {
	case there && rs.Weight > 0:
		return Candidate{Addr: be.Addr, State: InUse, Weight: rs.Weight}
	case there:
		return Candidate{Addr: be.Addr, State: Closed, Why: x.whyClosed(be, id)}
	}
	return Candidate{Addr: be.Addr, State: Out, Weight: be.Weight, Why: x.whyOut(be, id)}
}

// whyClosed says why a backend has weight 0.
func (x *explainer) whyClosed(be Backend, id Object) string {
	if o, wanted := x.want.Get(id); wanted && o.(RealServer).Weight > 0 {
		return x.pending(id)
	}
	health := x.facts.Health[x.svc.ID]
	lost := health.Lost[FamilyPort{x.port.Key(), FamilyOf(x.f.Addr)}]
	switch {
	case !x.wantedAlive(id):
		return "it drains: its old connections may end"
	case health.Down[be.Addr]:
		return "its health check says that it is down"
	case lost && x.svc.WhenDown == UseFallback:
		return "too few backends are up: the fallback answers"
	case lost && x.svc.WhenDown == Refuse:
		return "too few backends are up: clients are refused"
	}
	return "its weight is 0"
}

// whyOut says why a backend is not there at all.
func (x *explainer) whyOut(be Backend, id Object) string {
	health := x.facts.Health[x.svc.ID]
	lost := health.Lost[FamilyPort{x.port.Key(), FamilyOf(x.f.Addr)}]
	_, wanted := x.want.Get(id)
	switch {
	case wanted:
		return x.pending(id)
	case FamilyOf(be.Addr.Addr()) != FamilyOf(x.f.Addr):
		return fmt.Sprintf("it is %s", FamilyOf(be.Addr.Addr()))
	case slices.Contains(x.svc.Fallback, be.Addr) && !lost:
		return "it is the fallback, for when too few others are up"
	case x.facts.bars(be.Addr.Addr(), x.svc.Apart) != "":
		return "it is " + x.facts.bars(be.Addr.Addr(), x.svc.Apart)
	case !be.Scope.In(x.local()) && x.local():
		return "it is not on this node, or not for a traffic policy of Local"
	case !be.Scope.In(x.local()):
		return "it is for a traffic policy of Local alone"
	case health.Down[be.Addr]:
		return "its health check says that it is down"
	}
	return "nothing is wanted there"
}

// local tells whether the client meets a traffic policy of Local.
func (x *explainer) local() bool { return x.vip.Local && x.face == x.f }

// pending says why something is wanted and not there.
func (x *explainer) pending(id Object) string {
	if f, ok := x.failed[id]; ok && !errors.Is(f.err, errWaits) {
		return "the kernel would not take it: " + f.err.Error()
	}
	return "it is not applied yet"
}
