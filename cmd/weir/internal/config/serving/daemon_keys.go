package serving

import (
	"fmt"
	"net"
	"net/netip"
	"path/filepath"
	"strconv"

	"weir/cmd/weir/internal/config"
	"weir/cmd/weir/internal/config/schema"
	"weir/cmd/weir/internal/config/source"
	"weir/lb"
)

// daemonKeys returns the keys of [daemon].
func daemonKeys(d *config.Daemon) []schema.Key {
	return []schema.Key{
		{Path: "daemon", Type: schema.Table, Doc: "The process itself."},
		{Path: "daemon.socket", To: &d.Socket, Default: `"/run/weir/weir.sock"`, Restart: true, Check: checkSocket,
			Doc: "The unix socket of the command line interface: an absolute path."},
		{Path: "daemon.health_listen", To: &d.HealthListen, Unit: "address:port", Default: `"127.0.0.1:10266"`, Restart: true, Check: checkListen,
			Doc: "The HTTP address of /healthz and /livez. \"\" disables them. Addresses that are equal have one listener. Load balancers and the kubelet need " +
				"an address that they can reach, such as \":10256\"."},
		{Path: "daemon.metrics_listen", To: &d.MetricsListen, Unit: "address:port", Default: `"127.0.0.1:10266"`, Restart: true, Check: checkListen,
			Doc: "The HTTP address of /metrics. \"\" disables it. There is no password: on an address other than loopback, the network can read the names and " +
				"addresses of all services."},
		{Path: "daemon.metrics_backends", To: &d.MetricsBackends, Default: `true`,
			Doc: "Whether /metrics has series of single backends: four of each, which are most of a scrape. Services have theirs in any case."},
		{Path: "daemon.page_listen", To: &d.PageListen, Unit: "address:port", Default: `"127.0.0.1:10266"`, Restart: true, Check: checkListen,
			Doc: "The HTTP address of the status page. \"\" disables it. There is no password: on an address other than loopback, the network can read the state " +
				"of the box and its events."},
		{Path: "daemon.log_level", Type: schema.Text, Default: `"info"`, Values: []string{"debug", "info", "warn", "error"},
			Doc: "The lowest severity that is logged. debug logs every change to the kernel."},
		{Path: "daemon.log_format", To: &d.LogFormat, Default: `"text"`, Restart: true, Values: []string{"text", "json"},
			Doc: "The format of log lines."},
		{Path: "daemon.on_stop", To: &d.OnStop, Default: `"drain"`, Values: []string{"keep", "drain", "cleanup"},
			Doc: "Action when systemd stops weir or the host shuts down. drain moves clients to other boxes first, like weir drain --all, until the next " +
				"start. It needs [bgp], [l2] or [fleet]. keep does not drain. Both keep the kernel state, so that traffic continues. cleanup drains and then " +
				"removes weir's kernel state. Restarts, upgrades and SIGTERM do nothing; SIGINT counts as a stop. " +
				"Outside of a systemd unit both signals only clean up, at once."},
		{Path: "daemon.stop_timeout", To: &d.StopTimeout, Default: `"60s"`, Min: schema.Second, Max: schema.Hour,
			Doc: "Time limit of that drain: bgp.drain_delay and the end of connections together. weir extends systemd's TimeoutStopSec for it. A second signal " +
				"ends the drain."},
		{Path: "daemon.allow_exec", To: &d.AllowExec, Default: `false`,
			Doc: "Permits programs of checks (type = \"exec\") and hooks. They run in weir-exec.service as user weir-exec, without rights: systemctl enable --now " +
				"weir-exec.socket."},
		{Path: "daemon.state_dir", To: &d.StateDir, Default: `"/var/lib/weir"`, Check: checkStateDir,
			Doc: "The directory of the state that survives restarts: the last snapshot of each cluster and the drained objects. During weir reload --confirm " +
				"it also contains the previous configuration. An absolute path."},
	}
}

func readDaemon(s schema.Section) config.Daemon {
	var d config.Daemon
	s.Read(daemonKeys(&d))
	_ = d.LogLevel.UnmarshalText([]byte(s.Text("log_level"))) // the schema admits only slog's names
	for _, listen := range []*string{&d.HealthListen, &d.MetricsListen, &d.PageListen} {
		*listen = canonical(*listen)
	}
	checkListeners(s, d.Listeners())
	return d
}

