// Package fleet decides the part of this box in its fleet: its own state, the VIPs that it
// owns by the rules of package owner, the VIPs to answer ARP for, the roles to announce, and
// the message to the other members. It never writes the kernel or talks to a router.
//
// The heart is pure. [Engine.Observe] takes the facts of one moment, [Inputs], and
// [Engine.Decide] returns a [Decision]. They read no clock, no file and no network, and call
// nothing outside, so a table tests them:
//
//	carriers, sessions, kernel, checks ---+
//	members and their messages -----------+--> Observe --> Decide --> own state
//	VIPs that the kernel serves ----------+               ^           roles for routers
//	state of ARP claims ------------------+               |           claims to answer ARP
//	                                        drains -------+           message to members
//
// The daemon advances the drains between the two: their stages depend on the members that
// Observe has received, which [View] returns.
//
// Package membership is the rim: it joins the gossip, runs the ARP answerer, reads the
// interfaces and keeps the trace of a run for the next one. It feeds the Engine and applies
// the decisions.
//
// # States
//
// A member is starting until it knows the other members, unfit while it gives a reason,
// fit, and stable once it has been fit for preempt_delay. Package weir/cluster/owner has
// the rules of the election.
//
// A box that is unfit publishes that at once and acts on it a second later, when the other
// members have received it. It releases only what a fit member serves.
//
// # Work is incremental
//
// Each input has a generation, which counts its changes. A part of the Engine keeps the
// generations that it has seen, and works again when an input of its own has a newer one.
// A change of one VIP decides that VIP only.
package fleet
