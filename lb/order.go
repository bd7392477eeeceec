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
type step uint8

const (
	stepSysctl step = iota
	stepDevice
	stepSet
	stepRules
	stepGuard      // members of SetIPVSIPs, SetIPVSNets
	stepRange      // members of SetSourceCIDR, SetSourceIP
	stepRestrict   // members of SetFirewall, SetNoLocal
	stepUnkeep     // a living frontend starts to masquerade
	stepRecord     // records, NodePort numbers, SetLoopBack
	stepKeep       // a new frontend keeps source addresses
	stepVirtual    // virtual servers
	stepReal       // real servers, more weight
	stepLead       // members of SetInternal
	stepAdmit      // members of SetIPVSPorts, SetHealthCheckNodePort
	stepAddress    // addresses and pool routes
	stepShrink     // less weight
	stepUnaddress  // and the way out
	stepUnadmit    //
	stepUnlead     //
	stepUnreal     //
	stepLateKeep   // a living frontend stops to masquerade
	stepUnvirtual  //
	stepUnrecord   //
	stepUnrestrict //
	stepUnrange    //
	stepUnguard    //
	stepUnrules    //
	stepUnset      //
	stepUndevice   //
)

func (o Member) stepIn() step {
	switch o.Set {
	case SetIPVSIPs, SetIPVSNets:
		return stepGuard
	case SetSourceCIDR, SetSourceIP:
		return stepRange
	case SetFirewall, SetNoLocal:
		return stepRestrict
	case SetInternal:
		return stepLead
	case SetIPVSPorts, SetHealthCheckNodePort:
		return stepAdmit
	}
	if o.keeps() {
		return stepKeep
	}
	return stepRecord
}

// keeps tells whether the member makes a frontend keep its clients' addresses.
func (o Member) keeps() bool {
	switch o.Set {
	case SetLoadBalancerLocal, SetExternalIPLocal, SetNodePortLocalTCP, SetNodePortLocalUDP, SetNodePortLocalSCTP:
		return true
	}
	return false
}

// alive tells whether the frontend that a member keeps addresses for is in use;
// of a NodePort, by its number, on whatever address.
func (o Member) alive(held func(Object) bool) bool {
	if f, ok := o.frontend(); ok {
		return held(tuple(SetIPVSPorts, f))
	}
	number := SetNodePortTCP
	if o.Set == SetNodePortLocalUDP {
		number = SetNodePortUDP
	}
	return held(portMember(number, o.Family(), o.Port))
}

func (o Member) stepOut() step {
	switch o.stepIn() {
	case stepGuard:
		return stepUnguard
	case stepRange:
		return stepUnrange
	case stepRestrict:
		return stepUnrestrict
	case stepLead:
		return stepUnlead
	case stepAdmit:
		return stepUnadmit
	}
	return stepUnrecord
}

// addStep is the step in which an object comes in. have and want tell whether a
// frontend is already in use.
func addStep(o Object, have Snapshot) step {
	switch o := o.(type) {
	case Sysctl:
		return stepSysctl
	case Device:
		return stepDevice
	case IPSet:
		return stepSet
	case Rules:
		return stepRules
	case Member:
		if o.keeps() && o.alive(func(id Object) bool { _, ok := have[id]; return ok }) {
			return stepLateKeep
		}
		return o.stepIn()
	case VirtualServer:
		return stepVirtual
	case RealServer:
		return stepReal
	}
	return stepAddress
}

// changeStep is the step in which an object gets new attributes.
func changeStep(from, to Object) step {
	if r, ok := to.(RealServer); ok && r.Weight < from.(RealServer).Weight {
		return stepShrink
	}
	return addStep(to, nil)
}

// deleteStep is the step in which an object goes.
func deleteStep(o Object, want *State) step {
	switch o := o.(type) {
	case Device:
		return stepUndevice
	case IPSet:
		return stepUnset
	case Rules:
		return stepUnrules
	case Member:
		if o.keeps() && o.alive(func(id Object) bool { _, ok := want.Get(id); return ok }) {
			return stepUnkeep
		}
		return o.stepOut()
	case VirtualServer:
		return stepUnvirtual
	case RealServer:
		return stepUnreal
	}
	return stepUnaddress
}

// sortOps puts ops in the order in which they are safe to apply. The order is
// total: the same ops always read the same.
func sortOps(ops []Op) {
	slices.SortFunc(ops, func(a, b Op) int {
		return cmp.Or(cmp.Compare(a.step, b.step), Compare(a.Object, b.Object))
	})
}
