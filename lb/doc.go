// Package lb decides what a weir box should do; it never does it.
//
// Services come in from sources (the TOML file, Kubernetes clusters), kernel
// objects come out:
//
//	Update --> guard --> Catalog --> Service --\
//	                                            Plan --> State (want) --\
//	health, host addresses, marks --> Facts ---/                        Diff --> []Op --> Kernel.Apply
//	                                  Kernel.Observe --> Table (have) --/
//
// The package is pure: no I/O, no clock of its own, no logger, and nothing but
// the standard library. It imports nothing of weir.
// The kernel is behind the Kernel interface, with two implementations: lb/linux
// and the working Fake in this package.
//
// # Glossary
//
// One word per thing, the same in code, TOML, metrics, logs and command line:
//
//	Service   what clients want: VIPs, ports and the backends behind them
//	Backend   one address and port that answers for a Service
//	VIP       a virtual address of a Service, of one of four kinds
//	Frontend  one VIP, port and protocol; the kernel calls it a virtual server
//	Face      one of two virtual servers that a Frontend may have
//	Mark      a small number that leads clients inside to the inner face
//	Source    who says that a Service exists: "static", or a cluster's name
//	Object    one thing in the kernel that weir owns, a small comparable value
//	Table     a set of Objects; all Objects of a Frontend are one record
//	Op        a verb and an Object; what is applied, logged and printed
//	Note      what could not be done for a Service, with an enumerated reason
//	Audit     a reading of the whole kernel, and the repair of what others changed
//	Drain     a backend that gets no new connections while its old ones end
//	Hold      what a source took away, too much at once, and stays for now
//
// # Properties
//
// The tests of this package hold these for random Services (of all kinds, with
// both traffic policies), states and orders, for clients outside, inside and on
// the box itself:
//
//   - Applying the Ops of Diff gives the wanted State, from any state.
//   - Nothing to do means no Ops; nor does a restart: it finds its marks again.
//   - No prefix of the Ops lets traffic land where neither the old nor the new
//     state would let it, or be masqueraded as neither would (order.go).
//   - Plan and State do not depend on the order of their input, but for which
//     mark it is that leads to an inner face.
//   - An Object with two owners stays until both have let go of it.
//   - An error never becomes a deletion (reconcile.go).
//   - Within its window a guarded source loses no more than its share, unless
//     somebody or the time released it; after that nothing tells that there was
//     a guard (guard.go).
//   - What Explain says is what a packet meets.
//   - No backend is a VIP of the box, at no time (backend.go).
//
// The cost of a change is its size, however many Services there are.
//
// # Faces
//
// Where the traffic policy is Local, clients outside get backends of this node
// and keep their address, while clients inside (pods, and the box itself) get the
// backends of all nodes. So such a Frontend has two virtual servers. The outer
// face is found by its address as always. The inner one is found by a mark, for
// which IPVS looks first: SetInternal puts it on the packets of clients inside.
// The VIPs of a Service share the mark of a port, of their family each.
//
// The inner face is whole before SetInternal leads anybody there, and that is
// before the outer face changes; on the way back it is the other way round. A mark
// that has led to a backend which drains is not given to another Service.
//
// A ClusterIP with that policy has one face: everybody is inside. A frontend that
// has backends, but none for its outer face, is in SetNoLocal: who is outside is
// dropped, and asks another node.
//
// # Who has a frontend
//
// Of several Services that claim one, the oldest has it, then the one whose
// ServiceID sorts first. A NodePort stands for every address of the node and gives
// way, on one of them, to whoever claims just that one, however young. Who does
// not get a frontend gets a Note. A Foreign VIP that is the box's own address is not
// served and claims nothing, or it would take ports of the node away.
//
// # Ownership
//
// weir removes only what it made. Sets, chains, the device and the routes bear
// its names. A virtual server is weir's when its tuple is a member of one of
// weir's records: LOAD-BALANCER, CLUSTER-IP, EXTERNAL-IP or NODE-PORTS, by the
// kind of its VIP; IPVS-MARKS for one that is found by a mark, which is recorded
// there as if it were an address. The member is written before the virtual server
// and removed after it, so the kernel itself is the record, and a process killed
// at any instant leaves nothing it would not recognise later. Which mark is
// whose, INTERNAL records: a frontend's member there bears it. Everything else in
// IPVS is foreign and stays unchanged; a Service that wants a foreign tuple gets a
// Note.
//
// # Memory
//
// All objects of a frontend are one record (virtual.go), and an audit compares records.
// What the kernel has as it is wanted is the same record. For 10,000 Services of ten
// backends the State takes 15 MiB and have 2 MiB; with ClusterIPs 20 and 5
// (BenchmarkHeap). Objects and Ops are made when they are asked for.
//
// Rejected:
//
//   - One map of boxed objects: 500 bytes an object, twice, and twice more at an audit.
//   - Backends shared between the frontends of a Service: most Services have one, and
//     health and drains give each frontend weights of its own.
//   - Set members computed from a record instead of kept as bits: the kernel may hold
//     any of them without the others, and that must be expressible.
//   - Counts of owners for every object: only addresses, pools and backends that may
//     loop have more than one in practice.
//
// # Audits
//
// An audit reads the whole kernel while changes go on (audit.go), so that no change waits
// for it. What it reads of an object that changed meanwhile is no proof, nor is a gap in
// the kernel's list of virtual servers: such frontends are read once more by themselves.
//
// Rejected:
//
//   - A generation in each object: only the difference of two readings is of use, which is
//     small, and the set of what changed during one audit is smaller.
//   - An audit in slices between changes: the kernel's lists have gaps where they change,
//     however small the slices.
//   - A lock around what is believed, in place of a copy of the list of frontends: the copy
//     takes 10 ms for 10,000 of them.
//
// # Connections and other boxes
//
// A box that takes over for another knows nothing of its connections, but for what
// kernels tell each other (SyncDaemon). By scheduler mh it chooses the same backends
// without that, if the kernel has them in the same order: lb/linux keeps them so, and
// what is not is observed as RealServer.Misplaced. Fleet.Survival says what else is
// needed, and explain tells.
//
// # What a source can't do
//
// Until a source has synced once, nothing is deleted that the process found in
// the kernel and that may be this source's (hold.go). From then on a guard, if the
// operator set one, limits what the source takes away at once (GuardOptions).
package lb
