package keepalived

import (
	"slices"
	"strings"
)

// directive is one that keepalived knows, or several of which the same is to be said.
type directive struct {
	// in are the kinds of blocks that it may stand in, separated by spaces.
	in    string
	names string
	// opens is the kind of its block, empty if it has none.
	opens string
	// key is the one of weir.toml that it becomes, empty for none.
	key string
	// why says what becomes of it; of a directive with a key, for the values that
	// the key can't have.
	why string
}

// The kinds of blocks that are not called as the directive that opens them.
const (
	root = "(top)"
	// entries is a block of anything: a list.
	entries = "(entries)"
	// checker is what all checks have.
	checker = "(check)"
)

// anyName is the name of what begins with a word of the user's own.
const anyName = "ADDRESS"

// checkers are the blocks that have what checker has, too.
var checkers = []string{"HTTP_GET", "SSL_GET", "TCP_CHECK", "SMTP_CHECK", "DNS_CHECK", "MISC_CHECK", "UDP_CHECK", "PING_CHECK", "BFD_CHECK", "FILE_CHECK"}

// lookup gives the directive of a name in a block.
func lookup(in, name string) (directive, bool) {
	if in == entries {
		return directive{in: entries, names: name}, true
	}
	var own *directive
	for i, d := range directives {
		if !slices.Contains(strings.Fields(d.in), in) {
			continue
		}
		if slices.Contains(strings.Fields(d.names), name) {
			return d, true
		}
		if d.names == anyName {
			own = &directives[i]
		}
	}
	if own != nil {
		return *own, true
	}
	if slices.Contains(checkers, in) || in == "host" {
		return lookup(checker, name)
	}
	return directive{}, false
}

const (
	scripts   = "weir runs no programs; weir events -o json and the metrics tell others what happened"
	mail      = "weir sends no mail; /usr/share/doc/weir/prometheus has rules for alerts"
	processes = "it is about keepalived's processes; the systemd unit says how weir runs"
	buffers   = "weir sizes its buffers itself"
	firewall  = "weir keeps its own rules for what VIPs refuse"
	snmp      = "weir has /metrics in place of SNMP and D-Bus"
	protocol  = "it is about VRRP, and members of a fleet know each other by [cluster]"
	neighbors = "weir tells neighbors several times after a move, and every l2.refresh"
	oneCheck  = "weir makes one check of a backend, of a kind that all backends of the service have"
	hosts     = "addresses, routes and rules of the host belong to its network configuration"
	natOnly   = "weir forwards by NAT alone, which needs no VIP on the backends"
)

// directives are all there are, in the order of keepalived.conf(5).
var directives = slices.Concat([]directive{
	{root, "global_defs", "global_defs", "", "see what is in it"},
	{root, "net_namespace net_namespace_ipvs namespace_with_ipsets instance use_pid_dir child_wait_time", "", "", processes},
	{root, "linkbeat_use_polling", "", "", "the kernel says whether an interface has a carrier"},
	{root, "linkbeat_interfaces", entries, "", "the kernel says whether an interface has a carrier"},
	{root, "interface_up_down_delays", entries, "", "a member is unfit while an interface has no carrier; cluster.take_back says when it counts as fit again"},
	{root, "track_group", "track_group", "", hosts},
	{"track_group", "group", entries, "", hosts},
	{root, "static_ipaddress static_routes static_rules", entries, "", hosts},
	{root, "vrrp_track_file track_file", "track_file", "", "weir reads no such files; weir drain takes a box out"},
	{"track_file", "file weight init_file", "", "", "weir reads no such files; weir drain takes a box out"},
	{root, "vrrp_track_process", "vrrp_track_process", "", "weir does not look after other processes"},
	{"vrrp_track_process", "process param_match weight quorum quorum_max fork_delay terminate_delay delay full_command", "", "", "weir does not look after other processes"},
	{root, "bfd_instance", "bfd_instance", "", "members find out about each other by gossip; bgp.peer.bfd is for routers"},
	{"bfd_instance", "neighbor_ip source_ip min_rx min_tx idle_tx multiplier passive ttl hoplimit max_hops weight vrrp checker", "", "",
		"members find out about each other by gossip; bgp.peer.bfd is for routers"},
}, globalDirectives, vrrpDirectives, serverDirectives, checkDirectives)

