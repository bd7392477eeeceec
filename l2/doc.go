// Package l2 answers ARP and NDP for exactly the addresses it is told to, on named
// interfaces: for networks without BGP, where neighbours find a VIP by asking for its
// MAC.
//
//	Set(claims) ----> engine: what is said, and when ----> frames ----> interface
//	                    ^  (pure, in virtual time)                         |
//	links, carriers ----+<------- what others say <------- BPF filter -----+
//
// It imports nothing of weir, and decides nothing about who owns what. It is told that
// this box is to have an address (Set), looks whether anybody else answers for it,
// answers, and tells what became of it (Status). An address need not be one of the
// box's: packets come for its MAC, and the kernel forwards them. So the gateway of
// backends is just another claim.
//
// # Why not the kernel
//
// The kernel would answer by itself for every VIP that is on a device of the box, on all
// boxes alike and whether weir lives or not. So it must not: for IPv4 the interfaces
// need arp_ignore=1 (answer only for addresses of the interface itself) and
// arp_announce=2 (never ask with a VIP as the own address), which whoever uses this
// package has to set. For IPv6 nothing is to be set: the kernel answers solicitations
// only for addresses of the very interface that they come in on (ipv6_get_ifaddr with a
// device, in ndisc_recv_ns of net/ipv6/ndisc.c). The VIPs must be on another device, as
// those of IPVS are.
//
// A process that answers is dead when it is dead: nobody answers for a box whose weir
// was killed but those neighbours' caches that still have it, and its kernel serves them
// on.
//
// # What is answered
//
// While a VIP is Held on an interface, and only then:
//
//	who-has, by broadcast or to this box alone    reply to the asker
//	who-has from 0.0.0.0 (a probe, RFC 5227)      reply to the asker, who then must not take it
//	solicitation, to the group or to the VIP      advertisement to the asker: solicited, override, router
//	solicitation from :: (a probe, RFC 4862)      advertisement to all nodes: override, router
//
// The MAC is that of the interface. Frames for another station or another VLAN are not
// looked at; invalid ones (RFC 4861 7.1) are dropped; nothing is learned from any. VLAN
// devices, bonds and bridges are interfaces like others, and are to be named themselves:
// their ports' frames are theirs.
//
// For IPv6 the solicited-node groups of the VIPs are joined on the interface, so that
// switches that snoop MLD let solicitations through: up to 4096 groups for each
// interface; VIPs whose last three bytes are the same share one.
//
// # A takeover
//
// A claim is Probing first. Three probes, 100 ms apart, and 100 ms of silence after the
// last: then it is Held, and answered for. These are the probes of RFC 5227 and RFC
// 4862, but in 300 ms, not in 4 to 7 s: clients wait for it. A Doubtful claim (its
// owner may still live) has eight, 75 ms apart: 600 ms. On a network that loses every
// third frame a probe and its answer come through with 4/9, so that more than 99
// of 100 owners that live are heard; and the last, which hears the announcement, objects
// (see below).
//
// Then the neighbours are told, as their caches still have the old box: gratuitous ARP
// (as a request, and as a reply: some listen to one form only), or an unsolicited
// advertisement with override. At once, and 0.1, 0.5, 1, 2, 5, 10 and 30 s after the
// takeover (frames get lost; a port of a switch with spanning tree is deaf for 30 s
// after its cable is in: make it an edge port), then every Config.Refresh. Measured on
// Linux neighbours: the cache has the new MAC 0.3 s after Set.
//
// A VIP that is released (Set with nil) is not answered for from the moment that Set
// returns, and nothing is said: neighbours go on with what they have, and the old box's
// kernel serves them on, until the new owner speaks. So a move takes nothing from
// anybody who has the VIP in its cache.
//
// Thousands of VIPs at once: what is said unasked goes out at 10,000 frames a second on
// each interface, answers at once. A VIP costs three probes and an announcement, so
// 5,000 of them are taken over within 2.1 s, the first 0.3 s after Set, half within
// 1.2 s. First announcements and defences go before probes, those that have begun before
// those that have not, and all this before second announcements.
//
// # When somebody else has the address
//
// Nothing is claimed that anybody answers for. Such a claim is Contested: probed again
// every 200 ms (every second after 5 s) until three probes (Doubtful: eight) stay
// without an answer, which is at most 0.5 s after the other one fell silent.
//
// If several begin at once they hear each other's probes, and one goes on: among
// fellows (boxes of the fleet, by their MACs) the one that Fellow.Wins says, else the
// smaller MAC.
//
// If a VIP is Held and somebody else says that it has it, by any frame:
//
//	a fellow that wins      yields: Contested from that moment, silent
//	a fellow that does not  announces again, the whole burst, at most once a second
//	a stranger              announces once, at most once a second, and stays Held; it is told:
//	                        Status (Duplicate), a counter, the log
//
// # A network that is split
//
// Boxes that do not hear each other, neither by gossip nor on the network, both claim,
// and each serves its side. When the network is whole again nobody is asked first who
// has what. So whoever sees a member come back calls Announce: each box hears what the
// other holds, the loser yields within a round trip, and the winner's burst, which ends
// last, puts the neighbours' caches right. Without that call it happens at the next
// Config.Refresh. Each VIP then has exactly one holder (shown by simulation for any
// order of splits, losses, claims and releases, and with two Linux bridges).
//
// If only gossip is split, the box that is thought dead answers the probes: nothing
// moves, whatever the members think of each other.
//
// A box without a carrier holds nothing (Idle). When the cable is back it probes first:
// there is no second owner.
//
// # What it costs, and what bounds it
//
// A packet socket for each interface and family that has VIPs there. Its filter runs in
// the kernel before anything is copied: ARP only comes to the one, and of all IPv6 but
// neighbour messages the other sees one byte. It passes what speaks of an address within
// up to 16 ranges around the VIPs: a network's other chatter does not wake the process.
// A flood for the VIPs themselves is read at 20,000 frames a second (4 % of a processor),
// the rest is dropped in a buffer of 1 MB and counted (Unheard); the log has a line a
// second at most for each interface. Interfaces are followed by rtnetlink, with a look
// every 5 s besides.
//
// # Limits
//
//   - Whoever can send frames on a network can claim any address on it: ARP and NDP know
//     no keys. Conflicts are seen and told, and nothing more.
//   - Neighbours that ignore gratuitous ARP, or accept it only for what they asked for,
//     find the new box when their entry ends. Routers often do (the knob is called
//     gratuitous ARP, or ARP learning): for them BGP is better.
//   - One box carries all the traffic of a VIP: that is what a MAC means.
//   - An address that is claimed on two interfaces of one network is answered for by
//     both, with two MACs, and flaps. Name one of them, or a bond.
//   - NDP with extension headers is not read (nobody sends it, RFC 6980 forbids
//     fragments), nor is secure neighbour discovery (RFC 3971).
//
// # Its libraries
//
// golang.org/x/sys/unix for sockets and golang.org/x/net/bpf to assemble filters, which
// no other package of weir's knows; vishvananda/netlink for interfaces. mdlayher's arp
// and ndp packages were looked at. The latter speaks by the kernel's ICMPv6 socket,
// bound to an address of the interface: a solicitation for an address that the box only
// forwards (a gateway) never arrives there, and nothing can be said in the name of one.
// The former reads every ARP frame of a network, without a filter. What would be left of
// them, two formats of 28 and 24 bytes, is in arp.go and ndp.go, with fuzz tests.
package l2
