// Package drill lets things go wrong in a fleet of boxes, counts what clients notice, and compares
// that with what is promised: one Row for an event in a mode. The modes are weir's, and keepalived
// beside them, from Debian's package, on the same kernels and in the same run.
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
// to far is in. The router is FRR. Of an address of that network it asks who has it, of any other
// it knows what boxes tell it by BGP; near asks who has an address all the time, and counts
// everybody who answers.
//
// Nothing here knows weir but by its command and its configuration. Clients are goroutines of this
// process with sockets in the hosts' networks: what they measure is not slowed by a kernel that is
// simulated. Times are of the monotonic clock.
package drill
