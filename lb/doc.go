// Package lb decides what a weir box should do; it never does it.
//
// Services come in from sources (the TOML file, Kubernetes clusters), kernel
// objects come out:
//
//	Update --> Catalog --> Service --\
//	                                  Plan --> State (want) --\
//	health, host addresses --> Facts -/                        Diff --> []Op --> Kernel.Apply
//	                     Kernel.Observe --> Snapshot (have) --/
//
// The package is pure: no I/O, no clock of its own, no logger, and nothing but
// the standard library. It imports nothing of weir; everything else imports it.
// The kernel is behind the Kernel interface, with two implementations: lb/linux
// and the working Fake in this package.
//
// # Glossary
//
// One word per thing, the same in code, TOML, metrics, logs and command line:
//
//	Service   what clients want: VIPs, ports and the backends behind them
//	Backend   one address and port that answers for a Service
//	VIP       a virtual address of a Service
//	Frontend  one VIP, port and protocol; the kernel calls it a virtual server
//	Source    who says that a Service exists: "static", or a cluster's name
//	Object    one thing in the kernel that weir owns, a small comparable value
//	Op        a verb and an Object; what is applied, logged and printed
//	Note      what could not be done for a Service, with an enumerated reason
//	Drain     a backend that gets no new connections while its old ones end
//
// # Properties
//
// The tests of this package hold these for random services, states and orders:
//
//   - Applying the Ops of Diff gives the wanted State, from any state.
//   - Nothing to do means no Ops.
//   - No prefix of the Ops lets traffic land where neither the old nor the new
//     state would let it (order.go).
//   - Plan and State do not depend on the order of their input.
//   - An Object with two owners stays until both have let go of it.
//   - An error never becomes a deletion (reconcile.go).
//
// # Ownership
//
// weir removes only what it made. Sets, chains, the device and the routes bear
// its names. A virtual server is weir's when its tuple is a member of one of
// weir's frontend sets (LOAD-BALANCER, CLUSTER-IP): the member is written before
// the virtual server and removed after it, so the kernel itself is the record,
// and a process killed at any instant leaves nothing it would not recognise
// later. Everything else in IPVS belongs to strangers and is left alone; a
// Service that wants a stranger's tuple gets a Note.
package lb
