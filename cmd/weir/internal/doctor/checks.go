package doctor

import (
	"slices"

	"weir/cmd/weir/internal/config"
	"weir/cmd/weir/internal/doctor/facts"
)

// Checks returns all checks in the order of a report: the daemon, the box, the kernel, and
// then other hosts. doctor.md has the same texts.
func Checks() []Check {
	return slices.Concat(daemonChecks(), systemChecks(), kernelChecks(), sysctlChecks(), firewallChecks(), networkChecks(), peerChecks())
}

func running(f box) bool    { return f.Running != nil }
func configured(f box) bool { return f.Config != nil }
func booted(f box) bool     { return f.System.Booted }
func withIPVS(f box) bool   { return facts.UsesIPVS(&f.Facts) }
func withBGP(f box) bool    { return f.Config != nil && f.Config.BGP != nil }
func withFleet(f box) bool  { return f.Config != nil && f.Config.Fleet != nil }

// withAPIs reports whether there is an API server to query.
func withAPIs(f box) bool {
	return f.Config != nil && slices.ContainsFunc(f.Config.Clusters, func(c config.Cluster) bool { return c.Kubeconfig != "" })
}

// onNode reports whether the box is a node of a cluster.
func onNode(f box) bool {
	return f.Config != nil && slices.ContainsFunc(f.Config.Clusters, config.Cluster.IsNode)
}

func daemonChecks() []Check {
	return []Check{{
		ID: "config", Passed: "the configuration is valid",
		Means: "with an error weir neither starts nor reloads; with a warning it does, and the line is probably a mistake",
		Fix:   "see the finding, or weir check", judge: invalidConfig,
	}, {
		ID: "running", Passed: "weir is running",
		Means: "the kernel forwards as before, without health checks, changes and route announcements",
		Fix:   "systemctl start weir", judge: notRunning,
	}, {
		ID: "status", Passed: "weir status is ok",
		Means: "the daemon reports problems",
		Fix:   "weir status, weir events", applies: running, judge: notOK,
	}, {
		ID: "audit", Passed: "weir audits the kernel regularly",
		Means: "the daemon hangs, or can't read the kernel: changes by other programs are not repaired",
		Fix:   "systemctl restart weir", applies: running, judge: lateAudit,
	}, {
		ID: "version", Passed: "the running version is the installed one",
		Means: "weir was upgraded, and the old version is still running",
		Fix:   "systemctl restart weir", applies: running, judge: oldDaemon,
	}}
}

func systemChecks() []Check {
	return []Check{{
		ID: "unit", Passed: "systemd starts weir at boot",
		Means: "after the next reboot no traffic is balanced",
		Fix:   "systemctl enable weir", applies: booted, needs: []facts.Part{facts.System}, judge: notEnabled,
	}, {
		ID: "files", Passed: "weir can read its files and write its state",
		Means: "the daemon has its own user: an unreadable file is not used, and unwritten state is lost at a restart",
		Fix:   "chown, or a credential in /etc/weir/credentials", applies: configured, needs: []facts.Part{facts.Files}, judge: badFile,
	}, {
		ID: "disk", Passed: "the disk has free space",
		Means: "drains, addresses and the state of clusters can't be written, and are out of date after a restart",
		Fix:   "free space in daemon.state_dir", applies: configured, needs: []facts.Part{facts.Files}, judge: fullDisk,
	}, {
		ID: "open-files", Passed: "weir may open more files",
		Means: "health checks and connections to API servers fail without file descriptors",
		Fix:   "a larger LimitNOFILE of the unit", applies: running, needs: []facts.Part{facts.System}, judge: fewFiles,
	}, {
		ID: "memory", Passed: "memory is available",
		Means: "the kernel drops packets and ends processes when memory runs out",
		Fix:   "end large processes, or add memory", needs: []facts.Part{facts.Processes}, judge: fewMemory,
	}, {
		ID: "clock", Passed: "the clock is synchronized",
		Means: "certificates and tokens of API servers fail with a wrong clock, and times of logs differ",
		Fix:   "timedatectl set-ntp true", needs: []facts.Part{facts.Clock}, judge: clockFree,
	}, {
		ID: "clock-skew", Passed: "the clock agrees with the API servers",
		Means: "certificates and tokens are not valid from a difference of five minutes on",
		Fix:   "timedatectl set-ntp true, on the box with the wrong clock", applies: withAPIs, needs: []facts.Part{facts.APIs}, judge: clockSkew,
	}}
}

