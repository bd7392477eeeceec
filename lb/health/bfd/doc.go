// Package bfd keeps asynchronous BFD sessions (RFC 5880) with single addresses: over one link
// (RFC 5881) or over routers (RFC 5883). It never decides the effect of a session that is down,
// and imports nothing of weir.
//
// Packet is the message, machine the state of a session as plain data without clock or I/O, and
// Run has its sockets and timers. There is no authentication, no echo function and no demand
// mode of its own. A peer may use demand mode.
//
// BFD of BGP peers is GoBGP's, which has no way to watch another host. Its socket receives all
// packets of the port except those from addresses that a session of this package is connected
// to, so both work in one process. Package bgp has the packets and the TTL filter from here.
package bfd
