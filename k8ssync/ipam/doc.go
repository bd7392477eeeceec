// Package ipam decides which address a Service of type LoadBalancer gets. It never writes:
// its caller writes claims and statuses, and it has neither clock nor I/O.
//
//	Services of all clusters --> Put, Delete, Synced --\
//	pools, reservations -------> SetConfig ------------> Allocator --> Next --> Decision
//	claims in the store -------> Learn, Gone, Relist --/                  |
//	        ^---------------- Writes, each by compare and swap <----------/
//
// allocator.go records changes in the inventory (inventory.go), schedule.go queues the
// Services that they affect, decide.go makes a Decision for one Service, place.go chooses
// its addresses, share.go checks sharing, and refuse.go explains what is not available.
// limit.go limits the claims that are known.
// This is the reference of the rules. It imports only weir/lb.
//
// # Order of choice
//
// In each family that a Service must have, it gets the first of these that is available:
//
//  1. the requested address (spec.loadBalancerIP, annotation weir/addresses);
//  2. its present address, if it requests no pool (annotation weir/pool), or the pool of
//     that address;
//  3. the lowest available address that is reserved for it;
//  4. an address that is retained for it;
//  5. the lowest address with its sharing key;
//  6. the lowest free address of the first pool that admits it.
//
// Pools are used by priority, the lowest number first, then by name. A pool admits a
// Service if its cluster, its namespace and its labels match. Without auto_assign a pool
// is only for requests of the pool or of one of its addresses. With avoid_first_last the
// first and last address of an IPv4 CIDR of four or more are only for requests of just that
// address. Of several Services that wait for the same, the oldest is first, then the
// lowest ServiceID. Equal input gives equal output.
//
// # Addresses do not move
//
// An address changes only if its Service requests another address, another pool, or other
// families. Then the new one is claimed first, and the old one is released when the claim is
// confirmed. A Service with an unavailable request is Pending and keeps its address; it
// moves when the request becomes available. The removal of a request moves nothing.
//
// A pool that shrinks, is removed, or no longer admits a Service with an address of it
// moves no Service: the Service keeps the address, with a Note (outside-pool).
// Allocator.OutsidePool predicts that. The same applies to a reservation that comes too late:
// the holder keeps the address, and the reserved Service waits.
//
// # Dual stack
//
// SingleStack has one family. With RequireDualStack a Service gets both or nothing: it
// waits, and claims nothing, while one is not available, and shows both at once. With
// PreferDualStack it gets the available one, with a Note (family-left), and the other family
// later. A Service that changes from one family to two keeps its address, also while the
// other is not available; one that changes back keeps that of the remaining family. The
// pools of two families may differ.
//
// # Sharing
//
// Services share an address if they have the same key (annotation weir/sharing-key), no
// port in common, protocol by protocol, and all have externalTrafficPolicy Cluster, or all
// Local and the same selector. They are of one namespace of one cluster. With
// sharing_namespaces a pool also lets those of the listed namespaces share with each other,
// in any cluster; "*" is all. Local is limited to one namespace: in another one the same
// selector selects other pods. A pool may forbid sharing.
//
// A Service with a key joins the address with that key in its namespace, or waits
// (share-refused): two Services with a key never get two addresses silently. A requested
// address must be shareable in the same way.
//
// A sharer with a change that causes a conflict (ports, key, policy) becomes Pending and
// keeps its address, with those of its ports that do not conflict. The changed Service loses, not
// the younger, as only the change can be undone. Ports that it no longer has are free for
// others. To leave the others it requests another address.
//
// # Conflicts
//
// A status may have an address that another Service has by its claim. The claim counts:
// TakeChanged returns the Services of the claims that have changed.
//
// # Retention
//
// A released address, or that of a deleted Service, is retained for the Service for the
// retention; so are its ports of a shared address. Services are identified by
// cluster, namespace and name: a Service that is deleted and created again gets its address
// again, if its pool still admits it. No other Service gets a retained address, not even by
// a request (address-retained has the end): until all boxes and routers have removed the
// old Service, its clients would reach the new one.
//
// A Service that changes to another class or type, or that weir no longer manages after a
// change of the configuration, releases its address: first its status is emptied, then the
// claim is released. An address in a status is never released.
//
// # Limit for a namespace
//
// A pool may limit the addresses of each family that the Services of a namespace of a cluster
// have. Those that are retained for deleted Services count: otherwise a tenant could empty the
// pool by Services that it creates and deletes. Adopted and reserved addresses count and are
// not refused. An address that the namespace already has, shared or retained for the Service,
// is not counted twice.
//
// Without that limit, a namespace gets no other address while more are retained for its deleted
// Services than are free, of the pool and family. So a pool of 16 retains 9 for one namespace at
// most. Fewer than four do not count: in a pool of four, each is a quarter. Addresses in use have no limit then: a pool is for all Services that it admits.
//
// # Reservations
//
// A reserved address is only for its Service, whether that exists or not. The limits of the
// pool do not apply to it. The Service gets no other address without a request.
//
// # Adoption
//
// A managed Service with an address in its status and no claim gets the claim: after
// another controller, or a deletion of claims. Limits do not matter then, nor that no pool
// has the address (the Note is outside-pool). Two Services with the same address that may not share
// it conflict: the oldest keeps it; the other gets a new one and a Note.
//
// Services of other classes are never written. The addresses in their status are taken for
// as long as they are there. If a managed Service already has the same one, it keeps it,
// with a Note: a removal would only cost its clients the address.
//
// The addresses of a cluster's Nodes are taken, too, but each kubelet writes those of its Node. So
// they are taken only in the pools that admit the cluster. In other pools the operator
// decides: a pool must not contain hosts.
//
// A claim with unreadable holders (made by hand, or by a later version) makes the address
// taken: an empty Lease weir-192.0.2.9 reserves 192.0.2.9 from all Services.
//
// # Claims
//
// A claim is one object for each address, in one store for all clusters, with the name of
// the address: its creator owns the address. It changes only by compare and swap. So
// however many writers there are, an address is claimed once. The rest follows from the
// order of steps, each of which can be the last one of a writer:
//
//	claim --> confirmed --> status          (a status never has an unclaimed address)
//	status without it --> released --> deleted after the retention
//
// A status is written only onto the version of the Service in the Decision
// (Decision.Version), by a writer with a recent answer of the store. So a suspended writer
// can't restore an old address.
//
// A writer that sees an address in a status, and a claim that contradicts it, may not have
// received a newer claim. It checks before it removes the address: its Decision writes the
// claim without a change, which fails if the claim has changed.
//
// A cluster that is not synced keeps all its claims, and its Services get nothing new;
// other clusters continue, as its addresses are claimed. Only its addresses without a claim
// (of other classes, or before adoption) are unknown to a new Allocator: let all clusters
// sync before the first Next, or a timeout pass. A cluster that is no longer configured
// keeps its claims as well, until the objects are deleted.
//
// # Tested properties
//
// Thousands of random histories have one to three active writers over one store and two API
// servers; late watches, slow, lost and duplicate writes, partitions, crashes during a
// write, different configurations, and Services and pools that change all the time:
//
//   - No Service gets an address of another one, except by valid sharing.
//   - No Service loses an address without a request of another.
//   - A retention lasts its time.
//   - A Service without a request gets the lowest free address of the first pool.
//   - At rest every Service has the available address, all writers know the same, and no
//     claim is of a deleted Service, or of an address that its Service does not have.
//   - The same history ends in the same state.
//
// They assume that the retention exceeds the delay of views and of writes in flight.
//
// The cost of an assignment does not depend on the number of claims.
package ipam
