package lb

import (
	"fmt"
	"slices"
)

// Verb is the action of an Op on its Object.
type Verb uint8

// The verbs.
const (
	Add Verb = iota
	Change
	Delete
)

func (v Verb) String() string { return [...]string{"add", "change", "delete"}[v] }

// Op is one step towards the wanted state: a verb and an object. Change sets new attributes
// without a removal in between.
type Op struct {
	Verb   Verb
	Object Object
	step   step
}

// String returns the line that log, weir plan, tests and bug reports share.
func (op Op) String() string { return fmt.Sprintf("%s %s", op.Verb, op.Object) }

// step is when an Op runs. Steps run in order; the Ops of one step are independent of each
// other. At no point does a packet reach a place that neither the old nor the new state
// permits.
//
// Additions: protection comes before the protected object. A VIP is refused on all ports before
// it exists, its source ranges are known before they are enforced, and masquerading is on
// before a backend is there. The tuple is admitted (stepAdmit) only after its virtual server
// exists, so no daemon of the host gets a packet for a Service. Removals have the reverse order
// and come after all additions: a frontend that swaps its backends is never empty.
//
// Clients inside are mapped to the inner face of a frontend (package comment) when that is
// complete, and before the outer face changes; the mapping is removed after the outer face has
// changed back. SetNoLocal drops packets only after the mapping of clients inside.
//
// IPVS has synchronization daemons, or real servers of another family than their virtual server,
// and refuses the other ones meanwhile. So a daemon ends before such servers come, and begins after
// the last one is gone, which may drain (depend.go).
type step uint8

const (
	stepSysctl step = iota
	stepDevice
	stepSet
	stepRules
	stepOwnSource       // OwnSourceSysctl, of which the rules prevent the abuse
	stepGuard           // members of SetIPVSIPs, SetIPVSNets
	stepRange           // members of SetSourceCIDR, SetSourceIP
	stepRestrict        // members of SetFirewall
	stepStartMasquerade // recorded frontends start to masquerade
	stepKeepSource      // new frontends keep source addresses
	stepRecord          // records, kept sources, SetLoopBack
	stepDropSync        // synchronization daemons, before servers of the other family
	stepVirtual         // virtual servers
	stepInner           // real servers of marks, more weight
	stepMap             // members of SetInternal and SetGroup: from here on clients inside reach inner faces
	stepReal            // real servers, more weight
	stepNoLocal         // members of SetNoLocal
	stepDropLocalMap    // mappings to a face that goes, and loses a backend by the next step
	stepDropLocal       // real servers with an address that is about to be the box's (backend.go)
	stepAdmit           // members of SetIPVSPorts, SetHealthCheckNodePort
	stepAddress         // addresses and pool routes
	stepTunnel          // tunnel devices, for packets to addresses that are there
	stepDropTunnel
	stepDropNoLocal // here the removals begin
	stepReduce      // less weight
	stepDropAddress
	stepDropAdmission
	stepDropReal
	stepDropMapping // clients inside reach the outer face again
	stepReduceInner // less weight of marks
	stepDropInner
	stepSync           // synchronization daemons, after servers of the other family
	stepStopMasquerade // recorded frontends stop to masquerade
	stepUntrack        // conntrack ignores IPVS when no backend is masqueraded any more
	stepDropVirtual
	stepDropRecord
	stepDropKeepSource // removed frontends kept source addresses
	stepDropRestriction
	stepDropRange
	stepDropGuard
	stepDropRules
	stepDropSet
	stepDropDevice
	numSteps
)

