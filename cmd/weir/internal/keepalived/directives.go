package keepalived

import (
	"slices"
	"strings"
)

// directive is one directive of keepalived, or several with the same conversion.
type directive struct {
	// in are the kinds of blocks that may contain it, separated by spaces.
	in    string
	names string
	// opens is the kind of its block, empty if it has none.
	opens string
	// key is its key in weir.toml, empty for none.
	key string
	// reason explains the conversion; of a directive with a key, for values that the key
	// does not support.
	reason string
}

// The kinds of blocks that are not called as the directive that opens them.
const (
	root = "(top)"
	// entries is a block of anything: a list.
	entries = "(entries)"
	// checker has the directives of all checks.
	checker = "(check)"
)

// anyName is the name of directives that begin with a word of the operator's choice.
const anyName = "ADDRESS"

// checkers are the blocks with the directives of checker.
var checkers = []string{"HTTP_GET", "SSL_GET", "TCP_CHECK", "SMTP_CHECK", "DNS_CHECK", "MISC_CHECK", "UDP_CHECK", "PING_CHECK", "BFD_CHECK", "FILE_CHECK"}

// lookup returns the directive of a name in a block.
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

// directives are all directives, in the order of keepalived.conf(5).
var directives = slices.Concat([]directive{
	{root, "global_defs", "global_defs", "", "see its directives"},
	{root, "net_namespace net_namespace_ipvs namespace_with_ipsets instance use_pid_dir child_wait_time", "", "", processes},
	{root, "linkbeat_use_polling", "", "", carrier},
	{root, "linkbeat_interfaces", entries, "", carrier},
	{root, "interface_up_down_delays", entries, "", "a member is unfit while an interface has no carrier; fleet.preempt_delay delays its return"},
	{root, "track_group", "track_group", "", hosts},
	{"track_group", "group", entries, "", hosts},
	{root, "static_ipaddress static_routes static_rules", entries, "", hosts},
	{root, "vrrp_track_file track_file", "track_file", "service.check.file", "for a FILE_CHECK; weir drain removes a box from service"},
	{"track_file", "file", "", "service.check.file", "for a FILE_CHECK; weir drain removes a box from service"},
	{"track_file", "weight init_file", "", "", "a negative number in the file takes a backend down; weir drain removes a box from service"},
	{root, "vrrp_track_process", "vrrp_track_process", "", "weir does not monitor other processes"},
	{"vrrp_track_process", "process param_match weight quorum quorum_max fork_delay terminate_delay delay full_command", "", "", "weir does not monitor other processes"},
	{root, "bfd_instance", "bfd_instance", "service.check.type", "for a BFD_CHECK; members detect failures via gossip"},
	{"bfd_instance", "neighbor_ip neighbour_ip", "", "service.check.type", "the address of the real_server"},
	{"bfd_instance", "min_tx", "", "service.check.bfd_min_tx", bfdParameters},
	{"bfd_instance", "min_rx", "", "service.check.bfd_min_rx", bfdParameters},
	{"bfd_instance", "idle_tx", "", "service.check.bfd_idle_tx", bfdParameters},
	{"bfd_instance", "multiplier", "", "service.check.bfd_multiplier", bfdParameters},
	{"bfd_instance", "passive", "", "service.check.bfd_passive", bfdParameters},
	{"bfd_instance", "source_ip", "", "service.check.bfd_source", bfdParameters},
	{"bfd_instance", "ttl hoplimit", "", "service.check.bfd_ttl", bfdParameters},
	{"bfd_instance", "max_hops", "", "service.check.bfd_max_hops", bfdParameters},
	{"bfd_instance", "weight vrrp checker", "", "", gossiped},
}, globalDirectives, vrrpDirectives, serverDirectives, checkDirectives)

