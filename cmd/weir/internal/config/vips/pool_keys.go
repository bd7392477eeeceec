package vips

import (
	"strings"

	"weir/cmd/weir/internal/config/parse"
	"weir/cmd/weir/internal/config/schema"
	"weir/cmd/weir/internal/config/source"
	"weir/k8ssync"
	"weir/k8ssync/ipam"
)

// addressesKeys returns the keys of [addresses].
func addressesKeys(a *k8ssync.ProviderConfig) []schema.Key {
	return []schema.Key{
		{Path: "addresses", Type: schema.Table,
			Doc: "The assignment of pool addresses to Services of type LoadBalancer. Without a [[pool]] weir assigns none."},
		{Path: "addresses.lease_cluster", To: &a.LeaseCluster, Default: `""`,
			Doc: "The cluster that records the owner of each address, in one Lease each. All boxes with these pools name the same cluster. \"\" means the only " +
				"cluster; with several clusters, name one."},
		{Path: "addresses.lease_namespace", To: &a.Namespace, Default: `"weir-system"`, Check: parse.Kubectl(parse.NamespaceForm, "namespace"),
			Doc: "The namespace of these Leases, and of the Lease that elects the assigning box. It must exist; /usr/share/doc/weir/rbac/leases.yaml creates it."},
		{Path: "addresses.load_balancer_class", To: &a.Class, Default: `"weir/lb"`, Check: checkClass,
			Doc: "The loadBalancerClass of the Services that get an address. weir never writes to Services of another class."},
		{Path: "addresses.default_class", To: &a.DefaultClass, Default: `true`,
			Doc: "Also assigns addresses to Services without a loadBalancerClass. Set it to false where another controller does."},
		{Path: "addresses.ip_mode", Type: schema.Text, Default: `"vip"`, Values: []string{"vip", "proxy"},
			Doc: "The ipMode of the assigned addresses. With vip the nodes handle traffic from inside the cluster themselves, as kube-proxy does. With proxy " +
				"they send it to this box. Needs Kubernetes 1.30 or later."},
		{Path: "addresses.retention", To: &a.IPAM.Retention, Default: `"10m"`, Max: 24 * schema.Hour,
			Doc: "The address of a deleted Service is retained this long for a new Service of the same name. 0s releases it at once."},
	}
}

// poolKeys returns the keys of [[pool]].
func poolKeys(p *Pool) []schema.Key {
	return []schema.Key{
		{Path: "pool", Type: schema.Tables,
			Doc: "Addresses that weir assigns to Services of type LoadBalancer. A change of a pool takes no address from a Service. weir plan lists Services " +
				"with addresses outside their pool."},
		{Path: "pool.name", To: &p.Name, Example: `"public"`, Required: true, Check: parse.Name("pool"),
			Doc: "The unique name of the pool, also for the annotation weir/pool: 1 to 63 of a-z, 0-9, - and ."},
		{Path: "pool.addresses", Example: `["192.0.2.0/24"]`, Type: schema.Texts, Required: true,
			Doc: "The addresses: ranges as \"192.0.2.0/24\" or \"192.0.2.10-192.0.2.20\" and single addresses, IPv4 and IPv6. Pools must not overlap."},
		{Path: "pool.priority", To: &p.Priority, Default: `100`, Max: 65535,
			Doc: "Order of the pools for a Service that may use several. Lower numbers come first, then names in alphabetical order."},
		{Path: "pool.auto_assign", To: &p.AutoAssign, Default: `true`,
			Doc: "Assigns addresses to Services that request none. With false only to Services that request the pool or the address."},
		{Path: "pool.avoid_first_last", To: &p.AvoidFirstLast, Default: `false`,
			Doc: "Skips the first and the last address of each IPv4 prefix. Some old hosts treat them as network and broadcast addresses."},
		{Path: "pool.clusters", To: &p.Clusters, Default: `[]`,
			Doc: "The clusters with Services that may use the pool. [] means all clusters."},
		{Path: "pool.namespaces", To: &p.Namespaces, Default: `[]`, Check: parse.Kubectl(parse.NamespaceForm, "namespace"),
			Doc: "The namespaces with Services that may use the pool. [] means all namespaces."},
		{Path: "pool.max_per_namespace", To: &p.MaxPerNamespace, Unit: "addresses of each family", Default: `0`, Max: 1000000,
			Doc: "Limit for the Services of one namespace of a cluster, with the addresses that are retained for its deleted Services. 0 limits only " +
				"retained ones: a namespace gets no other address while four or more are retained for it, and fewer are free."},
		{Path: "pool.labels", To: &p.Labels, Example: `{ tier = "gold" }`, Default: `{}`,
			Doc: "The labels that a Service needs to use the pool, all of them. {} means any Service."},
		{Path: "pool.allow_sharing", To: &p.allowSharing, Default: `true`,
			Doc: "Lets Services with the same annotation weir/sharing-key share an address. Their ports must differ and their traffic policies must be " +
				"compatible."},
		{Path: "pool.sharing_namespaces", Type: schema.Texts, Default: `[]`, Check: checkSharing,
			Doc: "Namespaces with Services that may share addresses with each other, also across clusters. \"*\" means all. Other Services share addresses only " +
				"within their namespace."},
	}
}

// reservationKeys returns the keys of [[reservation]].
func reservationKeys(r *ipam.Reservation) []schema.Key {
	return []schema.Key{
		{Path: "reservation", Type: schema.Tables,
			Doc: "Addresses reserved for one Service. It gets only these, and no other Service gets them."},
		{Path: "reservation.cluster", To: &r.Service.Source, Default: `""`,
			Doc: "The cluster of the Service. \"\" means the only cluster."},
		{Path: "reservation.namespace", To: &r.Service.Namespace, Example: `"shop"`, Required: true, Check: parse.Kubectl(parse.NamespaceForm, "namespace"),
			Doc: "The namespace of the Service."},
		{Path: "reservation.service", To: &r.Service.Name, Example: `"web"`, Required: true, Check: checkServiceName,
			Doc: "The name of the Service, which need not exist yet."},
		{Path: "reservation.addresses", Example: `["192.0.2.80"]`, Type: schema.Texts, Required: true,
			Doc: "The reserved addresses, each from a pool. The Service gets the first available one of each family."},
	}
}

func checkClass(value any) *source.Fault {
	if class := value.(string); !parse.ClassForm.Matches(class) || !strings.Contains(class, "/") {
		return source.Faultf(`write for instance "weir/lb"`, "%q is not a valid loadBalancerClass", class)
	}
	return nil
}

func checkServiceName(value any) *source.Fault {
	if !parse.ValidName(value.(string)) {
		return source.Faultf("write it as kubectl shows it", "%q is not a valid Service", value)
	}
	return nil
}

func checkSharing(value any) *source.Fault {
	if value == "*" {
		return nil
	}
	return parse.Kubectl(parse.NamespaceForm, "namespace")(value)
}
