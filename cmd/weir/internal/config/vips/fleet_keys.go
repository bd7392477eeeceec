package vips

import (
	fleet "weir/cluster"
	"weir/cmd/weir/internal/config"
	"weir/cmd/weir/internal/config/parse"
	"weir/cmd/weir/internal/config/schema"
)

// Member is the table [fleet].
type Member struct {
	schema.Section
	*config.Fleet
}

// L2 is the table [l2] with its gateways.
type L2 struct {
	schema.Section
	*config.L2
	Tables []Gateway // those of L2.Gateways, and invalid ones
}

// Gateway is a table [[l2.gateway]]; the Address of an invalid one is the zero Addr.
type Gateway struct {
	schema.Section
	config.Gateway
}

// fleetKeys returns the keys of [fleet].
func fleetKeys(m *Member) []schema.Key {
	return []schema.Key{
		{Path: "fleet", Type: schema.Table,
			Doc: "The fleet: boxes that serve the same VIPs. Its members find each other via gossip and divide the VIPs without a leader. A reload applies all " +
				"changes. With another name, member, bind, advertise, timing or allowed_cidrs the box leaves and rejoins. Until it has found the others, or for " +
				"6 s after the former gossip has ended, its VIPs stay as they are."},
		{Path: "fleet.name", To: &m.Gossip.Fleet, Example: `"edge"`, Required: true, Check: parse.Name("fleet"),
			Doc: "The name of the fleet: 1 to 63 of a-z, 0-9, - and ., the same on all members. Members ignore other fleets. It is sent unencrypted."},
		{Path: "fleet.member", Type: schema.Text, Default: `""`,
			Doc: "The unique name of this box: 1 to 63 of a-z, 0-9, - and . \"\" means the host name, so that all boxes can use one file."},
		{Path: "fleet.bind", Type: schema.Text, Unit: "address:port", Default: `"[::]:7946"`,
			Doc: "The listen address for gossip, TCP and UDP. [::] means all addresses of both families. Use 0.0.0.0 where the kernel has no IPv6. The default " +
				"port is 7946."},
		{Path: "fleet.advertise", Type: schema.Text, Unit: "address:port", Default: `""`,
			Doc: "The address that other members use to reach the box. It must not be a VIP. The default port is that of bind. \"\" means bind, or, if that is " +
				"all addresses, the box's own address towards the first of join."},
		{Path: "fleet.join", Example: `["10.0.0.5", "10.0.0.6"]`, Type: schema.Texts,
			Doc: "Members to contact: addresses or names. The default port is that of bind. weir retries those that are not in the fleet. The box's own " +
				"address is ignored."},
		{Path: "fleet.keys", Example: `["fleet.key"]`, Type: schema.Texts, File: true,
			Doc: "Files with one key each, relative to this file, or credential:NAME. Create a key with `openssl rand -base64 32`. The first key encrypts; all " +
				"keys decrypt, so that fleet.md can replace a key in three steps without an interruption. Only root may be able to read the files. weir rereads " +
				"them at every reload and never shows them."},
		{Path: "fleet.insecure_without_key", To: &m.Gossip.Open, Default: `false`,
			Doc: "Runs without a key. Then any host that can send a datagram to this box can join and take over VIPs."},
		{Path: "fleet.timing", Type: schema.Text, Default: `"lan"`, Values: []string{"lan", "local", "wan"},
			Doc: "The failure detection time. lan: 3 to 5 s. local: 1 to 2 s, for boxes on one quiet network. wan: half a minute, the most tolerant. The same " +
				"on all members."},
		{Path: "fleet.allowed_cidrs", To: &m.Gossip.AllowedCIDRs, Default: `[]`,
			Doc: "The networks of the members. [] means any network."},
		{Path: "fleet.mode", Type: schema.Text, Default: `"active-active"`, Values: []string{"active-active", "active-standby"},
			Doc: "The announcement of VIPs via BGP. active-active: every fit member announces, so that routers distribute clients over them (ECMP). " +
				"active-standby: the owner announces, and the others with a lower preference (bgp.peer.standby). With [l2] a VIP has one owner in either " +
				"mode. The same on all members."},
		{Path: "fleet.placement", Example: `"single"`, Type: schema.Text, Values: []string{"spread", "single"},
			Doc: "The ownership of VIPs. spread divides them among the members. single gives all to one member. The default is single with a [[l2.gateway]] or " +
				"kernel.masquerade_source, which need it, and spread otherwise. The same on all members."},
		{Path: "fleet.weight", To: &m.Weight, Unit: "share of the VIPs", Default: `100`, Min: 1, Max: 1000,
			Doc: "The box's share of the VIPs with placement \"spread\", relative to the weights of the other members."},
		{Path: "fleet.preempt_delay", To: &m.PreemptDelay, Default: `"30s"`, Max: schema.Hour, Values: []string{"never"},
			Doc: "A member takes over VIPs from another fit member only after it has been fit this long. never keeps a VIP with its owner while the owner is " +
				"fit. The same on all members."},
		{Path: "fleet.restart_grace", To: &m.RestartGrace, Default: `"10s"`, Max: int64(fleet.MaxRestartGrace),
			Doc: "A member keeps its VIPs this long while its daemon is down and its kernel answers. A restart or a crash then moves nothing. The same on all " +
				"members."},
		{Path: "fleet.interfaces", To: &m.Interfaces, Default: `[]`, Check: parse.Interface,
			Doc: "Interfaces that the box needs, in addition to those of [l2]: without carrier on one of them it is unfit. Name the interfaces to the routers. " +
				"With all of them down the box releases gateways and kernel.masquerade_source."},
	}
}

