package config

const maxConnections = 1<<32 - 1 // the kernel counts in 32 bits

var serviceKeys = []Key{
	{Path: "service", Type: Tables, Doc: "What clients want: VIPs, ports, and the backends behind them."},
	{Path: "service.name", Example: `"web"`, Type: Text, Required: true,
		Doc: "What the service is called everywhere: 1 to 63 of a-z, 0-9, - and ., its own among all services."},
	{Path: "service.vips", Example: `["192.0.2.10"]`, Type: Texts, Required: true,
		Doc: "The virtual addresses, IPv4 and IPv6. Each uses the backends of its own family."},
	{Path: "service.ports", Example: `["80:8080"]`, Type: Mixed, Required: true,
		Doc: "PORT, PORT:BACKENDPORT, either with /tcp, /udp or /sctp after it: 80, \"443:8443\", \"53/udp\". " +
			"Left out, the protocol is tcp and the backend's port the same."},
	{Path: "service.type", Type: Text, Default: `"LoadBalancer"`, Values: []string{"LoadBalancer", "ClusterIP"},
		Doc: "Who the VIPs are for: LoadBalancer for clients outside, ClusterIP for clients inside, " +
			"where cluster_cidrs and masquerade_all say what is masqueraded."},
	{Path: "service.backends", Type: Texts, Default: `[]`,
		Doc: "The backends, where addresses are all there is to say: \"10.0.0.1\", or \"10.0.0.1:8080\" with a port of " +
			"its own in a service of one port. Use either this or [[service.backend]]."},
	{Path: "service.scheduler", Type: Text, Values: schedulerNames, from: "defaults.scheduler",
		Doc: "How new connections are spread over the backends, if not as [defaults] says."},
	{Path: "service.scheduler_flags", Type: Texts, Values: []string{"fallback", "port"}, from: "defaults.scheduler_flags",
		Doc: "For sh and mh: fallback takes another backend when the hashed one is out, port hashes the client's port too. " +
			"Left out, mh has both and sh has fallback, unless [defaults] has flags for the same scheduler."},
	{Path: "service.affinity", Type: Duration, Default: `"0s"`, max: longest,
		Doc: "A client stays on its backend until so long after its last connection, in whole seconds; 0s is off."},
	{Path: "service.source_address", Type: Text, Default: `"masquerade"`, Values: []string{"masquerade", "keep"},
		Doc: "What backends see as the client's address: this box's, or with keep the client's own. " +
			"Then their replies must be routed back through this box."},
	{Path: "service.source_ranges", Example: `["203.0.113.0/24"]`, Type: Texts,
		Doc: "The clients that are admitted. Left out, all are; a family without a range is closed. " +
			"The box itself is admitted if one of its own addresses is."},
	{Path: "service.drain", Type: Duration, from: "defaults.drain", max: 24 * hour,
		Doc: "How long connections of a removed backend, or of the removed service, may live on, " +
			"if not as [defaults] says."},
	{Path: "service.labels", Type: Map, Default: `{}`, Example: `{ tier = "gold" }`,
		Doc: "Words of your own, by which a [[bgp.advertise]] may choose the service."},
	{Path: "service.when_down", Type: Text, Default: `"keep"`, Values: []string{"keep", "refuse", "fallback"},
		Doc: "What happens when the checks leave fewer backends than the quorum: keep uses all as if they were up, " +
			"refuse refuses clients, and its routes are withdrawn, fallback uses the fallback."},
	{Path: "service.fallback", Type: Texts, Default: `[]`,
		Doc: "The backends of when_down = \"fallback\", written as in backends; they are not checked. " +
			"Each answers for every port: if these lead to several backend ports, it needs a port of its own."},
	{Path: "service.quorum", Type: Integer, Unit: "backends", Default: `1`, min: 1, max: 65535,
		Doc: "How many backends of a port must be up, of each family that has any: no VIP uses the other family's."},
	{Path: "service.hysteresis", Type: Integer, Unit: "backends", Default: `0`, max: 65535,
		Doc: "How many more than the quorum must be up to end what when_down began."},
}