func kernelChecks() []Check {
	return []Check{{
		ID: "kernel", Passed: "the kernel is new enough",
		Means: "old kernels lack the scheduler mh, or delay clients",
		Fix:   "a newer kernel", needs: []facts.Part{facts.Modules}, judge: oldKernel,
	}, {
		ID: "ipvs", Passed: "the kernel has IPVS",
		Means: "without IPVS weir does not start, or falls back to mode netfilter with fewer features",
		Fix:   "modprobe ip_vs; the full kernel package", applies: withIPVS, needs: []facts.Part{facts.Modules}, judge: noIPVS,
	}, {
		ID: "modules", Passed: "the kernel has the modules of schedulers, sets and rules",
		Means: "Services with that scheduler, or all Services, can't be programmed",
		Fix:   "modprobe -a; the full kernel package", needs: []facts.Part{facts.Modules}, judge: noModules,
	}, {
		ID: "rules", Passed: "the rules are in nftables, or in iptables as configured",
		Means: "weir programs no rules until the kernel accepts them",
		Fix:   "kernel.rules = \"auto\"; the kernel that the finding names", applies: configured, needs: []facts.Part{facts.Modules}, judge: refusedRules,
	}, {
		ID: "ipvs-table", Passed: "the connection table of IPVS is large enough",
		Means: "the cost of a packet grows with the number of connections",
		Fix:   "conn_tab_bits in /etc/modprobe.d/weir.conf", applies: withIPVS, needs: []facts.Part{facts.Modules}, judge: fullIPVS,
	}, {
		ID: "conntrack-room", Passed: "conntrack has room",
		Means: "a full table drops all new connections (nf_conntrack: table full)",
		Fix:   "a larger net.netfilter.nf_conntrack_max", needs: []facts.Part{facts.Conntrack}, judge: fullConntrack,
	}, {
		ID: "conntrack-drops", Passed: "conntrack drops nothing",
		Means: "packets are dropped because the table is full, or because two connections collide",
		Fix:   "a larger net.netfilter.nf_conntrack_max", needs: []facts.Part{facts.Conntrack, facts.ConntrackStat}, judge: droppingConntrack,
	}, {
		ID: "conntrack-buckets", Passed: "conntrack has enough buckets",
		Means: "the cost of a packet grows with the number of connections",
		Fix:   "a larger net.netfilter.nf_conntrack_buckets", needs: []facts.Part{facts.Conntrack}, judge: longConntrack,
	}}
}

