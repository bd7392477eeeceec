package vips

import (
	"strconv"

	"weir/bgp"
	"weir/bgp/advertise"
	"weir/cmd/weir/internal/config"
	"weir/cmd/weir/internal/config/parse"
	"weir/cmd/weir/internal/config/schema"
	"weir/cmd/weir/internal/config/source"
)

// Speaker is the table [bgp] with its peers and rules.
type Speaker struct {
	schema.Section
	*config.BGP
	Peers []*Peer
	Rules []*Rule

	communities communities
}

// Peer is a table [[bgp.peer]].
type Peer struct {
	schema.Section
	bgp.Peer
	Standby advertise.Handicap
}

// Called returns the name of the peer in messages about another table.
func (p *Peer) Called() string {
	if p.Name != "" {
		return "peer " + strconv.Quote(p.Name)
	}
	return "another peer"
}

// Rule is a table [[bgp.advertise]], or the attributes of a [[pool]]'s routes.
type Rule struct {
	schema.Section
	advertise.Rule
}

const (
	maxUint32 = 1<<32 - 1
	// MaxPrepend limits the additional AS numbers of a path.
	MaxPrepend = 16
)

// announcedKinds are the values of vips. static means the VIPs of static services.
var announcedKinds = []string{"LoadBalancer", "ExternalIP", "ClusterIP", config.Source}

// bgpKeys returns the keys of [bgp].
func bgpKeys(s *Speaker) []schema.Key {
	return []schema.Key{
		{Path: "bgp", Type: schema.Table,
			Doc: "Announces the served VIPs to routers via BGP. weir accepts no routes. A reload that changes a peer resets its session. One with an " +
				"address keeps it if only next hops, connect_retry or max_prefixes differ. A change of asn, router_id, graceful_restart or the listener " +
				"resets all sessions. Only adding or removing [bgp] needs a restart."},
		{Path: "bgp.asn", To: &s.Speaker.ASN, Example: `64500`, Required: true, Min: 1, Max: maxUint32, Check: checkASN,
			Doc: "The AS number of the box."},
		{Path: "bgp.router_id", Type: schema.Text, Default: `""`,
			Doc: "The BGP identifier of the box: an IPv4 address that is unique among its routers. \"\" means the box's own address towards its first IPv4 peer with a route, " +
				"so that several boxes can use one file."},
		{Path: "bgp.listen_port", To: &s.Speaker.ListenPort, Default: `179`, Max: 65535,
			Doc: "The port that peers connect to. 0 disables the listener, for instance where another BGP speaker uses the port. weir then only connects to " +
				"its peers."},
		{Path: "bgp.listen_addresses", Type: schema.Texts, Default: `[]`,
			Doc: "The box's own addresses that peers connect to. [] means all."},
		{Path: "bgp.next_hop", Type: schema.Text, Default: `""`,
			Doc: "The next hop of IPv4 routes, an address of the box. \"\" means the address of the session, or one of its interface."},
		{Path: "bgp.next_hop_v6", Type: schema.Text, Default: `""`,
			Doc: "The next hop of IPv6 routes, an address of the box. \"\" means the address of the session, or one of its interface."},
		{Path: "bgp.graceful_restart", To: &s.Speaker.GracefulRestart, Default: `"120s"`, Max: 4095 * schema.Second, Check: schema.WholeSeconds,
			Doc: "Peers keep the routes this long while weir restarts and the kernel forwards traffic (RFC 4724), in whole seconds. 0s disables it."},
		{Path: "bgp.reannounce_delay", To: &s.Policy.ReannounceDelay, Default: `"5s"`, Max: schema.Hour,
			Doc: "A route that was withdrawn because no backend was up is reannounced after a backend has been up this long. The first announcement is " +
				"immediate."},
		{Path: "bgp.min_announced", To: &s.Policy.MinAnnounced, Unit: "part of the announced routes", Default: `"50%"`, Max: 100,
			Doc: "The part of the routes that stays announced when health checks withdraw many at once. Such an event is more likely a fault of this box than " +
				"of all backends. Routes kept this way are withdrawn as others return. It has no effect on fewer than four routes. 0% withdraws all."},
		{Path: "bgp.drain_delay", To: &s.DrainDelay, Default: `"10s"`, Max: schema.Hour,
			Doc: "The time between two steps of a drain. First weir adds the GRACEFUL_SHUTDOWN community, so that routers prefer other boxes (RFC 8326). Then " +
				"it withdraws the routes."},
		{Path: "bgp.standby", Type: schema.Text, Default: `"med"`, Values: standbyAttributes,
			Doc: "Makes routers prefer the owner of a VIP to the other members of a fleet. med adds 100 to the MED. local_pref subtracts 50, for internal " +
				"peers only. prepend adds the AS number 3 times, for external peers only. Routers compare MEDs within one AS, so all members need the same " +
				"asn."},
		{Path: "bgp.communities", Type: schema.Map, Default: `{}`, Example: `{ customers = "64500:100" }`,
			Doc: "Names for communities: { customers = \"64500:100\", all = \"64500:1:0\" }."},
	}
}