var backendKeys = []Key{
	{Path: "service.backend", Type: Tables, Doc: "One address that answers for the service."},
	{Path: "service.backend.address", Example: `"10.0.0.1"`, Type: Text, Required: true,
		Doc: "\"10.0.0.1\" or \"2001:db8::1\"; in a service of one port also with a port of its own: " +
			"\"10.0.0.1:8080\", \"[2001:db8::1]:8080\"."},
	{Path: "service.backend.weight", Type: Integer, Unit: "share of new connections", Default: `1`, max: 65535,
		Doc: "Its share of new connections beside the other weights, for the schedulers that count weights; " +
			"0 takes none and keeps what it has."},
	{Path: "service.backend.max_connections", Type: Integer, Unit: "connections", Default: `0`, max: maxConnections,
		Doc: "No new connections while so many are open; 0 is no limit."},
	{Path: "service.backend.min_connections", Type: Integer, Unit: "connections", Default: `0`, max: maxConnections,
		Doc: "After max_connections was reached: new connections again when fewer than so many are open; " +
			"0 is three quarters of max_connections."},
}

var checkKeys = []Key{
	{Path: "service.check", Type: Table,
		Doc: "How each backend is asked whether it works. Without this table all count as up."},
	{Path: "service.check.type", Example: `"http"`, Type: Text, Required: true, Values: []string{"tcp", "tls", "http", "https", "grpc", "udp"},
		Doc: "tcp: a connection is accepted; tls: and a handshake completes; http, https: a GET is answered as wanted; " +
			"grpc: grpc.health.v1 says SERVING; udp: a datagram is answered as wanted."},
	{Path: "service.check.port", Example: `9000`, Type: Integer, min: 1, max: 65535,
		Doc: "The port that is asked. Left out, it is the backend's own."},
	{Path: "service.check.interval", Type: Duration, Default: `"2s"`, min: 100 * ms, max: hour,
		Doc: "From one check of a backend to the next."},
	{Path: "service.check.timeout", Type: Duration, Default: `"1s"`, min: 10 * ms, max: hour,
		Doc: "How long a check may take, at most interval."},
	{Path: "service.check.jitter", Type: Percent, Unit: "part of interval", Default: `"10%"`, max: 100,
		Doc: "By how much each wait is shortened or lengthened at random, so that checks do not fall into step."},
	{Path: "service.check.rise", Type: Integer, Unit: "checks", Default: `2`, min: 1, max: 1000,
		Doc: "How many checks in a row must succeed before a backend is up. The very first check decides alone."},
	{Path: "service.check.fall", Type: Integer, Unit: "checks", Default: `3`, min: 1, max: 1000,
		Doc: "How many checks in a row must fail before a backend is down."},
	{Path: "service.check.path", Type: Text, Default: `"/"`,
		Doc: "For http and https: the path to get, with its query if any."},
	{Path: "service.check.host", Type: Text, Default: `""`,
		Doc: "For http and https: the Host header; \"\" is the address that is asked."},
	{Path: "service.check.status", Type: Mixed, Default: `["200-399"]`,
		Doc: "For http and https: the status codes that are good, and ranges of them: [200, \"300-399\"]."},
	{Path: "service.check.body", Type: Text, Default: `""`,
		Doc: "For http and https: text that the first 64 KiB of the answer must contain; \"\" is any."},
	{Path: "service.check.server_name", Type: Text, Default: `""`,
		Doc: "For checks over TLS: the name that is sent, and verified with verify; \"\" is the host, or none."},
	{Path: "service.check.verify", Type: Bool, Default: `false`,
		Doc: "For checks over TLS: demands a certificate that the system's roots or ca_file vouch for."},
	{Path: "service.check.ca_file", Type: Text, Default: `""`,
		Doc: "With verify: a PEM file with the roots to trust instead of the system's, relative to this file."},
	{Path: "service.check.grpc_service", Type: Text, Default: `""`,
		Doc: "For grpc: the service to ask about; \"\" is the server as a whole."},
	{Path: "service.check.grpc_tls", Type: Bool, Default: `false`,
		Doc: "For grpc: speaks TLS."},
	{Path: "service.check.send", Example: `"ping"`, Type: Text,
		Doc: "For udp, which can't do without: the datagram to send, as text, or as bytes: \"hex:de ad be ef\"."},
	{Path: "service.check.expect", Type: Text, Default: `""`,
		Doc: "For udp: what the answer must begin with, written like send; \"\" takes any answer."},
}
