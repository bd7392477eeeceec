package keepalived

const tracked = "weights change priorities, and a fleet has none"

// vrrpDirectives are those of VRRP. They become a draft of a fleet.
var vrrpDirectives = []directive{
	{root, "vrrp_script", "vrrp_script", "", "no program decides the fitness of a member; weir checks it, and weir drain removes a box from service"},
	{"vrrp_script", "script interval timeout weight rise fall user init_fail", "", "", "no program decides the fitness of a member; weir checks it, and weir drain removes a box from service"},
	{root, "vrrp_sync_group", "vrrp_sync_group", "fleet.placement", "one box owns all VIPs"},
	{"vrrp_sync_group", "group", entries, "fleet.placement", "one box owns all VIPs"},
	{"vrrp_sync_group vrrp_instance", "track_interface", entries, "fleet.interfaces", "those without a weight; " + tracked},
	{"vrrp_sync_group vrrp_instance", "track_script track_file track_process track_bfd", entries, "",
		"weir checks its own fitness, and weir drain removes a box from service"},
	{"vrrp_sync_group vrrp_instance", "notify_master notify_backup notify_fault notify_stop notify notify_priority_changes",
		"", "", scripts},
	{"vrrp_instance", "notify_deleted notify_master_rx_lower_pri", "", "", scripts},
	{"vrrp_sync_group vrrp_instance", "smtp_alert", "", "", mail},
	{"vrrp_sync_group", "global_tracking sync_group_tracking_weight", "", "", tracked},
	{root, "garp_group", "garp_group", "", neighbors},
	{"garp_group", "garp_interval gna_interval interface", "", "", neighbors},
	{"garp_group", "interfaces", entries, "", neighbors},
	{root, "vrrp_instance", "vrrp_instance", "l2", "the owner of its addresses in the fleet answers for them"},
	{"vrrp_instance", "state priority", "", "", priorities},
	{"vrrp_instance", "interface", "", "l2.interfaces", "the same"},
	{"vrrp_instance", "vrf use_vmac use_vmac_addr vmac_xmit_base use_ipvlan native_ipv6 dont_track_primary promote_secondaries", "", "",
		macs},
	{"vrrp_instance", "mcast_src_ip mcast_dst_ip track_src_ip version check_unicast_src unicast_fault_no_peer unicast_ttl old_unicast_checksum " +
		"down_timer_adverts lower_prio_no_advert higher_prio_send_advert virtual_router_id advert_int skip_check_adv_addr strict_mode " +
		"accept no_accept debug kernel_rx_buf_size linkbeat_use_polling dont_track_primary", "", "", protocol},
	{"vrrp_instance", "lvs_sync_daemon_interface", "", "fleet.sync", "that of global_defs comes first"},
	{"vrrp_instance", "unicast_src_ip", "", "fleet.bind", "that of the first instance with peers: members use one address"},
	{"vrrp_instance", "unicast_peer", entries, "fleet.join", "those of the first instance with peers: members use one address"},
	{"vrrp_instance", "garp_master_delay garp_master_repeat garp_lower_prio_delay garp_lower_prio_repeat garp_master_refresh_repeat garp_extra_if",
		"", "", neighbors},
	{"vrrp_instance", "garp_master_refresh", "", "l2.garp_interval", neighbors},
	{"vrrp_instance", "authentication", "authentication", "", encrypted},
	{"authentication", "auth_type auth_pass", "", "", encrypted},
	{"vrrp_instance", "virtual_ipaddress virtual_ipaddress_excluded", entries, "l2.gateway", "addresses that are not a VIP of a service; the others are VIPs"},
	{"vrrp_instance", "virtual_routes virtual_rules", entries, "", hosts},
	{"vrrp_instance", "nopreempt", "", "fleet.preempt_delay", "never"},
	{"vrrp_instance", "preempt", "", "", preempts},
	{"vrrp_instance", "preempt_delay", "", "fleet.preempt_delay", "the same"},
}
