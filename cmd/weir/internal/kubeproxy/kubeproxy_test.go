package kubeproxy

import (
	"flag"
	"maps"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"weir/cmd/weir/internal/config"
	"weir/cmd/weir/internal/config/load"
	"weir/cmd/weir/internal/config/source"
	"weir/cmd/weir/internal/draft"
	"weir/cmd/weirlab/fuzzing"
	"weir/lb"
)

var update = flag.Bool("update", false, "write the files of testdata")

// names returns the names of items.
func names(items []draft.Item) []string {
	var out []string
	for _, i := range items {
		out = append(out, i.Name)
	}
	return out
}

func read1(t testing.TB, name string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// golden compares text with a file of testdata.
func golden(t *testing.T, name, got string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(filepath.Join("testdata", name), []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff(read1(t, name), got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", name, diff)
	}
}

// TestFieldsAreThoseOfKubeProxy shows that the table has every field of the Go
// types that Kubernetes publishes, and no other: a new release with a new field
// needs a decision here. The list of them is made by reflection, by a module
// beside this one.
func TestFieldsAreThoseOfKubeProxy(t *testing.T) {
	var got strings.Builder
	for _, f := range fields {
		got.WriteString(f.path + " " + f.form.Name + "\n")
	}
	if diff := cmp.Diff(read1(t, "fields.txt"), got.String()); diff != "" {
		t.Errorf("-Kubernetes +weir:\n%s", diff)
	}
	for _, f := range fields {
		if f.reason == "" {
			t.Errorf("%s: nothing says what becomes of it", f.path)
		}
	}
}

// TestFieldsAreReflected generates the list.
func TestFieldsAreReflected(t *testing.T) {
	cmd := exec.Command("go", "run", ".")
	cmd.Dir = "testdata/fields"
	if !*update {
		cmd.Env = append(os.Environ(), "GOPROXY=off", "GOFLAGS=-mod=readonly")
	}
	out, err := cmd.Output()
	if err != nil && !*update {
		t.Skipf("the Go types of kube-proxy are not in the module cache (go test -update fetches them): %v", err)
	}
	golden(t, "fields.txt", string(out))
}

func TestImport(t *testing.T) {
	for _, name := range []string{"kubeadm", "everything"} {
		t.Run(name, func(t *testing.T) {
			res, err := Import([]byte(read1(t, name+".yaml")), Options{Cores: 8})
			if err != nil {
				t.Fatal(err)
			}
			golden(t, name+".toml", res.TOML)
			again, _ := Import([]byte(read1(t, name+".yaml")), Options{Cores: 8})
			if again.TOML != res.TOML {
				t.Error("the same input, other output")
			}
		})
	}
}

// TestImportedMeansTheSame reads the result as the daemon does.
func TestImportedMeansTheSame(t *testing.T) {
	k := parsed(t, read1(t, "kubeadm.yaml"))
	pods := []netip.Prefix{netip.MustParsePrefix("10.244.0.0/16"), netip.MustParsePrefix("fd00:10:244::/56")}
	if d := cmp.Diff(pods, k.Kernel.ClusterCIDRs, cmp.Comparer(func(a, b netip.Prefix) bool { return a == b })); d != "" {
		t.Errorf("cluster_cidrs (-want +got):\n%s", d)
	}
	cl := k.Clusters[0]
	if k.Kernel.Mode != config.ModeIPVS || k.Kernel.DetectLocal != config.ClusterCIDR || k.Daemon.HealthListen != "0.0.0.0:10256" || k.Daemon.MetricsListen != "127.0.0.1:10249" || k.Daemon.PageListen != "127.0.0.1:10266" ||
		cl.Kubeconfig != "/etc/weir/credentials/kubeconfig" || cl.NodeName != "node" || len(cl.Kinds) != 4 ||
		!slices.Equal(k.Kernel.StrictARP, []string{"all"}) || k.Kernel.SyncPeriod != 10*time.Second {
		t.Errorf("%+v\n%+v", k.Kernel, cl)
	}
	k = parsed(t, read1(t, "everything.yaml"))
	want := []lb.Sysctl{
		{Name: "net.netfilter.nf_conntrack_tcp_timeout_established", Value: "7200"},
		{Name: "net.netfilter.nf_conntrack_udp_timeout", Value: "30"},
		{Name: "net.netfilter.nf_conntrack_udp_timeout_stream", Value: "180"},
		{Name: "net.netfilter.nf_conntrack_tcp_be_liberal", Value: "1"},
		{Name: "net.netfilter.nf_conntrack_max", Value: "524288"},
	}
	if d := cmp.Diff(want, k.Kernel.Sysctls); d != "" {
		t.Errorf("sysctls (-want +got):\n%s", d)
	}
	if k.Kernel.MasqueradeBit != 15 || !k.Kernel.MasqueradeAll || k.Kernel.SyncPeriod != 20*time.Second || k.Kernel.MinSyncPeriod != 250*time.Millisecond ||
		k.Kernel.TCPTimeout != 20*time.Minute || k.Kernel.TCPFinTimeout != 90*time.Second || k.Kernel.UDPTimeout != 5*time.Minute ||
		k.Kernel.InterfacePrefix != "veth" || len(k.Kernel.ClusterCIDRs) != 0 || len(k.Kernel.ExcludeCIDRs) != 2 || len(k.Kernel.NodePortNets) != 1 ||
		k.Defaults.Scheduler.Name != "wlc" || k.Daemon.HealthListen != "10.0.0.7:10256" || k.Daemon.MetricsListen != "10.0.0.7:10249" || k.Daemon.PageListen != "127.0.0.1:10266" || k.Daemon.LogFormat != config.LogJSON ||
		k.Daemon.LogLevel.String() != "DEBUG" || k.Clusters[0].NodeName != "node7" || k.Clusters[0].Kubeconfig != "/etc/kubernetes/proxy.conf" {
		t.Errorf("%+v\n%+v\n%+v", k.Kernel, k.Daemon, k.Clusters)
	}
}

func parsed(t *testing.T, yaml string) *config.Config {
	t.Helper()
	res, err := Import([]byte(yaml), Options{Cores: 8})
	if err != nil {
		t.Fatal(err)
	}
	c, err := load.Parse("weir.toml", []byte(res.TOML), source.Elsewhere{})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// with is a value for each field that is not its default, what must be set
// beside, and the line that comes of it.
var with = map[string]struct{ value, beside, line string }{
	"featureGates":                        {`{A: true}`, "", `# featureGates = { A = true }: gates`},
	"clientConnection.kubeconfig":         {`/k`, "", `kubeconfig = "/k" # `},
	"clientConnection.acceptContentTypes": {`x`, "", `# clientConnection.acceptContentTypes = "x": weir chooses`},
	"clientConnection.contentType":        {`x`, "", `# clientConnection.contentType = "x": weir chooses`},
	"clientConnection.qps":                {`1.5`, "", `# clientConnection.qps = 1.5: weir only`},
	"clientConnection.burst":              {`7`, "", `# clientConnection.burst = 7: weir only`},
	"logging.format":                      {`json`, "", `log_format = "json" # `},
	"logging.flushFrequency":              {`5s`, "", `# logging.flushFrequency = "5s": weir writes`},
	"logging.verbosity":                   {`4`, "", `log_level = "debug" # logging.verbosity 4`},
	"logging.vmodule":                     {`[{filePattern: a, verbosity: 1}]`, "", `# logging.vmodule = [{ filePattern = "a", verbosity = 1 }]: weir`},
	"logging.options.text.splitStream":    {`true`, "", `# logging.options.text.splitStream = true: weir`},
	"logging.options.text.infoBufferSize": {`64Ki`, "", `# logging.options.text.infoBufferSize = "64Ki": weir`},
	"logging.options.json.splitStream":    {`true`, "", `# logging.options.json.splitStream = true: weir`},
	"logging.options.json.infoBufferSize": {`1`, "", `# logging.options.json.infoBufferSize = 1: weir`},
	"hostnameOverride":                    {`node9`, "", `node_name = "node9" # `},
	"bindAddress":                         {`10.0.0.7`, "", `# bindAddress = "10.0.0.7": weir uses`},
	"healthzBindAddress":                  {`"[::1]"`, "", `health_listen = "[::1]:10256" # `},
	"metricsBindAddress":                  {`10.0.0.1:1`, "", `metrics_listen = "10.0.0.1:1" # `},
	"bindAddressHardFail":                 {`true`, "", `# bindAddressHardFail = true: weir never`},
	"enableProfiling":                     {`true`, "", `# enableProfiling = true: weir has no`},
	"showHiddenMetricsForVersion":         {`"1.35"`, "", `# showHiddenMetricsForVersion = "1.35": weir`},
	"mode":                                {`nftables`, "", `mode = "auto" # mode nftables;`},
	"iptables.masqueradeBit":              {`0`, "", `masquerade_bit = 0 # `},
	"iptables.masqueradeAll":              {`true`, "", `masquerade_all = true # `},
	"iptables.localhostNodePorts":         {`true`, "", `# iptables.localhostNodePorts = true: weir serves no node port on loopback`},
	"iptables.syncPeriod":                 {`1m`, "", `sync_period = "1m" # `},
	"iptables.minSyncPeriod":              {`11s`, "", `min_sync_period = "11s" # `},
	"ipvs.syncPeriod":                     {`1m`, "mode: ipvs", `sync_period = "1m" # `},
	"ipvs.minSyncPeriod":                  {`11s`, "mode: ipvs", `min_sync_period = "11s" # `},
	"ipvs.scheduler":                      {`sed`, "mode: ipvs", `scheduler = "sed" # `},
	"ipvs.excludeCIDRs":                   {`[10.0.0.9/8, 10.0.0.0/8]`, "mode: ipvs", `exclude_cidrs = ["10.0.0.0/8"] # `},
	"ipvs.strictARP":                      {`true`, "mode: ipvs", `strict_arp = ["all"] # `},
	"ipvs.tcpTimeout":                     {`1h`, "mode: ipvs", `tcp_timeout = "1h" # `},
	"ipvs.tcpFinTimeout":                  {`1m`, "mode: ipvs", `tcp_fin_timeout = "1m" # `},
	"ipvs.udpTimeout":                     {`1s`, "mode: ipvs", `udp_timeout = "1s" # `},
	"nftables.masqueradeBit":              {`9`, "mode: nftables", `masquerade_bit = 9 # `},
	"nftables.masqueradeAll":              {`true`, "mode: nftables", `masquerade_all = true # `},
	"nftables.syncPeriod":                 {`1m`, "mode: nftables", `sync_period = "1m" # `},
	"nftables.minSyncPeriod":              {`1m`, "mode: nftables\nnodePortAddresses: [primary]\nnftables.syncPeriod: 2m", `min_sync_period = "1m" # `},
	"winkernel.networkName":               {`x`, "", `# winkernel.networkName = "x": for Windows.`},
	"winkernel.sourceVip":                 {`x`, "", `# winkernel.sourceVip = "x": for Windows.`},
	"winkernel.enableDSR":                 {`true`, "", `# winkernel.enableDSR = true: for Windows.`},
	"winkernel.rootHnsEndpointName":       {`x`, "", `# winkernel.rootHnsEndpointName = "x": for Windows.`},
	"winkernel.forwardHealthCheckVip":     {`true`, "", `# winkernel.forwardHealthCheckVip = true: for Windows.`},
	"detectLocalMode":                     {`NodeCIDR`, "", `detect_local = "node-cidr" # `},
	"detectLocal.bridgeInterface":         {`br0`, "detectLocalMode: BridgeInterface", `bridge_interface = "br0" # `},
	"detectLocal.interfaceNamePrefix":     {`cali`, "detectLocalMode: InterfaceNamePrefix", `interface_prefix = "cali" # `},
	"clusterCIDR":                         {`"10.1.2.3/16, fd00::/64"`, "", `cluster_cidrs = ["10.1.0.0/16", "fd00::/64"] # `},
	"nodePortAddresses":                   {`[primary]`, "", `node_port_addresses = ["primary"] # `},
	"oomScoreAdj":                         {`0`, "", `# oomScoreAdj = 0: OOMScoreAdjust of`},
	"conntrack.maxPerCore":                {`1000000`, "", `"net.netfilter.nf_conntrack_max=1048576"`},
	"conntrack.min":                       {`700000`, "", `"net.netfilter.nf_conntrack_max=700000"`},
	"conntrack.tcpEstablishedTimeout":     {`1m`, "", `"net.netfilter.nf_conntrack_tcp_timeout_established=60"`},
	"conntrack.tcpCloseWaitTimeout":       {`1m`, "", `"net.netfilter.nf_conntrack_tcp_timeout_close_wait=60"`},
	"conntrack.tcpBeLiberal":              {`true`, "", `"net.netfilter.nf_conntrack_tcp_be_liberal=1"`},
	"conntrack.udpTimeout":                {`1m`, "", `"net.netfilter.nf_conntrack_udp_timeout=60"`},
	"conntrack.udpStreamTimeout":          {`1m`, "", `"net.netfilter.nf_conntrack_udp_timeout_stream=60"`},
	"configSyncPeriod":                    {`1m`, "", `# configSyncPeriod = "1m": weir's watches`},
	"portRange":                           {`1-2`, "", `# portRange = "1-2": kube-proxy ignores`},
	"windowsRunAsService":                 {`true`, "", `# windowsRunAsService = true: for Windows.`},
}

const kindLines = "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\n"

// nested writes "a.b.c: x" as YAML that flows.
func nested(path, value string) string {
	parts := strings.Split(path, ".")
	return strings.Join(parts, ": {") + ": " + value + strings.Repeat("}", len(parts)-1) + "\n"
}

// TestEveryField sets one field after the other: it becomes its key, or is named
// as left, and never both.
func TestEveryField(t *testing.T) {
	for path := range with {
		if !slices.ContainsFunc(fields, func(f field) bool { return f.path == path }) {
			t.Errorf("there is no field %s", path)
		}
	}
	for _, f := range fields {
		t.Run(f.path, func(t *testing.T) {
			w, ok := with[f.path]
			if !ok {
				t.Fatal("it has no value in this test")
			}
			doc := kindLines + nested(f.path, w.value)
			if f.path == "nftables.minSyncPeriod" {
				doc = kindLines + "mode: nftables\nnftables: {minSyncPeriod: 1m, syncPeriod: 2m}\n"
			} else if w.beside != "" {
				doc += w.beside + "\n"
			}
			res, err := Import([]byte(doc), Options{Cores: 8})
			if err != nil {
				t.Fatalf("%v\n%s", err, doc)
			}
			if !strings.Contains(res.TOML, w.line) {
				t.Errorf("no %q in:\n%s", w.line, res.TOML)
			}
			if left := slices.Contains(names(res.Left), f.path); left != (f.key == "") {
				t.Errorf("left: %v, but its key is %q", res.Left, f.key)
			}
			_, name, _ := strings.Cut(f.key, ".")
			if f.key != "" && !strings.Contains(res.TOML, "\n"+name+" = ") {
				t.Errorf("no key %s in:\n%s", f.key, res.TOML)
			}
		})
	}
}

// TestOtherModesAreLeft shows that settings of a mode that kube-proxy is not in
// change nothing.
func TestOtherModesAreLeft(t *testing.T) {
	res, err := Import([]byte(kindLines+`
mode: nftables
iptables: {masqueradeBit: 3, masqueradeAll: true, syncPeriod: 50s, minSyncPeriod: 9s}
ipvs: {scheduler: lc, strictARP: true, excludeCIDRs: [10.0.0.0/8], tcpTimeout: 1m, syncPeriod: 51s}
clusterCIDR: 10.0.0.0/8
detectLocalMode: NodeCIDR
detectLocal: {bridgeInterface: br0}
`), Options{Cores: 8})
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"iptables.masqueradeBit", "iptables.masqueradeAll", "iptables.syncPeriod", "iptables.minSyncPeriod",
		"ipvs.syncPeriod", "ipvs.scheduler", "ipvs.excludeCIDRs", "ipvs.strictARP", "ipvs.tcpTimeout",
		"detectLocal.bridgeInterface", "clusterCIDR",
	}
	if d := cmp.Diff(want, names(res.Left)); d != "" {
		t.Errorf("left (-want +got):\n%s", d)
	}
	if !strings.Contains(res.TOML, "node_port_addresses = [\"primary\"] # the default in mode nftables") {
		t.Error(res.TOML)
	}
}

func TestListensAsKubeProxyDoes(t *testing.T) {
	for _, tt := range []struct{ bind, healthz, want string }{
		{"", "", "0.0.0.0:10256"},
		{"10.0.0.7", "", "0.0.0.0:10256"},
		{"::", "", "[::]:10256"},
		{"fd00::7", "", "[::]:10256"},
		{"::", "127.0.0.1:1", "127.0.0.1:1"},
		{"", "::", "[::]:10256"},
	} {
		c := parsed(t, kindLines+"bindAddress: '"+tt.bind+"'\nhealthzBindAddress: '"+tt.healthz+"'\n")
		if c.Daemon.HealthListen != tt.want {
			t.Errorf("bindAddress %q, healthzBindAddress %q: %q, want %q", tt.bind, tt.healthz, c.Daemon.HealthListen, tt.want)
		}
		if c.Daemon.PageListen != "127.0.0.1:10266" {
			t.Errorf("the status page is at %q", c.Daemon.PageListen)
		}
	}
}

func TestWhereTheDocumentIs(t *testing.T) {
	json := `{"apiVersion": "kubeproxy.config.k8s.io/v1alpha1", "kind": "KubeProxyConfiguration", "mode": "ipvs"}`
	for name, text := range map[string]string{
		"JSON":                   json,
		"one of several":         "apiVersion: kubeadm.k8s.io/v1beta4\nkind: ClusterConfiguration\n---\n" + kindLines + "mode: ipvs\n--- \n# end\n",
		"ConfigMap":              "apiVersion: v1\nkind: ConfigMap\ndata:\n  x: 'kind: Other'\n  any.yaml: '" + json + "'\n",
		"ConfigMap of kubectl":   `{"apiVersion": "v1", "kind": "ConfigMap", "data": {"config.conf": "` + strings.ReplaceAll(kindLines+"mode: ipvs\n", "\n", `\n`) + `"}}`,
		"ConfigMap of documents": `{"apiVersion": "v1", "kind": "ConfigMap", "data": {"config.conf": "` + strings.ReplaceAll("kind: Other\n--- # it\n"+kindLines+"mode: ipvs\n", "\n", `\n`) + `"}}`,
	} {
		if c := parsed(t, text); c.Kernel.Mode != config.ModeIPVS {
			t.Errorf("%s: mode %q", name, c.Kernel.Mode)
		}
	}
}

func TestWhatCantBeImported(t *testing.T) {
	for _, tt := range []struct{ name, text, want string }{
		{"nothing", "", "there is no document of kind KubeProxyConfiguration in it"},
		{"another kind", "kind: Pod\n", "there is no document of kind"},
		{"two", kindLines + "---\n" + kindLines, "there are 2 documents"},
		{"a list", "- 1\n", "it has no kind"},
		{"no YAML", "a: [", "neither YAML nor JSON"},
		{"a field twice", kindLines + "mode: ipvs\nmode: ipvs\n", `key "mode" already set in map`},
		{"another version", "apiVersion: kubeproxy.config.k8s.io/v1beta1\nkind: KubeProxyConfiguration\n", "apiVersion is kubeproxy.config.k8s.io/v1beta1; weir knows kubeproxy.config.k8s.io/v1alpha1"},
		{"unknown fields", kindLines + "mdoe: ipvs\nipvs: {stricARP: true}\n",
			"\"ipvs.stricARP\": there is no such field in KubeProxyConfiguration; kube-proxy would refuse it\n\"mdoe\": there is no such"},
		{"wrong types", kindLines + "mode: 3\nipvs: {strictARP: 'yes', tcpTimeout: 5, excludeCIDRs: a}\niptables: 4\noomScoreAdj: 1.5\nfeatureGates: {A: 1}\n",
			"featureGates: map[A:1] is not of type map[string]bool\niptables: 4 is not a table\nipvs.excludeCIDRs: a is not of type []string\nipvs.strictARP: yes is not of type bool\n" +
				"ipvs.tcpTimeout: 5 is not of type duration\nmode: 3 is not of type string\noomScoreAdj: 1.5 is not of type int"},
		{"Windows", kindLines + "mode: kernelspace\n", "weir is for Linux"},
		{"a mode that went", kindLines + "mode: userspace\n", `kube-proxy has no "userspace"`},
		{"a value that nobody can have", kindLines + "mode: ipvs\nipvs: {scheduler: fastest}\n", `defaults.scheduler: "fastest" is not a scheduler`},
		{"a name that no Node has", kindLines + "hostnameOverride: a b\n", `kubernetes.kubernetes.node_name: "a b" is not a valid Node name`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := Import([]byte(tt.text), Options{Cores: 8})
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v, want %q", err, tt.want)
			}
		})
	}
}

// FuzzImport shows that whatever is imported is a valid configuration, and that
// nothing makes Import panic.
func FuzzImport(f *testing.F) {
	fuzzing.Wide(f)
	f.Add(read1(f, "kubeadm.yaml"))
	f.Add(read1(f, "everything.yaml"))
	for _, path := range slices.Sorted(maps.Keys(with)) {
		f.Add(kindLines + nested(path, with[path].value) + with[path].beside)
	}
	f.Fuzz(func(t *testing.T, text string) {
		res, err := Import([]byte(text), Options{Cores: 8})
		if err != nil {
			return
		}
		if _, err := load.Parse("weir.toml", []byte(res.TOML), source.Elsewhere{}); err != nil {
			t.Errorf("%v\n%s", err, res.TOML)
		}
		for _, path := range names(res.Left) {
			if !strings.Contains(res.TOML, "\n# "+path+" = ") {
				t.Errorf("%s is not named in\n%s", path, res.TOML)
			}
		}
	})
}
