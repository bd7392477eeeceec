package serving

import (
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"weir/cmd/weir/internal/config/parse"
	"weir/cmd/weir/internal/config/schema"
	"weir/cmd/weir/internal/config/source"
	"weir/lb"
	"weir/lb/health"
)

// serviceKeys returns the keys of [[service]].
func serviceKeys(s *Service) []schema.Key {
	return []schema.Key{
		{Path: "service", Type: schema.Tables, Doc: "A static service: VIPs, ports and their backends."},
		{Path: "service.name", To: &s.LB.ID.Name, Example: `"web"`, Required: true, Check: parse.Name("service"),
			Doc: "The unique name of the service: 1 to 63 of a-z, 0-9, - and ."},
		{Path: "service.vips", Example: `["192.0.2.10"]`, Type: schema.Texts,
			Doc: "The virtual addresses, IPv4 and IPv6. Each VIP uses the backends of its own family. Required, except with fwmark."},
		{Path: "service.ports", Example: `["80:8080"]`, Type: schema.Mixed,
			Doc: "PORT or PORT:BACKENDPORT, optionally with /tcp, /udp or /sctp: 80, \"443:8443\", \"53/udp\". The default protocol is tcp. The default backend " +
				"port is the same port. Required, except with fwmark."},
		{Path: "service.fwmark", To: &s.LB.FWMark, Default: `0`, Max: maxFWMark,
			Doc: "A firewall mark that rules of your own set on packets, in table mangle: it selects the packets of the service, in place of ports. vips are " +
				"optional: they are made local and announced. Backends see the client's address. It needs IPVS. 0 means none; the marks of weir's own virtual servers are larger."},
		{Path: "service.type", Type: schema.Text, Default: `"LoadBalancer"`, Values: []string{"LoadBalancer", "ClusterIP"},
			Doc: "The clients of the VIPs: LoadBalancer for clients outside the cluster, ClusterIP for clients inside. For ClusterIP, cluster_cidrs and " +
				"masquerade_all select the masqueraded connections."},
		{Path: "service.backends", Type: schema.Texts, Default: `[]`,
			Doc: "The backends as a list of addresses: \"10.0.0.1\". In a service with one port, an address may have its own port: \"10.0.0.1:8080\". Use either " +
				"this or [[service.backend]]."},
		{Path: "service.scheduler", Type: schema.Text, Values: schedulerNames, From: "defaults.scheduler",
			Doc: "The IPVS scheduler. The default is defaults.scheduler."},
		{Path: "service.scheduler_flags", Type: schema.Texts, Values: []string{"fallback", "port"}, From: "defaults.scheduler_flags",
			Doc: "Flags of the schedulers sh and mh. fallback selects another backend if the hashed one is unavailable. port includes the client's port in the " +
				"hash. The default is defaults.scheduler_flags if the scheduler is the same. Otherwise mh has both and sh has fallback."},
		{Path: "service.affinity_timeout", To: &s.LB.Affinity, Default: `"0s"`, Max: longestTimer, Check: schema.WholeSeconds,
			Doc: "A client keeps its backend until this long after its last connection, in whole seconds. 0s disables affinity."},
		{Path: "service.group", To: &s.LB.Group, Default: `false`,
			Doc: "Makes one virtual server of all ports and VIPs of a family, by a firewall mark. A client keeps its backend on all of them, by " +
				"affinity_timeout or the schedulers mh and sh. A backend is up if it is up on all ports. It needs IPVS."},
		{Path: "service.forward", Type: schema.Text, Default: `"nat"`, Values: forwardNames,
			Doc: "The forwarding method: how packets reach the backends. nat replaces the VIP by the backend's address and port, and replies pass this box. direct sends them " +
				"unchanged to a backend on a network of this box; tunnel in another packet to any backend. Such a backend has the VIP as an address of its " +
				"own and replies to the client."},
		{Path: "service.tunnel", Type: schema.Text, Default: `"ipip"`, Values: tunnelNames,
			Doc: "The packet around those of forward = \"tunnel\". ipip adds 20 or 40 bytes. gue adds UDP, so that networks spread the flows. gre adds 4 bytes " +
				"to ipip."},
		{Path: "service.tunnel_port", To: &s.tunnelPort, Default: `6080`, Min: 1, Max: 65535,
			Doc: "For gue: the UDP port of the backends."},
		{Path: "service.tunnel_checksum", Type: schema.Text, Default: `"none"`, Values: checksumNames,
			Doc: "For gue and gre: the checksum of the outer packet. full covers the whole packet. remote, for gue, leaves the checksum of the inner packet to " +
				"the backend's network card."},
		{Path: "service.one_packet", To: &s.LB.OnePacket, Default: `false`,
			Doc: "For UDP with forward = \"direct\" or \"tunnel\": each datagram selects a backend, and no connection is kept. For protocols of one question " +
				"and one answer, such as DNS."},
		{Path: "service.source_address", Type: schema.Text, Default: `"masquerade"`, Values: []string{"masquerade", "keep"},
			Doc: "The client address that backends see: an address of this box, or with keep the client's own. With keep, the backends' replies must be routed " +
				"through this box. Backends with forward = \"direct\" or \"tunnel\" always see the client's own."},
		{Path: "service.source_ranges", To: &s.LB.SourceRanges, Example: `["203.0.113.0/24"]`,
			Doc: "The clients that are admitted. Without this key all clients are. A family without a range is closed. The box itself is admitted if one of " +
				"its addresses is."},
		{Path: "service.drain_timeout", Type: schema.Duration, From: "defaults.drain_timeout", Max: 24 * schema.Hour,
			Doc: "Time limit for the open connections of a removed backend or of the removed service. The default is defaults.drain_timeout."},
		{Path: "service.labels", To: &s.LB.Labels, Default: `{}`, Example: `{ tier = "gold" }`,
			Doc: "Labels that a [[bgp.advertise]] can select the service by."},
		{Path: "service.when_down", Type: schema.Text, Default: `"keep"`, Values: []string{"keep", "refuse", "fallback"},
			Doc: "Action when fewer backends are up than the quorum. keep uses all backends as if they were up. refuse refuses clients and withdraws the " +
				"routes. fallback uses the fallback."},
		{Path: "service.fallback", Type: schema.Texts, Default: `[]`,
			Doc: "The backends of when_down = \"fallback\", in the form of backends. They are not checked. Each serves every port. If the ports have different " +
				"backend ports, each address needs its own port."},
		{Path: "service.quorum", To: &s.quorum, Unit: "backends", Default: `1`, Min: 1, Max: 65535,
			Doc: "The number of backends of a port that must be up, counted for each family that has backends."},
		{Path: "service.hysteresis", To: &s.hysteresis, Unit: "backends", Default: `0`, Max: 65535,
			Doc: "The number of backends above the quorum that must be up to end the action of when_down."},
	}
}

