// Package ipam decides which address a Service of type LoadBalancer gets. It never
// does it: claims and statuses are written by its caller, and it has neither clock nor
// I/O. It imports weir/lb alone.
//
//	Services of all clusters --> Put, Delete, Synced --\
//	pools, reservations -------> SetConfig ------------> Allocator --> Next --> Decision
//	claims in the store -------> Learn, Gone, Relist --/                  |
//	        ^---------------- Writes, each by compare and swap <----------/
//
// This is the reference of what it decides, and why.
//
// # Who gets which address
//
// In each family that a Service is to have, the first of these that there is:
//
//  1. the address that it asks for (spec.loadBalancerIP, annotation weir/addresses);
//  2. the address that it has, if it is of the pool that it asks for (annotation
//     weir/pool), or it asks for none;
//  3. the lowest address that is reserved for it and can be had;
//  4. an address that was its own and is still held for it;
//  5. the lowest address that its share key leads to;
//  6. the lowest free address of the first pool that admits it.
//
// Pools are used by priority, the lowest number first, then by name. A pool admits a
// Service if its cluster, its namespace and its labels do. Without auto_assign a pool is
// only for those who ask for it, or for one of its addresses. With avoid_ends the first
// and last address of an IPv4 CIDR of four or more are only for those who ask for just
// them. Of several Services that wait for the same, the oldest is first, then the one
// whose ServiceID sorts first. Equal input gives equal output.
//
// # Addresses do not move
//
// An address changes only if its Service asks for something else: another address, or a
// pool that it is not of, or other families. Then the new one is claimed first; the old
// one goes when the new one is confirmed. Who asks for what can't be had is Pending and
// keeps what it has; should it become free, the Service moves there, as it asks to. To
// ask no longer moves nothing.
//
// A pool that shrinks, goes, or no longer admits a Service that has an address of it
// leaves the Service stranded: it keeps the address, and a Note (pool-stranded) says
// why. Allocator.Stranded tells beforehand. The same goes for a reservation that comes
// too late: who has the address keeps it, and who has the reservation waits.
//
// # Dual stack
//
// SingleStack has one family. With RequireDualStack a Service gets both or nothing: it
// waits, and claims nothing, while one can't be had, and shows both at once. With
// PreferDualStack it gets what there is, with a Note (family-left), and the other family
// when that comes. A Service that goes from one family to two keeps the address that it
// has, also while the other can't be had; one that goes back keeps that of the family
// that is left. The pools of two families need not be the same.
//
// # Sharing
//
// Services share an address if they have the same key (annotation weir/share) and none
// of the same ports, protocol by protocol, and all have externalTrafficPolicy Cluster, or
// all Local and the same selector. They are of one namespace of one cluster. With
// share_across_namespaces a pool lets those of the listed namespaces share with each
// other as well, of whichever cluster; "*" is all; but Local only within a namespace:
// elsewhere the same selector means other pods. A pool may have sharing off.
//
// Who has a key goes where its namespace has that key, or waits (share-refused): two
// that are to share are never silently given two addresses. One asked for by name must be
// shareable just so.
//
// A sharer that changes into a clash (ports, key, policy) becomes Pending and stays where
// it is, with those of its ports that do not clash. Not the younger loses, but the one
// that changed, for that is who can change back. Ports that it no longer has are free for
// others. To leave the others it asks for another address.
//
// # Made again
//
// Who goes, or lets go, may come back for its address within release_after: it is held,
// for it alone, and of a shared address its ports are. That is by name (cluster,
// namespace, name), so a Service that was deleted and made again gets what it had, if its
// pool still admits it. Nobody else gets a held address, not even by asking
// (address-held says until when): until all boxes and routers have forgotten the old
// Service, its clients would meet the new one.
//
// A Service that turns to another class or type, or whose cluster's configuration no
// longer makes it weir's, lets go: first its status is emptied, then the address is
// released. An address is never released while a status has it.
//
// # Reservations
//
// A reserved address is only for its Service, whether that is there or not. For it the
// limits of the pool do not count: the operator has named it. It gets no other one
// unless it asks for one.
//
// # What was there before
//
// A Service of weir's with an address in its status and no claim gets the claim: after
// another controller, or when somebody has deleted claims. Limits do not matter then, nor
// that no pool has the address (that is stranded). Two with the same address that may not
// share it are a conflict: the oldest keeps it; the other gets a new one and a Note.
//
// Services of other classes are never written. What they have in their status is
// taken, as long as it is there. If one of weir's has the same already, it keeps it,
// with a Note: it is twice, but to take it from those whom weir can reach helps nobody.
//
// A claim whose holders can't be read (made by hand, or by a later version) makes the
// address taken: an empty Lease weir-192.0.2.9 keeps 192.0.2.9 from everybody.
//
// # Claims
//
// A claim is one object an address, in one store for all clusters, whose name is the
// address: who creates it has it. It changes only by compare and swap. So however many
// writers there are, and whatever they believe, an address is claimed once. The rest
// follows from the order of steps, each of which can be the last one of a writer:
//
//	claim --> confirmed --> status          (a status never has what is not claimed)
//	status without it --> released --> deleted after release_after
//
// Statuses are written only onto the version of the Service that the Decision is about
// (Decision.Version), by writers that have heard from the store lately. So a writer that
// has slept through its own replacement can't bring an old address back.
//
// A writer that sees an address in a status, and a claim that speaks against it, may be
// late to hear of a newer claim. It does not take the address away before it has asked:
// its Decision writes the claim as it is, which fails if it is not.
//
// A cluster that is not synced keeps all its claims, and its Services get nothing new;
// other clusters go on, for what it has is claimed. Only what it has without a claim (of
// other classes, or before adoption) is not known to who has never seen it: let all
// clusters sync before the first Next, or the time for it pass. A cluster that is no
// longer configured keeps its claims as well, until somebody deletes those objects.
//
// # What the tests hold
//
// Through thousands of random histories of one to three writers, all active at once, over
// one store and two API servers; with late watches, slow, lost and doubled writes,
// partitions, deaths in the middle of a write, different configurations, and Services and
// pools that change all the time:
//
//   - Nobody is given an address that somebody else has, but to share it lawfully.
//   - Nobody loses an address that did not ask for another.
//   - A hold lasts its time.
//   - Who asks for nothing gets the lowest free address of the first pool.
//   - At rest everybody has what can be had, whoever lacks something must, all writers
//     know the same, and no claim is of a Service that is gone, or of an address that its
//     Service does not have.
//   - The same history ends in the same way.
//
// They assume what release_after must be long enough for: that views, together with
// writes under way, are no later than that.
//
// The cost of an allocation does not depend on how many claims there are.
package ipam
