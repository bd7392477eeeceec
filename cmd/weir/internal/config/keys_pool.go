package config

var addressesKeys = []Key{
	{Path: "addresses", Type: Table,
		Doc: "How the addresses of the pools are given to Services of type LoadBalancer. Without a [[pool]] none is given."},
	{Path: "addresses.home", Type: Text, Default: `""`,
		Doc: "The cluster that holds the record of who has which address: a Lease for each address, in namespace. All boxes with " +
			"these pools name the same one. \"\" is the only cluster; where there are several, one must be named."},
	{Path: "addresses.namespace", Type: Text, Default: `"weir-system"`,
		Doc: "The namespace of the home cluster for these Leases, and for the one that says which box gives addresses just now. " +
			"It must be there; /usr/share/doc/weir/rbac.yaml makes it."},
	{Path: "addresses.class", Type: Text, Default: `"weir/lb"`,
		Doc: "The loadBalancerClass of the Services that get an address. Services of any other class are never written."},
	{Path: "addresses.default_class", Type: Bool, Default: `true`,
		Doc: "Gives addresses to Services without a loadBalancerClass too, as a cluster without a cloud expects. Set false where " +
			"another controller does that."},
	{Path: "addresses.ip_mode", Type: Text, Default: `"vip"`, Values: []string{"vip", "proxy"},
		Doc: "What clients inside the cluster do: with vip the nodes answer for the address themselves, as kube-proxy does; with " +
			"proxy they send their packets to this box, as clients outside do. Needs Kubernetes 1.30 or later."},
	{Path: "addresses.release_after", Type: Duration, Default: `"10m"`, max: 24 * hour,
		Doc: "How long the address of a Service that is gone is kept for it: one of the same name gets it back. 0s frees it at once."},
}

var poolKeys = []Key{
	{Path: "pool", Type: Tables,
		Doc: "Addresses that weir gives to Services of type LoadBalancer. A pool that changes takes no address from a Service: " +
			"weir plan shows who is left outside."},
	{Path: "pool.name", Example: `"public"`, Type: Text, Required: true,
		Doc: "What the pool is called everywhere, also by the annotation weir/pool: 1 to 63 of a-z, 0-9, - and ., its own among all pools."},
	{Path: "pool.addresses", Example: `["192.0.2.0/24"]`, Type: Texts, Required: true,
		Doc: "What it holds: ranges as \"192.0.2.0/24\" or \"192.0.2.10-192.0.2.20\", single addresses, IPv4 and IPv6. No two pools overlap."},
	{Path: "pool.priority", Type: Integer, Default: `100`, max: 65535,
		Doc: "Of the pools that a Service may have, the lowest number comes first, then the first name."},
	{Path: "pool.auto_assign", Type: Bool, Default: `true`,
		Doc: "Gives addresses to Services that ask for none. With false only to those that name the pool or the address."},
	{Path: "pool.avoid_ends", Type: Bool, Default: `false`,
		Doc: "Leaves out the first and the last address of each IPv4 range written with a slash, which some old hosts take for " +
			"network and broadcast."},
	{Path: "pool.clusters", Type: Texts, Default: `[]`,
		Doc: "The clusters whose Services may have an address of it; none is all."},
	{Path: "pool.namespaces", Type: Texts, Default: `[]`,
		Doc: "The namespaces whose Services may; none is all."},
	{Path: "pool.labels", Example: `{ tier = "gold" }`, Type: Map, Default: `{}`,
		Doc: "The labels that a Service must have to get an address of it, all of them; none is any Service."},
	{Path: "pool.share", Type: Bool, Default: `true`,
		Doc: "Lets Services with the same annotation weir/share have one address together, if their ports differ and their traffic " +
			"policies go together."},
	{Path: "pool.share_across_namespaces", Type: Texts, Default: `[]`,
		Doc: "Namespaces whose Services may share with each other, also from cluster to cluster; \"*\" is all. Others share within " +
			"their own."},
}

var reservationKeys = []Key{
	{Path: "reservation", Type: Tables,
		Doc: "Addresses that are kept for one Service: it gets these and no others, and nobody else gets them."},
	{Path: "reservation.cluster", Type: Text, Default: `""`,
		Doc: "The cluster of the Service; \"\" is the only one."},
	{Path: "reservation.namespace", Example: `"shop"`, Type: Text, Required: true,
		Doc: "The namespace of the Service."},
	{Path: "reservation.service", Example: `"web"`, Type: Text, Required: true,
		Doc: "The name of the Service, which need not be there yet."},
	{Path: "reservation.addresses", Example: `["192.0.2.80"]`, Type: Texts, Required: true,
		Doc: "The addresses, each of some pool; of several of a family it gets the first that can be had."},
}