// syncKeys returns the keys of [fleet.sync].
func syncKeys(s *config.FleetSync) []schema.Key {
	return []schema.Key{
		{Path: "fleet.sync", Type: schema.Table,
			Doc: "Synchronizes established connections between the kernels (IPVS connection sync). A member that takes over then knows them with any " +
				"scheduler. Masquerading is not synchronized: it needs source_address = \"keep\" or kernel.masquerade_source as well. Every member sends its " +
				"own connections and receives all. A kernel runs at most one sender and one receiver; weir does not touch those of keepalived. The messages " +
				"are neither encrypted nor authenticated, so use a network of the members only."},
		{Path: "fleet.sync.interface", To: &s.Interface, Example: `"eth2"`, Required: true, Check: parse.Interface,
			Doc: "The interface to the other members. The kernel sends multicast there, without a key."},
		{Path: "fleet.sync.id", To: &s.ID, Example: `1`, Min: 1, Max: 255,
			Doc: "The ID of the messages that this box sends. The default is a hash of the member's name. Members accept every ID."},
		{Path: "fleet.sync.group", Type: schema.Text, Unit: "address:port", Default: `"224.0.0.81:8848"`,
			Doc: "The multicast address and UDP port, the same on all members. IPv6 is possible: \"[ff02::81]:8848\"."},
		{Path: "fleet.sync.ttl", To: &s.TTL, Unit: "hops", Default: `1`, Min: 1, Max: 255,
			Doc: "The TTL of the messages. 1 means the network of the interface."},
		{Path: "fleet.sync.max_length", To: &s.MaxLen, Unit: "bytes", Default: `1452`, Min: 1024, Max: 65507,
			Doc: "The maximum length of a message, which must fit the MTU of the network. The same on all members."},
	}
}

// l2Keys returns the keys of [l2].
func l2Keys(l *L2) []schema.Key {
	return []schema.Key{
		{Path: "l2", Type: schema.Table,
			Doc: "The owner of a VIP answers ARP and NDP for it. It is for clients or routers on a network of the box that use no BGP. Without [fleet] the box " +
				"owns every VIP. It can be combined with [bgp]."},
		{Path: "l2.interfaces", To: &l.Interfaces, Example: `["eth0"]`, Required: true, Check: parse.Interface,
			Doc: "The interfaces that answer. weir disables the kernel's own answers for VIPs there, like kernel.strict_arp. When [l2] is removed, the " +
				"operator must reset this."},
		{Path: "l2.garp_interval", To: &l.GARPInterval, Default: `"60s"`, Max: schema.Hour,
			Doc: "The interval of repeated announcements to neighbors (gratuitous ARP, unsolicited NDP). A move is announced at once and several times. 0s " +
				"disables the repetition."},
		{Path: "l2.vips", Type: schema.Texts, Default: `["LoadBalancer", "static"]`, Values: announcedKinds,
			Doc: "The kinds of VIPs to answer for. static means the VIPs of every [[service]]. [] means none, for boxes behind routers that only answer for a " +
				"gateway or kernel.masquerade_source."},
		{Path: "l2.pools", Type: schema.Texts, Default: `[]`,
			Doc: "Answers only for VIPs of these pools. [] means any VIP."},
	}
}

// gatewayKeys returns the keys of [[l2.gateway]].
func gatewayKeys(g *config.Gateway) []schema.Key {
	return []schema.Key{
		{Path: "l2.gateway", Type: schema.Tables,
			Doc: "A gateway address for backends, so that their replies return through the serving box. The owner of all VIPs owns it and answers for it."},
		{Path: "l2.gateway.address", Example: `"10.2.0.254"`, Type: schema.Text, Required: true,
			Doc: "The address. No interface of any box may have it."},
		{Path: "l2.gateway.interface", To: &g.Interface, Example: `"eth1"`, Required: true, Check: parse.Interface,
			Doc: "The interface to the backends. The box answers only there."},
	}
}
