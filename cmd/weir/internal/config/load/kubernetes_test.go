package load

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"
	"weir/cmd/weir/internal/config"
	"weir/cmd/weir/internal/config/source"

	"weir/k8ssync"
	"weir/lb"
)

// kubeconfig has two contexts, and two that lead nowhere.
const kubeconfig = `apiVersion: v1
kind: Config
current-context: prod
clusters:
- {name: prod, cluster: {server: "https://10.0.0.1:6443"}}
- {name: nowhere, cluster: {}}
users:
- {name: weir, user: {tokenFile: /etc/weir/token}}
contexts:
- {name: prod, context: {cluster: prod, user: weir}}
- {name: staging, context: {cluster: prod, user: weir}}
- {name: stranger, context: {cluster: prod, user: nobody}}
- {name: lost, context: {cluster: gone, user: weir}}
- {name: nowhere, context: {cluster: nowhere, user: weir}}
`

// parseOn parses a text on a machine.
func parseOn(t *testing.T, files source.Files, text string) *config.Config {
	t.Helper()
	c, err := Parse("/etc/weir/weir.toml", []byte(text), files)
	must(t, err)
	return c
}

var allKinds = map[lb.VIPKind]bool{lb.ClusterIP: true, lb.NodePort: true, lb.ExternalIP: true, lb.LoadBalancer: true}

func TestClusterDefaults(t *testing.T) {
	got := parseOn(t, machine, "[[kubernetes]]\nname = \"prod\"\n").Clusters
	want := []config.Cluster{{
		Config: k8ssync.Config{
			Name: "prod", Reach: k8ssync.Pods,
			Kinds:       map[lb.VIPKind]bool{lb.ExternalIP: true, lb.LoadBalancer: true},
			Annotations: []string{"scheduler", "scheduler-flags", "weights", "affinity-timeout", "max-connections"}, AnnotationPrefix: "weir/",
			Scheduler: lb.Scheduler{Name: "rr"}, Drain: 30 * time.Second, Budget: k8ssync.DefaultBudget,
			StateFile: "/var/lib/weir/prod.snapshot", Events: true,
		},
		Guard: lb.GuardOptions{Share: 0.5, Least: 20, Window: time.Minute, Timeout: 10 * time.Minute},
	}}
	if diff := compare(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if got[0].IsNode() {
		t.Error("a box without a node_name is a node")
	}
}

func TestClusterWithEverything(t *testing.T) {
	c := parseOn(t, machine, `
[defaults]
drain_timeout = "5s"
[daemon]
state_dir = "/srv/weir"
[[kubernetes]]
name = "prod"
kubeconfig = "kubeconfig"
context = "staging"
node_name = "node7"
zone = "a"
serve = ["LoadBalancer", "ClusterIP", "ExternalIP"]
service_cidrs = ["10.96.0.0/12", "fd00:96::/112"]
namespaces = ["shop", "mail"]
load_balancer_classes = ["", "example.com/weir"]
load_balancer_ranges = ["192.0.2.0/24"]
external_ip_ranges = ["203.0.113.0/24"]
pod_cidrs = ["10.244.0.0/16"]
source_ranges = "all"
annotation_prefix = "lb.example.com/"
allow_annotations = ["drain-timeout"]
scheduler = "sh"
scheduler_flags = ["port"]
drain_timeout = "1m"
events = false
max_objects = 100000
max_namespace_objects = 20000
max_service_objects = 3000
guard_threshold = "25%"
guard_min_objects = 7
guard_window = "2m"
guard_timeout = "1h"
`)
	prefixes := func(s ...string) (out []netip.Prefix) {
		for _, p := range s {
			out = append(out, netip.MustParsePrefix(p))
		}
		return out
	}
	want := config.Cluster{
		Config: k8ssync.Config{
			Name: "prod", Kubeconfig: "/etc/weir/kubeconfig", Context: "staging", Reach: k8ssync.Pods,
			NodeName: "node7", Zone: "a",
			Kinds:              map[lb.VIPKind]bool{lb.ClusterIP: true, lb.ExternalIP: true, lb.LoadBalancer: true},
			Namespaces:         []string{"shop", "mail"},
			Classes:            []string{"", "example.com/weir"},
			ExternalIPRanges:   prefixes("203.0.113.0/24"),
			LoadBalancerRanges: prefixes("192.0.2.0/24"),
			PodCIDRs:           prefixes("10.244.0.0/16"),
			ServiceCIDRs:       prefixes("10.96.0.0/12", "fd00:96::/112"),
			Ranges:             lb.RangesOutside, AnnotationPrefix: "lb.example.com/", Annotations: []string{"drain-timeout"},
			Scheduler: lb.Scheduler{Name: "sh", Flags: lb.WithPort}, Drain: time.Minute,
			StateFile: "/srv/weir/prod.snapshot", Budget: k8ssync.Budget{Service: 3000, Namespace: 20000, Cluster: 100000},
		},
		Guard: lb.GuardOptions{Share: 0.25, Least: 7, Window: 2 * time.Minute, Timeout: time.Hour},
	}
	if diff := compare([]config.Cluster{want}, c.Clusters); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if len(c.Warnings) != 0 {
		t.Errorf("warnings: %v", c.Warnings)
	}
}

func TestWhatAClusterServesLeftOut(t *testing.T) {
	edge := map[lb.VIPKind]bool{lb.ExternalIP: true, lb.LoadBalancer: true}
	for _, tt := range []struct {
		name, text string
		want       map[lb.VIPKind]bool
	}{
		{"edge", ``, edge},
		{"node", `node_name = "n"`, allKinds},
		{"edge by node ports", `backends = "nodeports"`, edge},
		{"dh drains nothing", `scheduler = "dh"`, edge},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := parseOn(t, machine, "[[kubernetes]]\nname = \"prod\"\n"+tt.text).Clusters[0]
			if diff := compare(tt.want, got.Kinds); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
			if got.Scheduler.Name == "dh" && got.Drain != 0 {
				t.Errorf("drain %s", got.Drain)
			}
		})
	}
}