// steps are the steps of additions and removals by role.
var steps = [numRoles]struct{ in, out step }{
	roleSysctl:      {stepSysctl, stepDropAddress},
	roleDevice:      {stepDevice, stepDropDevice},
	roleSet:         {stepSet, stepDropSet},
	roleRules:       {stepRules, stepDropRules},
	roleGuard:       {stepGuard, stepDropGuard},
	roleNetGuard:    {stepGuard, stepDropGuard},
	roleRange:       {stepRange, stepDropRange},
	roleRestriction: {stepRestrict, stepDropRestriction},
	roleKeep:        {stepRecord, stepDropRecord},
	roleLoop:        {stepRecord, stepDropRecord},
	roleRecord:      {stepRecord, stepDropRecord},
	roleVirtual:     {stepVirtual, stepDropVirtual},
	roleReal:        {stepReal, stepDropReal},
	roleMapping:     {stepMap, stepDropMapping},
	roleNoLocal:     {stepNoLocal, stepDropNoLocal},
	roleAdmission:   {stepAdmit, stepDropAdmission},
	roleProbe:       {stepAdmit, stepDropAdmission},
	roleAddress:     {stepAddress, stepDropAddress},
	rolePool:        {stepAddress, stepDropAddress},
	roleRoute:       {stepAddress, stepDropAddress},
	roleSync:        {stepSync, stepDropSync},
	roleTunnel:      {stepTunnel, stepDropTunnel},
}

// masquerades returns the member that o exempts from masquerading, if it does.
func (o Member) masquerades() (Object, bool) {
	for _, m := range masquerading {
		if m.kept == o.Set {
			o.Set = m.all
			return o, true
		}
	}
	return nil, false
}

// addStep returns the step of an addition.
func addStep(o Object, have *Table) step {
	switch o := o.(type) {
	case Sysctl:
		if o.ID() == OwnSourceSysctl().ID() {
			return stepOwnSource
		}
	case Member:
		if id, keeps := o.masquerades(); keeps {
			if have.Has(id) {
				return stepStopMasquerade
			}
			return stepKeepSource
		}
	case RealServer:
		if o.Frontend.Mark != 0 {
			return stepInner
		}
	}
	return steps[roleOf(o)].in
}

// changeStep returns the step of new attributes.
func changeStep(from, to Object) step {
	if to == Object(ConntrackSysctl(false)) {
		return stepUntrack
	}
	if r, ok := to.(RealServer); ok && r.Weight < from.(RealServer).Weight {
		if r.Frontend.Mark != 0 {
			return stepReduceInner
		}
		return stepReduce
	}
	return addStep(to, nil)
}

// deleteStep returns the step of a removal.
func deleteStep(o Object, have *Table, want *State) step {
	switch o := o.(type) {
	case Member:
		if o.Set == SetInternal && losesLocal(MarkFrontend(FamilyOf(o.Addr), o.Mark), have, want) {
			return stepDropLocalMap
		}
		if id, kept := o.masquerades(); kept {
			if want.Has(id) {
				return stepStartMasquerade
			}
			return stepDropKeepSource
		}
	case RealServer:
		if want.makesLocal(o.Addr.Addr()) {
			return stepDropLocal
		}
		if o.Frontend.Mark != 0 {
			return stepDropInner
		}
	}
	return steps[roleOf(o)].out
}

// losesLocal reports whether a removed virtual server loses a real server in stepDropLocal, so
// that its clients must leave it earlier.
func losesLocal(f Frontend, have *Table, want *State) bool {
	for o := range have.Of(f) {
		if r, ok := o.(RealServer); ok && want.makesLocal(r.Addr.Addr()) {
			return !want.Has(VirtualServer{Frontend: f}.ID())
		}
	}
	return false
}

// sortOps sorts ops into the order in which they are safe to apply. The order is total. Objects
// that come in their own order, as those of a first sync, are sorted in linear time.
//
// Real servers are deleted in the reverse order: the kernel has the latest one first in its list, and searches from there
// (list_add_rcu and ip_vs_lookup_dest in net/netfilter/ipvs/ip_vs_ctl.c).
func sortOps(ops []Op) {
	var ends [numSteps]int // of each step in the result, as far as it is filled
	for _, op := range ops {
		if op.step+1 < numSteps {
			ends[op.step+1]++
		}
	}
	for s := range ends[1:] {
		ends[s+1] += ends[s]
	}
	sorted, starts := make([]Op, len(ops)), ends
	for _, op := range ops {
		sorted[ends[op.step]] = op
		ends[op.step]++
	}
	for s := range ends {
		slices.SortFunc(sorted[starts[s]:ends[s]], func(a, b Op) int { return Compare(a.Object, b.Object) })
		switch step(s) {
		case stepDropLocal, stepDropReal, stepDropInner:
			slices.Reverse(sorted[starts[s]:ends[s]])
		}
	}
	copy(ops, sorted)
}