var globalDirectives = []directive{
	{"global_defs", "tmp_config_directory config_save_dir process_names process_name vrrp_process_name checker_process_name bfd_process_name " +
		"lvs_process_name umask max_auto_priority min_auto_priority_delay vrrp_priority checker_priority bfd_priority vrrp_no_swap " +
		"checker_no_swap bfd_no_swap vrrp_cpu_affinity checker_cpu_affinity bfd_cpu_affinity vrrp_rt_priority checker_rt_priority bfd_rt_priority " +
		"vrrp_rlimit_rttime checker_rlimit_rttime bfd_rlimit_rttime vrrp_rlimit_rtime checker_rlimit_rtime bfd_rlimit_rtime " +
		"random_seed data_use_instance script_user enable_script_security", "", "", processes},
	{"global_defs", "startup_script startup_script_timeout shutdown_script shutdown_script_timeout notify_fifo notify_fifo_script vrrp_notify_fifo " +
		"vrrp_notify_fifo_script lvs_notify_fifo lvs_notify_fifo_script fifo_write_vrrp_states_on_reload vrrp_notify_priority_changes rs_init_notifies",
		"", "", scripts},
	{"global_defs", "notification_email", entries, "", mail},
	{"global_defs", "notification_email_from smtp_server smtp_helo_name smtp_connect_timeout smtp_alert smtp_alert_vrrp smtp_alert_checker " +
		"no_email_faults no_checker_emails", "", "", mail},
	{"global_defs", "checker_log_all_failures log_unknown_vrids", "", "", "daemon.log_level says what is logged"},
	{"global_defs", "router_id", "", "", "a box is called by its host name; cluster.member says otherwise"},
	{"global_defs", "lvs_sync_daemon", "", "cluster.sync", "it needs a fleet: a vrrp_instance"},
	{"global_defs", "lvs_timeouts", "", "kernel.tcp_timeout", "tcp, tcpfin and udp become kernel.tcp_timeout, tcp_fin_timeout and udp_timeout"},
	{"global_defs", "lvs_flush", "", "", "weir adopts at its start what it has left in the kernel, and touches nothing else"},
	{"global_defs", "lvs_flush_on_stop lvs_flush_onstop", "", "daemon.on_stop", "cleanup"},
	{"global_defs", "vrrp_mcast_group4 vrrp_mcast_group6 vrrp_down_timer_adverts vrrp_lower_prio_no_advert vrrp_higher_prio_send_advert vrrp_version " +
		"vrrp_check_unicast_src vrrp_skip_check_adv_addr vrrp_strict vrrp_startup_delay vmac_prefix vmac_addr_prefix vrrp_rx_bufs_policy " +
		"vrrp_rx_bufs_multiplier default_interface dynamic_interfaces disable_local_igmp", "", "", protocol},
	{"global_defs", "vrrp_garp_master_delay vrrp_garp_master_repeat vrrp_garp_lower_prio_delay vrrp_garp_lower_prio_repeat vrrp_garp_master_refresh_repeat " +
		"vrrp_garp_interval vrrp_gna_interval vrrp_min_garp vrrp_garp_extra_if", "", "", neighbors},
	{"global_defs", "vrrp_garp_master_refresh", "", "l2.refresh", neighbors},
	{"global_defs", "nftables nftables_priority nftables_counters nftables_ifindex nftables_ipvs nftables_ipvs_priority nftables_ipvs_start_fwmark " +
		"vrrp_iptables vrrp_ipsets", "", "", firewall},
	{"global_defs", "snmp_socket enable_snmp_keepalived enable_snmp_vrrp enable_snmp_checker enable_snmp_rfc enable_snmp_rfcv2 enable_snmp_rfcv3 " +
		"enable_traps enable_dbus dbus_service_name", "", "", snmp},
	{"global_defs", "vrrp_netlink_cmd_rcv_bufs vrrp_netlink_cmd_rcv_bufs_force vrrp_netlink_monitor_rcv_bufs vrrp_netlink_monitor_rcv_bufs_force " +
		"lvs_netlink_cmd_rcv_bufs lvs_netlink_cmd_rcv_bufs_force lvs_netlink_monitor_rcv_bufs lvs_netlink_monitor_rcv_bufs_force " +
		"process_monitor_rcv_bufs process_monitor_rcv_bufs_force", "", "", buffers},
	{"global_defs", "reload_check_config include_check reload_time_file reload_repeat reload_file", "", "",
		"weir reload checks first, and a configuration with an error changes nothing"},
}