var globalDirectives = []directive{
	{"global_defs", "tmp_config_directory config_save_dir process_names process_name vrrp_process_name checker_process_name bfd_process_name " +
		"lvs_process_name umask max_auto_priority min_auto_priority_delay vrrp_priority checker_priority bfd_priority vrrp_no_swap " +
		"checker_no_swap bfd_no_swap vrrp_cpu_affinity checker_cpu_affinity bfd_cpu_affinity vrrp_rt_priority checker_rt_priority bfd_rt_priority " +
		"vrrp_rlimit_rttime checker_rlimit_rttime bfd_rlimit_rttime vrrp_rlimit_rtime checker_rlimit_rtime bfd_rlimit_rtime " +
		"random_seed data_use_instance script_user enable_script_security", "", "", processes},
	{"global_defs", "startup_script startup_script_timeout shutdown_script shutdown_script_timeout notify_fifo notify_fifo_script vrrp_notify_fifo " +
		"vrrp_notify_fifo_script lvs_notify_fifo lvs_notify_fifo_script fifo_write_vrrp_states_on_reload vrrp_notify_priority_changes rs_init_notifies",
		"", "", fifos},
	{"global_defs", "notification_email", entries, "", mail},
	{"global_defs", "notification_email_from smtp_server smtp_helo_name smtp_connect_timeout smtp_alert smtp_alert_vrrp smtp_alert_checker " +
		"no_email_faults no_checker_emails", "", "", mail},
	{"global_defs", "checker_log_all_failures log_unknown_vrids", "", "", logged},
	{"global_defs", "router_id", "", "", named},
	{"global_defs", "lvs_sync_daemon", "", "fleet.sync", "it needs a fleet: a vrrp_instance"},
	{"global_defs", "lvs_timeouts", "", "kernel.tcp_timeout", "tcp, tcpfin and udp become kernel.tcp_timeout, tcp_fin_timeout and udp_timeout"},
	{"global_defs", "lvs_flush", "", "", adopted},
	{"global_defs", "lvs_flush_on_stop lvs_flush_onstop", "", "daemon.on_stop", "cleanup"},
	{"global_defs", "vrrp_mcast_group4 vrrp_mcast_group6 vrrp_down_timer_adverts vrrp_lower_prio_no_advert vrrp_higher_prio_send_advert vrrp_version " +
		"vrrp_check_unicast_src vrrp_skip_check_adv_addr vrrp_strict vrrp_startup_delay vmac_prefix vmac_addr_prefix vrrp_rx_bufs_policy " +
		"vrrp_rx_bufs_multiplier default_interface dynamic_interfaces disable_local_igmp", "", "", protocol},
	{"global_defs", "vrrp_garp_master_delay vrrp_garp_master_repeat vrrp_garp_lower_prio_delay vrrp_garp_lower_prio_repeat vrrp_garp_master_refresh_repeat " +
		"vrrp_garp_interval vrrp_gna_interval vrrp_min_garp vrrp_garp_extra_if", "", "", neighbors},
	{"global_defs", "vrrp_garp_master_refresh", "", "l2.garp_interval", neighbors},
	{"global_defs", "nftables nftables_priority nftables_counters nftables_ifindex nftables_ipvs nftables_ipvs_priority nftables_ipvs_start_fwmark " +
		"vrrp_iptables vrrp_ipsets", "", "", firewall},
	{"global_defs", "snmp_socket enable_snmp_keepalived enable_snmp_vrrp enable_snmp_checker enable_snmp_rfc enable_snmp_rfcv2 enable_snmp_rfcv3 " +
		"enable_traps enable_dbus dbus_service_name", "", "", snmp},
	{"global_defs", "vrrp_netlink_cmd_rcv_bufs vrrp_netlink_cmd_rcv_bufs_force vrrp_netlink_monitor_rcv_bufs vrrp_netlink_monitor_rcv_bufs_force " +
		"lvs_netlink_cmd_rcv_bufs lvs_netlink_cmd_rcv_bufs_force lvs_netlink_monitor_rcv_bufs lvs_netlink_monitor_rcv_bufs_force " +
		"process_monitor_rcv_bufs process_monitor_rcv_bufs_force", "", "", buffers},
	{"global_defs", "reload_check_config include_check reload_time_file reload_repeat reload_file", "", "",
		checked},
}

