// Package bgp keeps exactly the routes announced that it is told to announce.
//
// It is the only package that knows GoBGP. What weir needs of BGP is small: nothing
// is imported, two families are spoken, and every route is weir's own.
//
//	lb.Route --> Advertiser (pure) --> changes --> Speaker.Set --> GoBGP --> routers
//
// The package imports nothing of weir but lb; the daemon imports it.
//
// # What a router gets
//
// IPv4 and IPv6 unicast over one session of either. The next hop is an address of
// the box: for the session's own family that of the session, for the other one that
// of its interface, unless the configuration has one. Over IPv6, where no IPv4
// address is known, IPv4 routes have the IPv6 address (RFC 8950) if the router takes
// that. eBGP routers get a MED and no LOCAL_PREF, iBGP routers both. Of what a router
// sends only the count is looked at; one that sends more than MaxPrefixes is cut off
// for an hour.
//
// In its OPEN weir says what GoBGP always does: also route refresh, extended messages,
// extended next hops, the host's name, and to iBGP routers GoBGP's version.
//
// # Sessions
//
// GoBGP tries to connect every ConnectRetry, for the first time after two seconds. A
// session that lasted ten seconds and is lost is tried again at once, any other after
// five seconds. Routers that connect by themselves have a session sooner.
//
// # Restarts
//
// With Config.GracefulRestart, and a router that has it too (as a helper), a restart
// of weir goes unnoticed: the connection ends without a NOTIFICATION, the router
// keeps the routes for as long as it was asked to, and the kernel forwards on. The
// same holds when weir crashes. When it is back it says that forwarding went on (the
// R and F bits of RFC 4724), announces everything, then an End-of-RIB marker for each
// family; what it did not announce again the router drops. So everything has to be
// Set before the first Configure. weir announces one second after each session is
// back, and does not wait for what a router has to say, as RFC 4724 would have a
// router do.
//
// Routers of a range are told neither bit, since GoBGP has no way to: they keep the
// routes while weir is away, but drop them when it comes back and have them again
// some milliseconds later. Give routers an entry of their own where that matters.
//
// # BFD
//
// BFD finds a dead box, link or router in less than a second. But weir's BFD sessions
// end with weir. So when weir restarts while graceful restart is on, a router sees
// two things: a connection that ended, which means that the routes stay, and a BFD
// session that goes down, which mostly means that they go. RFC 5882, 4.3 leaves it to
// the router what to do; BFD packets have a bit (C) that tells whether BFD lives with
// the control plane, and weir's, to the truth, don't have it set.
//
// On Close weir makes the best of it: it ends the connections first, and a moment
// later, when the routers have begun to wait for it, the BFD sessions, as on purpose
// (AdminDown, RFC 5880, 6.8.16). RFC 5882, 3.2 says that this is no reason to end
// anything, and at least it does not come in the midst of the next session. What
// comes of that on the router:
//
//   - FRR with "neighbor ... bfd": has both. A BFD session that goes down ends a BGP
//     session that is there, and the routes with it, so the power cut is found; but
//     what graceful restart keeps, once it has begun, it leaves alone.
//     With "check-control-plane-failure" it ignores BFD's going down whenever graceful
//     restart was agreed on: then the power cut costs the hold time and the restart
//     time.
//   - BIRD has one of both. With "bfd on;" BFD's going down drops the routes, also
//     those that graceful restart keeps: the power cut is found, a restart is noticed.
//     With "bfd graceful;" it begins a graceful restart: a restart goes unnoticed, a
//     box without power keeps its routes for the restart time.
//   - Others: look for what their documentation says of BFD and graceful restart.
//
// Where a router has one of both, have BFD, and drain the box before a restart; or
// have no BFD, and know that a dead box costs the hold time and the restart time.
//
// BFD is GoBGP's. It starts a second after the process, listens on all addresses,
// sends from the address that the routing table gives (not from Peer.Source), and
// does not look at the TTL of what it gets.
//
// # What can go wrong
//
// GoBGP runs in this process. Should a router manage to make it panic, the process
// dies, the kernel forwards on, the routers keep the routes, and the next start
// announces them again. Should it hang, Set and Status do not hang with it; Status
// has it as its Problem, and a restart helps.
package bgp