// peerKeys returns the keys of [[bgp.peer]].
func peerKeys(p *Peer) []schema.Key {
	return []schema.Key{
		{Path: "bgp.peer", Type: schema.Tables, Doc: "A router that receives the routes."},
		{Path: "bgp.peer.name", To: &p.Name, Example: `"tor1"`, Required: true, Check: parse.Name("peer"),
			Doc: "The unique name of the peer: 1 to 63 of a-z, 0-9, - and ."},
		{Path: "bgp.peer.address", Example: `"10.0.0.1"`, Type: schema.Text,
			Doc: "The peer's address, IPv4 or IPv6. A link-local one needs its interface: \"fe80::1%eth0\". Set either this or range."},
		{Path: "bgp.peer.range", Example: `"10.0.0.0/24"`, Type: schema.Text,
			Doc: "In place of address: accepts all routers that connect from this range. Without a password these are all its hosts."},
		{Path: "bgp.peer.asn", To: &p.ASN, Example: `64501`, Required: true, Max: maxUint32, Check: checkASN,
			Doc: "The AS number of the peer. The AS number of the box makes it an internal peer (iBGP). With range, 0 accepts any AS."},
		{Path: "bgp.peer.local_asn", To: &p.LocalASN, Default: `0`, Max: maxUint32, Check: checkASN,
			Doc: "The AS number that the box uses with this peer. 0 means that of [bgp]."},
		{Path: "bgp.peer.port", To: &p.Port, Default: `179`, Min: 1, Max: 65535,
			Doc: "The port of the peer."},
		{Path: "bgp.peer.source_address", Type: schema.Text, Default: `""`,
			Doc: "The box's own address for the session. \"\" lets the kernel choose."},
		{Path: "bgp.peer.multihop", To: &p.Multihop, Unit: "hops", Default: `0`, Max: 255,
			Doc: "Maximum distance of an external peer, at least 2. 0 means on the same link. Internal peers may be at any distance."},
		{Path: "bgp.peer.ttl_security", To: &p.TTLSecurity, Unit: "hops", Default: `0`, Max: 254,
			Doc: "Drops packets from further than this many hops (RFC 5082), so that distant hosts cannot attack the session. 1 means the same link. The peer " +
				"needs the same setting. 0 disables it."},
		{Path: "bgp.peer.password_file", Type: schema.Text, File: true, Default: `""`,
			Doc: "The file with the password of the session (TCP MD5, RFC 2385), 1 to 80 bytes, relative to this file, or credential:NAME. weir rereads it " +
				"at every reload and never shows it."},
		{Path: "bgp.peer.passive", To: &p.Passive, Default: `false`,
			Doc: "Waits for the peer to connect. Let one side wait: when both connect at the same time, BIRD may drop the routes for some seconds."},
		{Path: "bgp.peer.hold_time", To: &p.Hold, Default: `"9s"`, Min: 3 * schema.Second, Max: 65535 * schema.Second, Check: schema.WholeSeconds,
			Doc: "The session ends after this time without a message from the peer, or if the peer reads none for as long, in whole seconds. The shorter time of both sides applies."},
		{Path: "bgp.peer.keepalive", Example: `"3s"`, Type: schema.Duration, Min: schema.Second, Max: 21845 * schema.Second, Check: schema.WholeSeconds,
			Doc: "The interval of keepalive messages, in whole seconds. At most a third of hold_time, which is the default."},
		{Path: "bgp.peer.connect_retry", To: &p.ConnectRetry, Default: `"5s"`, Min: 2 * schema.Second, Max: schema.Hour, Check: schema.WholeSeconds,
			Doc: "The time between two connection attempts, in whole seconds."},
		{Path: "bgp.peer.bfd", To: &p.BFD.Enabled, Default: `false`,
			Doc: "Detects the failure of a peer on the same link in less than a second (BFD, RFC 5881). The peer needs BFD too."},
		{Path: "bgp.peer.bfd_interval", Type: schema.Duration, Default: `"300ms"`, Min: 10 * schema.Millisecond, Max: 60 * schema.Second,
			Doc: "The interval of BFD packets, in both directions."},
		{Path: "bgp.peer.bfd_multiplier", Type: schema.Integer, Unit: "packets", Default: `3`, Min: 1, Max: 255,
			Doc: "The peer is down after this many lost packets in a row."},
		{Path: "bgp.peer.families", Type: schema.Texts, Default: `["ipv4", "ipv6"]`, Values: []string{"ipv4", "ipv6"},
			Doc: "The families of the routes that the peer receives, independent of the session's own."},
		{Path: "bgp.peer.next_hop", Type: schema.Text, Default: `""`,
			Doc: "The next hop of IPv4 routes for this peer. \"\" means bgp.next_hop."},
		{Path: "bgp.peer.next_hop_v6", Type: schema.Text, Default: `""`,
			Doc: "The next hop of IPv6 routes for this peer. \"\" means bgp.next_hop_v6."},
		{Path: "bgp.peer.standby", Example: `"local_pref"`, Type: schema.Text, Values: standbyAttributes,
			Doc: "Overrides bgp.standby for this peer."},
		{Path: "bgp.peer.max_prefixes", To: &p.MaxPrefixes, Unit: "routes of a family", Default: `2000000`, Min: 1, Max: 10000000,
			Doc: "A session ends when the peer sends more routes, to protect the memory: each takes 240 bytes. weir retries after an hour; " +
				"a router of a range retries by itself. It uses no route of a peer. The default is above a full table of the Internet, so that a router without its filter does not take the box off the network."},
	}
}

