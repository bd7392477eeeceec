// Package bgp keeps BGP sessions with routers and announces exactly the routes that it is
// given. It never imports a route and never decides what is announced: package advertise
// does, and routerconfig prints the routers' side. Only this package knows GoBGP.
//
//	lb.Route --> advertise.Advertiser (pure) --> changes --> Speaker.Set --> GoBGP --> routers
//
// # Routes
//
// IPv4 and IPv6 unicast over one session of either family. The next hop is an address of
// the box: for the session's own family that of the session, for the other one that of
// its interface, unless it is configured. Over IPv6 without a known IPv4 address, IPv4
// routes have the IPv6 address (RFC 8950) if the router accepts it. eBGP routers get a
// MED and no LOCAL_PREF, iBGP routers both. The MED is always sent: 0 if the rule has
// none. Received routes are only counted; a router that sends more than MaxPrefixes is
// disconnected for an hour.
//
// The OPEN has GoBGP's capabilities: also route refresh, extended messages, extended next
// hops, the host's name, and to iBGP routers GoBGP's version.
//
// # Sessions
//
// GoBGP connects every ConnectRetry, for the first time after two seconds. A session that
// lasted ten seconds and is lost is retried at once, any other after five seconds. Routers
// that connect by themselves have a session sooner. If both sides connect at the same
// time, GoBGP resolves the collision; it has no call that cancels its own connection.
//
// GoBGP queues updates for a router without limit, and waits without limit for one that
// sends keepalives and reads nothing. weir ends such a session when nothing could be sent
// for the hold time (RFC 9687), so the queue is bounded by the changes in that time.
//
// # Restarts
//
// With Config.GracefulRestart, and a router with it (as a helper), a restart of weir is
// not noticed: the connection ends without a NOTIFICATION, the router keeps the routes
// for the agreed time, and the kernel forwards. The same holds for a crash. Afterwards
// weir announces that forwarding continued (the R and F bits of RFC 4724), then all
// routes, then an End-of-RIB marker for each family; the router drops the routes that are
// missing. So everything must be Set before the first Configure. weir announces one
// second after a session is back. It does not wait for the routes of the router, as
// RFC 4724 demands from a router.
//
// Routers of a range get neither bit, since GoBGP cannot send them: they keep the routes
// while weir is down, drop them when it is back and have them again some milliseconds
// later. Configure routers one by one where that matters.
//
// # BFD
//
// BFD detects a dead box, link or router in less than a second. But weir's BFD sessions
// end with weir. So a restart with graceful restart has two effects on a router: a
// connection that ended, so the routes stay, and a BFD session that goes down, so the
// routes usually go. RFC 5882, 4.3 leaves the choice to the router. A bit of BFD packets
// (C) states whether BFD is independent of the control plane; weir's is not set.
//
// On Close the connections end first. A moment later, when the routers have begun the
// graceful restart, the BFD sessions end as on purpose (AdminDown, RFC 5880, 6.8.16).
// RFC 5882, 3.2 states that this is no reason to end anything. The packet has another
// discriminator than the session, which GoBGP does not report. A router may refuse it (BIRD
// 2.0.12 logs "mismatched remote id"). Then its BFD session ends with the detection time. If
// weir is back sooner, the router may end the next BGP session then. The result on the router:
//
//   - FRR with "neighbor ... bfd" supports both. A BFD session that goes down ends an
//     established BGP session and its routes, so a power cut is found; a graceful restart
//     that has begun continues. With "check-control-plane-failure" it ignores BFD
//     whenever graceful restart was agreed: then a power cut costs the hold time and the
//     restart time.
//   - BIRD supports one of both. With "bfd on;" BFD down drops the routes, also those of
//     a graceful restart: a power cut is found, a restart is noticed. With
//     "bfd graceful;" it begins a graceful restart: a restart is not noticed, a box
//     without power keeps its routes for the restart time.
//   - Others: see their documentation about BFD and graceful restart.
//
// Where a router supports one of both, use BFD and drain the box before a restart. Or use
// no BFD: then a dead box costs the hold time and the restart time.
//
// BFD is GoBGP's. It starts a second after the process, listens on all addresses, and
// sends from the address that the routing table selects (not from Peer.Source). A filter on
// its socket drops packets with a TTL or hop limit other than 255 (RFC 5881, 5): they come
// from beyond the link. Without the filter no BFD session comes up, only BGP sessions do.
//
// # Fleets
//
// Several boxes may serve the same VIPs. The role of this one is assigned to the
// Advertiser (Assign). A Standby announces its VIPs all the time, in a less preferred
// way (advertise.Handicap), so that routers have a second route when the first is gone.
//
// Routers compare, in this order (RFC 4271, 9.1.2.2), LOCAL_PREF, which only internal
// peers get; the length of the path, which Prepend increases for external ones; and the
// MED. The MED is compared only between routes of one neighbouring system, so all boxes of
// a fleet need the same ASN, LocalASN included. Then routers need no configuration for
// it, neither always-compare-med nor deterministic-med (BIRD, FRR and GoBGP are tested
// with the output of routerconfig). They must not set a MED or a LOCAL_PREF on import,
// or ignore the attributes of the Handicap. Systems behind the neighbouring one see the
// path, but not the MED. Where routers use several next hops, all three must be equal, so
// a standby is never among them.
//
// When the owner dies, a router changes to the standby as soon as it knows: at once when
// it loses the link or gets a Cease, within the detection time with BFD, else after the
// hold time. BIRD and FRR drop the routes then, graceful restart or not; GoBGP keeps and
// prefers them for the restart time.
//
// When only the owner's weir dies, graceful restart makes the routers keep and prefer its
// route, which is right, since its kernel forwards. The other boxes wait for it, too
// (restart_grace, see package cluster/owner). If it stays down, another one becomes the
// owner. Then routers have two equal routes, each to a box that serves, until the restart
// time is over. Where BFD drops the route (see above), a restart moves packets to the
// standby and back.
//
// When the owner changes, both boxes announce it independently. For a moment routers have
// two good routes, or two bad ones, and use either or both. No packet is lost by that: an
// UPDATE replaces the one before (RFC 4271, 3.1), so there is a route all the time, and
// all boxes serve all the time. But connections may move to the other box, twice at
// worst; their survival is up to the kernel. Order matters only where a route is
// withdrawn. A box is Out when another one has published that it serves the VIP, which it
// has announced by then. A drain (Shutting) keeps the route for the configured time, and
// once another box owns the VIP it is no better than a standby's: for routers that ignore
// GRACEFUL_SHUTDOWN.
//
// A router should have a session with every box of the fleet: one that only has the
// standby's route sends its packets there.
//
// # Failures
//
// GoBGP runs in this process. If a router makes it panic, the process dies, the kernel
// forwards, the routers keep the routes, and the next start announces them again.
//
// A panic of the Speaker's goroutine, which drives GoBGP, does not end the process, nor does
// one of a callback of GoBGP. After a panic during a change GoBGP is started again, after a
// pause of 1 s, which doubles up to a minute with each panic that follows soon. After any
// other one the sessions stay and routes are changed: only polls pause.
//
// GoBGP is also started again for another ASN, router ID or listener. For each router this
// counts as one lost session. Routers of a range are unknown until they connect again.
//
// If GoBGP hangs, Set and Status do not; Status has a Problem, and a restart helps.
package bgp
