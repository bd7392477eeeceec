package kubeproxy

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"weir/cmd/weir/internal/draft"
)

// converter makes weir's configuration of kube-proxy's.
type converter struct {
	set  values
	opts Options
	// used are the fields that have become keys.
	used map[string]bool
	out  draft.Writer
}

const head = `# Converted from a kube-proxy configuration by weir import kube-proxy. Each key has a comment with
# its field. Check it, stop kube-proxy, remove its objects (kube-proxy --cleanup), then start weir.
# weir.toml, the reference, has all other keys.
`

func convert(set values, opts Options) draft.Result {
	c := &converter{set: set, opts: opts, used: map[string]bool{}}
	c.out.Text(head)
	c.kernel()
	c.defaults()
	c.daemon()
	c.kubernetes()
	left := c.left()
	return draft.Result{TOML: c.out.String(), Left: left}
}

// take gives the value of a field that becomes a key.
func take[T any](c *converter, path string) (T, bool) {
	v, ok := c.set[path].(T)
	if ok {
		c.used[path] = true
	}
	return v, ok
}

// keys sets a key for each of the fields that are set: path, key, path, key.
func keys[T any](c *converter, pairs ...string) {
	for i := 0; i < len(pairs); i += 2 {
		if v, ok := take[T](c, pairs[i]); ok {
			c.out.Key(pairs[i+1], v, pairs[i])
		}
	}
}

// checkMode refuses the modes that are not for Linux, or not any more.
func checkMode(set values) error {
	switch m := set["mode"]; m {
	case nil, "ipvs", "iptables", "nftables":
		return nil
	case "kernelspace":
		return errors.New("mode: \"kernelspace\" is kube-proxy's for Windows, and weir is for Linux")
	default:
		return fmt.Errorf("mode: kube-proxy has no %q, only ipvs, iptables and nftables", m)
	}
}

// mode is kube-proxy's, of which an empty one is iptables.
func (c *converter) mode() string {
	if m, ok := c.set["mode"].(string); ok {
		return m
	}
	return "iptables"
}

func (c *converter) kernel() {
	c.out.Table("[kernel]")
	c.modeKey()
	mode := c.mode()
	mark := "iptables" // ipvs has no settings of its own for masquerading
	if mode == "nftables" {
		mark = mode
	}
	keys[int64](c, mark+".masqueradeBit", "masquerade_bit")
	keys[bool](c, mark+".masqueradeAll", "masquerade_all")
	c.local()
	if mode == "ipvs" {
		c.ipvs()
	}
	c.periods(mode)
	c.nodePorts(mode)
	c.sysctls()
}

func (c *converter) modeKey() {
	switch c.mode() {
	case "ipvs":
		keys[string](c, "mode", "mode")
	default:
		c.used["mode"] = true
		c.out.Key("mode", "auto", "mode "+c.mode()+"; auto is IPVS where the kernel has it")
	}
	if on, ok := c.set["iptables.localhostNodePorts"].(bool); c.mode() == "iptables" && (on || !ok) {
		c.out.Text("# weir does not serve node ports on 127.0.0.1, which kube-proxy has only in this mode.\n")
	}
}

// localModes are the ways to know pods by kube-proxy's names and weir's.
var localModes = map[string]string{
	"ClusterCIDR": "cluster-cidr", "NodeCIDR": "node-cidr",
	"BridgeInterface": "bridge-interface", "InterfaceNamePrefix": "interface-prefix",
}

func (c *converter) local() {
	mode, ok := take[string](c, "detectLocalMode")
	if ok {
		way, known := localModes[mode]
		if !known {
			way = mode // package load reports it
		}
		c.out.Key("detect_local", way, "detectLocalMode")
	}
	switch mode {
	case "", "ClusterCIDR":
		if s, ok := take[string](c, "clusterCIDR"); ok {
			c.out.Key("cluster_cidrs", ranges(strings.Split(s, ",")), "clusterCIDR")
		}
	case "BridgeInterface":
		keys[string](c, "detectLocal.bridgeInterface", "bridge_interface")
	case "InterfaceNamePrefix":
		keys[string](c, "detectLocal.interfaceNamePrefix", "interface_prefix")
	}
}

