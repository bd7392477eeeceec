package metallb

// form is the type of a field's value.
type form string

// The forms.
const (
	text      form = "string"
	boolean   form = "bool"
	integer   form = "int"
	duration  form = "duration" // "30s"
	texts     form = "[]string"
	selectors form = "[]LabelSelector"
	named     form = "[]{name, value}"
)

// field is a field of a resource's spec.
type field struct {
	kind, path string
	form       form
	// key is the one of weir.toml that it becomes, empty for none.
	key string
	// why says what becomes of it; of a field with a key, for the values that the key
	// can't have.
	why string
}

const (
	nodes    = "weir has a file for each box: leave out on a box what is not for it"
	unheard  = "weir answers with no echo, and asks for none"
	chosen   = "pools are named, as the labels choose them now"
	frrOnly  = "weir's sessions are in the box's main routing table"
	oneRoute = "weir announces a VIP to a peer in one way: the first that is said of its pool"
)

// fields are all there are, in the order of the types.
var fields = []field{
	{"IPAddressPool", "addresses", texts, "pool.addresses", "the same"},
	{"IPAddressPool", "autoAssign", boolean, "pool.auto_assign", "the same"},
	{"IPAddressPool", "avoidBuggyIPs", boolean, "pool.avoid_ends", "the first and the last address of a range written with a slash"},
	{"IPAddressPool", "serviceAllocation.priority", integer, "pool.priority", "the lower one comes first; without one a pool comes last"},
	{"IPAddressPool", "serviceAllocation.namespaces", texts, "pool.namespaces", "the same"},
	{"IPAddressPool", "serviceAllocation.namespaceSelectors", selectors, "",
		"weir does not read the labels of namespaces: name them in pool.namespaces. Until then the pool is only for Services that ask for it"},
	{"IPAddressPool", "serviceAllocation.serviceSelectors", selectors, "pool.labels",
		"one of them, and only matchLabels. Otherwise the pool is only for Services that ask for it"},

	{"BGPPeer", "myASN", integer, "bgp.asn", "of peers that know the box by another, bgp.peer.local_asn"},
	{"BGPPeer", "peerASN", integer, "bgp.peer.asn", "the same"},
	{"BGPPeer", "dynamicASN", text, "bgp.peer.asn", "internal is the box's own; external can't be: weir wants to know it"},
	{"BGPPeer", "peerAddress", text, "bgp.peer.address", "the same"},
	{"BGPPeer", "interface", text, "", "weir knows its peers by their addresses: write the peer's link-local one, \"fe80::1%eth0\""},
	{"BGPPeer", "sourceAddress", text, "bgp.peer.source_address", "the same"},
	{"BGPPeer", "peerPort", integer, "bgp.peer.port", "the same"},
	{"BGPPeer", "holdTime", duration, "bgp.peer.hold_time", "3 s at least; left out, weir's is 9 s"},
	{"BGPPeer", "keepaliveTime", duration, "bgp.peer.keepalive", "it needs holdTime, and is at most a third of that"},
	{"BGPPeer", "connectTime", duration, "bgp.peer.connect_retry", "2 s at least"},
	{"BGPPeer", "routerID", text, "bgp.router_id", "that of the first peer: a box has one"},
	{"BGPPeer", "nodeSelectors", selectors, "", nodes},
	{"BGPPeer", "password", text, "bgp.peer.password_file", "write it into the file"},
	{"BGPPeer", "passwordSecret.name", text, "bgp.peer.password_file", "write what the Secret holds into the file"},
	{"BGPPeer", "passwordSecret.namespace", text, "bgp.peer.password_file", "write what the Secret holds into the file"},
	{"BGPPeer", "bfdProfile", text, "bgp.peer.bfd", "on the same link only"},
	{"BGPPeer", "enableGracefulRestart", boolean, "bgp.graceful_restart", "weir does so for all peers unless told otherwise"},
	{"BGPPeer", "ebgpMultiHop", boolean, "bgp.peer.multihop", "255 hops, of an external peer; write as many as there are"},
	{"BGPPeer", "vrf", text, "", frrOnly},
	{"BGPPeer", "disableMP", boolean, "bgp.peer.families", "the family of the session alone"},
	{"BGPPeer", "dualStackAddressFamily", boolean, "bgp.peer.families", "both, which is weir's default"},

	{"BGPAdvertisement", "aggregationLength", integer, "pool.aggregate", "8 to 32"},
	{"BGPAdvertisement", "aggregationLengthV6", integer, "pool.aggregate_v6", "16 to 128"},
	{"BGPAdvertisement", "localPref", integer, "pool.local_pref", "the same"},
	{"BGPAdvertisement", "communities", texts, "pool.communities", "large ones without \"large:\""},
	{"BGPAdvertisement", "ipAddressPools", texts, "pool.announce", "in the pools themselves; those that no BGPAdvertisement chooses are not announced"},
	{"BGPAdvertisement", "ipAddressPoolSelectors", selectors, "pool.announce", chosen},
	{"BGPAdvertisement", "nodeSelectors", selectors, "", nodes},
	{"BGPAdvertisement", "peers", texts, "pool.peers", "the same"},
	{"BGPAdvertisement", "serviceSelectors", selectors, "bgp.advertise.labels", "one of them, and only matchLabels"},

	{"L2Advertisement", "ipAddressPools", texts, "l2.pools", "the same"},
	{"L2Advertisement", "ipAddressPoolSelectors", selectors, "l2.pools", chosen},
	{"L2Advertisement", "nodeSelectors", selectors, "", nodes},
	{"L2Advertisement", "interfaces", texts, "l2.interfaces", "those of all L2Advertisements together"},
	{"L2Advertisement", "serviceSelectors", selectors, "", "weir answers for all VIPs of a pool: give such Services a pool of their own"},

	{"BFDProfile", "receiveInterval", integer, "bgp.peer.bfd_interval", "the longer one of the two; milliseconds"},
	{"BFDProfile", "transmitInterval", integer, "bgp.peer.bfd_interval", "the longer one of the two; milliseconds"},
	{"BFDProfile", "detectMultiplier", integer, "bgp.peer.bfd_multiplier", "the same"},
	{"BFDProfile", "echoInterval", integer, "", unheard},
	{"BFDProfile", "echoMode", boolean, "", unheard},
	{"BFDProfile", "passiveMode", boolean, "", "weir begins BFD sessions itself"},
	{"BFDProfile", "minimumTtl", integer, "", "weir has BFD on the same link alone, where the TTL is 255 (RFC 5881)"},

	{"Community", "communities", named, "bgp.communities", "large ones without \"large:\""},
}
