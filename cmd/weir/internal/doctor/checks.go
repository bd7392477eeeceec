package doctor

import (
	"slices"

	"weir/cmd/weir/internal/config"
)

// Checks are all there are, in the order in which one looks: the daemon first, as it
// often says best what is wrong, then the kernel, and the world outside last. The texts
// are those of doctor.md.
func Checks() []Check {
	return slices.Concat(daemonChecks(), systemChecks(), kernelChecks(), sysctlChecks(), firewallChecks(), networkChecks(), peerChecks())
}

// What a check applies to.
func running(f Facts) bool    { return f.Running != nil }
func configured(f Facts) bool { return f.Config != nil }
func booted(f Facts) bool     { return f.System.Booted }
func withIPVS(f Facts) bool   { return f.usesIPVS() }
func withBGP(f Facts) bool    { return f.Config != nil && f.Config.BGP != nil }
func withFleet(f Facts) bool  { return f.Config != nil && f.Config.Fleet != nil }

// withAPIs tells whether there is an API server that can be asked.
func withAPIs(f Facts) bool {
	return f.Config != nil && slices.ContainsFunc(f.Config.Clusters, func(c config.Cluster) bool { return c.Kubeconfig != "" })
}

// onNode tells whether the box is a node of a cluster.
func onNode(f Facts) bool {
	return f.Config != nil && slices.ContainsFunc(f.Config.Clusters, config.Cluster.IsNode)
}

func daemonChecks() []Check {
	return []Check{{
		ID: "config", Fine: "the configuration is valid",
		Means: "with an error weir does not start, and does not reload it; with a warning it does, and the line is hardly meant so",
		Fix:   "as the finding says; weir check says it too", judge: invalidConfig,
	}, {
		ID: "running", Fine: "weir runs",
		Means: "no daemon answers: the kernel forwards on as it did last, with no health checks, no changes and no routes announced",
		Fix:   "systemctl start weir", judge: notRunning, needs: []Part{System},
	}, {
		ID: "status", Fine: "weir says that it is ok",
		Means: "the daemon says itself what does not work: what weir status has in its first line",
		Fix:   "weir status, weir events", applies: running, judge: unwell,
	}, {
		ID: "audit", Fine: "weir compares the kernel with what is wanted, again and again",
		Means: "the daemon hangs, or can't read the kernel: what others change there stays wrong",
		Fix:   "systemctl restart weir", applies: running, judge: lateAudit,
	}, {
		ID: "version", Fine: "the version that is installed is the one that runs",
		Means: "weir was upgraded, and the old one still runs",
		Fix:   "systemctl restart weir", applies: running, judge: oldDaemon,
	}}
}

func systemChecks() []Check {
	return []Check{{
		ID: "unit", Fine: "systemd starts weir with the box",
		Means: "after the next reboot nothing is balanced",
		Fix:   "systemctl enable weir", applies: booted, needs: []Part{System}, judge: notEnabled,
	}, {
		ID: "files", Fine: "weir can read its files and write its state",
		Means: "the daemon is a user of its own: what it can't read it does without, and what it can't write is forgotten at a restart",
		Fix:   "chown, or a credential in /etc/weir/credentials", applies: configured, needs: []Part{Files}, judge: badFile,
	}, {
		ID: "disk", Fine: "there is room on the disk",
		Means: "drains, addresses and what is known of clusters can't be written, and are as before after a restart",
		Fix:   "make room where daemon.state_dir is", applies: configured, needs: []Part{Files}, judge: fullDisk,
	}, {
		ID: "open-files", Fine: "weir may open more files",
		Means: "health checks and connections to API servers fail for want of file descriptors",
		Fix:   "a larger LimitNOFILE of the unit", applies: running, needs: []Part{System}, judge: fewFiles,
	}, {
		ID: "memory", Fine: "there is memory left",
		Means: "the kernel will end processes, and drops packets for want of memory",
		Fix:   "end what takes it, or a box with more", needs: []Part{Processes}, judge: fewMemory,
	}, {
		ID: "clock", Fine: "the clock is kept right",
		Means: "certificates and tokens of API servers fail when the clock is wrong, and times in logs don't fit",
		Fix:   "timedatectl set-ntp true", needs: []Part{Clock}, judge: clockFree,
	}, {
		ID: "clock-skew", Fine: "the clock is that of the API servers",
		Means: "certificates and tokens are not valid yet, or no more: from five minutes on",
		Fix:   "timedatectl set-ntp true, on the box that is wrong", applies: withAPIs, needs: []Part{APIs}, judge: clockSkew,
	}}
}