// ranges returns ranges in weir's form: each once, without bits behind the mask. Invalid
// ones stay; package load reports them.
func ranges(list []string) []string {
	var out []string
	for _, s := range list {
		s = strings.TrimSpace(s)
		if p, err := netip.ParsePrefix(s); err == nil {
			s = p.Masked().String()
		}
		if !slices.Contains(out, s) {
			out = append(out, s)
		}
	}
	return out
}

func (c *converter) ipvs() {
	if list, ok := take[[]string](c, "ipvs.excludeCIDRs"); ok {
		c.out.Key("exclude_cidrs", ranges(list), "ipvs.excludeCIDRs")
	}
	for _, t := range []struct{ path, key string }{
		{"ipvs.tcpTimeout", "tcp_timeout"}, {"ipvs.tcpFinTimeout", "tcp_fin_timeout"}, {"ipvs.udpTimeout", "udp_timeout"},
	} {
		if d, ok := take[time.Duration](c, t.path); ok {
			c.out.Key(t.key, d.Truncate(time.Second), t.path)
		}
	}
	if _, ok := take[bool](c, "ipvs.strictARP"); ok {
		c.out.Text("# Where only some interfaces must not answer for VIPs, name those.\n")
		c.out.Key("strict_arp", []string{"all"}, "ipvs.strictARP")
	}
}

// kubeSyncPeriod is kube-proxy's default.
const kubeSyncPeriod = 30 * time.Second

func (c *converter) periods(mode string) {
	period, least := mode+".syncPeriod", mode+".minSyncPeriod"
	_, hasPeriod := c.set[period]
	keys[time.Duration](c, period, "sync_period")
	if d, ok := take[time.Duration](c, least); ok {
		if !hasPeriod {
			c.out.Key("sync_period", kubeSyncPeriod, "kube-proxy's default")
		}
		c.out.Key("min_sync_period", d, least)
	}
}

func (c *converter) nodePorts(mode string) {
	list, ok := take[[]string](c, "nodePortAddresses")
	switch {
	case ok && slices.Equal(list, []string{"primary"}):
		c.out.Key("node_port_addresses", list, "nodePortAddresses")
	case ok:
		c.out.Key("node_port_addresses", ranges(list), "nodePortAddresses")
	case mode == "nftables":
		c.out.Key("node_port_addresses", []string{"primary"}, "the default in mode nftables")
	}
}

// sysctls are conntrack's timeouts, with kube-proxy's defaults.
func (c *converter) sysctls() {
	var list []string
	add := func(name string, value int64) {
		list = append(list, fmt.Sprintf("net.netfilter.nf_conntrack_%s=%d", name, value))
	}
	for _, t := range []struct {
		path, name string
		absent     time.Duration
	}{
		{"conntrack.tcpEstablishedTimeout", "tcp_timeout_established", 24 * time.Hour},
		{"conntrack.tcpCloseWaitTimeout", "tcp_timeout_close_wait", time.Hour},
		{"conntrack.udpTimeout", "udp_timeout", 0},
		{"conntrack.udpStreamTimeout", "udp_timeout_stream", 0},
	} {
		d, ok := take[time.Duration](c, t.path)
		if !ok {
			d = t.absent
		}
		if d >= time.Second {
			add(t.name, int64(d/time.Second))
		}
	}
	if _, ok := take[bool](c, "conntrack.tcpBeLiberal"); ok {
		add("tcp_be_liberal", 1)
	}
	if n := c.conntrackMax(int64(c.opts.Cores)); n > 0 {
		c.out.Text(fmt.Sprintf("# nf_conntrack_max depends on the cores of the node, here %d. Import with --cores for another number.\n", c.opts.Cores))
		list = append(list, fmt.Sprintf("net.netfilter.nf_conntrack_max=%d", n))
	}
	if len(list) > 0 {
		c.out.Key("sysctls", list, "conntrack")
	}
}

// conntrackMax returns kube-proxy's nf_conntrack_max for a number of cores, from
// conntrack.maxPerCore and conntrack.min; 0 means that it sets none.
func (c *converter) conntrackMax(cores int64) int64 {
	perCore, least := int64(32<<10), int64(128<<10)
	if n, ok := take[int64](c, "conntrack.maxPerCore"); ok {
		perCore = n
	}
	if n, ok := take[int64](c, "conntrack.min"); ok {
		least = n
	}
	const most = 1 << 20
	switch scaled := perCore * cores; {
	case perCore <= 0:
		return 0
	case scaled > most:
		return most
	default:
		return max(scaled, least)
	}
}

