package lb

import (
	"fmt"
	"slices"
)

// waiting is the errWaits of an Op that waits for an object, or for its end. Its text is made
// on request: thousands may wait.
type waiting struct {
	object Object
	end    bool
}

func (w waiting) Error() string {
	if w.end {
		return fmt.Sprintf("%v the end of %s", errWaits, w.object)
	}
	return fmt.Sprintf("%v %s", errWaits, w.object)
}

func (w waiting) Unwrap() error { return errWaits }

// unreplaced is the errWaits of an Op that would leave a frontend without a backend.
type unreplaced struct{ Frontend }

func (unreplaced) Error() string { return errWaits.Error() + " a backend to replace it" }

func (unreplaced) Unwrap() error { return errWaits }

// blocked returns why op must not be applied now: a lower object is missing, an upper one is
// still there, or it would remove the last working backend of a frontend after the replacement
// has failed.
func (p *pass) blocked(op Op) error {
	if err := p.blockedByBackends(op); err != nil {
		return err
	}
	if op.Verb == Delete {
		return p.blockedDelete(op.Object)
	}
	if rules := (Rules{Family: IPv4}); op.step == stepOwnSource && p.want.Has(rules) {
		if have, _ := p.have.Get(rules); have != rules { // the rules of an earlier configuration do not suffice
			return waiting{rules, false}
		}
	}
	if _, ok := op.Object.(SyncDaemon); ok {
		if rs, found := mixedIn(&p.have.Table); found {
			return waiting{rs, true}
		}
	}
	rs, isServer := op.Object.(RealServer)
	if isServer {
		if by := p.have.localBy(rs.Addr.Addr()); by != nil && (op.Verb == Add || rs.Weight > 0) {
			return waiting{by, true}
		}
	}
	if id := p.failed.blocksAddress(op.Object, &p.have); id != nil {
		return waiting{id, true}
	}
	if isServer && rs.Frontend == p.present {
		return nil
	}
	for _, id := range p.needs(op.Object) {
		if !p.have.Has(id) {
			return waiting{id, false}
		}
	}
	if isServer {
		p.present = rs.Frontend
	}
	return nil
}

// mixedIn returns the first real server of another family than its frontend.
func mixedIn(t *Table) (first RealServer, found bool) {
	for f, fr := range t.fronts {
		i := slices.IndexFunc(fr.reals, func(r real) bool { return r.fam != FamilyOf(f.Addr) })
		if i < 0 {
			continue
		}
		if rs := fr.reals[i].server(f); !found || Compare(rs, first) < 0 {
			first, found = rs, true
		}
	}
	return first, found
}

// blockedByBackends returns why op must not be applied after something of its frontend has
// failed: its clients would have no backend, or one that can't answer them.
func (p *pass) blockedByBackends(op Op) error {
	if len(p.broken)+len(p.later.frontends) == 0 {
		return nil
	}
	var alone bool
	var of Frontend // that lacks backends
	switch o := op.Object.(type) {
	case RealServer:
		of = o.Frontend
		alone = (op.Verb == Delete && op.step != stepDropLocal || op.step == stepReduce || op.step == stepReduceInner) && p.lacks(of) && p.lastLive(o)
	case Member:
		f, _ := o.frontend()
		to := f // the frontend that its clients reach then
		if op.Verb != Delete {
			to = MarkFrontend(o.Family(), o.Mark)
		}
		wanted := p.want.Has(VirtualServer{Frontend: to})
		of = to
		alone = o.Set.MarksPackets() && p.lacks(to) && wanted && p.live(to) == 0
		if op.step == stepStopMasquerade && p.lacks(f) {
			of, alone = f, true
		}
	}
	if alone {
		return unreplaced{of}
	}
	return nil
}

// lacks reports whether backends of f have failed or are postponed.
func (p *pass) lacks(f Frontend) bool {
	_, later := p.later.frontends[f]
	return later || p.broken[f]
}

