package serving

import (
	"regexp"
	"slices"

	"weir/cmd/weir/internal/config"
	"weir/cmd/weir/internal/config/parse"
	"weir/cmd/weir/internal/config/schema"
	"weir/cmd/weir/internal/config/source"
)

// kernelKeys returns the keys of [kernel].
func kernelKeys(k *config.Kernel) []schema.Key {
	return []schema.Key{
		{Path: "kernel", Type: schema.Table, Doc: "The state that weir keeps in the kernel."},
		{Path: "kernel.mode", To: &k.Mode, Default: `"auto"`, Restart: true, Values: []string{"auto", "ipvs", "netfilter"},
			Doc: "The kernel's load balancer. ipvs needs the IPVS modules. netfilter works without them: virtual servers are rules. It has no connection limits and fewer schedulers; " +
				"kernel.md has the list. auto uses ipvs if the kernel has it, otherwise netfilter with a warning."},
		{Path: "kernel.name_prefix", To: &k.NamePrefix, Default: `"KUBE"`, Restart: true, Check: checkPrefix,
			Doc: "Prefix of the names of weir's sets and chains: 1 to 5 of A-Z, 0-9 and -. Change it where kube-proxy runs on the same host."},
		{Path: "kernel.device", To: &k.Device, Default: `"kube-ipvs0"`, Restart: true, Check: checkDevice,
			Doc: "The dummy device that has the VIPs. weir creates it."},
		{Path: "kernel.rules", To: &k.Rules, Default: `"auto"`, Restart: true, Values: []string{"auto", "nftables", "iptables"},
			Doc: "The owner of weir's sets and rules. iptables needs the programs of iptables, and ipset in the kernel. nftables needs neither: " +
				"they are one table for each family (nft list table ip weir). " +
				"auto is nftables if the kernel has all parts of it. It is iptables if INPUT or FORWARD of iptables has rules of another program or " +
				"policy DROP, as with Docker and ufw. The kubelet's rules do not count. It is iptables, too, if the key iptables is not auto."},
		{Path: "kernel.iptables", To: &k.IPTables, Default: `"auto"`, Restart: true, Values: []string{"auto", "legacy", "nft"},
			Doc: "The iptables programs that write the rules. auto uses the form with weir's own rules of an earlier run, otherwise that of another " +
				"program's firewall, otherwise that of iptables-restore. " +
				"legacy needs ip_tables and ip6_tables in /etc/modules-load.d."},
		{Path: "kernel.families", Type: schema.Texts, Default: `["ipv4", "ipv6"]`, Restart: true, Values: []string{"ipv4", "ipv6"},
			Doc: "The address families that weir serves. It changes no rule or set of the other one."},
		{Path: "kernel.masquerade_bit", To: &k.MasqueradeBit, Unit: "bit number", Default: `14`, Restart: true, Max: 31,
			Doc: "The bit of the packet mark that selects packets to masquerade. 14 is mark 0x4000."},
		{Path: "kernel.masquerade_all", To: &k.MasqueradeAll, Default: `false`,
			Doc: "Masquerades all connections to ClusterIP VIPs, from any client."},
		{Path: "kernel.masquerade_source", Type: schema.Texts, Default: `[]`,
			Doc: "Source addresses of masqueraded connections, at most one of each family, the same on all members. With [] the box uses an address of its " +
				"own. With such an address a backend sees the same client address from every member, so connections can survive a failover. No interface may " +
				"have the address. The owner of all VIPs (fleet.placement = \"single\") answers ARP for it through [l2]. [bgp] announces it like a static VIP, " +
				"which needs fleet.mode = \"active-standby\"."},
		{Path: "kernel.sloppy_tcp", To: &k.SloppyTCP, Default: `false`,
			Doc: "Accepts TCP packets in the middle of a connection, so that a box can continue the connections of a failed one. With scheduler mh they reach " +
				"the same backend. It sets net.ipv4.vs.sloppy_tcp, and conntrack's tcp_loose and tcp_be_liberal, for every service of the box. Packets of " +
				"unknown connections then reach a backend, which resets them."},
		{Path: "kernel.cluster_cidrs", To: &k.ClusterCIDRs, Default: `[]`,
			Doc: "The ranges of the pods. ClusterIP VIPs masquerade all clients outside these ranges, because only replies to pods return through this box. " +
				"With [] only the box's own connections are masqueraded."},
		{Path: "kernel.exclude_cidrs", To: &k.ExcludeCIDRs, Default: `[]`,
			Doc: "Ranges in which weir changes no virtual server, because another program manages them."},
		{Path: "kernel.vip_mode", Type: schema.Text, Default: `"address"`, Values: []string{"address", "route"},
			Doc: "Makes VIPs local. address adds each VIP to the device. route adds one route for each pool of route_pools, which suits thousands of VIPs."},
		{Path: "kernel.route_pools", Type: schema.Texts, Default: `[]`,
			Doc: "The pools of vip_mode \"route\". Every address in them is local to this box. VIPs outside them are added to the device."},
		{Path: "kernel.route_source", Type: schema.Texts, Default: `[]`,
			Doc: "With vip_mode \"route\": the source address of the box's own traffic to the pools, at most one of each family. With [] the kernel chooses."},
		{Path: "kernel.decapsulate_from", Type: schema.Texts, Default: `[]`,
			Doc: "IPv4 addresses of edge boxes with weir that send packets in IPIP to this box: on a node, those of Services with the annotation forward. " +
				"weir makes a tunnel device for each. Write the address from which the edge box sends to this one (ip route get). With [] there are no devices."},
		{Path: "kernel.decapsulate_mtu", To: &k.DecapsulateMTU, Unit: "bytes", Default: `1500`, Min: 576, Max: 65535,
			Doc: "The smallest MTU between this box and those of decapsulate_from. TCP connections to their VIPs get segments that fit."},
		{Path: "kernel.ping", To: &k.Ping, Default: `true`,
			Doc: "Lets VIPs answer ICMP echo requests. VIPs refuse all other traffic that is not to a service port."},
		{Path: "kernel.sync_period", To: &k.SyncPeriod, Default: `"10s"`, Min: schema.Second, Max: 24 * schema.Hour,
			Doc: "Interval of the audits, which compare the whole kernel state with the wanted one and repair differences. Changes are applied at once, " +
				"without waiting for an audit."},
		{Path: "kernel.min_sync_period", To: &k.MinSyncPeriod, Default: `"50ms"`, Max: 24 * schema.Hour,
			Doc: "Minimum interval between writes to the kernel, so that a burst of changes is applied together. Two writes may follow each other at once, and each further one waits. At most sync_period."},
		{Path: "kernel.tcp_timeout", To: &k.TCPTimeout, Default: `"0s"`, Max: longestTimer, Check: schema.WholeSeconds,
			Doc: "IPVS timeout of idle TCP connections, in whole seconds. 0s keeps the kernel's value (15m)."},
		{Path: "kernel.tcp_fin_timeout", To: &k.TCPFinTimeout, Default: `"0s"`, Max: longestTimer, Check: schema.WholeSeconds,
			Doc: "IPVS timeout of TCP connections after the client's FIN, in whole seconds. 0s keeps the kernel's value (2m)."},
		{Path: "kernel.udp_timeout", To: &k.UDPTimeout, Default: `"0s"`, Max: longestTimer, Check: schema.WholeSeconds,
			Doc: "IPVS timeout of UDP flows, in whole seconds. 0s keeps the kernel's value (5m)."},
		{Path: "kernel.manage_sysctls", To: &k.ManageSysctls, Default: `true`,
			Doc: "Sets the kernel parameters that weir needs (forwarding, net.ipv4.vs.*) and keeps them set. With false the operator sets them. A host that " +
				"forwards IPv6 ignores router advertisements. If its default route comes from them, set net.ipv6.conf.<interface>.accept_ra=2 first, or the " +
				"host loses the route."},
		{Path: "kernel.detect_local", To: &k.DetectLocal, Default: `"cluster-cidr"`,
			Values: []string{"cluster-cidr", "node-cidr", "bridge-interface", "interface-prefix"},
			Doc: "Identifies packets of pods: by cluster_cidrs, by the pod ranges of the box's own Node, or by their interface. ClusterIP VIPs keep the " +
				"addresses of pods. Pods reach all endpoints of a Service with externalTrafficPolicy Local."},
		{Path: "kernel.bridge_interface", To: &k.BridgeInterface, Default: `""`,
			Doc: "With detect_local \"bridge-interface\": the bridge of the pods."},
		{Path: "kernel.interface_prefix", To: &k.InterfacePrefix, Default: `""`,
			Doc: "With detect_local \"interface-prefix\": the prefix of the names of the pods' interfaces."},
		{Path: "kernel.node_port_addresses", Type: schema.Texts, Default: `[]`,
			Doc: "The box's own addresses that serve node ports: ranges, or only \"primary\" for the addresses of its Node. A family without a range is served " +
				"on all addresses, except loopback, link-local addresses and VIPs."},
		{Path: "kernel.strict_arp", Type: schema.Texts, Default: `[]`, Check: checkARP,
			Doc: "Interfaces that answer ARP only for their own addresses, not for VIPs (arp_ignore 1, arp_announce 2). Needed where other boxes announce the " +
				"same VIPs. \"all\" includes the interfaces of other software, like kube-proxy's strictARP."},
		{Path: "kernel.sysctls", Type: schema.Texts, Default: `[]`, Check: checkSysctl,
			Doc: "Additional kernel parameters that weir sets and keeps set, for instance \"net.netfilter.nf_conntrack_max=1048576\". weir needs none of them, " +
				"but the size of the conntrack table limits the number of connections."},
	}
}

