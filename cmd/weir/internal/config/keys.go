package config

import (
	"maps"
	"slices"
	"time"

	"weir/lb"
)

// The keys of the file, their limits and their defaults: the only place where
// these are told. What can't be told in a table (which addresses make a VIP, what
// clashes with what) is in the files of the tables.

const (
	ms   = int64(time.Millisecond)
	sec  = int64(time.Second)
	hour = int64(time.Hour)
	// longest is what the kernel's timers can count in jiffies (INT_MAX/HZ).
	longest = 596 * hour
)

var schedulerNames = slices.Sorted(maps.Keys(lb.Schedulers))

var topKeys = []Key{
	{Path: "include", Type: TextOrTexts, Default: `[]`,
		Doc: "Other files that belong to the configuration: names or patterns, relative to this file. " +
			"They may hold any table; a key that is set in two files is an error, services add up."},
}

var kernelKeys = []Key{
	{Path: "kernel", Type: Table, Doc: "How weir keeps its state in the kernel."},
	{Path: "kernel.mode", Type: Text, Default: `"auto"`, Restart: true, Values: []string{"auto", "ipvs", "iptables"},
		Doc: "What balances: ipvs, or iptables where the kernel has no IPVS: at random (rr with equal chances, all other " +
			"schedulers by weight, fo by the highest weight), and without connection limits; kernel.md has the whole list. " +
			"auto takes ipvs if it can, and says loudly if it can't."},
	{Path: "kernel.name_prefix", Type: Text, Default: `"KUBE"`, Restart: true,
		Doc: "Begins the names of weir's sets and chains. Change it where kube-proxy runs too: " +
			"1 to 5 of A-Z, 0-9 and -."},
	{Path: "kernel.device", Type: Text, Default: `"kube-ipvs0"`, Restart: true,
		Doc: "The dummy device that holds the VIPs, made by weir."},
	{Path: "kernel.iptables", Type: Text, Default: `"auto"`, Restart: true, Values: []string{"auto", "legacy", "nft"},
		Doc: "Which iptables programs write the rules: auto takes those that the host's other rules are in."},
	{Path: "kernel.families", Type: Texts, Default: `["ipv4", "ipv6"]`, Restart: true, Values: []string{"ipv4", "ipv6"},
		Doc: "The address families that weir serves; it touches no rule or set of another."},
	{Path: "kernel.masquerade_bit", Type: Integer, Unit: "bit number", Default: `14`, Restart: true, max: 31,
		Doc: "The bit of the packet mark that says: masquerade. 14 is mark 0x4000."},
	{Path: "kernel.masquerade_all", Type: Bool, Default: `false`,
		Doc: "Masquerades all connections to ClusterIP VIPs, whoever the client is."},
	{Path: "kernel.masquerade_source", Type: Texts, Default: `[]`,
		Doc: "What masqueraded clients get instead of an address of this box, at most one of each family, the same on all members: " +
			"then a backend sees the same client behind any box, with its own port unless another has that one there, and its " +
			"connections can outlive this box. No box has it for its own; its owner, who is that of all VIPs " +
			"(cluster.owners = \"one\"), answers for it by [l2], and [bgp] announces it as it does static VIPs, which needs mode = \"active-standby\" in a [cluster]."},
	{Path: "kernel.sloppy_tcp", Type: Bool, Default: `false`,
		Doc: "Makes connections of TCP packets that begin none, so that a box takes up those of another that is gone, with the same " +
			"backend where the scheduler is mh (net.ipv4.vs.sloppy_tcp; conntrack's tcp_loose and tcp_be_liberal too). It is for every service of " +
			"the box; stray packets, that would be refused, go to a backend then, which refuses them."},
	{Path: "kernel.cluster_cidrs", Type: Texts, Default: `[]`,
		Doc: "Clients whose address ClusterIP VIPs keep, because replies to them come back through this box: the pods; " +
			"all others are masqueraded. With none, only the box's own connections are."},
	{Path: "kernel.exclude_cidrs", Type: Texts, Default: `[]`,
		Doc: "Ranges in which weir touches no virtual server: they belong to somebody else."},
	{Path: "kernel.vip_mode", Type: Text, Default: `"address"`, Values: []string{"address", "route"},
		Doc: "How VIPs become local: each as an address on the device, or whole pools by one route each, " +
			"which suits thousands."},
	{Path: "kernel.route_pools", Type: Texts, Default: `[]`,
		Doc: "The pools of vip_mode \"route\". Every address in them is local to this box; VIPs outside them " +
			"still become addresses."},
	{Path: "kernel.route_source", Type: Texts, Default: `[]`,
		Doc: "With vip_mode \"route\": the source address of the box's own traffic to the pools, at most one of " +
			"each family. Where none is given the kernel chooses."},
	{Path: "kernel.ping", Type: Bool, Default: `true`,
		Doc: "Lets VIPs answer echo requests. Whatever else is no service port is refused."},
	{Path: "kernel.sync_period", Type: Duration, Default: `"10s"`, min: sec, max: 24 * hour,
		Doc: "The time between two audits, which compare the whole kernel state with what it should be and repair it. " +
			"Changes do not wait for it."},
	{Path: "kernel.min_sync_period", Type: Duration, Default: `"50ms"`, max: 24 * hour,
		Doc: "The least time between two writes to the kernel, so that a burst of changes becomes one; " +
			"at most sync_period."},
	{Path: "kernel.tcp_timeout", Type: Duration, Default: `"0s"`, max: longest,
		Doc: "How long IPVS remembers an idle TCP connection, in whole seconds; 0s leaves what the kernel has (15m)."},
	{Path: "kernel.tcp_fin_timeout", Type: Duration, Default: `"0s"`, max: longest,
		Doc: "The same after the client has sent FIN; 0s leaves what the kernel has (2m)."},
	{Path: "kernel.udp_timeout", Type: Duration, Default: `"0s"`, max: longest,
		Doc: "The same for a UDP flow; 0s leaves what the kernel has (5m)."},
	{Path: "kernel.manage_sysctls", Type: Bool, Default: `true`,
		Doc: "Sets the kernel parameters that weir needs (forwarding, net.ipv4.vs.*) and keeps them set. " +
			"With false they are yours to set. A host that forwards IPv6 ignores router advertisements: " +
			"where its default route comes from them, set net.ipv6.conf.<interface>.accept_ra=2 first, or the route goes."},
}