func kernelChecks() []Check {
	return []Check{{
		ID: "kernel", Fine: "the kernel is new enough",
		Means: "old kernels have no scheduler mh, or make clients wait",
		Fix:   "a newer kernel", needs: []Part{Modules}, judge: oldKernel,
	}, {
		ID: "ipvs", Fine: "the kernel has IPVS",
		Means: "without IPVS weir does not start, or balances by rules of iptables, which can less",
		Fix:   "modprobe ip_vs; the full kernel package", applies: withIPVS, needs: []Part{Modules}, judge: noIPVS,
	}, {
		ID: "modules", Fine: "the kernel has the modules of schedulers, sets and rules",
		Means: "a Service with that scheduler, or all of them, can't be programmed",
		Fix:   "modprobe -a; the full kernel package", needs: []Part{Modules}, judge: noModules,
	}, {
		ID: "ipvs-table", Fine: "IPVS's table of connections is large enough",
		Means: "each packet takes longer, the more connections there are",
		Fix:   "conn_tab_bits in /etc/modprobe.d/weir.conf", applies: withIPVS, needs: []Part{Modules}, judge: fullIPVS,
	}, {
		ID: "conntrack-room", Fine: "conntrack has room",
		Means: "when it is full, new connections of everybody are dropped: nf_conntrack: table full",
		Fix:   "a larger net.netfilter.nf_conntrack_max", needs: []Part{Conntrack}, judge: fullConntrack,
	}, {
		ID: "conntrack-drops", Fine: "conntrack drops nothing",
		Means: "packets are dropped for want of room, or because two connections would look alike",
		Fix:   "a larger net.netfilter.nf_conntrack_max", needs: []Part{Conntrack}, judge: droppingConntrack,
	}, {
		ID: "conntrack-buckets", Fine: "conntrack has buckets enough",
		Means: "each packet takes longer, the more connections there are",
		Fix:   "a larger net.netfilter.nf_conntrack_buckets", needs: []Part{Conntrack}, judge: longConntrack,
	}}
}

func sysctlChecks() []Check {
	return []Check{{
		ID: "sysctl", Fine: "the kernel's parameters are as weir needs them",
		Means: "packets are not forwarded, replies are not masqueraded, or connections hang whose backend is gone",
		Fix:   "sysctl -w, or kernel.manage_sysctls = true", needs: []Part{Sysctls}, judge: wrongSysctl,
	}, {
		ID: "sysctl-file", Fine: "no file of sysctl.d sets what weir needs otherwise",
		Means: "the parameter is wrong after sysctl --system or a reboot, until weir looks the next time",
		Fix:   "make the line a comment", needs: []Part{SysctlFiles}, judge: sysctlFile,
	}, {
		ID: "conn-reuse", Fine: "clients that use a port again don't wait",
		Means: "on kernels before 5.9 connections that use a port again wait a second",
		Fix:   "sysctl -w net.ipv4.vs.conn_reuse_mode=0", needs: []Part{Sysctls, Modules}, judge: reuse,
		applies: func(f Facts) bool { return f.usesIPVS() && f.Kernel.before(5, 9) },
	}, {
		ID: "rp-filter", Fine: "reverse path filtering drops no clients",
		Means: "the kernel drops what comes in by one interface and would be answered by another: some clients get no answer",
		Fix:   "rp_filter = 2 on the interfaces by which clients come", needs: []Part{Sysctls, Network}, judge: rpFilter,
	}, {
		ID: "route-localnet", Fine: "nobody outside reaches 127.0.0.1",
		Means: "what listens on 127.0.0.1, weir's metrics among it, is open to the network (CVE-2020-8558)",
		Fix:   "route_localnet = 0", needs: []Part{Sysctls, Network}, judge: localnet,
	}, {
		ID: "accept-ra", Fine: "the IPv6 default route stays",
		Means: "a box that forwards ignores router advertisements: its default route goes when its lifetime is over",
		Fix:   "accept_ra = 2, or a route of your own", needs: []Part{Sysctls, Network}, judge: lostRA,
	}, {
		ID: "bridge-netfilter", Fine: "bridges call iptables",
		Means: "a pod that talks through a ClusterIP to another on the same bridge gets its answer from a stranger",
		Fix:   "net.bridge.bridge-nf-call-iptables = 1", applies: onNode, needs: []Part{Sysctls, Network}, judge: bridged,
	}}
}