var serverDirectives = []directive{
	{root, "virtual_server_group", "virtual_server_group", "service.vips", "each port of it becomes a service"},
	{"virtual_server_group", anyName, "", "service.vips", "an address or a range of them, and a port"},
	{"virtual_server_group", "fwmark", "", "", "weir balances addresses and ports, not packet marks: name the VIPs that the marks stand for"},
	{root, "virtual_server", "virtual_server", "service", "by address and port, or a group of them"},
	{"virtual_server", "lvs_sched lb_algo", "", "service.scheduler", "left out, it is wlc"},
	{"virtual_server", "flag-1 flag-2 flag-3 sh-port sh-fallback mh-port mh-fallback", "", "service.scheduler_flags", "weir has fallback and port, of sh and mh"},
	{"virtual_server", "ops", "", "", "a packet is no connection: weir keeps the packets of a UDP flow together"},
	{"virtual_server", "lb_kind", "", "service.source_address", "as lvs_method"},
	{"virtual_server real_server", "lvs_method", "", "service.source_address", "NAT is keep; of DR and TUN: " + natOnly},
	{"virtual_server", "sorry_server_lvs_method", "", "", natOnly},
	{"virtual_server", "persistence_engine", "", "", "weir knows clients by their addresses alone"},
	{"virtual_server", "persistence_timeout", "", "service.affinity", "left empty, it is 6 minutes"},
	{"virtual_server", "persistence_granularity", "", "", "weir's affinity is for single addresses"},
	{"virtual_server", "protocol", "", "service.ports", "tcp, udp or sctp behind the port"},
	{"virtual_server", "ha_suspend", "", "", "every member checks, so that the one that takes over knows already"},
	{"virtual_server real_server", "smtp_alert", "", "", mail},
	{"virtual_server real_server", "virtualhost", "", "service.check.host", "of checks by HTTP that name none themselves"},
	{"virtual_server real_server", "snmp_name", "", "", snmp},
	{"virtual_server real_server (check)", "alpha", "", "", "backends are used when their first check has succeeded, in any case"},
	{"virtual_server", "omega", "", "", scripts},
	{"virtual_server", "quorum", "", "service.quorum", "weir counts backends, not their weights; it needs a check, and a sorry_server or quorum_down"},
	{"virtual_server", "hysteresis", "", "service.hysteresis", "weir counts backends, not their weights; it needs a check, and a sorry_server or quorum_down"},
	{"virtual_server", "quorum_up quorum_down", "", "", "weir runs no programs: with the quorum lost it withdraws the VIP's routes itself (service.when_down)"},
	{"virtual_server", "ip_family", "", "", "the addresses say it"},
	{"virtual_server", "sorry_server", "", "service.fallback", "with when_down = \"fallback\"; it needs a check"},
	{"virtual_server", "sorry_server_inhibit", "", "", "connections to the fallback end by service.drain when it is not needed any more"},
	{"virtual_server real_server (check)", "connect_timeout", "", "service.check.timeout", "left out, it is 5 seconds"},
	{"virtual_server real_server (check)", "retry", "", "service.check.fall", "one more than that, since the first failure is no retry"},
	{"virtual_server real_server (check)", "delay_before_retry", "", "service.check.interval", "with delay_loop; the shorter one, but not below the timeout"},
	{"virtual_server real_server (check)", "delay_loop", "", "service.check.interval", "with delay_before_retry; the shorter one, but not below the timeout"},
	{"virtual_server real_server (check)", "warmup", "", "", "service.check.jitter scatters the checks"},
	{"virtual_server real_server", "inhibit_on_failure", "", "", "a backend that is down gets no new connections; those that it has may go on for service.drain"},
	{"virtual_server", "real_server", "real_server", "service.backend", "an address with or without a port"},
	{"real_server", "weight", "", "service.backend.weight", "left out, it is 1"},
	{"real_server", "uthreshold", "", "service.backend.max_connections", "the same"},
	{"real_server", "lthreshold", "", "service.backend.min_connections", "it needs uthreshold"},
	{"real_server", "notify_up notify_down", "", "", scripts},
}

