package metallb

import (
	"math"

	"weir/cmd/weir/internal/draft"
)

// The forms.
var (
	text      = draft.Text
	boolean   = draft.Boolean
	integer   = draft.Integer(0, math.MaxUint32)
	duration  = draft.Time
	texts     = draft.TextList
	selectors = draft.Form{Name: "[]LabelSelector", Read: readSelectors}
	named     = draft.Form{Name: "[]{name, value}", Read: readNamed}
)

// field is a field of a resource's spec.
type field struct {
	kind, path string
	form       draft.Form
	// key is its key in weir.toml, empty for none.
	key string
	// reason explains the conversion; of a field with a key, for values that the key does not
	// support.
	reason string
}

const (
	nodes    = "each box has its own file: remove items for other boxes"
	unheard  = "weir does not support BFD echo"
	chosen   = "the pools that the labels select now, by name"
	frrOnly  = "it is in a VRF, and weir's sessions are in the box's main routing table"
	oneRoute = "weir announces a VIP to a peer once, by the first advertisement of its pool"
)

// harmless are the fields without which clients are served as before.
var harmless = []string{"BGPPeer.keepaliveTime", "BGPPeer.connectTime", "BGPPeer.routerID", "BFDProfile.echoInterval", "BFDProfile.echoMode",
	"BFDProfile.passiveMode", "BFDProfile.minimumTtl"}

// fields are all there are, in the order of the types.
var fields = []field{
	{"IPAddressPool", "addresses", texts, "pool.addresses", "the same"},
	{"IPAddressPool", "autoAssign", boolean, "pool.auto_assign", "the same"},
	{"IPAddressPool", "avoidBuggyIPs", boolean, "pool.avoid_first_last", "the first and the last address of an IPv4 range written with a slash"},
	{"IPAddressPool", "serviceAllocation.priority", integer, "pool.priority", "lower numbers come first; then pools for some Services, and those for all"},
	{"IPAddressPool", "serviceAllocation.namespaces", texts, "pool.namespaces", "the same"},
	{"IPAddressPool", "serviceAllocation.namespaceSelectors", selectors, "",
		"weir does not read labels of namespaces: name them in pool.namespaces. Until then the pool is only for Services that request it"},
	{"IPAddressPool", "serviceAllocation.serviceSelectors", selectors, "pool.labels",
		"one of them, and only matchLabels. Otherwise the pool is only for Services that request it"},

	{"BGPPeer", "myASN", integer, "bgp.asn", "for peers with another myASN, bgp.peer.local_asn"},
	{"BGPPeer", "peerASN", integer, "bgp.peer.asn", "the same"},
	{"BGPPeer", "dynamicASN", text, "bgp.peer.asn", "internal is the box's own; weir does not support external"},
	{"BGPPeer", "peerAddress", text, "bgp.peer.address", "the same"},
	{"BGPPeer", "interface", text, "", "weir identifies peers by address: use the peer's link-local one, \"fe80::1%eth0\""},
	{"BGPPeer", "sourceAddress", text, "bgp.peer.source_address", "the same"},
	{"BGPPeer", "peerPort", integer, "bgp.peer.port", "the same"},
	{"BGPPeer", "holdTime", duration, "bgp.peer.hold_time", "3 s at least; weir's default is 9 s"},
	{"BGPPeer", "keepaliveTime", duration, "bgp.peer.keepalive", "it needs holdTime, and is at most a third of that"},
	{"BGPPeer", "connectTime", duration, "bgp.peer.connect_retry", "2 s at least"},
	{"BGPPeer", "routerID", text, "bgp.router_id", "that of the first peer: a box has one"},
	{"BGPPeer", "nodeSelectors", selectors, "", nodes},
	{"BGPPeer", "password", text, "bgp.peer.password_file", "write it into the file"},
	{"BGPPeer", "passwordSecret.name", text, "bgp.peer.password_file", "write the content of the Secret into the file"},
	{"BGPPeer", "passwordSecret.namespace", text, "bgp.peer.password_file", "write the content of the Secret into the file"},
	{"BGPPeer", "bfdProfile", text, "bgp.peer.bfd", "on the same link only"},
	{"BGPPeer", "enableGracefulRestart", boolean, "bgp.graceful_restart", "weir's default, for all peers"},
	{"BGPPeer", "ebgpMultiHop", boolean, "bgp.peer.multihop", "255 hops, for an external peer; use the real number"},
	{"BGPPeer", "vrf", text, "", frrOnly},
	{"BGPPeer", "disableMP", boolean, "bgp.peer.families", "only the family of the session"},
	{"BGPPeer", "dualStackAddressFamily", boolean, "bgp.peer.families", "both, which is weir's default"},

	{"BGPAdvertisement", "aggregationLength", integer, "pool.aggregation_length", "8 to 32"},
	{"BGPAdvertisement", "aggregationLengthV6", integer, "pool.aggregation_length_v6", "16 to 128"},
	{"BGPAdvertisement", "localPref", integer, "pool.local_pref", "the same"},
	{"BGPAdvertisement", "communities", texts, "pool.communities", "large ones without \"large:\""},
	{"BGPAdvertisement", "ipAddressPools", texts, "pool.announce", "in the pools; pools without a BGPAdvertisement are not announced"},
	{"BGPAdvertisement", "ipAddressPoolSelectors", selectors, "pool.announce", chosen},
	{"BGPAdvertisement", "nodeSelectors", selectors, "", nodes},
	{"BGPAdvertisement", "peers", texts, "pool.peers", "the same"},
	{"BGPAdvertisement", "serviceSelectors", selectors, "bgp.advertise.labels", "one of them, and only matchLabels"},

	{"L2Advertisement", "ipAddressPools", texts, "l2.pools", "the same"},
	{"L2Advertisement", "ipAddressPoolSelectors", selectors, "l2.pools", chosen},
	{"L2Advertisement", "nodeSelectors", selectors, "", nodes},
	{"L2Advertisement", "interfaces", texts, "l2.interfaces", "those of all L2Advertisements together; one without interfaces means all"},
	{"L2Advertisement", "serviceSelectors", selectors, "", "weir answers for all VIPs of a pool: use a separate pool for such Services"},

	{"BFDProfile", "receiveInterval", integer, "bgp.peer.bfd_interval", "the longer one of the two; milliseconds"},
	{"BFDProfile", "transmitInterval", integer, "bgp.peer.bfd_interval", "the longer one of the two; milliseconds"},
	{"BFDProfile", "detectMultiplier", integer, "bgp.peer.bfd_multiplier", "the same"},
	{"BFDProfile", "echoInterval", integer, "", unheard},
	{"BFDProfile", "echoMode", boolean, "", unheard},
	{"BFDProfile", "passiveMode", boolean, "", "weir starts BFD sessions itself"},
	{"BFDProfile", "minimumTtl", integer, "", "weir supports BFD only on the same link, with TTL 255 (RFC 5881)"},

	{"Community", "communities", named, "bgp.communities", "large ones without \"large:\""},
}
