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
// # Fleets
//
// Several boxes may serve the same VIPs. What this one is to each of them others tell
// the Advertiser (Assign). A Standby announces its VIPs all the time, in a way that
// routers prefer less (Peer.Standby), so that they have a second route at hand and
// need nobody to tell them when the first is gone.
//
// Routers compare, in this order (RFC 4271, 9.1.2.2), LOCAL_PREF, which internal peers
// alone hear of; the length of the path, in which Prepend counts, for external ones
// alone; and the MED, for both. The MED is compared only between routes of one
// neighbouring system, so all boxes of a fleet need the same ASN, LocalASN included.
// With that, routers need no word of configuration for it, neither always-compare-med
// nor deterministic-med (BIRD, FRR and GoBGP are tested with what RouterConfig prints).
// None may set a MED or a LOCAL_PREF of its own on import, though, or ignore what the
// Handicap is made of. Those systems that the neighbouring one tells in turn see the
// path, but not the MED. Where routers spread packets over several next hops, these
// must be alike in all three, so a standby is never among them.
//
// When the owner dies, a router falls to the standby as soon as it knows: at once when
// it loses the link or gets a Cease, within the detection time with BFD, else when the
// hold time is over. BIRD and FRR drop the routes then, graceful restart or not; GoBGP
// keeps them for the restart time, and goes on to prefer them.
//
// When only the owner's weir dies, graceful restart has the routers keep its route and
// prefer it, which is right, for its kernel forwards on. The other boxes wait for it,
// too (restart_grace, see package cluster/owner). If it stays away, another one
// becomes the owner, and routers have two routes that are equally good, of which
// either leads to a box that serves, until the restart time is over. Where BFD takes
// the route away (see above), a restart leads packets to the standby and back.
//
// When somebody else becomes the owner, both boxes say so when they hear of it, and
// nobody waits for anybody. For a moment routers have two good routes, or two bad ones,
// and take whichever they like, or both. Nothing is lost by that: an UPDATE takes the
// place of the one before (RFC 4271, 3.1), so there is a route all the time, and all
// boxes serve all the time. But connections may move to the other box, twice at worst;
// that they survive is the kernel's business, not BGP's. Order is needed only where a
// route is withdrawn. A box is Out once it has heard another one say that it serves
// the VIP, which that one has announced by then. A drain (Shutting) keeps the route for
// as long as it was told to, and no better than a standby's once another box owns the
// VIP: for routers that make nothing of GRACEFUL_SHUTDOWN.
//
// A router should have a session with every box of the fleet: one that hears of the
// standby alone sends its packets there. They are served, but not by the owner.
//
// # What can go wrong
//
// GoBGP runs in this process. Should a router manage to make it panic, the process
// dies, the kernel forwards on, the routers keep the routes, and the next start
// announces them again. Should it hang, Set and Status do not hang with it; Status
// has it as its Problem, and a restart helps.
package bgp