var serverDirectives = []directive{
	{root, "virtual_server_group", "virtual_server_group", "service.vips", "each port of it becomes a service"},
	{"virtual_server_group", anyName, "", "service.vips", "an address or a range of them, and a port"},
	{"virtual_server_group", "fwmark", "", "service.fwmark", "each mark becomes a service"},
	{root, "virtual_server", "virtual_server", "service", "by address and port, by fwmark, or a group of them"},
	{"virtual_server", "lvs_sched lb_algo", "", "service.scheduler", "the default is wlc"},
	{"virtual_server", "flag-1 flag-2 flag-3 sh-port sh-fallback mh-port mh-fallback", "", "service.scheduler_flags", "weir has fallback and port, of sh and mh"},
	{"virtual_server", "ops", "", "service.one_packet", "for UDP ports with DR or TUN; " + natOPS},
	{"virtual_server", "lb_kind", "", "service.forward", "as lvs_method"},
	{"virtual_server real_server", "lvs_method", "", "service.forward", "NAT, with source_address = \"keep\", DR is direct, TUN is tunnel with its type"},
	{"virtual_server", "sorry_server_lvs_method", "", "", "the fallback has the forward of the service"},
	{"virtual_server", "persistence_engine", "", "", "weir identifies clients only by their addresses"},
	{"virtual_server", "persistence_timeout", "", "service.affinity_timeout", "if empty, it is 6 minutes"},
	{"virtual_server", "persistence_granularity", "", "", "weir's affinity is for single addresses"},
	{"virtual_server", "protocol", "", "service.ports", "tcp, udp or sctp behind the port"},
	{"virtual_server", "ha_suspend", "", "", allCheck},
	{"virtual_server real_server", "smtp_alert", "", "", mail},
	{"virtual_server real_server", "virtualhost", "", "service.check.host", "for HTTP checks without their own"},
	{"virtual_server real_server", "snmp_name", "", "", snmp},
	{"virtual_server real_server (check)", "alpha", "", "", firstCheck},
	{"virtual_server", "omega", "", "", "a stop of weir is no event for hooks"},
	{"virtual_server", "quorum", "", "service.quorum", "weir counts backends, not their weights; it needs a check, and a sorry_server or quorum_down"},
	{"virtual_server", "hysteresis", "", "service.hysteresis", "weir counts backends, not their weights; it needs a check, and a sorry_server or quorum_down"},
	{"virtual_server", "quorum_up quorum_down", "", "", "without a quorum weir withdraws the VIP's routes (service.when_down); " + scripts},
	{"virtual_server", "ip_family", "", "", family},
	{"virtual_server", "sorry_server", "", "service.fallback", "with when_down = \"fallback\"; it needs a check"},
	{"virtual_server", "sorry_server_inhibit", "", "", fallbackEnds},
	{"virtual_server real_server (check)", "connect_timeout", "", "service.check.timeout", "the default is 5 seconds"},
	{"virtual_server real_server (check)", "retry", "", "service.check.fall", "retry plus 1: the first failure is not a retry"},
	{"virtual_server real_server (check)", "delay_before_retry", "", "service.check.interval", "with delay_loop; the shorter one, but not below the timeout"},
	{"virtual_server real_server (check)", "delay_loop", "", "service.check.interval", "with delay_before_retry; the shorter one, but not below the timeout"},
	{"virtual_server real_server (check)", "warmup", "", "", spreads},
	{"virtual_server real_server", "inhibit_on_failure", "", "", drained},
	{"virtual_server", "weight", "", "service.backend.weight", "of a real_server without its own"},
	{"virtual_server", "real_server", "real_server", "service.backend", "an address with or without a port"},
	{"real_server", "weight", "", "service.backend.weight", "the default is 1"},
	{"real_server", "uthreshold", "", "service.backend.max_connections", "the same"},
	{"real_server", "lthreshold", "", "service.backend.min_connections", "it needs uthreshold"},
	{"real_server", "notify_up notify_down", "", "", scripts},
}