// blockedDelete returns why an object must not be deleted now. The record of a virtual server
// outlives it, or stays until it has another record.
func (p *pass) blockedDelete(o Object) error {
	for _, id := range p.neededBy(o) {
		under, held := p.have.Get(id)
		if !held {
			continue
		}
		stays, ok := p.want.Get(id)
		if m, lead := stays.(Member); !ok || lead && m.Set.MarksPackets() && stays != under {
			return waiting{under, true}
		}
		vs, ok := under.(VirtualServer)
		if ok && len(p.recorded(vs.Frontend)) == 0 {
			return fmt.Errorf("%w another record of %s", errWaits, under)
		}
	}
	return nil
}

// recorded returns the records of f that are wanted and in the kernel.
func (p *pass) recorded(f Frontend) []Object {
	return slices.DeleteFunc(recordsOf(f), func(id Object) bool {
		return !p.want.Has(id) || !p.have.Has(id)
	})
}

// lastLive reports whether rs is the last real server of its frontend that takes connections.
// If not, it subtracts rs from their count.
func (p *pass) lastLive(rs RealServer) bool {
	old, _ := p.have.RealServer(rs.Frontend, rs.Addr)
	if old.Weight == 0 || (rs.Weight > 0 && rs != old) {
		return false
	}
	if p.live(rs.Frontend) <= 1 {
		return true
	}
	p.liveCount[rs.Frontend]--
	return false
}

// live counts the real servers of f that take connections.
func (p *pass) live(f Frontend) int {
	n, counted := p.liveCount[f]
	if !counted {
		n = p.have.fronts[f].live()
		p.liveCount[f] = n
	}
	return n
}

// needs returns the IDs that must exist before o.
func (p *pass) needs(o Object) (out []Object) {
	for _, d := range dependencies {
		if d.in && d.upper == roleOf(o) {
			for _, id := range p.related(o, d.lower) {
				if d.always || p.want.Has(id) {
					out = append(out, id)
				}
			}
		}
	}
	if m, ok := o.(Member); ok {
		out = append(out, IPSet{m.Set, m.Family()})
	}
	return out
}

// neededBy returns the IDs that must be deleted before o, if o is deleted.
func (p *pass) neededBy(o Object) (out []Object) {
	for _, d := range dependencies {
		if d.out && d.lower == roleOf(o) {
			out = append(out, p.related(o, d.upper)...)
		}
	}
	return out
}

// related returns the IDs in a role that depend on o, or on which o depends. It covers the rows
// of dependencies.
func (p *pass) related(o Object, in role) []Object {
	f, _ := frontendOf(o)
	switch in {
	case roleSet:
		var sets []Object
		for _, s := range Sets() {
			sets = append(sets, IPSet{s, o.(Rules).Family})
		}
		return sets
	case roleRules:
		switch o := o.(type) {
		case IPSet:
			return []Object{Rules{Family: o.Family}}
		case PoolRoute:
			return []Object{Rules{Family: FamilyOf(o.Prefix.Addr())}}
		case Address:
			return []Object{Rules{Family: FamilyOf(o.Addr)}}
		}
		return []Object{Rules{Family: FamilyOf(f.Addr)}}
	case roleDevice:
		return []Object{Device{p.opts.Base.Device}}
	case roleGuard:
		return []Object{guardOf(o.(Address).Addr)}
	case roleAddress:
		return []Object{Address{o.(Member).Addr}}
	case roleNetGuard:
		return []Object{Member{Set: SetIPVSNets, Net: o.(PoolRoute).Prefix}}
	case rolePool:
		return []Object{PoolRoute{Prefix: o.(Member).Net}}
	case roleRecord:
		return recordsOf(f)
	case roleVirtual:
		if m, ok := o.(Member); ok && m.Set.MarksPackets() {
			f = MarkFrontend(m.Family(), m.Mark)
		}
		return []Object{VirtualServer{Frontend: f}}
	case roleMapping:
		if o.kind() == kindVirtualServer {
			return p.marks.mappings(f)
		}
		return []Object{tuple(SetInternal, f)}
	case roleNoLocal:
		return []Object{tuple(SetNoLocal, f)}
	case roleRestriction:
		return []Object{tuple(SetFirewall, f)}
	case roleAdmission:
		if f.Mark != 0 {
			return nil // no client reaches it by an address
		}
		return []Object{tuple(SetIPVSPorts, f)}
	}
	return nil
}