func (c *converter) defaults() {
	if c.mode() != "ipvs" {
		return
	}
	if s, ok := take[string](c, "ipvs.scheduler"); ok {
		c.out.Table("[defaults]")
		c.out.Key("scheduler", s, "ipvs.scheduler")
	}
}

// debugVerbosity is klog's level for debug messages.
const debugVerbosity = 4

func (c *converter) daemon() {
	c.out.Table("[daemon]")
	all, loopback := "0.0.0.0", "127.0.0.1"
	b, _ := c.set["bindAddress"].(string)
	if strings.Contains(b, ":") {
		all, loopback = "::", "::1"
	}
	if b == "0.0.0.0" || b == "::" {
		c.used["bindAddress"] = true // it has no other meaning
	}
	c.out.Text("# External load balancers check the health of nodes here.\n")
	c.listen("health_listen", "healthzBindAddress", all, "10256")
	c.listen("metrics_listen", "metricsBindAddress", loopback, "10249")
	keys[string](c, "logging.format", "log_format")
	if v, ok := take[int64](c, "logging.verbosity"); ok {
		level := "info"
		if v >= debugVerbosity {
			level = "debug"
		}
		c.out.Key("log_level", level, "logging.verbosity "+strconv.FormatInt(v, 10))
	}
}

// listen writes an address for HTTP: the field's, or kube-proxy's default.
func (c *converter) listen(key, field, host, port string) {
	if s, ok := take[string](c, field); ok {
		c.out.Key(key, withPort(s, port), field)
		return
	}
	c.out.Key(key, net.JoinHostPort(host, port), "kube-proxy's default")
}

// withPort completes an address that has no port, as kube-proxy does.
func withPort(s, port string) string {
	if a, err := netip.ParseAddr(strings.Trim(s, "[]")); err == nil {
		return net.JoinHostPort(a.String(), port)
	}
	return s
}

func (c *converter) kubernetes() {
	c.out.Table("[[kubernetes]]")
	c.out.Key("name", "kubernetes", "name of the cluster in weir")
	c.kubeconfig()
	node, from := "$HOSTNAME", "kube-proxy's default"
	if s, ok := take[string](c, "hostnameOverride"); ok {
		node, from = strings.ToLower(strings.TrimSpace(s)), "hostnameOverride"
	}
	c.out.Key("node_name", node, from)
	g, _ := c.set["featureGates"].(map[string]bool)
	if on, ok := g["AllowServiceExternalIPs"]; !ok || on {
		c.out.Text("# kube-proxy serves any address in spec.externalIPs. weir serves only these ranges, because any\n" +
			"# author of a Service can claim foreign traffic with externalIPs.\n" +
			"#external_ip_ranges = [\"0.0.0.0/0\", \"::/0\"]\n")
	}
}

// kubeconfig writes the name of the file. The file in kube-proxy's Pod reads the token of
// the Pod, so that weir needs its own file.
func (c *converter) kubeconfig() {
	const address = "It must contain the API server's own address, because weir itself serves ClusterIPs."
	name, ok := take[string](c, "clientConnection.kubeconfig")
	switch {
	case ok && (c.opts.inPod || strings.HasPrefix(name, podFolder)):
		c.out.Remark("The kubeconfig of kube-proxy is in its Pod. Create one for weir with /usr/share/doc/weir/kubeconfig.sh, " +
			"as /etc/weir/credentials/kubeconfig. " + address)
		c.out.Key("kubeconfig", "credential:kubeconfig", "clientConnection.kubeconfig "+name)
	case ok:
		c.out.Remark("weir must find the file under this name. " + address)
		c.out.Key("kubeconfig", name, "clientConnection.kubeconfig")
	}
}

// podFolder is the folder of the ConfigMap in the Pods of kubeadm.
const podFolder = "/var/lib/kube-proxy/"

// left names the fields that are set and have become nothing.
func (c *converter) left() []draft.Item {
	var left []draft.Item
	for _, f := range fields {
		v, ok := c.set[f.path]
		if !ok || c.used[f.path] {
			continue
		}
		if len(left) == 0 {
			c.out.Text("\n# Settings without a key:\n")
		}
		severity := draft.Note
		if slices.Contains(differing, f.path) {
			severity = draft.Warning
		}
		left = append(left, draft.Item{Severity: severity, Name: f.path, Reason: f.reason})
		c.out.Left(f.path, v, f.reason)
	}
	draft.Worst(left)
	return left
}
