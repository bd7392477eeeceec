package e2e

import (
	"fmt"
	"net/netip"
	"strings"
	"syscall"
	"testing"
	"time"

	"weir/cmd/weirlab/lab"
)

// weirEngine is weir as a node's service proxy.
type weirEngine struct {
	c    *conformance
	mode string
}

func (e *weirEngine) name() string            { return e.mode }
func (e *weirEngine) patience() time.Duration { return 6 * time.Second }

func (e *weirEngine) start(t testing.TB, o options) {
	t.Helper()
	kernel := fmt.Sprintf("[kernel]\nmode = %q\nsync_period = \"2s\"\n", strings.ToLower(e.mode))
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
	e.c.kubeconfig(t, lab.KubeWeir, "/etc/weir/kubeconfig")
	e.c.box.Must(t, "sh", "-c", "rm -rf /var/lib/weir/*")
	e.c.run(t, kernel+cluster)
}

func (e *weirEngine) stop(t testing.TB) {
	t.Helper()
	e.c.cleanSlate(t)
}

func (e *weirEngine) restart(t testing.TB) {
	t.Helper()
	e.c.stop(t, syscall.SIGTERM)
	e.c.start(t)
}

func quoted(words []string) string {
	var out []string
	for _, w := range words {
		out = append(out, fmt.Sprintf("%q", w))
	}
	return strings.Join(out, ", ")
}

// kubeProxyEngine is kube-proxy in IPVS mode, the peer.
type kubeProxyEngine struct {
	c     *conformance
	proxy *lab.Proxy
}

func (e *kubeProxyEngine) name() string            { return peerMode }
func (e *kubeProxyEngine) patience() time.Duration { return 12 * time.Second }

func (e *kubeProxyEngine) start(t testing.TB, o options) {
	t.Helper()
	ipvs := map[string]any{"excludeCIDRs": o.excludeCIDRs, "scheduler": o.scheduler}
	p := lab.ProxyOptions{Mode: "ipvs", Config: map[string]any{
		"ipvs": ipvs, "iptables": map[string]any{"masqueradeAll": o.masqueradeAll}, "nodePortAddresses": o.nodePortAddresses,
	}}
	if !o.noDetector {
		p.ClusterCIDRs = []netip.Prefix{netip.MustParsePrefix(podCIDR), netip.MustParsePrefix(podCIDR6)}
	}
	e.c.zone(t, !o.noZone)
	proxy, err := e.c.kube.StartProxy(within(t, 5*time.Minute), e.c.box, p)
	if err != nil {
		t.Fatal(err)
	}
	e.proxy = proxy
}

func (e *kubeProxyEngine) stop(t testing.TB) {
	t.Helper()
	if e.proxy == nil {
		return
	}
	if err := e.proxy.Cleanup(within(t, time.Minute)); err != nil {
		t.Log(err) // it leaves things, and says so
	}
	e.proxy = nil
}

func (e *kubeProxyEngine) restart(t testing.TB) {
	t.Helper()
	if err := e.proxy.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if _, err := e.proxy.Wait(within(t, time.Minute)); err != nil {
		t.Fatal(err)
	}
	e.start(t, *e.c.options)
}
