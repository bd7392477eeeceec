// Package owner decides which member of a fleet owns a VIP, and what a box does about
// it.
//
//	what each member says --gossip--> []Member --Rules--> Verdict: a Role, the owner, why
//	what this box knows of itself --Self.Advance--> what it says, what it counts itself as
//
// It is pure: no clock, no network, no memory but Self, nothing but the standard
// library. There is no leader, no vote and no API server in it: every box decides by
// itself from what it has heard, and boxes that have heard the same decide the same.
// A verdict can move a VIP among members that say they serve it, and can have a box
// announce it worse or not at all; it never adds a VIP to a box.
//
// # Who owns a VIP
//
// Only members that serve it count: those with a usable backend for it whose kernel
// has it. Of these
//
//  1. with Stay (take_back = "never") whoever is fit and holds it keeps it;
//  2. else the best Standing there is: Settled, then Fresh, then Unfit, then Draining.
//     A VIP that is drained on a member counts there as Draining;
//  3. of several equals, the one with the least -log2(h)/weight, where h in (0, 1] is
//     drawn from a hash of member and VIP (weighted rendezvous hashing). It is done per
//     address, so that two Services of one VIP never part.
//
// So a member that goes moves its own VIPs and no others; one that comes takes its
// share from all others in proportion to their weights; and the last one that can
// serve a VIP owns it, whatever its standing is. With Together the hash is of the
// member alone, so that one member owns everything that it serves.
//
// # What a box does
//
//	               fit                        unfit or draining
//	ActiveActive   Owner: all announce alike   Out if a fit member serves it, else Owner
//	ActiveStandby  Owner, or Standby           Out if a fit member serves it, else Owner or Standby
//
// Where the owner answers ARP and NDP, that is Verdict.Owner in both modes.
//
// Nobody withdraws the last announcement of a VIP for another reason than having no
// usable backend: a box is Out only while it hears a fit member say that it serves
// the VIP. And it is so only HeardAfter after it has said why, when others have had
// time to hear of it: the new owner is there before the old one goes, and of two that
// become unfit at once each knows of the other.
//
// # Standing
//
// A box is Unfit at once when it is, and says why. When it is fit again it is Fresh
// for TakeBack (30 s), without a break, and Settled from then on: so one that comes and
// goes takes nothing from those that stay. There are three ways around it:
//
//   - if no other member is Settled, a Fresh one is Settled at once: somebody has to,
//     and who comes later should not take from it at once;
//   - a process that begins anew while its box stays up was Settled before and still
//     is (Self.Was): a restart or an upgrade is no reason to move anything;
//   - a drain is no break: whoever ends it wants the box back.
//
// A box that begins claims nothing until it knows who else is there: until all
// whom it is to join have answered and their Words are here, or a few seconds have
// passed. Meanwhile
// it says Unfit; or Settled (Self.Kept), if it was and the others still count with it.
//
// A member whose process is gone while its box is up (cluster.Member.Away) still
// forwards what it did. It counts with what it last said for restart_grace (10 s),
// see Seen. One that is silent for another reason is gone as soon as it is dead.
//
// # Partitions
//
// Members that do not hear each other are gone for each other, and each side decides
// for itself; no side needs a majority, because a VIP that nobody serves is worse than
// one served twice:
//
//   - ActiveActive: nothing changes. Every fit box announces before, during and after.
//     A box that is Out since a fit one serves the VIP, and hears none any more,
//     announces again.
//   - ActiveStandby: each side has an owner. A router that hears both has two equal
//     routes and takes one, or both; the owner of before is one of them.
//   - ARP and NDP: each side has an owner, and it asks the wire before it claims. If the
//     wire is whole (only the gossip is cut) the owner of before answers, and the other
//     one waits. If the wire is cut too, each side serves those who are on it.
//
// When it heals, the owner is among those that owned on their sides: the least of all
// is the least of its side, and with Stay all holders hold. So of the two sides' owners
// one goes on and the other one gives up; a VIP moves once at most, and for those whom
// the remaining owner served it does not move at all.
//
// # The hash
//
// It is SHA-256 of "weir owner 1", the length of the name in one byte, the name, and
// the 16 bytes of the address (IPv4 as ::ffff:a.b.c.d; with Together ::). The first 8
// bytes as a big-endian number n give h = (n+1)/2^64. -log2(h) is computed with
// integers to 40 binary places, cut off; scores are compared as fractions by
// multiplying crosswise; equal ones go to the lesser name. There is no floating point,
// whose last bits depend on the processor. Golden tests hold the result: members of
// different versions and processors must agree, and whoever has another result must
// not share a fleet with this one.
package owner