func sysctlChecks() []Check {
	return []Check{{
		ID: "sysctl", Passed: "the kernel parameters have the values that weir needs",
		Means: "packets are not forwarded, replies are not masqueraded, or connections to removed backends hang",
		Fix:   "sysctl -w, or kernel.manage_sysctls = true", needs: []facts.Part{facts.Sysctls}, judge: wrongSysctl,
	}, {
		ID: "sysctl-file", Passed: "no file of sysctl.d sets a value that breaks weir",
		Means: "the parameter is wrong after sysctl --system or a reboot, until the next audit",
		Fix:   "comment the line out", needs: []facts.Part{facts.SysctlFiles}, judge: sysctlFile,
	}, {
		ID: "conn-reuse", Passed: "clients that reuse a port are not delayed",
		Means: "on kernels before 5.9 connections that reuse a port wait a second",
		Fix:   "sysctl -w net.ipv4.vs.conn_reuse_mode=0", needs: []facts.Part{facts.Sysctls, facts.Modules}, judge: reuse,
		applies: func(f box) bool { return facts.UsesIPVS(&f.Facts) && before(f.Kernel, 5, 9) },
	}, {
		ID: "rp-filter", Passed: "reverse path filtering drops no clients",
		Means: "the kernel drops packets that arrive on another interface than their return route: some clients get no answer",
		Fix:   "rp_filter = 2 on the uplinks", needs: []facts.Part{facts.Sysctls, facts.Network}, judge: rpFilter,
	}, {
		ID: "route-localnet", Passed: "127.0.0.1 is not reachable from outside",
		Means: "services on 127.0.0.1, such as weir's metrics, are open to the network (CVE-2020-8558)",
		Fix:   "route_localnet = 0", needs: []facts.Part{facts.Sysctls, facts.Network}, judge: localnet,
	}, {
		ID: "accept-ra", Passed: "the IPv6 default route is permanent",
		Means: "a forwarding box ignores router advertisements: its default route expires",
		Fix:   "accept_ra = 2, or a static route", needs: []facts.Part{facts.Sysctls, facts.Network}, judge: lostRA,
	}, {
		ID: "bridge-netfilter", Passed: "bridges call iptables",
		Means: "a pod that connects via a ClusterIP to another pod on the same bridge gets replies from the wrong address",
		Fix:   "net.bridge.bridge-nf-call-iptables = 1", applies: onNode, needs: []facts.Part{facts.Sysctls, facts.Network}, judge: bridged,
	}}
}

func firewallChecks() []Check {
	return []Check{{
		ID: "iptables-mixed", Passed: "all rules are in one backend of iptables",
		Means: "packets pass both sets of rules, and each program shows only its own: one may drop packets that the other accepts",
		Fix:   "one backend for all programs", needs: []facts.Part{facts.Rules}, judge: mixed,
	}, {
		ID: "kube-proxy", Passed: "kube-proxy is not present",
		Means: "weir does not start: both would use the same sets and chains",
		Fix:   "kube-proxy --cleanup; or kernel.name_prefix and kernel.device", needs: []facts.Part{facts.Rules, facts.Processes}, judge: kubeProxy,
	}, {
		ID: "foreign-servers", Passed: "no other program manages virtual servers",
		Means: "a program that manages virtual servers may remove those of weir",
		Fix:   "one such program per box", needs: []facts.Part{facts.Processes}, judge: foreignServers,
	}, {
		ID: "firewall", Passed: "no rule drops clients, replies, peers or members",
		Means: "the firewall of this box drops packets that weir needs",
		Fix:   "ufw allow, or iptables -I before the dropping rule", needs: []facts.Part{facts.Rules}, judge: firewall,
	}, {
		ID: "nftables", Passed: "no table of nf_tables drops clients, replies, peers or members",
		Means: "firewalld or another table of nf_tables drops packets that weir needs, and weir's rules can't override it",
		Fix:   "firewall-cmd --add-port, or nft insert rule", needs: []facts.Part{facts.NFRules}, judge: foreignFirewall,
	}, {
		ID: "port-vip", Passed: "no program listens on a VIP",
		Means: "the program never receives a connection: IPVS takes the packets first",
		Fix:   "stop it, or change its address", needs: []facts.Part{facts.Sockets}, judge: deafListener,
	}, {
		ID: "port-own", Passed: "the ports of weir are free or its own",
		Means: "BGP, gossip or metrics of weir do not work",
		Fix:   "stop the other program, or change the port", applies: configured, needs: []facts.Part{facts.Sockets}, judge: takenPort,
	}}
}

