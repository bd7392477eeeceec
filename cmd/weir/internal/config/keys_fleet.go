package config

var fleetKeys = []Key{
	{Path: "cluster", Type: Table,
		Doc: "The fleet: boxes that serve the same VIPs, know by gossip who of them is alive and fit, and share the VIPs without a " +
			"leader. A reload brings all into effect; with another name, member, bind, advertise, timing or allowed the box joins anew."},
	{Path: "cluster.name", Example: `"edge"`, Type: Text, Required: true,
		Doc: "What the fleet is called: 1 to 63 of a-z, 0-9, - and ., the same on all members, who hear nobody else. It is sent in the clear."},
	{Path: "cluster.member", Type: Text, Default: `""`,
		Doc: "What this box is called, unlike all others: 1 to 63 of a-z, 0-9, - and .; \"\" is the host's name, so that all boxes " +
			"can have the same file."},
	{Path: "cluster.bind", Type: Text, Unit: "address:port", Default: `"[::]:7946"`,
		Doc: "Where the box listens, by TCP and UDP: on an address of its own, on [::], which is all of both families, or, where the " +
			"kernel has no IPv6, on 0.0.0.0. Without a port it is 7946."},
	{Path: "cluster.advertise", Type: Text, Unit: "address:port", Default: `""`,
		Doc: "Where the others reach the box, which must not be a VIP; without a port it is that of bind. \"\" is bind, or, where " +
			"that is all addresses, the box's own one towards the first of join."},
	{Path: "cluster.join", Example: `["10.0.0.5", "10.0.0.6"]`, Type: Texts,
		Doc: "Members to begin with: addresses or names, with a port if it is not that of bind. They are asked again and again " +
			"for as long as they are not in the fleet; the box itself among them does no harm."},
	{Path: "cluster.keys", Example: `["cluster.key"]`, Type: Texts,
		Doc: "Files with a key each, relative to this file, or credential:NAME; `openssl rand -base64 32` makes one. The first key encrypts what is sent, " +
			"all of them decrypt what comes, so that the three steps of fleet.md bring in a new one without a gap. Nobody but root may " +
			"be able to read them. They are read again at every reload, and shown nowhere."},
	{Path: "cluster.insecure_without_key", Type: Bool, Default: `false`,
		Doc: "Does without a key: whoever can send the box a datagram is a member, and can take VIPs away from it."},
	{Path: "cluster.timing", Type: Text, Default: `"lan"`, Values: []string{"lan", "local", "wan"},
		Doc: "How soon it is known that a member has died: lan after 3 to 5 s; local, for boxes side by side on a quiet network, " +
			"after 1 to 2 s; wan, which forgives most, after half a minute. The same on all members."},
	{Path: "cluster.allowed", Type: Texts, Default: `[]`,
		Doc: "The networks that members are in; none is all."},
	{Path: "cluster.mode", Type: Text, Default: `"active-active"`, Values: []string{"active-active", "active-standby"},
		Doc: "Who announces a VIP by BGP: every fit member, so that routers spread clients over them (ECMP), or its owner, and the " +
			"others in a way that routers prefer less (bgp.peer.standby). By [l2] a VIP has one owner in either mode. The same on all members."},
	{Path: "cluster.owners", Example: `"one"`, Type: Text, Values: []string{"spread", "one"},
		Doc: "Who owns the VIPs: they are spread over the members, each by its address, or one member owns all. Left out, it is spread, " +
			"or one where there is a [[l2.gateway]] or kernel.masquerade_source, which need it. The same on all members."},
	{Path: "cluster.weight", Type: Integer, Unit: "share of the VIPs", Default: `100`, min: 1, max: 1000,
		Doc: "The box's share of the VIPs that are spread, beside the other members' weights."},
	{Path: "cluster.take_back", Type: Duration, Default: `"30s"`, max: hour, Values: []string{"never"},
		Doc: "How long a member must have been fit before it takes over what others own; never leaves a VIP with its owner for as " +
			"long as that one is fit. The same on all members."},
	{Path: "cluster.restart_grace", Type: Duration, Default: `"10s"`, max: 10 * 60 * sec,
		Doc: "How long a member keeps its VIPs whose daemon is gone while its kernel answers, so that a restart or a crash moves " +
			"nothing. The same on all members."},
	{Path: "cluster.interfaces", Type: Texts, Default: `[]`,
		Doc: "Interfaces without whose carrier the box is unfit, beside those of [l2]. Where routers lead to the box, name those " +
			"at which they are: a box whose interfaces here are all down lets go of gateways and kernel.masquerade_source."},
}

var l2Keys = []Key{
	{Path: "l2", Type: Table,
		Doc: "The owner of a VIP, and it alone, answers ARP and NDP for it, for clients or routers on a network of the box that are " +
			"told nothing by BGP. Without [cluster] the box owns every VIP. Both this and [bgp] may be there."},
	{Path: "l2.interfaces", Example: `["eth0"]`, Type: Texts, Required: true,
		Doc: "The interfaces on which it answers. The kernel is kept from answering for VIPs there by itself, as by kernel.strict_arp; " +
			"when [l2] goes that is yours to set back."},
	{Path: "l2.refresh", Type: Duration, Default: `"60s"`, max: hour,
		Doc: "How often neighbors are told again where a VIP is; after a move they are told at once, and several times. 0s is never."},
	{Path: "l2.vips", Type: Texts, Default: `["LoadBalancer", "static"]`, Values: announcedKinds,
		Doc: "The kinds of VIPs that are answered for; static are those of every [[service]]. [] is for boxes to which only routers " +
			"lead, and that answer for a gateway or kernel.masquerade_source."},
	{Path: "l2.pools", Type: Texts, Default: `[]`,
		Doc: "Only VIPs of these pools are answered for; none is any VIP."},
	{Path: "l2.gateway", Type: Tables,
		Doc: "An address through which backends send their replies, so that these come back by the box that serves: its owner, who " +
			"answers for it as for a VIP, is the owner of all VIPs."},
	{Path: "l2.gateway.address", Example: `"10.2.0.254"`, Type: Text, Required: true,
		Doc: "The address, which is no box's own."},
	{Path: "l2.gateway.interface", Example: `"eth1"`, Type: Text, Required: true,
		Doc: "The interface to the backends, on which alone it is answered for."},
}
