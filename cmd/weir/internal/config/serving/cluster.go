package serving

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"weir/cmd/weir/internal/config"
	"weir/cmd/weir/internal/config/parse"
	"weir/cmd/weir/internal/config/schema"
	"weir/cmd/weir/internal/config/source"
	"weir/k8ssync"
	"weir/lb"
)

func readCluster(t schema.Section, c *config.Config, files source.Files) *Cluster {
	cl := &Cluster{Section: t}
	t.Read(clusterKeys(cl))
	cl.Kubeconfig = kubeconfig(t, files)
	cl.NodeName = nodeName(t, files)
	if t.Text("source_ranges") == "all" {
		cl.Ranges = lb.RangesOutside
	}
	if t.Text("backends") == k8ssync.NodePorts.String() {
		cl.Reach = k8ssync.NodePorts
	}
	cl.readKinds(c.Kernel)
	cl.Scheduler = scheduler(t, c.Defaults.Scheduler)
	cl.Drain = drain(t, c.Defaults, cl.Scheduler)
	if cl.snapshot && cl.Name != "" {
		cl.StateFile = filepath.Join(c.Daemon.StateDir, cl.Name+".snapshot")
	}
	return cl
}

// MeansNode reports whether the box should be a node, even if node_name is invalid.
func (c *Cluster) MeansNode() bool { return c.Bad("node_name") || c.Text("node_name") != "" }

// Called returns the name of the cluster in messages about another one.
func (c *Cluster) Called() string {
	if c.Name != "" {
		return "cluster " + strconv.Quote(c.Name)
	}
	return "another cluster"
}

// readKinds reads the kinds of addresses to serve.
func (c *Cluster) readKinds(k config.Kernel) {
	c.Kinds = map[lb.VIPKind]bool{lb.ExternalIP: true, lb.LoadBalancer: true}
	if c.MeansNode() {
		c.Kinds = map[lb.VIPKind]bool{lb.ClusterIP: true, lb.NodePort: true, lb.ExternalIP: true, lb.LoadBalancer: true}
	}
	if c.Set("serve") {
		c.Kinds = map[lb.VIPKind]bool{}
		for _, name := range c.Texts("serve") {
			c.Kinds[VIPKinds[slices.Index(VIPKindNames, name)]] = true
		}
	}
	if c.EmptyList("serve") {
		c.Fail("serve", "weir would serve nothing of the cluster", "name some kinds, or remove the key")
	}
	c.checkKinds(k)
	if !c.Bad("serve") {
		c.checkRanges()
	}
}

// checkKinds reports kinds that the box can't serve.
func (c *Cluster) checkKinds(k config.Kernel) {
	if c.Reach == k8ssync.NodePorts {
		if c.IsNode() {
			c.Fail("backends", `a node would send to its own node ports`, `use "pods", to which every node has routes`)
		} else if c.Kinds[lb.ClusterIP] {
			c.Fail("serve", `node ports can't serve "ClusterIP": a Service of that type has none`, `remove it, or use backends = "pods"`)
		}
	}
	if c.Kinds[lb.NodePort] && !c.MeansNode() && len(k.NodePortNets) == 0 {
		c.Fail("serve", `"NodePort" needs addresses on a box that is not a node`,
			`add kernel.node_port_addresses = ["10.0.0.5/32"] with addresses of this box`)
	}
	if c.IsNode() && c.Kinds[lb.ClusterIP] && !c.Has("kubeconfig") {
		c.Warn(source.Note, "node_name", "a Pod's service account reaches the API server at a ClusterIP, which on this node depends on weir",
			"use a kubeconfig with the API server's own address, or set KUBERNETES_SERVICE_HOST to it")
	}
}

// checkRanges reports keys for kinds that are not served.
func (c *Cluster) checkRanges() {
	if c.Written("external_ip_ranges") && !c.Kinds[lb.ExternalIP] {
		c.Fail("external_ip_ranges", `has no effect without "ExternalIP" in serve`, "add it there, or remove this")
	}
	if c.Has("serve") && c.Kinds[lb.ExternalIP] && !c.Written("external_ip_ranges") {
		c.Warn(source.Warning, "serve", `"ExternalIP" has no effect without external_ip_ranges`, `add external_ip_ranges = ["203.0.113.0/24"]`)
	}
	for _, name := range []string{"endpoint_ranges", "require_pod_backed"} {
		if c.Set(name) && c.Reach == k8ssync.NodePorts {
			c.Fail(name, `has no effect with backends = "nodeports"`, "remove it")
		}
	}
	for _, name := range []string{"load_balancer_classes", "load_balancer_ranges"} {
		if c.Written(name) && !c.Kinds[lb.LoadBalancer] {
			c.Fail(name, `has no effect without "LoadBalancer" in serve`, "add it there, or remove this")
		}
	}
}

// kubeconfig returns the name of the file. The daemon waits for a missing or invalid one,
// which may also be on another host than this check.
func kubeconfig(t schema.Section, files source.Files) string {
	name := t.Text("kubeconfig")
	if name == "" {
		if t.Text("context") != "" {
			t.Fail("context", "has no effect without kubeconfig", "add that, or remove this")
		}
		return ""
	}
	login, f := source.SecretOf(t.At("kubeconfig"), name, files)
	if f != nil {
		t.Fail("kubeconfig", f.Text, f.Fix)
		return ""
	}
	if login.OnlyDaemon() {
		return login.File
	}
	data, err := source.NamedOnly(files).ReadFile(login.File)
	if err != nil {
		f := login.Unreadable(err)
		if errors.Is(err, fs.ErrNotExist) && !login.Passed {
			f.Fix = "weir waits until it exists"
		}
		t.Warn(source.Warning, "kubeconfig", f.Text, f.Fix)
		return login.File
	}
	if err := k8ssync.CheckKubeconfig(data, t.Text("context")); err != nil {
		t.Warn(source.Warning, "kubeconfig", err.Error(), "weir waits until it is valid")
	} else if risk := k8ssync.KubeconfigRisk(data, t.Text("context")); risk != "" {
		t.Warn(source.Warning, "kubeconfig", risk+", so another host on the path could answer as the API server and direct all traffic",
			"use https and certificate-authority-data in the kubeconfig")
	}
	return login.File
}

// nodeName returns the name of the box's Node: as written, or of a variable, because all
// Pods of a DaemonSet have the same file.
func nodeName(t schema.Section, files source.Files) string {
	name := t.Text("node_name")
	if variable, ok := strings.CutPrefix(name, "$"); ok {
		switch name = source.Lookup(files, variable); {
		case name != "":
		case source.FromOutside(files):
			name = source.Lookup(files, "HOSTNAME") // the name of most Nodes
			t.Warn(source.Warning, "node_name", fmt.Sprintf("the environment has no %s, and weir does not start without it", variable),
				fmt.Sprintf("set it for weir's unit; to check: %s=name weir check", variable))
		default:
			t.Fail("node_name", fmt.Sprintf("the environment has no %s", variable),
				fmt.Sprintf("set it (in a Pod from fieldRef spec.nodeName; to check: %s=name weir check)", variable))
			return ""
		}
	}
	if name != "" && !parse.NodeForm.Matches(name) {
		t.Fail("node_name", strconv.Quote(name)+" is not a valid Node name", "write it as kubectl get nodes shows it")
	}
	return name
}