// backendKeys returns the keys of [[service.backend]].
func backendKeys(b *lb.Backend) []schema.Key {
	return []schema.Key{
		{Path: "service.backend", Type: schema.Tables, Doc: "A backend of the service."},
		{Path: "service.backend.address", Example: `"10.0.0.1"`, Type: schema.Text, Required: true,
			Doc: "\"10.0.0.1\" or \"2001:db8::1\". In a service with one port, optionally with its own port: \"10.0.0.1:8080\", \"[2001:db8::1]:8080\"."},
		{Path: "service.backend.weight", To: &b.Weight, Unit: "share of new connections", Default: `1`, Max: 65535,
			Doc: "The backend's share of new connections, relative to the other weights. Some schedulers ignore weights. 0 sends it no new connections and " +
				"keeps the open ones."},
		{Path: "service.backend.forward", Type: schema.Text, Example: `"direct"`, Values: forwardNames,
			Doc: "The forwarding method for this backend, as service.forward. The default is that of the service."},
		{Path: "service.backend.max_connections", To: &b.Upper, Unit: "connections", Default: `0`, Max: maxConnections,
			Doc: "Limit of open connections. At the limit the backend gets no new ones. 0 means no limit."},
		{Path: "service.backend.min_connections", To: &b.Lower, Unit: "connections", Default: `0`, Max: maxConnections,
			Doc: "After max_connections was reached, the backend gets new connections when fewer than this are open. 0 means three quarters of " +
				"max_connections."},
	}
}