var checkDirectives = []directive{
	{"real_server", "HTTP_GET", "HTTP_GET", "service.check.type", "http; " + oneCheck},
	{"real_server", "SSL_GET", "SSL_GET", "service.check.type", "https; " + oneCheck},
	{"real_server", "TCP_CHECK", "TCP_CHECK", "service.check.type", "tcp; " + oneCheck},
	{"real_server", "SMTP_CHECK", "SMTP_CHECK", "service.check.type", "tcp, since weir does not speak SMTP; " + oneCheck},
	{"real_server", "DNS_CHECK", "DNS_CHECK", "service.check.type", "udp, with the query to send; " + oneCheck},
	{"real_server", "UDP_CHECK", "UDP_CHECK", "service.check.type", "udp, if it has payload and require_reply: weir must send something, and hear an answer; " + oneCheck},
	{"real_server", "PING_CHECK BFD_CHECK", "PING_CHECK", "service.check.type", "tcp, since weir asks what serves, not the host; " + oneCheck},
	{"real_server", "MISC_CHECK", "MISC_CHECK", "service.check.type", "tcp, since weir runs no programs; " + oneCheck},
	{"real_server", "FILE_CHECK", "FILE_CHECK", "service.check.type", "tcp, since weir reads no such files; " + oneCheck},
	{checker, "connect_ip", "", "", "weir asks the backend at its own address"},
	{checker, "connect_port", "", "service.check.port", "the same"},
	{checker, "bindto bind_if bind_port fwmark", "", "", "the kernel's routes choose how checks leave the box"},
	{checker, "log_all_failures", "", "", "daemon.log_level says what is logged"},
	{"HTTP_GET SSL_GET", "url", "url", "service.check.path", "weir asks for one; the first counts"},
	{"HTTP_GET SSL_GET", "http_protocol", "", "", "weir speaks HTTP/1.1"},
	{"HTTP_GET SSL_GET", "fast_recovery", "", "", "weir asks for one url"},
	{"HTTP_GET SSL_GET", "nb_get_retry", "", "service.check.fall", "as retry"},
	{"SSL_GET", "enable_sni", "", "service.check.server_name", "of the virtualhost"},
	{"HTTP_GET SSL_GET", "virtualhost", "", "service.check.host", "the same"},
	{"url", "path", "", "service.check.path", "the same"},
	{"url", "digest", "", "", "weir compares no digests: write a text that the answer has to service.check.body"},
	{"url", "status_code", "", "service.check.status", "left out, it is 200 to 299"},
	{"url", "virtualhost", "", "service.check.host", "the same"},
	{"url", "regex regex_no_match regex_options regex_stack regex_min_offset regex_max_offset", "", "",
		"weir looks for a plain text: write it to service.check.body"},
	{"SMTP_CHECK", "helo_name", "", "", "weir does not speak SMTP"},
	{"SMTP_CHECK", "host", "host", "", "weir asks the backend at its own address"},
	{"DNS_CHECK", "type", "", "service.check.send", "left out, it is SOA"},
	{"DNS_CHECK", "name", "", "service.check.send", "left out, it is the root"},
	{"MISC_CHECK", "misc_path misc_timeout misc_dynamic user", "", "", "weir runs no programs"},
	{"FILE_CHECK", "track_file dynamic weight", "", "", "weir reads no such files"},
	{"PING_CHECK", "name", "", "", "bgp.peer.bfd is for routers"},
	{"UDP_CHECK", "payload", "", "service.check.send", "it needs require_reply"},
	{"UDP_CHECK", "require_reply", "", "service.check.expect", "it needs payload; what stands behind the first x is not compared"},
	{"UDP_CHECK", "min_reply_length max_reply_length", "", "", "weir does not look at the length of an answer"},
	{root, "SSL", "SSL", "", "checks of weir have no certificate of their own"},
	{"SSL", "password ca certificate key", "", "", "checks of weir have no certificate of their own; service.check.ca_file is for verifying"},
}