func firewallChecks() []Check {
	return []Check{{
		ID: "iptables-mixed", Fine: "all rules are of one kind of iptables",
		Means: "packets pass both sets of rules, and each program shows only its own: what one lets in the other may drop",
		Fix:   "one kind for all who make rules", needs: []Part{Rules}, judge: mixed,
	}, {
		ID: "kube-proxy", Fine: "kube-proxy is not here",
		Means: "weir does not start beside it: both would take each other's sets and chains for their own",
		Fix:   "kube-proxy --cleanup; or kernel.name_prefix and kernel.device", needs: []Part{Rules, Processes}, judge: kubeProxy,
	}, {
		ID: "strangers", Fine: "nobody else takes virtual servers away",
		Means: "others that make virtual servers may remove those of weir",
		Fix:   "one of them per box", needs: []Part{Processes}, judge: strangers,
	}, {
		ID: "firewall", Fine: "no rule drops clients, replies, peers or members",
		Means: "the firewall of this box drops what weir needs",
		Fix:   "iptables -I, before the rule that drops", needs: []Part{Rules}, judge: firewall,
	}, {
		ID: "nftables", Fine: "there is no other firewall in nf_tables",
		Means: "a firewall that iptables does not show may drop what weir lets in",
		Fix:   "nft list ruleset; firewall-cmd", needs: []Part{Rules}, judge: foreignFirewall,
	}, {
		ID: "port-vip", Fine: "nobody else listens where clients are led to backends",
		Means: "whoever listens there waits for ever: IPVS takes the packets first",
		Fix:   "stop it, or let it listen elsewhere", needs: []Part{Sockets}, judge: deafListener,
	}, {
		ID: "port-own", Fine: "weir's own ports are free, or weir's",
		Means: "weir can't speak BGP or gossip, or shows no metrics",
		Fix:   "stop the other, or write another port", applies: configured, needs: []Part{Sockets}, judge: takenPort,
	}}
}

func networkChecks() []Check {
	return []Check{{
		ID: "link", Fine: "the interfaces that matter are up",
		Means: "the box counts itself unfit, and others take its VIPs",
		Fix:   "the cable, the switch, the name in the configuration", needs: []Part{Network}, judge: darkLink,
		applies: func(f Facts) bool { return f.Config != nil && len(f.interfaces()) > 0 },
	}, {
		ID: "route", Fine: "there is a route to each backend",
		Means: "connections to those backends hang",
		Fix:   "ip route add", needs: []Part{Ways}, judge: noWay,
	}, {
		ID: "mtu", Fine: "clients' packets fit on the way to backends",
		Means: "large packets must be sent again, smaller; where ICMP is dropped they vanish: small pages work and large ones hang",
		Fix:   "ip link set dev ... mtu ...", needs: []Part{Network, Ways}, judge: narrow,
	}, {
		ID: "path-mtu", Fine: "large packets reach the backends that were asked",
		Means: "small pages work and large ones hang",
		Fix:   "let ICMP pass, or a route with mtu", needs: []Part{Ways}, judge: blackhole,
	}, {
		ID: "way-back", Fine: "backends that see clients' addresses are on the box's own networks",
		Means: "a reply that does not come back through this box is no reply",
		Fix:   "the backends' default route by this box, or source_address = \"masquerade\"", needs: []Part{Ways}, judge: wayBack,
	}, {
		ID: "neighbor", Fine: "backends, gateways and peers answer ARP and NDP",
		Means: "nothing can be sent there",
		Fix:   "see to the host, its address and its network", needs: []Part{Network, Ways}, judge: silent,
	}, {
		ID: "vip-twice", Fine: "no VIP is an address of another interface",
		Means: "what listens on this box is open at the VIP, and ARP is answered for it whoever owns it",
		Fix:   "ip addr del", needs: []Part{Network}, judge: twice,
	}, {
		ID: "lro", Fine: "large receive offload is off",
		Means: "packets that were glued together can't be forwarded: transfers crawl",
		Fix:   "ethtool -K ... lro off", needs: []Part{Network}, judge: glued,
	}, {
		ID: "drops", Fine: "no card and no processor loses packets",
		Means: "clients must send again, and wait",
		Fix:   "larger rings and queues", needs: []Part{Network}, judge: losing,
	}, {
		ID: "networkd", Fine: "systemd-networkd leaves weir's routes alone",
		Means: "VIPs of vip_mode route, and aggregates, are gone until weir looks the next time",
		Fix:   "ManageForeignRoutes=no in networkd.conf.d", needs: []Part{System}, judge: foreignRoutes,
		applies: func(f Facts) bool {
			return f.Config != nil && (len(f.Config.Kernel.Pools) > 0 || f.Config.BGP != nil && f.Config.BGP.Aggregates)
		},
	}}
}

func peerChecks() []Check {
	return []Check{{
		ID: "bgp-peer", Fine: "BGP peers have a session, or answer",
		Means: "that router does not lead clients here",
		Fix:   "weir bgp neighbors; weir bgp router-config", applies: withBGP, needs: []Part{Speakers}, judge: noSession,
	}, {
		ID: "bfd", Fine: "BFD is up wherever a session is",
		Means: "a dead router, or a dead box, is noticed after the hold time only",
		Fix:   "BFD at the router; UDP port 3784", applies: withBGP, judge: noBFD,
	}, {
		ID: "member", Fine: "members of the fleet answer",
		Means: "boxes that don't hear each other both take the VIPs, or none does",
		Fix:   "TCP and UDP of cluster.bind, both ways; the same keys", applies: withFleet, needs: []Part{Members}, judge: noMember,
	}, {
		ID: "api-server", Fine: "API servers answer",
		Means: "what changes in the cluster is not heard; what was known is served on",
		Fix:   "the API server, its kubeconfig and the way to it", applies: withAPIs, needs: []Part{APIs}, judge: noAPI,
	}}
}
