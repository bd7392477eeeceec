// Package lb decides which objects a box needs in its kernel. It never changes the kernel
// itself.
//
// Services come in from sources (the TOML file, Kubernetes clusters), kernel
// objects come out:
//
//	Update --> guard --> Catalog --> Service --\
//	                                            Plan --> State (want) --\
//	health, host addresses, marks --> Facts ---/                        Diff --> []Op --> Kernel.Apply
//	                                  Kernel.Observe --> Table (have) --/
//
// The package is pure: it has no I/O, clock or logger. It imports the standard library only,
// and nothing of weir. The kernel is behind the Kernel interface, which lb/linux and the
// working Fake of this package implement. differential_test.go compares Fake with a real kernel.
//
// # Files
//
//	service.go, backend.go, frontend.go, catalog.go    Services, their frontends and their owners
//	guard*.go, reserved.go             mass deletions, and addresses of deleted Services
//	facts.go, checks.go, quorum.go     health and host addresses
//	plan.go, base.go, set.go, marks.go, forward.go     the objects of a Service, and of all
//	object.go, virtual.go, table*.go, state.go, claims.go, ownerplan.go, compact.go    objects in tables
//	diff.go, order.go, role.go, depend.go              operations and their order
//	reconcile.go, options.go, model.go, apply.go, postpone.go, failures.go, audit.go, expect.go    passes, errors, audits
//	adopt.go, takeover.go, orphans.go, readback.go     objects of others and of an earlier run
//	drain*.go, survive.go              drains of backends, and connections without the box
//	route.go                           VIPs to announce
//	note.go, explain*.go, explanation.go, fate.go      Notes, and weir explain
//	kernel.go, fake*.go                the kernel, and the one of tests
//
// # Glossary
//
// These words are the same in code, TOML, metrics, logs and on the command line. One has a second
// meaning: weir drain is about VIPs and boxes.
//
//	Service   VIPs, ports and the backends behind them
//	Backend   one address and port that answers for a Service
//	VIP       a virtual address of a Service, of one of four kinds
//	Frontend  one VIP, port and protocol; the kernel calls it a virtual server
//	Face      one of two virtual servers that a Frontend may have
//	Mark      a small number that maps packets of inside clients to the inner face, or of a group
//	Source    the origin of a Service: "static", or the name of a cluster
//	Object    one thing in the kernel that weir owns, a small comparable value
//	Table     a set of Objects; all Objects of a Frontend are one record
//	Op        a verb and an Object; it is applied, logged and printed
//	Note      a condition of a Service, with an enumerated reason
//	Audit     a reading of the whole kernel, and the repair of foreign changes
//	Drain     a backend without new connections, until its old connections end
//	Guard     withholds a mass deletion of a source until it is confirmed
//	Orphan    an object of an earlier run that may belong to an unsynced source
//
// # Properties
//
// The tests of this package check these properties for random Services (of all kinds, with
// both traffic policies), states and orders. The clients are outside, inside and the box:
//
//   - The Ops of Diff lead from any state to the wanted State.
//   - An unchanged state gives no Ops. A restart gives none either: it finds its marks.
//   - After each prefix of the Ops, traffic reaches only what the old or the new state
//     permits, and is masqueraded as in one of them (order.go).
//   - Plan and State do not depend on the order of their input. Only the numbers of marks do.
//   - An Object with two owners stays until both have released it.
//   - An error never becomes a deletion (reconcile.go).
//   - Within its window a guarded source loses at most its share, unless an operator or the
//     time limit released the rest. After that, the guard has no effect on the state (guard.go).
//   - Explain describes what a packet really does.
//   - No backend is ever a VIP of the box (backend.go).
//
// The cost of a change depends on its size, not on the number of Services.
//
// Rejected:
//
//   - One walk of a packet for Explain and Fake: the two are compared with each other, and Fake
//     with a kernel, so that a mistake in one shows.
//
// # Faces
//
// With traffic policy Local, clients outside reach only backends of this node and keep their
// address. Clients inside (pods, and the box itself) reach the backends of all nodes. So such
// a Frontend has two virtual servers. Packets reach the outer face by its address. They reach
// the inner one by a mark, which IPVS looks up first: SetInternal puts it on the packets of
// clients inside. The VIPs of a Service share one mark for each port and family.
//
// The inner face is complete before SetInternal maps clients to it, and only then the outer
// face changes. The removal has the reverse order. A mark of draining backends is not given
// to another Service.
//
// A ClusterIP with that policy has one face, because all of its clients are inside. A frontend
// with backends, but without one for its outer face, is in SetNoLocal: packets of clients
// outside are dropped, so that they ask another node.
//
// A group (Service.Group) uses the same marks. SetGroup maps all clients of all its frontends to one
// virtual server. Its real servers have port 0, so that packets keep the port of their client. Each
// frontend also has a virtual server of its own, which its sets record. A bit of the mark demands
// masquerading, as a packet has only one mark.
//
// A Service with FWMark has no frontends at addresses. Rules of the administrator set the mark, and
// lb/linux has rules of its own for each.
//
// # Conflicts
//
// Of the Services that claim a frontend, one has it that has the address not only as an external
// IP; of those a static one, then one to which weir has assigned the address, then the oldest, and of
// equal ages the first by ServiceID. A NodePort claims every address of the node. On a single address
// it yields to a Service that claims only that one, of any age. A Service without its frontend gets a
// Note.
// A Foreign VIP that is the box's own address is not served and claims nothing: otherwise it
// would take ports of the node.
//
// # Ownership
//
// weir removes only objects that it made. Sets, chains, the device and the routes have its names. A
// virtual server is weir's if its tuple is a member of a record set: LOAD-BALANCER, CLUSTER-IP,
// EXTERNAL-IP or NODE-PORTS, by the kind of its VIP. IPVS-MARKS records a virtual server with a
// mark, as if the mark were an address, and IPVS-FWMARKS one with a given mark. The member is
// written before the virtual server and removed after it. So the kernel itself is the record, and a
// process that is killed at any point recognizes all of its objects later. The members of INTERNAL
// record the owner of each mark. Everything else in IPVS is foreign and stays unchanged; a Service
// that claims a foreign tuple gets a Note.
//
// # Memory
//
// All objects of a frontend are one record (virtual.go), and an audit compares records. want
// and have share equal records. For 10,000 Services with ten backends each, the State takes
// 16 MiB and have 2 MiB; with ClusterIPs 21 and 5 (BenchmarkHeap). Objects and Ops are made on
// request.
//
// Rejected:
//
//   - One map of boxed objects: 500 bytes an object, twice, and twice more at an audit.
//   - Backends shared between the frontends of a Service: most Services have one, and
//     health and drains give each frontend weights of its own.
//   - Set members computed from a record instead of kept as bits: the kernel may have any of
//     them without the others, and that must be expressible.
//   - Counts of owners for every object: only addresses, pools and members of SetLoopBack have
//     more than one in practice.
//
// # Audits
//
// An audit reads the whole kernel beside the main loop (audit.go), so no change waits for it.
// A reading proves nothing about an object that changed meanwhile, and the kernel's list of
// virtual servers may have gaps. Such frontends are read once more, one by one. Addresses and
// members of SetLoopBack are compared only if the sums of their hashes differ.
//
// Rejected:
//
//   - A generation in each object: only the difference of two readings is of use, which is
//     small, and the set of changes during one audit is smaller.
//   - An audit in slices between changes: the kernel's lists have gaps where they change,
//     even with small slices.
//   - A comparison of all members at the end: 40 ms for 100,000 of them, in the main loop.
//   - A lock around have, in place of a copy of the list of frontends: the copy takes 10 ms
//     for 10,000 of them.
//   - Virtual servers that are chains of iptables, compared as text only: a restart must know
//     the objects in them. lb/linux reads each from a comment, and compares the rest as text.
//
// # Connections and other boxes
//
// A box that takes over for another knows none of its connections, unless the kernels sync
// them (SyncDaemon). Scheduler mh chooses the same backends without a sync, if the kernels
// have them in the same order. lb/linux keeps that order, and RealServer.Misplaced reports a
// deviation. Fleet.Survival computes the other conditions, and Explain shows them.
//
// # Limits of a source
//
// Objects that the process found in the kernel at its start, and that may belong to a source,
// stay until that source has synced once (orphans.go). From then on a guard, if the operator set
// one, limits the deletions of the source (GuardOptions).
package lb
