package kubeproxy

import (
	"math"

	"weir/cmd/weir/internal/draft"
)

// Kind and API of the document.
const (
	documentKind = "KubeProxyConfiguration"
	documentAPI  = "kubeproxy.config.k8s.io/v1alpha1"
)

// The forms.
var (
	text     = draft.Text
	boolean  = draft.Boolean
	integer  = draft.Integer(math.MinInt32, math.MaxInt32)
	number   = draft.Number
	duration = draft.Time // 0 is unset
	texts    = draft.TextList
	gates    = draft.Form{Name: "map[string]bool", Read: readGates}
	anything = draft.Form{Name: "any", Read: readAnything} // it is only named
)

// field is a field of KubeProxyConfiguration.
type field struct {
	path string
	form draft.Form
	// key is its key in weir.toml, empty for none.
	key string
	// reason explains the conversion; of a field with a key, for values that the key does not
	// support.
	reason string
}

const (
	inIPTables  = "kube-proxy reads it in mode iptables only"
	inIPVS      = "kube-proxy reads it in mode ipvs only"
	inNFTables  = "kube-proxy reads it in mode nftables only"
	windowsOnly = "for Windows"
	logDetail   = "weir writes every line at once, and has only levels"
)

// fields are all there are, in the order of the types.
var fields = []field{
	{"featureGates", gates, "", "gates of kube-proxy's own code"},
	{"clientConnection.kubeconfig", text, "kubernetes.kubeconfig", "a file in kube-proxy's Pod becomes credential:kubeconfig; it must contain the API server's own address"},
	{"clientConnection.acceptContentTypes", text, "", "weir chooses the encoding itself"},
	{"clientConnection.contentType", text, "", "weir chooses the encoding itself"},
	{"clientConnection.qps", number, "", "weir only lists and watches, and keeps its Events few by itself"},
	{"clientConnection.burst", integer, "", "weir only lists and watches, and keeps its Events few by itself"},
	{"logging.format", text, "daemon.log_format", "text or json"},
	{"logging.flushFrequency", anything, "", logDetail},
	{"logging.verbosity", integer, "daemon.log_level", "4 and above is debug, which logs every change to the kernel; the rest is info"},
	{"logging.vmodule", anything, "", logDetail},
	{"logging.options.text.splitStream", boolean, "", logDetail},
	{"logging.options.text.infoBufferSize", anything, "", logDetail},
	{"logging.options.json.splitStream", boolean, "", logDetail},
	{"logging.options.json.infoBufferSize", anything, "", logDetail},
	{"hostnameOverride", text, "kubernetes.node_name", "the default is the host's name, \"$HOSTNAME\""},
	{"bindAddress", text, "", "weir uses the addresses of its Node"},
	{"healthzBindAddress", text, "daemon.health_listen", "external load balancers check the nodes' health at this address"},
	{"metricsBindAddress", text, "daemon.metrics_listen", "the status page stays on loopback: daemon.page_listen"},
	{"bindAddressHardFail", boolean, "", "weir never starts without its listen addresses"},
	{"enableProfiling", boolean, "", "weir has no profiles on its address"},
	{"showHiddenMetricsForVersion", text, "", "weir has its own metrics, and none is hidden"},
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
	{"oomScoreAdj", integer, "", "OOMScoreAdjust of the systemd unit sets it"},
	{"conntrack.maxPerCore", integer, "kernel.sysctls", "nf_conntrack_max, for the cores of this host or --cores; the default is 32768"},
	{"conntrack.min", integer, "kernel.sysctls", "the lower limit of nf_conntrack_max; the default is 131072"},
	{"conntrack.tcpEstablishedTimeout", duration, "kernel.sysctls", "the default is 24h"},
	{"conntrack.tcpCloseWaitTimeout", duration, "kernel.sysctls", "the default is 1h"},
	{"conntrack.tcpBeLiberal", boolean, "kernel.sysctls", "nf_conntrack_tcp_be_liberal"},
	{"conntrack.udpTimeout", duration, "kernel.sysctls", "nf_conntrack_udp_timeout"},
	{"conntrack.udpStreamTimeout", duration, "kernel.sysctls", "nf_conntrack_udp_timeout_stream"},
	{"configSyncPeriod", duration, "", "weir's watches need no refresh; the kernel state is audited every kernel.sync_period"},
	{"portRange", text, "", "kube-proxy ignores it since the removal of its userspace mode"},
	{"windowsRunAsService", boolean, "", windowsOnly},
}

// differing are the fields without which clients are served in another way.
var differing = []string{"bindAddress", "iptables.localhostNodePorts", "featureGates"}

func readGates(x any) (any, bool, bool) {
	table, ok := x.(map[string]any)
	out := map[string]bool{}
	for name, v := range table {
		on, isBool := v.(bool)
		ok = ok && isBool
		out[name] = on
	}
	return out, len(out) == 0, ok
}

func readAnything(x any) (v any, zero, ok bool) {
	list, isList := x.([]any)
	table, isTable := x.(map[string]any)
	empty := isList && len(list) == 0 || isTable && len(table) == 0
	return x, empty || !isList && !isTable && (x == "" || x == "0" || x == "0s" || x == 0.0), true
}
