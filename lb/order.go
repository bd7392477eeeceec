package lb

import (
	"cmp"
	"fmt"
	"slices"
)

// Verb is what an Op does to its Object.
type Verb uint8

// The verbs.
const (
	Add Verb = iota
	Change
	Delete
)

func (v Verb) String() string { return [...]string{"add", "change", "delete"}[v] }

// Op is one step towards the wanted state: a verb and an object. Change gives
// the object its new attributes without taking it away in between.
type Op struct {
	Verb   Verb
	Object Object
	step   step
}

// String is the line that log, weir plan, tests and bug reports share.
func (op Op) String() string { return fmt.Sprintf("%s %s", op.Verb, op.Object) }

// step is when an Op runs. Steps run in order; the Ops of one step do not depend
// on each other. The order keeps this promise: at no point does a packet land
// where neither the old nor the new state would have it.
//
// Coming in, what guards comes before what it guards: a VIP is refused on all
// ports before it exists, its source ranges are known before they are enforced,
// masquerading is on before a backend is there, and the tuple is admitted
// (stepAdmit) only when the virtual server stands, so that no daemon of the host
// ever gets a packet meant for a Service. Going out is the same backwards, and
// after all of the coming in: a frontend that swaps its backends is never empty.
//
// Clients inside are led to the inner face of a frontend (package comment) when
// that is whole and before the outer one gets what is only for clients outside,
// and come back when the outer one has lost it. Nobody is dropped for want of a
// backend of this node before those inside are led past that.
type step uint8

const (
	stepSysctl step = iota
	stepDevice
	stepSet
	stepRules
	stepGuard           // members of SetIPVSIPs, SetIPVSNets
	stepRange           // members of SetSourceCIDR, SetSourceIP
	stepRestrict        // members of SetFirewall
	stepStartMasquerade // what is recorded starts to masquerade
	stepKeepSource      // what will be recorded keeps source addresses
	stepRecord          // records, kept sources, SetLoopBack
	stepVirtual         // virtual servers
	stepInner           // real servers of marks, more weight
	stepMap             // members of SetInternal: from here on clients inside meet them
	stepReal            // real servers, more weight
	stepNoLocal         // members of SetNoLocal
	stepDropLocal       // real servers whose address is about to be the box's (backend.go)
	stepAdmit           // members of SetIPVSPorts, SetHealthCheckNodePort
	stepAddress         // addresses and pool routes
	stepSync            // what other boxes hear, and tell
	stepDropSync        //
	stepDropNoLocal     // and the way out
	stepReduce          // less weight
	stepDropAddress     //
	stepDropAdmission   //
	stepDropReal        //
	stepDropMapping     // clients inside go the way of all others again
	stepReduceInner     // less weight of marks
	stepDropInner       //
	stepStopMasquerade  // what is recorded stops to masquerade
	stepDropVirtual     //
	stepDropRecord      //
	stepDropKeepSource  // what was recorded kept source addresses
	stepDropRestriction //
	stepDropRange       //
	stepDropGuard       //
	stepDropRules       //
	stepDropSet         //
	stepDropDevice      //
)

// steps are those in which objects of a role come in and go.
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
}

// masquerades gives the member whose masquerading o takes off, if it does that.
func (o Member) masquerades() (Object, bool) {
	for _, m := range masquerading {
		if m.kept == o.Set {
			o.Set = m.all
			return o, true
		}
	}
	return nil, false
}

// addStep is the step in which an object comes in.
func addStep(o Object, have *Table) step {
	switch o := o.(type) {
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

// changeStep is the step in which an object gets new attributes.
func changeStep(from, to Object) step {
	if r, ok := to.(RealServer); ok && r.Weight < from.(RealServer).Weight {
		if r.Frontend.Mark != 0 {
			return stepReduceInner
		}
		return stepReduce
	}
	return addStep(to, nil)
}

// deleteStep is the step in which an object goes.
func deleteStep(o Object, want *State) step {
	switch o := o.(type) {
	case Member:
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

// sortOps puts ops in the order in which they are safe to apply. The order is
// total: the same ops always read the same.
func sortOps(ops []Op) {
	slices.SortFunc(ops, func(a, b Op) int {
		return cmp.Or(cmp.Compare(a.step, b.step), Compare(a.Object, b.Object))
	})
}