func networkChecks() []Check {
	return []Check{{
		ID: "link", Passed: "the configured interfaces are up",
		Means: "the box is unfit, and other members take its VIPs",
		Fix:   "check the cable, the switch, and the name in the configuration", needs: []facts.Part{facts.Network}, judge: darkLink,
		applies: func(f box) bool { return f.Config != nil && len(f.interfaces()) > 0 },
	}, {
		ID: "route", Passed: "there is a route to each backend",
		Means: "connections to those backends hang",
		Fix:   "ip route add", needs: []facts.Part{facts.Ways}, judge: noWay,
	}, {
		ID: "mtu", Passed: "packets of clients fit the links to the backends",
		Means: "large packets are sent twice; without ICMP they are lost: small pages work and large ones hang",
		Fix:   "ip link set dev ... mtu ...", needs: []facts.Part{facts.Network, facts.Ways}, judge: narrow,
	}, {
		ID: "path-mtu", Passed: "large packets reach the probed backends",
		Means: "small pages work and large ones hang",
		Fix:   "accept ICMP, or set a route with mtu", needs: []facts.Part{facts.Ways}, judge: blackhole,
	}, {
		ID: "return-path", Passed: "backends with source_address keep are on networks of the box",
		Means: "a reply that bypasses this box is dropped by the client",
		Fix:   "a default route of the backends via this box, or source_address = \"masquerade\"", needs: []facts.Part{facts.Ways}, judge: returnPath,
	}, {
		ID: "direct-path", Passed: "backends with forward direct are on networks of the box",
		Means: "packets to the VIP go in circles between the router and this box",
		Fix:   "forward = \"tunnel\", or an interface in their network", needs: []facts.Part{facts.Ways}, judge: directPath,
	}, {
		ID: "neighbor", Passed: "backends, gateways and peers answer ARP and NDP",
		Means: "no packet reaches that host",
		Fix:   "check the host, its address and its network", needs: []facts.Part{facts.Network, facts.Ways}, judge: silent,
	}, {
		ID: "vip-duplicate", Passed: "no VIP is an address of another interface",
		Means: "services of this box are open at the VIP, and the box answers ARP for it without owning it",
		Fix:   "ip addr del", needs: []facts.Part{facts.Network}, judge: duplicateVIP,
	}, {
		ID: "lro", Passed: "large receive offload is off",
		Means: "merged packets can't be forwarded: transfers are slow",
		Fix:   "ethtool -K ... lro off", needs: []facts.Part{facts.Network}, judge: glued,
	}, {
		ID: "drops", Passed: "no interface and no processor loses packets",
		Means: "clients retransmit and wait",
		Fix:   "larger rings and queues", needs: []facts.Part{facts.Network}, judge: losing,
	}, {
		ID: "networkd", Passed: "systemd-networkd keeps the routes of weir",
		Means: "VIPs of vip_mode route, and aggregates, are missing until the next audit",
		Fix:   "ManageForeignRoutes=no in networkd.conf.d", needs: []facts.Part{facts.System}, judge: foreignRoutes,
		applies: func(f box) bool {
			return f.Config != nil && (len(f.Config.Kernel.Pools) > 0 || f.Config.BGP != nil && f.Config.BGP.Aggregates)
		},
	}}
}

func peerChecks() []Check {
	return []Check{{
		ID: "bgp-peer", Passed: "BGP peers have a session, or answer",
		Means: "that router sends no clients to this box",
		Fix:   "weir bgp neighbors; weir bgp router-config", applies: withBGP, needs: []facts.Part{facts.Speakers}, judge: noSession,
	}, {
		ID: "bfd", Passed: "BFD is up for each session",
		Means: "a dead router, or a dead box, is detected only after the hold time",
		Fix:   "enable BFD on the router; accept UDP port 3784", judge: noBFD,
		applies: func(f box) bool { return running(f) && withBGP(f) },
	}, {
		ID: "member", Passed: "members of the fleet answer",
		Means: "boxes without contact both own the VIPs, or none does",
		Fix:   "accept TCP and UDP of fleet.bind in both directions; use the same keys", applies: withFleet, needs: []facts.Part{facts.Members}, judge: noMember,
	}, {
		ID: "api-server", Passed: "API servers answer",
		Means: "changes of the cluster are missing; the last known state is served",
		Fix:   "check the API server, its kubeconfig and the network", applies: withAPIs, needs: []facts.Part{facts.APIs}, judge: noAPI,
	}, {
		ID: "cluster-ranges", Passed: "the addresses of clusters are in permitted ranges",
		Means: "endpoints or LoadBalancer addresses are not used, because the operator has not permitted their ranges",
		Fix:   "endpoint_ranges, load_balancer_ranges of the cluster", applies: running, judge: missingRanges,
	}}
}