// canonical returns an HTTP address in the form that equal ones have: they share a listener.
func canonical(listen string) string {
	host, port, err := net.SplitHostPort(listen)
	if err != nil {
		return listen // empty
	}
	if a, err := netip.ParseAddr(host); err == nil {
		host = a.Unmap().String()
	}
	n, _ := strconv.ParseUint(port, 10, 16) // checkListen has reported others
	return net.JoinHostPort(host, strconv.FormatUint(n, 10))
}

// checkListeners reports HTTP addresses with one port if one of them is all addresses: the
// kernel refuses the second listener.
func checkListeners(s schema.Section, all []config.Listener) {
	for i, l := range all {
		for _, other := range all[:i] {
			if !s.Bad(l.Key) && !s.Bad(other.Key) && sharePort(l.Addr, other.Addr) {
				s.Fail(l.Key, fmt.Sprintf("%q overlaps %q of daemon.%s", l.Addr, other.Addr, other.Key), "use the same address, or another port")
			}
		}
	}
}

// sharePort reports whether two different addresses have one port, and one of them is all
// addresses of the box.
func sharePort(a, b string) bool {
	hostA, portA, _ := net.SplitHostPort(a)
	hostB, portB, _ := net.SplitHostPort(b)
	return hostA != hostB && portA == portB && (isWildcard(hostA) || isWildcard(hostB))
}

func isWildcard(host string) bool {
	a, err := netip.ParseAddr(host)
	return err != nil || a.IsUnspecified()
}

// checkSocket checks a path for a socket: sun_path has 108 bytes with its final zero.
func checkSocket(value any) *source.Fault {
	if path := value.(string); !filepath.IsAbs(path) || len(path) > 107 {
		return source.Faultf("write for instance \"/run/weir/weir.sock\"", "%q is not an absolute path of at most 107 characters", path)
	}
	return nil
}

func checkStateDir(value any) *source.Fault {
	if path := value.(string); !filepath.IsAbs(path) {
		return source.Faultf("write for instance \"/var/lib/weir\"", "%q is not an absolute path", path)
	}
	return nil
}

func checkListen(value any) *source.Fault {
	listen := value.(string)
	if listen == "" {
		return nil
	}
	host, port, err := net.SplitHostPort(listen)
	if err != nil {
		return source.Faultf("write for instance 127.0.0.1:10266", "%q is not an address and a port", listen)
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
		return source.Faultf("use a port from 1 to 65535", "%q has the invalid port %q", listen, port)
	}
	if _, err := netip.ParseAddr(host); err != nil && host != "" {
		return source.Faultf("write the address, or nothing for all addresses", "%q has the invalid address %q", listen, host)
	}
	return nil
}

// defaultsKeys returns the keys of [defaults].
func defaultsKeys(d *config.Defaults) []schema.Key {
	return []schema.Key{
		{Path: "defaults", Type: schema.Table, Doc: "Defaults of all services, which each service can override."},
		{Path: "defaults.scheduler", To: &d.Scheduler.Name, Default: `"rr"`, Values: schedulerNames,
			Doc: "The IPVS scheduler, which distributes new connections over the backends."},
		{Path: "defaults.scheduler_flags", Type: schema.Texts, Default: `[]`, Values: []string{"fallback", "port"},
			Doc: "Flags of the schedulers sh and mh. fallback selects another backend if the hashed one is unavailable. port includes the client's port in the " +
				"hash. Without this key, mh has both and sh has fallback."},
		{Path: "defaults.drain_timeout", To: &d.Drain, Default: `"30s"`, Max: 24 * schema.Hour,
			Doc: "Time limit for the open connections of a removed backend or service. 0s closes them at once. With scheduler dh the default is 0s, because dh " +
				"refuses clients of a draining backend."},
	}
}

func readDefaults(s schema.Section) config.Defaults {
	var d config.Defaults
	s.Read(defaultsKeys(&d))
	d.Scheduler.Flags = schedulerFlags(s, d.Scheduler.Name, lb.UsualFlags(d.Scheduler.Name))
	return d
}
