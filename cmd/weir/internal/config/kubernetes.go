package config

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"weir/k8ssync"
	"weir/lb"
)

// Cluster is a block [[kubernetes]].
type Cluster struct {
	// Config is for the one that follows the cluster. Its StateFile is below
	// daemon.state_dir.
	k8ssync.Config
	// Guard says how much of it may go away at once.
	Guard lb.GuardOptions
}

// IsNode tells whether the box is a node of the cluster.
func (c Cluster) IsNode() bool { return c.NodeName != "" }

// cluster is a Cluster that is being read, with the places of its parts.
type cluster struct {
	section
	Cluster
}

var (
	clusterForm   = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`)
	namespaceForm = clusterForm // RFC 1123, as the API server has it
	nodeForm      = regexp.MustCompile(`^[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?$`)
	classForm     = regexp.MustCompile(`^$|^([a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?$`)
)

func readCluster(s section, c *Config, files Files) *cluster {
	cl := &cluster{section: s}
	cl.Config = k8ssync.Config{
		Name:               s.text("name"),
		Kubeconfig:         s.kubeconfig(files),
		Context:            s.text("context"),
		NodeName:           s.nodeName(files),
		Zone:               s.text("zone"),
		Namespaces:         s.matching("namespaces", namespaceForm, "namespace"),
		Classes:            s.matching("load_balancer_classes", classForm, "loadBalancerClass"),
		ExternalIPRanges:   s.prefixes("external_ip_ranges"),
		LoadBalancerRanges: s.prefixes("load_balancer_ranges"),
		PodCIDRs:           s.prefixes("pod_cidrs"),
		Ranges:             rangeScopes[s.text("source_ranges")],
		Annotations:        s.texts("allow_annotations"),
		Events:             s.flag("events"),
	}
	if s.text("backends") == k8ssync.NodePorts.String() {
		cl.Reach = k8ssync.NodePorts
	}
	cl.readName()
	cl.readKinds(c.Kernel)
	cl.Scheduler = s.scheduler(c.Defaults.Scheduler)
	cl.Drain = s.drain(c.Defaults, cl.Scheduler)
	cl.ServiceCIDRs = s.prefixes("service_cidrs")
	if s.flag("snapshot") && cl.Name != "" {
		cl.StateFile = filepath.Join(c.Daemon.StateDir, cl.Name+".snapshot")
	}
	cl.Guard = lb.GuardOptions{
		Share:  s.share("guard_share"),
		Least:  s.integer("guard_least"),
		Window: s.duration("guard_window"),
		Hold:   s.duration("guard_hold"),
	}
	return cl
}

// meansNode tells whether the box is to be a node, even if its name is wrong.
func (c *cluster) meansNode() bool { return c.bad("node_name") || c.text("node_name") != "" }

func (c *cluster) readName() {
	switch {
	case !c.has("name") || c.bad("name"):
	case c.Name == Source:
		c.fail("name", strconv.Quote(Source)+" is what the services of this file are called", "choose another name")
	case !clusterForm.MatchString(c.Name):
		c.fail("name", strconv.Quote(c.Name)+" can't be the name of a cluster",
			"write 1 to 63 of a-z, 0-9 and -, with a letter or digit first and last")
	}
}

// readKinds reads which addresses are served, and whether the box can.
func (c *cluster) readKinds(k Kernel) {
	c.Kinds = map[lb.VIPKind]bool{lb.ExternalIP: true, lb.LoadBalancer: true}
	if c.meansNode() {
		c.Kinds = map[lb.VIPKind]bool{lb.ClusterIP: true, lb.NodePort: true, lb.ExternalIP: true, lb.LoadBalancer: true}
	}
	if c.has("serve") && !c.bad("serve") {
		c.Kinds = map[lb.VIPKind]bool{}
		for _, e := range c.elements("serve") {
			kind := vipKinds[slices.Index(vipKindNames, e.scalar.(string))]
			if c.Kinds[kind] {
				c.failAt(e, "serve", e.String()+" is in the list twice", "remove one")
			}
			c.Kinds[kind] = true
		}
	}
	if c.emptyList("serve") {
		c.fail("serve", "nothing of the cluster would be served", "name some, or leave the key out")
	}
	c.judgeKinds(k)
}

// judgeKinds complains about what is served but can't be, and about keys for
// what is not served.
func (c *cluster) judgeKinds(k Kernel) {
	if c.Reach == k8ssync.NodePorts {
		if c.IsNode() {
			c.fail("backends", `a node that sends to node ports would send to itself`, `write "pods", which every node has routes to`)
		} else if c.Kinds[lb.ClusterIP] {
			c.fail("serve", `"ClusterIP" can't be served by node ports: a Service of that type has none`, `remove it, or write backends = "pods"`)
		}
	}
	if c.Kinds[lb.NodePort] && !c.meansNode() && len(k.NodePortNets) == 0 {
		c.fail("serve", `"NodePort" on a box that is no node needs the addresses to serve it on`,
			`add kernel.node_port_addresses = ["10.0.0.5/32"] with addresses of this box`)
	}
	if c.IsNode() && c.Kinds[lb.ClusterIP] && !c.has("kubeconfig") {
		c.warn(Note, "node_name", "a Pod's service account names a ClusterIP for the API server, which on this node weir itself serves",
			"name a kubeconfig with the API server's own address, or set KUBERNETES_SERVICE_HOST to it")
	}
	if c.bad("serve") {
		return
	}
	if c.written("external_ip_ranges") && !c.Kinds[lb.ExternalIP] {
		c.fail("external_ip_ranges", `does nothing: serve has no "ExternalIP"`, "add it there, or remove this")
	}
	if c.has("serve") && c.Kinds[lb.ExternalIP] && !c.written("external_ip_ranges") {
		c.warn(Warning, "serve", `"ExternalIP" serves nothing without external_ip_ranges`, `add external_ip_ranges = ["203.0.113.0/24"]`)
	}
	for _, name := range []string{"load_balancer_classes", "load_balancer_ranges"} {
		if c.written(name) && !c.Kinds[lb.LoadBalancer] {
			c.fail(name, `does nothing: serve has no "LoadBalancer"`, "add it there, or remove this")
		}
	}
}

// kubeconfig gives the name of the file as seen from the daemon's folder. The
// daemon waits for one that is not there or makes no sense; the file may also be
// on another machine than the one that checks.
func (s section) kubeconfig(files Files) string {
	name := s.text("kubeconfig")
	if name == "" {
		if s.text("context") != "" {
			s.fail("context", "is only used with kubeconfig", "add that, or remove this")
		}
		return ""
	}
	login, f := secretOf(s.at("kubeconfig"), name, files)
	if f != nil {
		s.fail("kubeconfig", f.text, f.fix)
		return ""
	}
	if login.sight == handed {
		return login.file
	}
	data, err := namedOnly(files).ReadFile(login.file)
	if err != nil {
		f := login.unreadable(err)
		if errors.Is(err, fs.ErrNotExist) && !login.passed {
			f.fix = "weir waits until it is there"
		}
		s.warn(Warning, "kubeconfig", f.text, f.fix)
		return login.file
	}
	if err := k8ssync.CheckKubeconfig(data, s.text("context")); err != nil {
		s.warn(Warning, "kubeconfig", err.Error(), "weir waits until it is right")
	}
	return login.file
}

// environment is where a process finds what it was started with, as a file.
const (
	environment = "/proc/self/environ"
	hostname    = "/proc/sys/kernel/hostname"
)

// nodeName gives the name of the box's Node: as it is written, or of a variable,
// since one file serves all Pods of a DaemonSet.
func (s section) nodeName(files Files) string {
	name := s.text("node_name")
	if variable, ok := strings.CutPrefix(name, "$"); ok {
		switch name = lookup(files, variable); {
		case name != "":
		case fromOutside(files):
			name = lookup(files, "HOSTNAME") // what most nodes are called
			s.warn(Warning, "node_name", fmt.Sprintf("the environment has no %s, without which weir does not start", variable),
				fmt.Sprintf("set it where weir is started; to check: %s=name weir check", variable))
		default:
			s.fail("node_name", fmt.Sprintf("the environment has no %s", variable),
				fmt.Sprintf("set it (in a Pod from fieldRef spec.nodeName; to check: %s=name weir check)", variable))
			return ""
		}
	}
	if name != "" && !nodeForm.MatchString(name) {
		s.fail("node_name", strconv.Quote(name)+" can't be the name of a Node", "write it as kubectl get nodes shows it")
	}
	return name
}

// lookup gives a variable of the environment, "" if there is none. HOSTNAME is
// always known: where only a shell would have it, the kernel is asked. A node's
// name is its host's in small letters, as the kubelet has it.
func lookup(files Files, variable string) string {
	env, _ := files.ReadFile(environment) // unreadable is without a variable
	for entry := range strings.SplitSeq(string(env), "\x00") {
		if name, value, ok := strings.Cut(entry, "="); ok && name == variable {
			return value
		}
	}
	if variable != "HOSTNAME" {
		return ""
	}
	name, _ := files.ReadFile(hostname)
	return strings.ToLower(strings.TrimSpace(string(name)))
}

// texts reads a list of words, each once.
func (s section) texts(name string) []string {
	var out []string
	for _, e := range s.elements(name) {
		if slices.Contains(out, e.scalar.(string)) {
			s.failAt(e, name, e.String()+" is in the list twice", "remove one")
			continue
		}
		out = append(out, e.scalar.(string))
	}
	return out
}

// matching reads a list of names of one form.
func (s section) matching(name string, form *regexp.Regexp, what string) []string {
	out := s.texts(name)
	for _, e := range s.elements(name) {
		if !form.MatchString(e.scalar.(string)) {
			s.failAt(e, name, e.String()+" can't be the name of a "+what, "write it as kubectl shows it")
		}
	}
	return out
}

// rangeScopes are the values of source_ranges.
var rangeScopes = map[string]lb.RangeScope{"LoadBalancer": lb.RangesLoadBalancer, "all": lb.RangesOutside}
