package lb

import (
	"errors"
	"iter"
	"net/netip"
)

// Checks of a direct backend may address the VIPs (Service.CheckVIPs). The box has the VIPs, too, so
// that no route to them ends at the backend, and their virtual servers choose any backend. So each
// such backend has a virtual server by mark with this backend only. A socket with the mark reaches the
// VIPs there, by the forwarding method of the clients' packets. The replies come from the VIP,
// which is an address of this box: see OwnSourceSysctl.

// CheckTarget names a backend of a Service that is checked at the VIPs.
type CheckTarget struct {
	Service ServiceID
	Backend netip.Addr
}

// ErrNoCheckServer reports that the kernel has no virtual server for the checks of a backend, yet or
// at all. That is no result about the backend.
var ErrNoCheckServer = errors.New("the kernel has no virtual server for this check")

// ErrRepliesDropped reports that a kernel parameter makes this box drop the replies of its VIPs. That
// is no result about the backend either.
var ErrRepliesDropped = errors.New("this box drops the replies of its own VIPs")

// OwnSourceSysctl lets the box receive the replies from its own VIPs. IPv6 needs no parameter. The
// rules drop other tracked packets of other hosts with an address of the box as source, as the kernel
// does by default. So the parameter is set after the rules, and lb/linux resets it before they go.
func OwnSourceSysctl() Sysctl { return Sysctl{"net.ipv4.conf.all.accept_local", "1"} }

// Checks reports whether the mark is that of checks.
func (k MarkKey) Checks() bool { return k.Backend.IsValid() }

// checkedBackends returns the direct backends with their keys, if checks address the VIPs. The
// protocol of the keys is UDP for all kinds of checks, because removed real servers of UDP do not
// drain: the connections of checks need no time to end.
func (s Service) checkedBackends() iter.Seq2[MarkKey, Backend] {
	return func(yield func(MarkKey, Backend) bool) {
		if !s.CheckVIPs {
			return
		}
		seen := map[netip.Addr]bool{}
		for _, port := range s.Ports {
			for _, be := range port.Backends {
				a := be.Addr.Addr()
				if !be.Forward.Direct() || seen[a] {
					continue
				}
				seen[a] = true
				key := MarkKey{Service: s.ID, FamilyPort: FamilyPort{PortKey{Proto: UDP}, FamilyOf(a)}, Backend: a}
				if !yield(key, be) {
					return
				}
			}
		}
	}
}

// checks plans the virtual servers for checks.
func (p *planner) checks() {
	for key, be := range p.svc.checkedBackends() {
		mark := p.facts.Marks[key]
		switch {
		case p.facts.WithoutIPVS:
			return // its real servers have a Note
		case p.facts.refusal(be, p.svc.Apart) != "":
			continue // Plan has a Note for its frontends
		case mark == 0:
			p.note(Failed, "all marks are in use, so that the VIPs of backend %s can't be checked", key.Backend)
			continue
		}
		f := MarkFrontend(key.Family, mark)
		p.add(markMember(f))
		p.add(VirtualServer{Frontend: f, Scheduler: Scheduler{Name: "rr"}})
		p.add(RealServer{Frontend: f, Addr: netip.AddrPortFrom(key.Backend, 0), Weight: 1, Forward: be.Forward, Encap: be.Encap})
	}
}

// checks reports whether the virtual server of f is one for checks of a backend.
func (h *kernelState) checks(f Frontend, backend netip.Addr) bool {
	v := h.fronts[f]
	return v != nil && len(v.reals) == 1 && v.reals[0].server(f).Addr == netip.AddrPortFrom(backend, 0)
}

// takenFor reports whether the virtual server of f prevents checks of a backend by its mark. One without a
// real server does not: a process that was killed between the two left it, and the next one has to
// find the same mark.
func (h *kernelState) takenFor(f Frontend, backend netip.Addr) bool {
	v := h.fronts[f]
	return h.Has(VirtualServer{Frontend: f}) && len(v.reals) > 0 && !h.checks(f, backend)
}

// CheckMarks returns the marks of the backends that are checked at the VIPs, as far as the kernel
// has their virtual servers: those of each Service for which they may have changed since the last
// call. So its cost is the size of the change.
func CheckMarks(r *Reconciler) map[ServiceID]map[netip.Addr]uint32 {
	for f := range r.have.written {
		if key := r.marks.byMark[f.Mark].key; key.Checks() {
			r.marks.rechecked[key.Service] = struct{}{}
		}
	}
	clear(r.have.written)
	out := make(map[ServiceID]map[netip.Addr]uint32, len(r.marks.rechecked))
	for id := range r.marks.rechecked {
		out[id] = r.marks.checkMarks(id)
	}
	clear(r.marks.rechecked)
	return out
}

// checkMarks returns the marks of one Service; nil is none.
func (ms *marks) checkMarks(id ServiceID) (out map[netip.Addr]uint32) {
	for _, key := range ms.given[id] {
		mark := ms.of[key]
		if !key.Checks() || !ms.have.checks(MarkFrontend(key.Family, mark), key.Backend) {
			continue
		}
		if out == nil {
			out = map[netip.Addr]uint32{}
		}
		out[key.Backend] = mark
	}
	return out
}