var checkDirectives = []directive{
	{"real_server", "HTTP_GET", "HTTP_GET", "service.check.type", "http; " + oneCheck},
	{"real_server", "SSL_GET", "SSL_GET", "service.check.type", "https; " + oneCheck},
	{"real_server", "TCP_CHECK", "TCP_CHECK", "service.check.type", "tcp; " + oneCheck},
	{"real_server", "SMTP_CHECK", "SMTP_CHECK", "service.check.type", "smtp; " + oneCheck},
	{"real_server", "DNS_CHECK", "DNS_CHECK", "service.check.type", "dns; " + oneCheck},
	{"real_server", "UDP_CHECK", "UDP_CHECK", "service.check.type", "udp, if it has payload and require_reply: weir's check needs a request and a response; " + oneCheck},
	{"real_server", "PING_CHECK", "PING_CHECK", "service.check.type", "ping; " + oneCheck},
	{"real_server", "BFD_CHECK", "BFD_CHECK", "service.check.type", "bfd; " + oneCheck},
	{"real_server", "MISC_CHECK", "MISC_CHECK", "service.check.type", "exec; " + oneCheck},
	{"real_server", "FILE_CHECK", "FILE_CHECK", "service.check.type", "file; " + oneCheck},
	{checker, "connect_ip", "", "service.check.address", "vip, if it is the address of the virtual_server, and no real_server has NAT; otherwise weir checks the backend at its own address"},
	{checker, "connect_port", "", "service.check.port", "the same"},
	{checker, "bindto bind_if bind_port fwmark", "", "", "the kernel's routes determine the interface of checks"},
	{checker, "log_all_failures", "", "", logged},
	{"HTTP_GET SSL_GET", "url", "url", "service.check.path", "weir requests one url, the first"},
	{"HTTP_GET SSL_GET", "http_protocol", "", "", http11},
	{"HTTP_GET SSL_GET", "fast_recovery", "", "", "weir requests one url"},
	{"HTTP_GET SSL_GET", "nb_get_retry", "", "service.check.fall", "as retry"},
	{"SSL_GET", "enable_sni", "", "service.check.server_name", "of the virtualhost"},
	{"HTTP_GET SSL_GET", "virtualhost", "", "service.check.host", "the same"},
	{"url", "path", "", "service.check.path", "the same"},
	{"url", "digest", "", "service.check.md5", "the same"},
	{"url", "status_code", "", "service.check.status", "the default is 200 to 299"},
	{"url", "virtualhost", "", "service.check.host", "the same"},
	{"url", "regex regex_no_match regex_options regex_stack regex_min_offset regex_max_offset", "", "",
		"weir supports only plain text: use service.check.body"},
	{"SMTP_CHECK", "helo_name", "", "service.check.helo", "the same"},
	{"SMTP_CHECK", "host", "host", "service.check.type", "if it is the backend itself: weir checks the backend at its own address"},
	{"DNS_CHECK", "type", "", "service.check.dns_type", "the default is SOA"},
	{"DNS_CHECK", "name", "", "service.check.dns_name", "the default is the root"},
	{"MISC_CHECK", "misc_path", "", "service.check.exec", "an absolute name, with arguments"},
	{"MISC_CHECK", "misc_timeout", "", "service.check.timeout", "the default is delay_loop"},
	{"MISC_CHECK", "misc_dynamic", "", "", "an exit status other than 0 takes the backend down, and none changes its weight"},
	{"MISC_CHECK", "user", "", "", "programs run as user weir-exec"},
	{"FILE_CHECK", "track_file", "", "service.check.file", "the file of that track_file"},
	{"FILE_CHECK", "dynamic weight", "", "", "a negative number in the file takes the backend down, and no number changes its weight"},
	{"BFD_CHECK", "name", "", "service.check.type", "the bfd_instance must have the address of the real_server as neighbor_ip"},
	{"UDP_CHECK", "payload", "", "service.check.send", "it needs require_reply"},
	{"UDP_CHECK", "require_reply", "", "service.check.expect", "it needs payload; bytes after the first x are not compared"},
	{"UDP_CHECK", "min_reply_length max_reply_length", "", "", "weir does not check the length of a response"},
	{root, "SSL", "SSL", "", "checks of weir have no certificate of their own"},
	{"SSL", "password ca certificate key", "", "", "checks of weir have no certificate of their own; service.check.ca_file is for verifying"},
}

// path returns a directive's name with its block.
func path(in, name string) string {
	if in == root {
		return name
	}
	return in + "." + name
}
