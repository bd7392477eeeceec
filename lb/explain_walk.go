package lb

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// walk follows the packet: through the rules of lb/linux (rules.go), then IPVS; or through the
// rules of virtual servers (dnatrules.go). Fake.Connect has a walk of its own.
func (x *explainer) walk() {
	if x.f.Given {
		x.withMark()
		return
	}
	if !x.route() {
		return
	}
	if !x.has(Rules{Family: FamilyOf(x.f.Addr)}) {
		x.step("rules", Rules{Family: FamilyOf(x.f.Addr)}, "are not there: nothing is filtered or masqueraded")
		if x.byRules() {
			x.deliver("no set matches, so no virtual server is reached")
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

// withMark follows a packet with a given mark.
func (x *explainer) withMark() {
	x.e.Source = SourceKept
	x.step("mark", nil, "rules of the administrator set firewall mark %d", x.f.Mark)
	x.balance()
}

// route reports whether the address is on this box, and records why.
func (x *explainer) route() bool {
	if dev, host := x.facts.HostAddrs[x.f.Addr]; host {
		x.e.Here = "the box's own address on " + dev
	} else if x.f.Addr.IsLoopback() {
		x.e.Here = "the box's own, on loopback"
	} else if id := (Address{x.f.Addr}); x.has(id) {
		x.e.Here = strings.TrimSpace("on "+x.device) + x.wantedBy(id)
	} else {
		for prefix := range x.have.pools {
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

// ranges is mangle PREROUTING (and OUTPUT): source ranges.
func (x *explainer) ranges() bool {
	const what = "ranges"
	fw := tuple(SetFirewall, x.f)
	if !x.has(fw) {
		x.step(what, nil, "any client may connect")
		return true
	}
	var ranges []string
	admitted := !x.Client.IsValid()
	for o := range x.have.Of(x.f) {
		if m, ok := o.(Member); ok && m.Set == SetSourceCIDR {
			ranges = append(ranges, m.Net.String())
			admitted = admitted || !x.host() && m.Net.Contains(x.Client)
		}
	}
	slices.Sort(ranges)
	own := Member{Set: SetSourceIP, Addr: x.f.Addr, Port: x.f.Port, Proto: x.f.Proto, Net: single(x.f.Addr)}
	switch admit := strings.Join(ranges, ", "); {
	case x.host() && x.has(own):
		x.step(what, own, "an address of this box is in its source ranges")
		return true
	case admitted:
		x.step(what, fw, "admits %s", admit)
		return true
	case admit == "":
		x.end(Dropped, what, fw, "it has no source range of %s, so no client may connect", FamilyOf(x.f.Addr))
	case x.host():
		x.end(Dropped, what, fw, "no address of this box is in %s", admit)
	default:
		x.end(Dropped, what, fw, "%s is not in %s", x.Client, admit)
	}
	return false
}

// policy is mangle PREROUTING and OUTPUT: the two faces of a traffic policy.
func (x *explainer) policy() bool {
	const what = "policy"
	lead, led := x.have.mapping(SetInternal, x.f)
	group, grouped := x.have.mapping(SetGroup, x.f)
	switch {
	case grouped:
		x.face = MarkFrontend(FamilyOf(x.f.Addr), group.Mark)
		x.step(what, group, "all ports of the group have one virtual server")
		return true
	case led && x.inside():
		x.face = MarkFrontend(FamilyOf(x.f.Addr), lead.Mark)
		x.step(what, lead, "an inside client gets backends on all nodes")
		return true
	case x.has(tuple(SetNoLocal, x.f)):
		x.end(Dropped, what, tuple(SetNoLocal, x.f), "the traffic policy is Local, and no backend is on this node")
		return false
	case led && x.Detectors.Interfaces:
		x.step(what, lead, "Local: an outside client gets backends of this node; a client that enters via a pod interface may get all")
	case led:
		x.step(what, lead, "Local: an outside client gets backends of this node")
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
	by, hidden := x.masqueradedBy()
	id, d := tuple(SetClusterIP, x.f), x.Detectors
	outside := !x.inside() && len(d.ClusterCIDRs) > 0
	switch {
	case x.face.mapped() && x.face.Mark&MasqueradedMark != 0:
		group, _ := x.have.mapping(SetGroup, x.f)
		x.e.Source = SourceMasqueraded
		x.step(what, group, "masqueraded: the backend sees %s", x.sourceText())
	case x.steered():
		x.step(what, nil, "kept")
	case hidden:
		x.e.Source = SourceMasqueraded
		x.step(what, by, "masqueraded: the backend sees %s", x.sourceText())
	case !x.has(id) && x.served():
		x.step(what, nil, "kept")
	case !x.has(id):
	case d.MasqueradeAll || x.host():
		x.e.Source = SourceMasqueraded
		x.step(what, id, "masqueraded: the backend sees %s", x.sourceText())
	case d.Interfaces && !x.inside():
		x.e.Source = SourceEither
		x.step(what, id, "masqueraded, unless the client enters via a pod interface")
	case outside:
		x.e.Source = SourceMasqueraded
		x.step(what, id, "masqueraded: the client is outside the cluster")
	default:
		x.step(what, id, "kept: the client is inside the cluster, or no configuration defines the inside")
	}
	if x.e.Source != SourceKept {
		x.e.MasqueradeSource = x.source()
	}
}

// masqueradedBy returns the member that masquerades clients of VIPs other than ClusterIPs.
func (x *explainer) masqueradedBy() (Object, bool) {
	for _, m := range masquerading {
		if all := tuple(m.all, x.f); x.has(all) && (x.host() || !x.has(tuple(m.kept, x.f))) {
			return all, true
		}
	}
	return nil, false
}

// admit is filter INPUT: a port of a VIP without a Service is refused.
func (x *explainer) admit() bool {
	const what = "filter"
	if id := tuple(SetIPVSPorts, x.f); x.has(id) {
		x.step(what, id, "admitted past the host's firewall")
		return true
	}
	guard, guarded := Object(Member{Set: SetIPVSIPs, Addr: x.f.Addr}), x.has(Member{Set: SetIPVSIPs, Addr: x.f.Addr})
	for prefix := range x.have.pools {
		if id := (Member{Set: SetIPVSNets, Net: prefix}); prefix.Contains(x.f.Addr) && x.has(id) {
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
	masqueraded := n - x.forward(n)
	if x.e.Fate == Served {
		x.loop(masqueraded)
	}
}

// forward describes the way to the direct ones (Forwarding.Direct) of n backends, and returns
// their number.
func (x *explainer) forward(n int) (direct int) {
	const what = "forward"
	var by RealServer
	for o := range x.have.Of(x.face) {
		if rs, ok := o.(RealServer); ok && rs.Weight > 0 && rs.Forward.Direct() {
			by = rs
			direct++
		}
	}
	switch {
	case direct == 0:
	case x.host():
		x.end(Dropped, what, by, "its replies have the VIP as source, which this box drops as its own: it can't be a client of %s", by.method())
	case direct == n:
		x.direct, x.e.Source, x.e.MasqueradeSource = true, SourceKept, netip.Addr{}
		x.step(what, nil, "%s: the address and port stay, and replies do not pass this box", by.method())
	default:
		if x.e.Source == SourceMasqueraded {
			x.e.Source = SourceEither
		}
		x.step(what, by, "%s to %d of them: there the address and port stay, and replies do not pass this box", by.method(), direct)
	}
	return direct
}

// deliver ends the path of a packet that reaches no virtual server of weir.
func (x *explainer) deliver(because string) {
	if x.facts.Foreign[x.f] {
		x.end(Foreign, "ipvs", VirtualServer{Frontend: x.f}.ID(), "is a virtual server that weir did not make")
		return
	}
	if x.f.Given {
		x.end(Unrouted, "ipvs", nil, "%s with the mark: the packet goes the way of its address", because)
		return
	}
	if x.e.Here == "" {
		x.end(Unrouted, "address", nil, "%s is not on this box, and %s", x.f.Addr, because)
		return
	}
	x.end(HostPort, "host", nil, "%s: delivered to a local listener, if any", because)
}

// loop describes the connection of a client that is one of n backends to itself. They are not direct;
// there may be others that are.
func (x *explainer) loop(n int) {
	var by []Member
	for o := range x.have.Of(x.face) {
		rs, ok := o.(RealServer)
		if !ok || rs.Addr.Addr() != x.Client || rs.Weight == 0 || rs.Forward.Direct() {
			continue
		}
		if id := loopBack(rs.At(x.f.Port), x.f.Proto); x.has(id) && x.has(Rules{Family: FamilyOf(x.f.Addr)}) {
			by = append(by, id)
		}
	}
	switch {
	case len(by) == 0:
	case len(by) == n && n == x.open():
		x.e.Source, x.e.MasqueradeSource = SourceMasqueraded, netip.Addr{}
		x.step("loop", by[0], "masqueraded: the client gets itself, and could not answer its own address")
	default:
		if x.e.Source == SourceKept {
			x.e.Source = SourceEither
		}
		x.step("loop", by[0], "if the client gets itself, it sees an address of this box")
	}
}

// reason returns why the frontend is not served.
func (x *explainer) reason() string {
	vs := VirtualServer{Frontend: x.f}.ID()
	if x.f.Given && x.e.Fate == Foreign && len(x.e.Claims) > 0 {
		return x.refusal()
	}
	if x.e.Fate == Dropped || x.e.Fate == Foreign {
		return x.e.Steps[len(x.e.Steps)-1].Result
	}
	if x.won && x.want.Has(vs) && !x.has(vs) {
		return fmt.Sprintf("%s has it, but %s", x.svc.ID, x.unapplied())
	}
	if x.won && x.has(vs) {
		if x.e.Fate == Refused && (x.f.Given || x.has(tuple(SetIPVSPorts, x.f))) {
			return x.noBackend()
		}
		return fmt.Sprintf("%s has it, but %s", x.svc.ID, x.unapplied())
	}
	if len(x.e.Claims) > 0 {
		return x.refusal()
	}
	if x.has(vs) {
		return "no Service has it any more: connections to it drain"
	}
	return x.unclaimed(x.e.Fate == Unrouted)
}

func (x *explainer) noBackend() string {
	if len(x.e.Candidates) == 0 {
		return fmt.Sprintf("%s has no backends", x.svc.ID)
	}
	return fmt.Sprintf("none of the %s of %s takes new connections", count(len(x.e.Candidates), "backend"), x.svc.ID)
}