var defaultsKeys = []Key{
	{Path: "defaults", Type: Table, Doc: "What a service gets that does not say otherwise."},
	{Path: "defaults.scheduler", Type: Text, Default: `"rr"`, Values: schedulerNames,
		Doc: "How new connections are spread over the backends: a scheduler of IPVS."},
	{Path: "defaults.scheduler_flags", Type: Texts, Default: `[]`, Values: []string{"fallback", "port"},
		Doc: "For sh and mh: fallback takes another backend when the hashed one is out, port hashes the client's port too. " +
			"Left out, mh has both and sh has fallback."},
	{Path: "defaults.drain", Type: Duration, Default: `"30s"`, max: 24 * hour,
		Doc: "How long connections of a removed backend or service may live on; 0s cuts them at once. " +
			"Scheduler dh would refuse clients meanwhile, so its services have 0s unless they say otherwise themselves."},
}

var daemonKeys = []Key{
	{Path: "daemon", Type: Table, Doc: "The process itself."},
	{Path: "daemon.socket", Type: Text, Default: `"/run/weir/weir.sock"`, Restart: true,
		Doc: "The unix socket on which the daemon answers weir status and its sisters: an absolute path."},
	{Path: "daemon.listen", Type: Text, Unit: "address:port", Default: `"127.0.0.1:10266"`, Restart: true,
		Doc: "Where HTTP answers with the status page (/), /metrics, /healthz and /livez; \"\" is nowhere. There is no password: " +
			"who reaches another address than a loopback one sees names and addresses of all that is served."},
	{Path: "daemon.log_level", Type: Text, Default: `"info"`, Values: []string{"debug", "info", "warn", "error"},
		Doc: "The least severity that is logged; debug tells every change to the kernel."},
	{Path: "daemon.log_format", Type: Text, Default: `"text"`, Restart: true, Values: []string{"text", "json"},
		Doc: "How log lines are written."},
	{Path: "daemon.on_stop", Type: Text, Default: `"drain"`, Values: []string{"keep", "drain", "cleanup"},
		Doc: "What is done when systemd stops weir or the machine goes down: drain leads clients to other boxes first, as weir " +
			"drain --all does, but only until the next start; without [bgp], [l2] and [cluster] there is nowhere to lead them. " +
			"keep does not. Both leave the kernel as it is, so that traffic flows on. cleanup drains and then removes what is " +
			"weir's. A restart and an upgrade do none of it. Nor does a signal that is not systemd's, but for cleanup, which " +
			"then removes at once."},
	{Path: "daemon.stop_timeout", Type: Duration, Default: `"60s"`, min: sec, max: hour,
		Doc: "How long that drain may take in all, bgp.drain_delay and the end of connections. systemd is told, so that " +
			"TimeoutStopSec does not cut it short; a second signal does."},
	{Path: "daemon.state_dir", Type: Text, Default: `"/var/lib/weir"`,
		Doc: "The folder for what a restart must find again: the last that each cluster said, what an operator has drained, and while a configuration is on trial (weir reload --confirm) the one from before. An absolute path."},
}
