package kubeproxy

// kind is the type of a field's value.
type kind string

// The kinds.
const (
	text     kind = "string"
	boolean  kind = "bool"
	integer  kind = "int"
	number   kind = "float"
	duration kind = "duration" // "30s"; 0 is unset
	texts    kind = "[]string"
	gates    kind = "map[string]bool"
	anything kind = "any" // it is only named
)

// field is a field of KubeProxyConfiguration.
type field struct {
	path string
	kind kind
	// key is the one of weir.toml that it becomes, empty for none.
	key string
	// why says what becomes of it; of a field with a key, for the values that the
	// key can't have.
	why string
}

const (
	inIPTables  = "kube-proxy reads it in mode iptables only"
	inIPVS      = "kube-proxy reads it in mode ipvs only"
	inNFTables  = "kube-proxy reads it in mode nftables only"
	windowsOnly = "for Windows"
	logDetail   = "weir writes every line at once, and knows levels only"
)

// fields are all there are, in the order of the types.
var fields = []field{
	{"featureGates", gates, "", "gates of kube-proxy's own code"},
	{"clientConnection.kubeconfig", text, "kubernetes.kubeconfig", "the file must be readable for weir under this name, and name the API server's own address"},
	{"clientConnection.acceptContentTypes", text, "", "weir chooses the encoding itself"},
	{"clientConnection.contentType", text, "", "weir chooses the encoding itself"},
	{"clientConnection.qps", number, "", "weir only lists and watches, and keeps its Events few by itself"},
	{"clientConnection.burst", integer, "", "weir only lists and watches, and keeps its Events few by itself"},
	{"logging.format", text, "daemon.log_format", "text or json"},
	{"logging.flushFrequency", anything, "", logDetail},
	{"logging.verbosity", integer, "daemon.log_level", "4 and above is debug, which tells every change to the kernel; the rest is info"},
	{"logging.vmodule", anything, "", logDetail},
	{"logging.options.text.splitStream", boolean, "", logDetail},
	{"logging.options.text.infoBufferSize", anything, "", logDetail},
	{"logging.options.json.splitStream", boolean, "", logDetail},
	{"logging.options.json.infoBufferSize", anything, "", logDetail},
	{"hostnameOverride", text, "kubernetes.node_name", "left out, it is the host's name, \"$HOSTNAME\""},
	{"bindAddress", text, "", "weir takes the addresses of its Node"},
	{"healthzBindAddress", text, "daemon.listen", "weir has /healthz, /livez and /metrics at one address: this one, because load balancers outside ask there"},
	{"metricsBindAddress", text, "", "weir has /metrics at daemon.listen: scrape it there"},
	{"bindAddressHardFail", boolean, "", "weir never starts without the addresses that it was told to listen on"},
	{"enableProfiling", boolean, "", "weir has no profiles on its address"},
	{"showHiddenMetricsForVersion", text, "", "weir's metrics have names of their own, and none is hidden"},
	{"mode", text, "kernel.mode", "ipvs is ipvs; iptables and nftables become auto, which is IPVS where the kernel has it"},
	{"iptables.masqueradeBit", integer, "kernel.masquerade_bit", "kube-proxy reads it in modes iptables and ipvs only"},
	{"iptables.masqueradeAll", boolean, "kernel.masquerade_all", "kube-proxy reads it in modes iptables and ipvs only"},
	{"iptables.localhostNodePorts", boolean, "", "weir serves no node port on loopback, as kube-proxy in its other modes"},
	{"iptables.syncPeriod", duration, "kernel.sync_period", inIPTables},
	{"iptables.minSyncPeriod", duration, "kernel.min_sync_period", inIPTables},
	{"ipvs.syncPeriod", duration, "kernel.sync_period", inIPVS},
	{"ipvs.minSyncPeriod", duration, "kernel.min_sync_period", inIPVS},
	{"ipvs.scheduler", text, "defaults.scheduler", inIPVS},
	{"ipvs.excludeCIDRs", texts, "kernel.exclude_cidrs", inIPVS},
	{"ipvs.strictARP", boolean, "kernel.strict_arp", inIPVS},
	{"ipvs.tcpTimeout", duration, "kernel.tcp_timeout", inIPVS},
	{"ipvs.tcpFinTimeout", duration, "kernel.tcp_fin_timeout", inIPVS},
	{"ipvs.udpTimeout", duration, "kernel.udp_timeout", inIPVS},
	{"nftables.masqueradeBit", integer, "kernel.masquerade_bit", inNFTables},
	{"nftables.masqueradeAll", boolean, "kernel.masquerade_all", inNFTables},
	{"nftables.syncPeriod", duration, "kernel.sync_period", inNFTables},
	{"nftables.minSyncPeriod", duration, "kernel.min_sync_period", inNFTables},
	{"winkernel.networkName", text, "", windowsOnly},
	{"winkernel.sourceVip", text, "", windowsOnly},
	{"winkernel.enableDSR", boolean, "", windowsOnly},
	{"winkernel.rootHnsEndpointName", text, "", windowsOnly},
	{"winkernel.forwardHealthCheckVip", boolean, "", windowsOnly},
	{"detectLocalMode", text, "kernel.detect_local", "by their own names: cluster-cidr and so on"},
	{"detectLocal.bridgeInterface", text, "kernel.bridge_interface", "kube-proxy reads it with detectLocalMode BridgeInterface only"},
	{"detectLocal.interfaceNamePrefix", text, "kernel.interface_prefix", "kube-proxy reads it with detectLocalMode InterfaceNamePrefix only"},
	{"clusterCIDR", text, "kernel.cluster_cidrs", "kube-proxy reads it with detectLocalMode ClusterCIDR only"},
	{"nodePortAddresses", texts, "kernel.node_port_addresses", "left out in mode nftables, it is \"primary\""},
	{"oomScoreAdj", integer, "", "it belongs to whoever starts weir: OOMScoreAdjust of the systemd unit"},
	{"conntrack.maxPerCore", integer, "", "it depends on the cores of each node: choose nf_conntrack_max for kernel.sysctls"},
	{"conntrack.min", integer, "", "it depends on the cores of each node: choose nf_conntrack_max for kernel.sysctls"},
	{"conntrack.tcpEstablishedTimeout", duration, "kernel.sysctls", "left out, it is 24h"},
	{"conntrack.tcpCloseWaitTimeout", duration, "kernel.sysctls", "left out, it is 1h"},
	{"conntrack.tcpBeLiberal", boolean, "kernel.sysctls", "nf_conntrack_tcp_be_liberal"},
	{"conntrack.udpTimeout", duration, "kernel.sysctls", "nf_conntrack_udp_timeout"},
	{"conntrack.udpStreamTimeout", duration, "kernel.sysctls", "nf_conntrack_udp_timeout_stream"},
	{"configSyncPeriod", duration, "", "weir's watches need no refreshing; what the kernel holds is audited every kernel.sync_period"},
	{"portRange", text, "", "kube-proxy has not read it since its userspace mode went"},
	{"windowsRunAsService", boolean, "", windowsOnly},
}
