package lb

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
)

// candidates are the backends that could get the packet of a question.
type candidates struct {
	*claimants
	failed *failures
}

// list returns the backends of the winner, and the others that the kernel has for the frontend,
// those in use first.
func (cs *candidates) list() (out []Candidate) {
	seen := map[netip.AddrPort]bool{}
	add := func(be Backend) {
		if !seen[be.Addr] {
			seen[be.Addr] = true
			out = append(out, cs.candidate(be))
		}
	}
	if cs.won {
		for _, be := range cs.port.Backends {
			add(be)
		}
		for _, a := range cs.svc.fallback(cs.port) {
			add(Backend{Addr: a, Weight: 1, Forward: cs.svc.Forward, Encap: cs.svc.Encap})
		}
	}
	for o := range cs.have.Of(cs.face) {
		if rs, ok := o.(RealServer); ok {
			add(Backend{Addr: rs.At(cs.f.Port), Scope: Both, Forward: rs.Forward, Encap: rs.Encap})
		}
	}
	order := map[CandidateState]int{InUse: 0, Closed: 1, Out: 2}
	slices.SortFunc(out, func(a, b Candidate) int {
		if d := order[a.State] - order[b.State]; d != 0 {
			return d
		}
		return a.Addr.Compare(b.Addr)
	})
	return out
}

func (cs *candidates) candidate(be Backend) Candidate {
	id := RealServer{Frontend: cs.face, Addr: cs.inKernel(be.Addr)}
	rs, there := cs.have.RealServer(cs.face, id.Addr)
	have := Backend{Forward: rs.Forward, Encap: rs.Encap}.method()
	switch {
	case there && rs.Weight > 0:
		return Candidate{Addr: be.Addr, State: InUse, Weight: rs.Weight, Forward: have}
	case there:
		return Candidate{Addr: be.Addr, State: Closed, Forward: have, Reason: cs.reasonClosed(be, id)}
	}
	return Candidate{Addr: be.Addr, State: Out, Weight: be.Weight, Forward: be.method(), Reason: cs.reasonOut(be, id)}
}

// inKernel returns the address of a backend in the virtual server of the packet.
func (cs *candidates) inKernel(a netip.AddrPort) netip.AddrPort {
	if _, grouped := cs.have.mapping(SetGroup, cs.f); grouped && cs.face != cs.f {
		return netip.AddrPortFrom(a.Addr(), 0)
	}
	return a
}

// reasonClosed returns why a backend has weight 0.
func (cs *candidates) reasonClosed(be Backend, id Object) string {
	if o, wanted := cs.want.Get(id); wanted && o.(RealServer).Weight > 0 {
		return cs.pending(id)
	}
	lost := cs.planner().lost(cs.port, cs.family())
	switch {
	case !cs.want.wantedByService(id):
		return "it drains: its old connections may end"
	case cs.planner().down(be):
		return CheckFailed
	case lost && cs.svc.WhenDown == UseFallback:
		return "too few backends are up: the fallback answers"
	case lost && cs.svc.WhenDown == Refuse:
		return "too few backends are up: clients are refused"
	}
	return "its weight is 0"
}

// planner returns the planner of the winner, for its health.
func (cs *candidates) planner() *planner {
	return &planner{svc: cs.svc, health: cs.facts.Health[cs.svc.ID]}
}

// reasonOut returns why a backend is not in the kernel.
func (cs *candidates) reasonOut(be Backend, id Object) string {
	lost := cs.planner().lost(cs.port, cs.family())
	wanted := cs.want.Has(id)
	switch {
	case wanted:
		return cs.pending(id)
	case FamilyOf(be.Addr.Addr()) != cs.family():
		return fmt.Sprintf("it is %s", FamilyOf(be.Addr.Addr()))
	case slices.Contains(cs.svc.fallback(cs.port), be.Addr) && !lost:
		return "it is the fallback, for when too few others are up"
	case cs.facts.refusal(be, cs.svc.Apart) != "":
		return "it is " + cs.facts.refusal(be, cs.svc.Apart)
	case !be.Scope.In(cs.local()) && cs.local():
		return "it is not on this node, or not for a traffic policy of Local"
	case !be.Scope.In(cs.local()):
		return "it applies to traffic policy Local only"
	case cs.planner().down(be):
		return CheckFailed
	}
	return "no configuration wants it"
}

// family returns the family of the backends.
func (cs *candidates) family() Family { return cs.svc.backendFamily(cs.port, FamilyOf(cs.f.Addr)) }

// local reports whether traffic policy Local applies to the client.
func (cs *candidates) local() bool { return cs.vip.Local && cs.face == cs.f }

// pending returns why something is wanted and not in the kernel.
func (cs *candidates) pending(id Object) string {
	if f, ok := cs.failed.of[id]; ok && !errors.Is(f.err, errWaits) {
		return "the kernel would not take it: " + f.err.Error()
	}
	return "it is not applied yet"
}
