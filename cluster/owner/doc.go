// Package owner decides which member of a fleet owns a VIP, and what this box does about
// it. It is pure: it never reads a clock or uses the network, and Self is its only state.
//
//	states of the members --gossip--> []Member --Rules--> Decision: a Role, the owner, the reason
//	facts about this box --Self.Advance--> the state to publish, the state to decide with
//
// It imports only the standard library. There is no leader, no vote and no API server:
// every box decides by itself, and boxes with the same data decide the same. A decision
// can move a VIP among members that serve it, and can make a box announce it as second
// choice or not at all; it never adds a VIP to a box.
//
// # Ownership of a VIP
//
// Only members that serve the VIP count: they have a usable backend for it, and their
// kernel is programmed. Of these
//
//  1. with NoPreempt (preempt_delay = "never") a fit member that owns it keeps it;
//  2. else the best State counts: Stable, then Fresh, then Unfit, then Draining. A VIP
//     that is drained on a member counts there as Draining;
//  3. of several equals, the one with the least -log2(h)/weight, where h in (0, 1] is
//     a hash of member and VIP (weighted rendezvous hashing). The hash is per address, so
//     that two Services of one VIP have the same owner.
//
// So a member that leaves moves its own VIPs and no others; one that joins takes VIPs
// from all others in proportion to the weights; and the last member that serves a VIP
// owns it, in any State. With SingleOwner the hash is that of the member only, so that
// one member owns everything that it serves.
//
// # Roles
//
//	               fit                             unfit or draining
//	ActiveActive   Owner: all announce equally     Out if a fit member serves it, else Owner
//	ActiveStandby  Owner, or Standby               Out if a fit member serves it, else Owner or Standby
//
// ARP and NDP are answered by Decision.Owner in both modes.
//
// The last announcement of a VIP is withdrawn only when no backend is usable: a box is
// Out only while a fit member publishes that it serves the VIP, and not before ActDelay
// has passed since it published its own state. Then the others have had time to react:
// the new owner is ready before the old one stops, and of two members that become unfit
// at once each knows about the other.
//
// # States
//
// A box is Unfit as soon as a check fails. When it is fit again it is Fresh for
// PreemptDelay (30 s) without interruption, and Stable from then on: so a box that flaps
// takes nothing from stable ones. There are three exceptions:
//
//   - if no other member is Stable, a Fresh one becomes Stable at once: one must be, and
//     a later member should not take VIPs from it at once;
//   - a process that restarts while its box stays up remains Stable (Self.StableUntil): a
//     restart or an upgrade is no reason to move anything;
//   - a drain is no interruption: after it the box is needed at once.
//
// A box that starts claims nothing until it knows the other members: until all hosts that
// it joins have answered and their messages are here, or a few seconds have passed.
// Meanwhile it publishes Unfit; or Stable (Self.CountedUntil), if it was and the others
// still count it so.
//
// A member that has no process while its box is up (cluster.Member.ProcessDown) still
// forwards. It counts with its last state for restart_grace (10 s), see StateOf. A member
// that is silent for another reason counts no more as soon as it is dead.
//
// # Partitions
//
// Members that do not reach each other are gone for each other, and each side decides for
// itself. No side needs a majority, because a VIP without service is worse than one that
// is served twice:
//
//   - ActiveActive: nothing changes. Every fit box announces before, during and after. A
//     box that is Out because of a fit member announces again when that member is gone.
//   - ActiveStandby: each side has an owner. A router with sessions to both has two equal
//     routes and takes one, or both; the previous owner is one of them.
//   - ARP and NDP: each side has an owner, which probes the network first. If only the
//     gossip is cut, the previous owner answers, and the other one waits. If the network
//     is cut too, each side serves its own hosts.
//
// When the partition heals, the owner is one of the sides' owners: the least score of all
// is the least of its side, and with NoPreempt all owners keep. So one of them continues
// and the other one stops; a VIP moves once at most, and not at all for the hosts that
// the remaining owner served.
//
// # The hash
//
// It is SHA-256 of "weir owner 1", the length of the name in one byte, the name, and
// the 16 bytes of the address (IPv4 as ::ffff:a.b.c.d; with SingleOwner ::). The first 8
// bytes as a big-endian number n give h = (n+1)/2^64. -log2(h) is computed with
// integers to 40 binary places, cut off; scores are compared as fractions by
// multiplying crosswise; equal ones go to the lesser name. There is no floating point,
// since its last bits depend on the processor. Golden tests check the result: members of
// different versions and processors must agree, and a member with another result must not
// share a fleet with this one.
package owner