func TestNodeNameOfTheEnvironment(t *testing.T) {
	for _, tt := range []struct {
		name, written, env, host string
		want, problem            string
	}{
		{"literal", "node1", "", "", "node1", ""},
		{"variable", "$NODE_NAME", "A=b\x00NODE_NAME=node2\x00", "h", "node2", ""},
		{"variable that is not set", "$NODE_NAME", "NODE_NAMES=x\x00", "h", "", "the environment has no NODE_NAME"},
		{"host name of the kernel", "$HOSTNAME", "", "Node3.example.com\n", "node3.example.com", ""},
		{"host name of the Pod", "$HOSTNAME", "HOSTNAME=node4\x00", "other", "node4", ""},
		{"no name", "Node 5", "", "", "", `"Node 5" is not a valid Node name`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			text := fmt.Sprintf("[[kubernetes]]\nname = \"prod\"\nnode_name = %q\n[kernel]\nnode_port_addresses = [\"primary\"]\n", tt.written)
			c, err := Parse("weir.toml", []byte(text), memory{source.Environment: tt.env, source.HostName: tt.host})
			if tt.problem != "" {
				if !onlyError(err, "weir.toml:3: kubernetes.prod.node_name: "+tt.problem) {
					t.Errorf("error %v, want %q", err, tt.problem)
				}
				return
			}
			must(t, err)
			if got := c.Clusters[0].NodeName; got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

// TestKubeconfigsWarn shows that a kubeconfig which can't be used is reported, and
// does not prevent a start: the daemon waits for a better one.
func TestKubeconfigsWarn(t *testing.T) {
	files := memory{
		"/etc/weir/good": kubeconfig, "/etc/weir/bad": "][", "/etc/weir/shut": "unreadable",
		"/etc/weir/none": "apiVersion: v1\nkind: Config\n", "/etc/weir/pod": "apiVersion: v1\nkind: Pod\n",
	}
	for _, tt := range []struct{ file, context, want string }{
		{"good", "", ""},
		{"good", "staging", ""},
		{"/etc/weir/good", "prod", ""},
		{"missing", "", "file does not exist"},
		{"shut", "", "permission denied"},
		{"bad", "", "not a kubeconfig"},
		{"pod", "", "not a kubeconfig"},
		{"none", "", "there is no current-context"},
		{"good", "x", `there is no context "x"`},
		{"good", "stranger", `context "stranger" names user "nobody", which does not exist`},
		{"good", "lost", `context "lost" names cluster "gone", which does not exist`},
		{"good", "nowhere", `cluster "nowhere" has no server`},
	} {
		c := parseOn(t, files, fmt.Sprintf("[[kubernetes]]\nname = \"prod\"\nkubeconfig = %q\ncontext = %q\nload_balancer_ranges = [\"192.0.2.0/24\"]\n", tt.file, tt.context))
		var got []string
		for _, w := range c.Warnings {
			got = append(got, w.String())
			if w.Severity != source.Warning || w.Line != 3 || w.Key != "kubernetes.prod.kubeconfig" {
				t.Errorf("%#v", w)
			}
		}
		if said := strings.Join(got, "\n"); tt.want == "" && said != "" || !strings.Contains(said, tt.want) {
			t.Errorf("%s, context %q: %q, want %q", tt.file, tt.context, said, tt.want)
		}
	}
}

// TestNodeOfAServiceAccount shows that a node which would learn of the API server
// by a ClusterIP gets an error, since it would have to serve that one first.
func TestNodeOfAServiceAccount(t *testing.T) {
	for text, notes := range map[string]int{
		"node_name = \"n\"": 1,
		"node_name = \"n\"\nkubeconfig = \"/etc/weir/kubeconfig\"": 0,
		"node_name = \"n\"\nserve = [\"LoadBalancer\"]":            0,
		"": 0,
	} {
		c := parseOn(t, machine, "[[kubernetes]]\nname = \"prod\"\nload_balancer_ranges = [\"192.0.2.0/24\"]\n"+text)
		if len(c.Warnings) != notes || notes > 0 && (c.Warnings[0].Severity != source.Note || !strings.Contains(c.Warnings[0].Text, "which on this node depends on weir")) {
			t.Errorf("%q: %v", text, c.Warnings)
		}
	}
}

// A box outside the cluster serves only addresses that its operator permits, so it warns if
// there are none.
func TestClusterWithoutPermittedAddresses(t *testing.T) {
	const want = "load_balancer_ranges: is missing, and there is no [[pool]] for the cluster: no LoadBalancer address is served"
	for text, warns := range map[string]bool{
		"": true,
		"external_ip_ranges = [\"192.0.2.0/24\"]":                                         true,
		"external_ip_ranges = [\"192.0.2.0/24\"]\nserve = [\"ExternalIP\"]":               false,
		"load_balancer_ranges = [\"192.0.2.0/24\"]":                                       false,
		"node_name = \"n\"\nkubeconfig = \"/etc/weir/kubeconfig\"":                        false,
		"[[pool]]\nname = \"a\"\naddresses = [\"192.0.2.0/24\"]":                          false,
		"[[pool]]\nname = \"a\"\naddresses = [\"192.0.2.0/24\"]\nnamespaces = [\"shop\"]": false,
		"[[pool]]\nname = \"a\"\naddresses = [\"192.0.2.0/24\"]\nclusters = [\"prod\"]":   false,
		"[[kubernetes]]\nname = \"b\"\nload_balancer_ranges = [\"198.51.100.0/24\"]\n[addresses]\nlease_cluster = \"b\"\n" +
			"[[pool]]\nname = \"a\"\naddresses = [\"192.0.2.0/24\"]\nclusters = [\"b\"]": true,
	} {
		c := parseOn(t, machine, "[[kubernetes]]\nname = \"prod\"\n"+text)
		if got := strings.Contains(fmt.Sprint(c.Warnings), want); got != warns {
			t.Errorf("%q: %v", text, c.Warnings)
		}
	}
}

// A cluster may give an address in its ranges to a pod or a Service, so no static VIP should have it.
func TestVIPsOfPodsAndServices(t *testing.T) {
	const cluster = "[[kubernetes]]\nname = \"prod\"\nload_balancer_ranges = [\"192.0.2.0/24\"]\npod_cidrs = [\"10.244.0.0/16\"]\nservice_cidrs = [\"10.96.0.0/12\"]\n"
	for vip, want := range map[string]string{
		"192.0.2.1":  "[]",
		"10.244.3.1": `[/etc/weir/weir.toml:8: warning: service.web.vips: "10.244.3.1" is in "10.244.0.0/16" of pod_cidrs of cluster "prod", which may give it to a pod; choose another address]`,
		"10.96.0.9":  `[/etc/weir/weir.toml:8: warning: service.web.vips: "10.96.0.9" is in "10.96.0.0/12" of service_cidrs of cluster "prod", which may give it to a Service; choose another address]`,
	} {
		if got := fmt.Sprint(parseOn(t, machine, cluster+serviceText("web", vip)).Warnings); got != want {
			t.Errorf("%s: %s, want %s", vip, got, want)
		}
	}
}

func TestClustersSideBySide(t *testing.T) {
	for _, tt := range []struct{ name, a, b, want string }{
		{"load balancers", ``, ``, ""},
		{"one is this box's", `node_name = "n"`, ``, ""},
		{"other ClusterIPs", "node_name = \"n\"\nservice_cidrs = [\"10.96.0.0/12\"]", "serve = [\"ClusterIP\"]\nservice_cidrs = [\"10.112.0.0/12\"]", ""},
		{"the same ClusterIPs, one served", "node_name = \"n\"\nservice_cidrs = [\"10.96.0.0/12\"]", "service_cidrs = [\"10.96.0.0/12\"]", ""},
		{"the same ClusterIPs", "node_name = \"n\"\nservice_cidrs = [\"10.96.0.0/12\"]", "serve = [\"ClusterIP\"]\nservice_cidrs = [\"fd00::/112\", \"10.100.0.0/16\"]",
			`kubernetes.b.service_cidrs: "10.100.0.0/16" overlaps "10.96.0.0/12" of cluster "a" at`},
		{"ClusterIPs that nobody knows", `node_name = "n"`, "serve = [\"ClusterIP\"]\nservice_cidrs = [\"10.100.0.0/16\"]",
			`kubernetes.a.service_cidrs: is missing: the box serves the ClusterIPs of several clusters`},
		{"two nodes", "node_name = \"n\"", "node_name = \"n\"\nserve = [\"LoadBalancer\"]", `kubernetes.b.node_name: the box is already a node of cluster "a", at`},
		{"node ports of two", `node_name = "n"`, `serve = ["NodePort"]`, `kubernetes.b.serve: the box already serves the node ports of cluster "a", at`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			text := "[kernel]\nnode_port_addresses = [\"10.0.0.0/8\"]\n"
			if !strings.Contains(tt.a+tt.b, "node_name") {
				text = ""
			}
			text += "[[kubernetes]]\nname = \"a\"\n" + tt.a + "\n[[kubernetes]]\nname = \"b\"\n" + tt.b + "\n"
			_, err := Parse("weir.toml", []byte(text), machine)
			switch {
			case tt.want == "" && err != nil:
				t.Error(err)
			case tt.want != "" && !onlyError(err, tt.want):
				t.Errorf("got %v, want %q alone", err, tt.want)
			}
		})
	}
}

// onlyError reports whether err has one problem that is an error, and that contains text.
func onlyError(err error, text string) bool {
	all, ok := errors.AsType[*source.Errors](err)
	if !ok {
		return false
	}
	var found []string
	for _, p := range all.Problems {
		if p.Severity == source.Error {
			found = append(found, p.String())
		}
	}
	return len(found) == 1 && strings.Contains(found[0], text)
}

func TestNodeKeys(t *testing.T) {
	k := parseOn(t, machine, `
[kernel]
mode = "netfilter"
detect_local = "bridge-interface"
bridge_interface = "cni0"
node_port_addresses = ["10.0.0.0/8", "fd00::/8"]
strict_arp = ["eth0", "bond0.100"]
sysctls = ["net.netfilter.nf_conntrack_max=1048576", "net.ipv4.tcp_rmem = 4096 131072 6291456"]
[[kubernetes]]
name = "prod"
node_name = "n"
`).Kernel
	if k.Mode != config.ModeNetfilter || k.DetectLocal != config.BridgeInterface || k.BridgeInterface != "cni0" || k.NodePortPrimary || len(k.NodePortNets) != 2 {
		t.Errorf("%+v", k)
	}
	var got []string
	for _, s := range k.Base().Sysctls[len(lb.Sysctls(k.Families)):] {
		got = append(got, s.Name+"="+s.Value)
	}
	want := []string{
		"net.ipv4.conf.eth0.arp_ignore=1", "net.ipv4.conf.eth0.arp_announce=2",
		"net.ipv4.conf.bond0/100.arp_ignore=1", "net.ipv4.conf.bond0/100.arp_announce=2",
		"net.netfilter.nf_conntrack_max=1048576", "net.ipv4.tcp_rmem=4096 131072 6291456",
	}
	if !slices.Equal(got, want) {
		t.Errorf("parameters %q, want %q", got, want)
	}
	k = parseOn(t, machine, "[kernel]\nnode_port_addresses = [\"primary\"]\ndetect_local = \"node-cidr\"\n[[kubernetes]]\nname = \"prod\"\nnode_name = \"n\"\n").Kernel
	if !k.NodePortPrimary || len(k.NodePortNets) != 0 || k.DetectLocal != config.NodeCIDR {
		t.Errorf("%+v", k)
	}
}
