package keepalived

// Reasons that directives in several places of the table have.
const (
	scripts       = "it becomes a [[hook]] in a comment, since a hook gets all events of a kind: the program must read WEIR_TEXT"
	fifos         = "weir has no such scripts and FIFOs: use weir events -o json, a [[hook]] or the metrics"
	mail          = "weir sends no mail; /usr/share/doc/weir/prometheus has rules for alerts"
	processes     = "it is for keepalived's processes; the systemd unit configures weir's"
	buffers       = "weir sizes its buffers itself"
	firewall      = "weir has its own firewall rules for VIPs"
	snmp          = "weir has /metrics in place of SNMP and D-Bus"
	protocol      = "it is for VRRP; [fleet] configures the members of a fleet"
	neighbors     = "weir announces a move to neighbors several times, and again every l2.garp_interval"
	otherNeighbor = "unless each real_server of a virtual_server has a bfd_instance with its address as neighbor_ip, a check of type tcp replaces it, over TCP"
	bfdParameters = "of a bfd_instance that a BFD_CHECK uses"
	natOPS        = "with NAT, replies would come from the address of the real_server and not from the VIP"
	onlyUDP       = "IPVS has one-packet scheduling only for UDP"
	oneCheck      = "all backends of a service have the same check"
	hosts         = "addresses, routes and rules of the host belong to its network configuration"
	logged        = "see daemon.log_level"
	named         = "the name of a box is its host name, or fleet.member"
	carrier       = "weir reads the carrier state from the kernel"
	adopted       = "weir adopts its own kernel state when it starts, and does not change any other"
	checked       = "weir reload checks first, and a configuration with an error changes nothing"
	allCheck      = "every member checks, so that backend states are known at a failover"
	firstCheck    = "weir always waits for the first check of a backend"
	family        = "the addresses determine it"
	spreads       = "service.check.jitter spreads the checks"
	drained       = "a backend that is down gets no new connections; open ones may continue for service.drain_timeout"
	fallbackEnds  = "connections to an unneeded fallback end after service.drain_timeout"
	priorities    = "a fleet has no priorities: fleet.weight is a box's share, and weir drain moves VIPs by hand"
	macs          = "weir answers ARP and NDP itself, with the interface's own MAC address"
	encrypted     = "the key of the fleet (fleet.keys) encrypts the messages of members"
	preempts      = "see fleet.preempt_delay, by default 30 s"
	http11        = "weir uses HTTP/1.1"
	gossiped      = "members detect failures via gossip"
	unusedGroup   = "no virtual_server uses it"
)

// harmless are the reasons of directives that change nothing for clients.
var harmless = []string{mail, processes, buffers, firewall, snmp, protocol, neighbors, logged, named, carrier, adopted, checked,
	allCheck, firstCheck, family, spreads, drained, fallbackEnds, priorities, macs, encrypted, preempts, http11, unusedGroup, onlyUDP, gossiped}