// ruleKeys returns the keys of [[bgp.advertise]] without those of announcementKeys.
func ruleKeys(r *Rule) []schema.Key {
	return []schema.Key{
		{Path: "bgp.advertise", Type: schema.Tables,
			Doc: "A rule that selects VIPs and sets the attributes of their routes. For each peer, the first rule in file order that matches a VIP applies, " +
				"then the settings of the VIP's pool. Without any [[bgp.advertise]], all LoadBalancer and static VIPs are announced. Otherwise only the " +
				"matching VIPs are, and those of pools."},
		{Path: "bgp.advertise.vips", Type: schema.Texts, Default: `["LoadBalancer", "static"]`, Values: announcedKinds,
			Doc: "Matches VIPs of these kinds. static means the VIPs of every [[service]]."},
		{Path: "bgp.advertise.pools", To: &r.Match.Pools, Default: `[]`,
			Doc: "Matches VIPs of these pools. [] matches any VIP."},
		{Path: "bgp.advertise.clusters", To: &r.Match.Sources, Default: `[]`,
			Doc: "Matches Services of these clusters. [] matches any Service."},
		{Path: "bgp.advertise.namespaces", To: &r.Match.Namespaces, Default: `[]`, Check: parse.Kubectl(parse.NamespaceForm, "namespace"),
			Doc: "Matches Services of these namespaces. [] matches any."},
		{Path: "bgp.advertise.services", To: &r.Match.Services, Default: `[]`, Check: parse.Kubectl(parse.ServiceForm, "Service"),
			Doc: "Matches Services of these names, \"web\" or \"shop/web\". [] matches any."},
		{Path: "bgp.advertise.labels", To: &r.Match.Labels, Default: `{}`, Example: `{ tier = "gold" }`,
			Doc: "Matches Services that have all these labels."},
	}
}

// announcementKeys returns the keys of the attributes of routes: in a rule, and in a pool for its addresses.
func announcementKeys(table string, r *Rule) []schema.Key {
	return []schema.Key{
		{Path: table + ".announce", Type: schema.Bool, Default: `true`,
			Doc: "Announces the VIPs. With false they are not announced."},
		{Path: table + ".peers", To: &r.Peers, Default: `[]`,
			Doc: "The peers that receive the routes. [] means all peers."},
		{Path: table + ".communities", Type: schema.Texts, Default: `[]`,
			Doc: "Communities of the routes: \"64500:100\" (RFC 1997), \"64500:1:100\" (large, RFC 8092), well-known ones such as \"no-export\", or names from " +
				"bgp.communities."},
		{Path: table + ".local_pref", Type: schema.Integer, Default: `100`, Max: maxUint32,
			Doc: "The local preference of the routes, for internal peers. Routers prefer the higher one."},
		{Path: table + ".med", Example: `50`, Type: schema.Integer, Max: maxUint32,
			Doc: "The MED of the routes. Routers prefer the lower one. Without this key it is 0."},
		{Path: table + ".prepend", To: &r.Prepend, Unit: "times", Default: `0`, Max: MaxPrepend,
			Doc: "Additional copies of the box's AS number in the path. Routers prefer the shorter path."},
		{Path: table + ".aggregation_length", Type: schema.Integer, Unit: "prefix length", Default: `32`, Min: 8, Max: 32,
			Doc: "The prefix length of IPv4 routes. 32 announces each address. 24 announces one route for up to 256 addresses while at least one of them is " +
				"served. The unserved addresses of the prefix answer unreachable."},
		{Path: table + ".aggregation_length_v6", Type: schema.Integer, Unit: "prefix length", Default: `128`, Min: 16, Max: 128,
			Doc: "The prefix length of IPv6 routes. 128 announces each address."},
	}
}

// reservedASNs are AS_TRANS (RFC 6793) and the last ones of both sizes (RFC 7300).
var reservedASNs = map[int64]string{23456: "is reserved for AS_TRANS (RFC 6793)", 65535: "is reserved (RFC 7300)", maxUint32: "is reserved (RFC 7300)"}

func checkASN(value any) *source.Fault {
	n := value.(int64)
	if reason, ok := reservedASNs[n]; ok {
		return source.Faultf("use your own AS number; 64512 to 65534 are for private use", "%d %s", n, reason)
	}
	return nil
}

// The attributes that can lower the preference of a standby's routes: values of standby.
const (
	byMED       = "med"
	byLocalPref = "local_pref"
	byPrepend   = "prepend"
)

// standbyAttributes are all of them.
var standbyAttributes = []string{byMED, byLocalPref, byPrepend}
