package config

import "slices"

const (
	maxUint32 = 1<<32 - 1
	// mostPrepend is how many times more the box's system may stand in a path.
	mostPrepend = 16
)

// families are the names of the two.
var families = []string{"ipv4", "ipv6"}

var bgpKeys = []Key{
	{Path: "bgp", Type: Table,
		Doc: "The box tells routers by BGP which VIPs it serves, and learns nothing from them. A reload that changes a peer resets " +
			"that one's session; asn, router_id or where weir listens all of them. Only a [bgp] that comes or goes needs a restart."},
	{Path: "bgp.asn", Example: `64500`, Type: Integer, Required: true, min: 1, max: maxUint32,
		Doc: "The box's autonomous system."},
	{Path: "bgp.router_id", Type: Text, Default: `""`,
		Doc: "The box's BGP identifier: an IPv4 address that no other router has. \"\" is the box's own address towards its first " +
			"IPv4 peer, so that several boxes can have the same file."},
	{Path: "bgp.listen_port", Type: Integer, Default: `179`, max: 65535,
		Doc: "The port that peers connect to. 0 is none: weir connects to its peers alone, for instance where another speaker has the port."},
	{Path: "bgp.listen_addresses", Type: Texts, Default: `[]`,
		Doc: "The box's own addresses that peers connect to; none is all."},
	{Path: "bgp.next_hop", Type: Text, Default: `""`,
		Doc: "The next hop of IPv4 routes, an address of the box; \"\" is that of the session, or one of its interface."},
	{Path: "bgp.next_hop_v6", Type: Text, Default: `""`,
		Doc: "The next hop of IPv6 routes, likewise."},
	{Path: "bgp.graceful_restart", Type: Duration, Default: `"120s"`, max: 4095 * sec,
		Doc: "How long peers keep the routes while weir is away, and the kernel forwards on (RFC 4724): in whole seconds; 0s is not at all."},
	{Path: "bgp.hold_down", Type: Duration, Default: `"5s"`, max: hour,
		Doc: "A route that was withdrawn because no backend was left comes back when there has been one for so long. The first " +
			"time it is announced at once."},
	{Path: "bgp.floor", Type: Percent, Unit: "part of what is announced", Default: `"50%"`, max: 100,
		Doc: "Not more is withdrawn at once for want of backends than leaves this part: when everything seems down, it is rather " +
			"the box that sees wrong. Those that are kept go as others come back; of fewer than four none is kept. 0% withdraws all."},
	{Path: "bgp.drain_delay", Type: Duration, Default: `"10s"`, max: hour,
		Doc: "How long weir drain leaves routers the routes, with the community that has them prefer others (RFC 8326), before it " +
			"withdraws them."},
	{Path: "bgp.standby", Type: Text, Default: `"med"`, Values: standbyWays,
		Doc: "How a box of a fleet has routers prefer the owner of a VIP to itself, while another one owns it: its own route bears a " +
			"MED of 100 more than else, a local_pref of 50 less (internal peers alone hear of that), or its autonomous system 3 " +
			"times more in the path (external ones alone). Routers compare the MEDs of one system: all boxes need the same asn."},
	{Path: "bgp.communities", Type: Map, Default: `{}`, Example: `{ customers = "64500:100" }`,
		Doc: "Names for communities, to be written in their place: { customers = \"64500:100\", all = \"64500:1:0\" }."},
}

