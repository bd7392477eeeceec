package e2e

import (
	"fmt"
	"strings"
	"syscall"
	"testing"

	"weir/cmd/weirlab/lab"
)

// weirEngine is weir as a node's service proxy.
type weirEngine struct {
	c    *conformance
	mode string
}

func (e *weirEngine) name() string { return e.mode }

func (e *weirEngine) start(t testing.TB, o options) {
	t.Helper()
	mode, _ := strings.CutPrefix(strings.ToLower(e.mode), " ")
	kernel := fmt.Sprintf("[kernel]\nmode = %q\nsync_period = \"2s\"\n", mode)
	if o.masqueradeAll {
		kernel += "masquerade_all = true\n"
	}
	if !o.noDetector {
		kernel += fmt.Sprintf("cluster_cidrs = [%q, %q]\n", podCIDR, podCIDR6)
	}
	if len(o.nodePortAddresses) > 0 {
		kernel += fmt.Sprintf("node_port_addresses = [%s]\n", quoted(o.nodePortAddresses))
	}
	if len(o.excludeCIDRs) > 0 {
		kernel += fmt.Sprintf("exclude_cidrs = [%s]\n", quoted(o.excludeCIDRs))
	}
	cluster := "[[kubernetes]]\nname = \"prod\"\nkubeconfig = \"/etc/weir/kubeconfig\"\nnode_name = \"" + nodeName + "\"\n" +
		"external_ip_ranges = [\"50.60.70.0/24\", \"2001:db8:50::/64\"]\nguard_share = \"100%\"\n"
	e.c.zone(t, !o.noZone)
	if o.scheduler != "" {
		cluster += fmt.Sprintf("scheduler = %q\n", o.scheduler)
	}
	e.c.kubeconfig(t, lab.KubeAdmin, "/etc/weir/kubeconfig")
	e.c.box.Must(t, "sh", "-c", "rm -rf /var/lib/weir/*")
	e.c.run(t, kernel+cluster)
}

func (e *weirEngine) stop(t testing.TB) {
	t.Helper()
	e.c.cleanSlate(t)
}

func (e *weirEngine) restart(t testing.TB) {
	t.Helper()
	e.c.site.stop(t, syscall.SIGTERM)
	e.c.site.start(t)
}

func quoted(words []string) string {
	var out []string
	for _, w := range words {
		out = append(out, fmt.Sprintf("%q", w))
	}
	return strings.Join(out, ", ")
}