// allCheckKeys returns the keys of [service.check].
func allCheckKeys(c *health.Check) []schema.Key { return slices.Concat(checkKeys(c), bfdKeys(c)) }

// checkKeys returns the keys of [service.check] but for those of BFD.
func checkKeys(c *health.Check) []schema.Key {
	return []schema.Key{
		{Path: "service.check", Type: schema.Table,
			Doc: "The health check of each backend. Without this table all backends count as up."},
		{Path: "service.check.type", To: &c.Kind, Example: `"http"`, Required: true, Values: []string{"tcp", "tls", "http", "https", "grpc", "udp", "dns", "smtp", "ping", "file", "exec", "bfd"},
			Doc: "The check passes if: tcp: a connection is accepted. tls: the TLS handshake succeeds. http, https: the response to a GET matches. grpc: " +
				"grpc.health.v1 reports SERVING. udp: the response to a datagram matches. dns: a query over UDP is answered with NOERROR. smtp: a mail " +
				"server greets, and accepts HELO and QUIT. ping: an ICMP echo request is answered. file: a file of this box has no negative number. exec: " +
				"a program of this box exits with 0; it needs daemon.allow_exec. bfd: the BFD session with the backend is up."},
		{Path: "service.check.port", To: &c.Port, Example: `9000`, Min: 1, Max: 65535,
			Doc: "The port to check. The default is the backend's own port, and in a group its first port. For bfd it is 3784, and with bfd_max_hops 4784."},
		{Path: "service.check.address", Type: schema.Text, Default: `"backend"`, Values: []string{"backend", "vip"},
			Doc: "The address to check: the backend's own, or with vip each VIP of its family at the backend, by the service's forward. vip needs forward = " +
				"\"direct\" or \"tunnel\" for all backends. A server without the VIP then fails its check."},
		{Path: "service.check.interval", To: &c.Interval, Default: `"2s"`, Min: 100 * schema.Millisecond, Max: schema.Hour,
			Doc: "The interval between two checks of a backend."},
		{Path: "service.check.timeout", To: &c.Timeout, Default: `"1s"`, Min: 10 * schema.Millisecond, Max: schema.Hour,
			Doc: "Time limit of a check. At most interval."},
		{Path: "service.check.jitter", To: &c.Jitter, Unit: "part of interval", Default: `"10%"`, Max: 100,
			Doc: "Random deviation of each interval, so that checks do not run in step."},
		{Path: "service.check.rise", To: &c.Rise, Unit: "checks", Default: `2`, Min: 1, Max: 1000,
			Doc: "The number of consecutive passes before a backend is up. The first check after a start counts at once."},
		{Path: "service.check.fall", To: &c.Fall, Unit: "checks", Default: `3`, Min: 1, Max: 1000,
			Doc: "The number of consecutive failures before a backend is down."},
		{Path: "service.check.path", Type: schema.Text, Default: `"/"`, Check: checkPath,
			Doc: "For http and https: the path to request, with its query."},
		{Path: "service.check.host", Type: schema.Text, Default: `""`, Check: checkHost,
			Doc: "For http and https: the Host header. \"\" means the address that is checked."},
		{Path: "service.check.status", Type: schema.Mixed, Default: `["200-399"]`,
			Doc: "For http and https: the accepted status codes and ranges of them: [200, \"300-399\"]."},
		{Path: "service.check.body", Type: schema.Text, Default: `""`, Check: checkBody,
			Doc: "For http and https: text that the first 64 KiB of the response must contain. \"\" accepts any response."},
		{Path: "service.check.md5", To: &c.MD5, Default: `""`, Check: checkMD5,
			Doc: "For http and https: the MD5 digest of the body of the response, at most 1 MiB, in hexadecimal. \"\" accepts any response."},
		{Path: "service.check.server_name", To: &c.ServerName, Default: `""`, Check: checkServerName,
			Doc: "For checks over TLS: the server name to send (SNI) and, with verify, to verify. \"\" means the host, if there is one."},
		{Path: "service.check.verify", To: &c.Verify, Default: `false`,
			Doc: "For checks over TLS: requires a certificate that the system's roots or ca_file trust."},
		{Path: "service.check.ca_file", Type: schema.Text, File: true, Default: `""`,
			Doc: "With verify: a PEM file with the trusted roots, relative to this file. \"\" means the system's roots."},
		{Path: "service.check.grpc_service", To: &c.GRPCService, Default: `""`,
			Doc: "For grpc: the service name in the request. \"\" means the server as a whole."},
		{Path: "service.check.grpc_tls", To: &c.GRPCTLS, Default: `false`,
			Doc: "For grpc: uses TLS."},
		{Path: "service.check.send", Example: `"ping"`, Type: schema.Text,
			Doc: "For udp, required: the datagram to send, as text or as bytes: \"hex:de ad be ef\"."},
		{Path: "service.check.expect", Type: schema.Text, Default: `""`,
			Doc: "For udp: the prefix that the response must have, in the form of send. \"\" accepts any response."},
		{Path: "service.check.dns_name", Type: schema.Text, Default: `"."`,
			Doc: "For dns: the name in the query."},
		{Path: "service.check.dns_type", Type: schema.Text, Default: `"SOA"`, Values: []string{"A", "AAAA", "CNAME", "MX", "NS", "PTR", "SOA", "SRV", "TXT"},
			Doc: "For dns: the type of the query."},
		{Path: "service.check.helo", Type: schema.Text, Default: `"localhost"`, Check: checkServerName,
			Doc: "For smtp: the name of this box in HELO."},
		{Path: "service.check.exec", Type: schema.Texts, Example: `["/usr/lib/nagios/plugins/check_ssh", "-p", "22"]`,
			Doc: "For exec, required: the absolute name of a program, and its arguments. Its environment has WEIR_ADDRESS and WEIR_PORT, and the arguments " +
				"$WEIR_ADDRESS and $WEIR_PORT have their values. It is killed after timeout, with all processes that it has started."},
		{Path: "service.check.file", To: &c.File, Example: `"/run/web.state"`,
			Doc: "For file, required: an absolute name. An empty file and numbers from 0 up pass; a negative number, another text and a missing file fail."},
	}
}

