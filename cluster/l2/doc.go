// Package l2 answers ARP and NDP for exactly the addresses that are claimed, on named
// interfaces. It never decides which member owns an address, and it never changes the
// addresses of the box. It is for networks without BGP, where neighbours resolve a VIP
// to a MAC address.
//
//	Set(claims) --> engine: state and schedule of each claim --> frames --> interface
//	                  ^  (pure, in virtual time)                               |
//	links, carriers --+<------ frames of other hosts <------- BPF filter ------+
//
// It imports nothing of weir. A claim (Set) makes the box probe for the address, announce
// it and answer; Status shows the result. An address need not be assigned to the box:
// packets arrive for its MAC address, and the kernel forwards them. So the gateway of
// backends is a claim like any other.
//
// # Files
//
//	config.go               what a caller gives: Config, Claim, Member
//	answerer.go, run.go     the Answerer, and the goroutine that ties engine, sockets and links
//	engine.go, binding.go   claims, conflicts, and the schedule of a VIP on an interface
//	state.go, queue.go      what the engine remembers, and what waits for a time
//	message.go, arp.go, ndp.go, frames.go    frames: parse, and write
//	port.go, socket.go, filter.go, groups.go, links.go    the kernel: sockets, BPF, multicast, interfaces
//	status.go, summary.go   status, and lines of the log
//
// # Why not the kernel
//
// The kernel answers for every VIP that is assigned to a device, on all boxes alike and
// whether weir runs or not. Therefore the interfaces need arp_ignore=1 (answer only for
// addresses of the interface) and arp_announce=2 (never use a VIP as the sender address);
// the user of this package sets both. IPv6 needs no setting: the kernel answers
// solicitations only for addresses of the interface on which they arrive (ipv6_get_ifaddr
// with a device, in ndisc_recv_ns of net/ipv6/ndisc.c). The VIPs must be on another
// device, as those of IPVS are.
//
// When weir is killed, nothing answers for its box. Neighbours keep their cache entries,
// and the kernel serves them.
//
// # Answers
//
// While a VIP is Answered on an interface, and only then:
//
//	who-has, broadcast or unicast                 reply to the sender
//	who-has from 0.0.0.0 (a probe, RFC 5227)      reply to the sender, which then must not use it
//	solicitation, to the group or to the VIP      advertisement to the sender: solicited, override, router
//	solicitation from :: (a probe, RFC 4862)      advertisement to all nodes: override, router
//
// The MAC address is that of the interface. Frames for another host or another VLAN are
// ignored; invalid ones (RFC 4861 7.1) are dropped; no frame changes a neighbour table.
// VLAN devices, bonds and bridges are interfaces like others: name them, not their ports.
//
// For IPv6 the solicited-node groups of the VIPs are joined on the interface, so that
// switches with MLD snooping forward solicitations: up to 4096 groups an interface. VIPs
// with the same last three bytes share a group.
//
// # Takeover
//
// A claim starts as Probing: three probes, 100 ms apart, and 100 ms of silence after the
// last. Then it is Answered. These are the probes of RFC 5227 and RFC 4862, but in 300 ms
// rather than 4 to 7 s, because clients wait. A Cautious claim sends eight probes, 75 ms
// apart: 600 ms. On a network that loses every third frame, a probe and its answer
// arrive with a probability of 4/9, so more than 99 of 100 live owners are found. An
// owner that was missed sees the announcement and objects (see Conflicts).
//
// Then neighbours are updated: by gratuitous ARP, as a request and as a reply, or by an
// unsolicited advertisement with the override flag. They are sent at once and 0.1, 0.5,
// 1, 2, 5, 10 and 30 s later, since frames get lost and a switch port with spanning tree
// blocks for 30 s after link up (make it an edge port). After that they are sent every
// Config.GARPInterval. Measured on Linux neighbours: the cache has the new MAC address
// 0.3 s after Set.
//
// From the moment that Set releases a VIP it is no longer answered for, and nothing is
// sent. Neighbours keep their entries, and the kernel of the old box serves them until
// the new owner announces the VIP. So a move interrupts no neighbour.
//
// Unsolicited frames are paced at 10,000 a second on each interface; answers are sent at
// once. A VIP costs three probes and an announcement. So 5,000 VIPs are taken over within
// 2.1 s, the first one 0.3 s after Set and half of them within 1.2 s. First announcements
// and defences precede probes, and probing that has begun precedes new probing.
//
// # Conflicts
//
// A VIP for which another host answers is not taken. Such a claim is Contested: it is
// probed every 200 ms (every second after 5 s) until three probes stay unanswered, which is
// at most 0.5 s after the other host stopped, and 1.3 s after those 5 s. For a Cautious
// claim, and for a member that counts as dead and answers, it is eight probes, 0.8 s and
// 1.6 s: such a member may live, and a virtual box may have no processor for some tenths
// of a second.
//
// Some networks answer for a box that is dead: a router with proxy ARP with its own MAC
// address, a switch with ARP suppression (EVPN) with that of the dead box. They answer
// probes, and send nothing else. A live holder that is probed by a member announces the VIP
// 150 ms later, at most once a second. So a VIP is taken although another host answers,
// when that host has sent nothing but answers for 5 s, and
//
//	the host is a member     that member is dead (Member.Gone)
//	the host is foreign      the last owner is dead (Claim.Orphaned)
//
// Then the VIP is Answered and Overruled; a counter and the log have it. Other hosts that
// resolve the VIP still get two answers, until the network forgets the dead box.
//
// Hosts that begin at once receive each other's probes, and one goes on: among members
// the preferred one (Member.Preferred), else the one with the smaller MAC address.
//
// If a VIP is Answered and another host uses it, in any frame:
//
//	a preferred member   this box yields at once: Contested, silent
//	another member       this box announces again, the whole burst, at most once a second
//	a foreign host       this box announces once, at most once a second, and keeps it;
//	                     the conflict is in Status (Duplicate), a counter and the log
//
// # Partitions
//
// Boxes that receive neither gossip nor frames from each other both claim, and each
// serves its side. Nothing is probed when the network heals. So the user calls Announce
// when a member comes back: each box sees what the other holds, the other than the
// preferred one yields within a round trip, and the burst of the owner, which ends last,
// corrects the caches. Without the call it happens after Config.GARPInterval. Each VIP
// then has exactly one holder (shown by simulation for any order of partitions, losses,
// claims and releases, and with two Linux bridges). Member.Preferred is the tie-break of
// package owner, so that the holder is the owner and does not change again.
//
// If only the gossip is cut, the box that is considered dead answers the probes and
// announces the VIP, and nothing moves. A box of a version without that announcement is
// overruled once; then the tie-break decides.
//
// A box without a carrier holds nothing (Idle). After link up it probes first, so there
// is no second owner.
//
// # Cost
//
// A packet socket for each interface and family with VIPs. Its filter runs in the kernel
// before a frame is copied. It passes frames about addresses within up to 16 ranges
// around the VIPs, so other traffic does not wake the process. A flood for the VIPs
// themselves is read at 20,000 frames a second (4 % of a processor). The rest is dropped
// in a buffer of 1 MB and counted (ReceiveDrops), as is a frame that makes weir panic. The
// log has at most one line a second for each interface, and six a minute about other
// hosts. Interfaces are followed by rtnetlink and checked every 5 s.
//
// # Limits
//
//   - Any host on a network can claim any address: ARP and NDP are not authenticated.
//     Conflicts are detected and reported, and nothing more.
//   - Neighbours that ignore gratuitous ARP find the new box when their entry expires.
//     Routers often do (the setting is called gratuitous ARP, or ARP learning): prefer BGP.
//   - One box carries all traffic of a VIP.
//   - An address that is claimed on two interfaces of one network has two MAC addresses
//     and flaps. Name one of them, or a bond.
//   - NDP with extension headers is not parsed (RFC 6980 forbids fragments), nor is secure
//     neighbour discovery (RFC 3971).
//
// # Libraries
//
// golang.org/x/sys/unix for sockets and golang.org/x/net/bpf to assemble filters;
// vishvananda/netlink for interfaces. mdlayher's ndp uses the kernel's ICMPv6 socket, which
// is bound to an address of the interface: it receives no solicitation for an address that
// the box only forwards, and cannot send in its name.
// mdlayher's arp reads every ARP frame without a filter.
package l2
