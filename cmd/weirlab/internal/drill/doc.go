// Package drill causes failures in a fleet of boxes, counts the requests and connections that
// clients lose, and compares the counts with the promises: one Row for an event in a mode. It never
// retries an event. The modes are those of weir and, for comparison, keepalived from Debian's
// package, on the same kernels and in the same run.
//
//	                            near 10.1.0.50
//	                                 |
//	client -- lan -- router ------ front ---- box1 10.1.0.1 --\          /-- web1 10.2.0.11
//	10.0.0.2      10.1.0.254         |                         \        /
//	                              switch                        -- back ---- web2 10.2.0.12
//	                                 |                         /        \
//	                               far  ------ box2 10.1.0.2 --          \-- web3 10.2.0.13
//
// A third box is beside the second. front and far are one network, as long as the switch's cable
// to far is in. The router is FRR. It resolves addresses of that network via ARP, and learns
// routes to others from the boxes via BGP. near requests the owner of an address continuously, and
// counts all answers.
//
// The package uses weir only by its command, its configuration and its document of members. The clients are those of package
// traffic. Times are of the monotonic clock.
//
// # What fails
//
// A promise limits the requests lost, the connections cut and the moves of an owner. One that is
// broken fails the drill, unless package known lists it, as "drill MODE: EVENT: requests lost"; a
// listed one that is kept fails the drill too. A promise also limits the time without service and the
// time with two owners. Those depend on the machine: they are compared in the table (SLOW) and fail
// nothing. Only the waits for a fleet to be whole have a limit, of a minute and more, that fails.
//
// A short drill runs all of the code in the least time, and is a test. A full one has all modes, and is
// a part of make soak.
package drill