var md5Form = regexp.MustCompile(`^[0-9a-f]{32}$`)

func checkMD5(value any) *source.Fault {
	if s := value.(string); s != "" && !md5Form.MatchString(s) {
		return source.Faultf("write 32 digits, such as those of md5sum", "%q is not an MD5 digest", value)
	}
	return nil
}

func checkServerName(value any) *source.Fault {
	if !parse.HostForm.Matches(value.(string)) {
		return source.Faultf("write it without port or path", "%q is not a host name", value)
	}
	return nil
}

var pathForm = regexp.MustCompile(`^/[!-~]*$`)

func checkPath(value any) *source.Fault {
	if !pathForm.MatchString(value.(string)) {
		return source.Faultf(`begin it with "/", and escape spaces as %20`, "%q is not a path", value)
	}
	return nil
}

func checkHost(value any) *source.Fault {
	if !validHost(value.(string)) {
		return source.Faultf("write a name or an address, optionally with :PORT", "%q is not a valid Host header", value)
	}
	return nil
}

func checkBody(value any) *source.Fault {
	if len(value.(string)) > 64<<10 {
		return source.Faultf("shorten it", "is longer than 64 KiB")
	}
	return nil
}

func validHost(s string) bool {
	if _, err := netip.ParseAddr(strings.Trim(s, "[]")); err == nil {
		return true
	}
	if _, err := netip.ParseAddrPort(s); err == nil {
		return true
	}
	host, port, ok := parse.CutPort(s)
	if !ok {
		return parse.HostForm.Matches(s)
	}
	_, err := strconv.ParseUint(port, 10, 16)
	return err == nil && host != "" && parse.HostForm.Matches(host)
}