var peerKeys = []Key{
	{Path: "bgp.peer", Type: Tables, Doc: "A router that is told."},
	{Path: "bgp.peer.name", Example: `"tor1"`, Type: Text, Required: true,
		Doc: "What the peer is called everywhere: 1 to 63 of a-z, 0-9, - and ., its own among all peers."},
	{Path: "bgp.peer.address", Example: `"10.0.0.1"`, Type: Text,
		Doc: "Its address, IPv4 or IPv6; a link-local one with its interface: \"fe80::1%eth0\". Either this or range is needed."},
	{Path: "bgp.peer.range", Example: `"10.0.0.0/24"`, Type: Text,
		Doc: "In place of address: all routers that connect from this range."},
	{Path: "bgp.peer.asn", Example: `64501`, Type: Integer, Required: true, max: maxUint32,
		Doc: "Its autonomous system; that of the box makes it an internal peer (iBGP). With range 0 is any."},
	{Path: "bgp.peer.local_asn", Type: Integer, Default: `0`, max: maxUint32,
		Doc: "The autonomous system that the peer takes the box for; 0 is that of [bgp]."},
	{Path: "bgp.peer.port", Type: Integer, Default: `179`, min: 1, max: 65535,
		Doc: "The port that it listens on."},
	{Path: "bgp.peer.source_address", Type: Text, Default: `""`,
		Doc: "The box's own address of the session; \"\" is the kernel's choice."},
	{Path: "bgp.peer.multihop", Type: Integer, Unit: "hops", Default: `0`, max: 255,
		Doc: "How far away an external peer may be, from 2; 0 is on the same link. An internal one may be anywhere."},
	{Path: "bgp.peer.ttl_security", Type: Integer, Unit: "hops", Default: `0`, max: 254,
		Doc: "Drops packets that have come further than so many hops (RFC 5082), so that nobody far away can attack the session: 1 " +
			"is the same link. The peer must do so too. 0 is off."},
	{Path: "bgp.peer.password_file", Type: Text, Default: `""`,
		Doc: "The file with the password that signs each segment (TCP MD5, RFC 2385), 1 to 80 bytes, relative to this file, or " +
			"credential:NAME. It is read again at every reload, and shown nowhere."},
	{Path: "bgp.peer.passive", Type: Bool, Default: `false`,
		Doc: "Waits for the peer to connect."},
	{Path: "bgp.peer.hold_time", Type: Duration, Default: `"9s"`, min: 3 * sec, max: 65535 * sec,
		Doc: "How long a silent peer counts as there, in whole seconds; the shorter one of both sides holds."},
	{Path: "bgp.peer.keepalive", Example: `"3s"`, Type: Duration, min: sec, max: 21845 * sec,
		Doc: "How often the box says that it is there, in whole seconds: at most a third of hold_time, which it is if left out."},
	{Path: "bgp.peer.connect_retry", Type: Duration, Default: `"5s"`, min: 2 * sec, max: hour,
		Doc: "How long to wait before connecting again, in whole seconds."},
	{Path: "bgp.peer.bfd", Type: Bool, Default: `false`,
		Doc: "Finds out in less than a second that the peer on the same link is gone (BFD, RFC 5881). The peer must do so too."},
	{Path: "bgp.peer.bfd_interval", Type: Duration, Default: `"300ms"`, min: 10 * ms, max: 60 * sec,
		Doc: "The time between two packets of BFD, in both directions."},
	{Path: "bgp.peer.bfd_multiplier", Type: Integer, Unit: "packets", Default: `3`, min: 1, max: 255,
		Doc: "After so many lost packets in a row the peer is gone."},
	{Path: "bgp.peer.families", Type: Texts, Default: `["ipv4", "ipv6"]`, Values: families,
		Doc: "The families of the routes that the peer is told, whichever the session runs over."},
	{Path: "bgp.peer.next_hop", Type: Text, Default: `""`,
		Doc: "The next hop of IPv4 routes for this peer, if not as [bgp] says."},
	{Path: "bgp.peer.next_hop_v6", Type: Text, Default: `""`,
		Doc: "The next hop of IPv6 routes for this peer, if not as [bgp] says."},
	{Path: "bgp.peer.standby", Example: `"local_pref"`, Type: Text, Values: standbyWays,
		Doc: "How this peer is told, if not as [bgp] says."},
	{Path: "bgp.peer.max_prefixes", Type: Integer, Unit: "routes of a family", Default: `10`, min: 1, max: 1000000,
		Doc: "A peer that sends more takes the box for something else: its session ends, and is tried again after an hour. No " +
			"route of a peer is used in any case."},
}

// announcement are the keys that say how VIPs are announced: in a rule, and in a
// pool for its own addresses.
func announcement(table string) []Key {
	return []Key{
		{Path: table + ".announce", Type: Bool, Default: `true`,
			Doc: "Whether they are announced at all."},
		{Path: table + ".peers", Type: Texts, Default: `[]`,
			Doc: "The peers that hear of them; none is all."},
		{Path: table + ".communities", Type: Texts, Default: `[]`,
			Doc: "Communities of the routes: \"64500:100\" (RFC 1997), \"64500:1:100\" (large, RFC 8092), well-known ones such as " +
				"\"no-export\", or names that [bgp] communities gives them."},
		{Path: table + ".local_pref", Type: Integer, Default: `100`, max: maxUint32,
			Doc: "The local preference of the routes, for internal peers: the higher one wins."},
		{Path: table + ".med", Example: `50`, Type: Integer, max: maxUint32,
			Doc: "The MED of the routes: the lower one wins. Left out, they have none."},
		{Path: table + ".prepend", Type: Integer, Unit: "times", Default: `0`, max: mostPrepend,
			Doc: "How many times more the box's autonomous system stands in the path: the shorter one wins."},
		{Path: table + ".aggregate", Type: Integer, Unit: "prefix length", Default: `32`, min: 8, max: 32,
			Doc: "The length of IPv4 routes: 32 is one for each address, 24 one for up to 256, which stands while one of them is " +
				"served. Its other addresses answer unreachable."},
		{Path: table + ".aggregate_v6", Type: Integer, Unit: "prefix length", Default: `128`, min: 16, max: 128,
			Doc: "The length of IPv6 routes, likewise."},
	}
}

// announcedKinds are the values of vips; static is those of static services.
var announcedKinds = []string{"LoadBalancer", "ExternalIP", "ClusterIP", Source}

var advertiseKeys = slices.Concat([]Key{
	{Path: "bgp.advertise", Type: Tables,
		Doc: "Which VIPs which peers hear of, and how. For each peer the first one that fits a VIP counts, in the order of the file, " +
			"then what the VIP's pool says. Without any [[bgp.advertise]] all LoadBalancer and static VIPs are announced; with one " +
			"those that fit, and those of pools."},
	{Path: "bgp.advertise.vips", Type: Texts, Default: `["LoadBalancer", "static"]`, Values: announcedKinds,
		Doc: "It fits VIPs of these kinds; static are those of every [[service]]."},
	{Path: "bgp.advertise.pools", Type: Texts, Default: `[]`,
		Doc: "It fits VIPs of these pools; none is any VIP."},
	{Path: "bgp.advertise.clusters", Type: Texts, Default: `[]`,
		Doc: "It fits Services of these clusters; none is any Service."},
	{Path: "bgp.advertise.namespaces", Type: Texts, Default: `[]`,
		Doc: "It fits Services of these namespaces; none is any."},
	{Path: "bgp.advertise.services", Type: Texts, Default: `[]`,
		Doc: "It fits Services of these names, \"web\" or \"shop/web\"; none is any."},
	{Path: "bgp.advertise.labels", Type: Map, Default: `{}`, Example: `{ tier = "gold" }`,
		Doc: "It fits Services that have all these labels."},
}, announcement("bgp.advertise"))