var (
	// Chain names have at most 28 characters (XT_EXTENSION_MAXNAMELEN is 29), and the
	// longest, -SOURCE-RANGES-FIREWALL, takes 23 of them. Names of IPv6 sets continue with
	// "-6-", so a prefix must not end like that.
	prefixForm = regexp.MustCompile(`^[A-Z][A-Z0-9-]{0,4}$`)
	prefixTail = regexp.MustCompile(`-6?$`)
)

func checkPrefix(value any) *source.Fault {
	if p := value.(string); !prefixForm.MatchString(p) || prefixTail.MatchString(p) {
		return source.Faultf(`use 1 to 5 of A-Z, 0-9 and -, with a letter first and not "-" or "-6" last`, "%q is not a valid prefix", p)
	}
	return nil
}

func checkDevice(value any) *source.Fault {
	if d := value.(string); !parse.DeviceForm.Matches(d) || slices.Contains([]string{"lo", "all", "default"}, d) {
		return source.Faultf("use 1 to 15 letters, digits and . _ -", "%q is not a valid name for weir's own device", d)
	}
	return nil
}

func checkARP(value any) *source.Fault {
	name := value.(string)
	if !parse.DeviceForm.Matches(name) || name == "lo" || name == "default" {
		return source.Faultf(`write its name as ip link shows it, or "all"`, "%q is not an interface that answers ARP", name)
	}
	return nil
}

// sysctlForm is a parameter of the network and its value: numbers and words, as the
// kernel shows them.
var sysctlForm = regexp.MustCompile(`^(net(?:\.[A-Za-z0-9_/@:-]+)+) *= *([A-Za-z0-9_,.:-]+(?: [A-Za-z0-9_,.:-]+)*)$`)

func checkSysctl(value any) *source.Fault {
	if !sysctlForm.MatchString(value.(string)) {
		return source.Faultf(`write for instance "net.netfilter.nf_conntrack_max=1048576"`, "%q does not set a parameter of the network", value)
	}
	return nil
}
