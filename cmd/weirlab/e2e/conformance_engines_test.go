package e2e

import (
	"fmt"
	"net/netip"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"weir/cmd/weirlab/lab"
)

// auditPeriod is weir's sync_period.
const auditPeriod = 2 * time.Second

// weirEngine is weir as a node's service proxy.
type weirEngine struct {
	c    *conformance
	mode string
}

func (e *weirEngine) name() string            { return e.mode }
func (e *weirEngine) patience() time.Duration { return 20 * time.Second } // less than the drains of 30 s

// byRules reports whether virtual servers are rules, inNFTables whether nf_tables has the sets and rules.
func byRules(e engine) bool    { return e.name() == iptablesMode || e.name() == netfilterMode }
func inNFTables(e engine) bool { return e.name() == nftablesMode || e.name() == netfilterMode }

func (e *weirEngine) start(t testing.TB, o options) {
	t.Helper()
	mode, rules := "ipvs", "iptables"
	if byRules(e) {
		mode = "netfilter"
	}
	if inNFTables(e) {
		rules = "nftables"
	}
	kernel := fmt.Sprintf("[kernel]\nmode = %q\nrules = %q\nsync_period = %q\n", mode, rules, auditPeriod)
	if o.masqueradeBit != 0 {
		kernel += fmt.Sprintf("masquerade_bit = %d\n", o.masqueradeBit)
	}
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
	// Checks define when an address is gone. Those with connections that live on annotate their Services.
	kernel += "[defaults]\ndrain_timeout = \"2s\"\n"
	cluster := "[[kubernetes]]\nname = \"prod\"\nkubeconfig = \"/etc/weir/kubeconfig\"\nnode_name = \"" + nodeName + "\"\n" +
		"external_ip_ranges = [\"50.60.70.0/24\", \"2001:db8:50::/64\"]\nguard_threshold = \"100%\"\nannotation_prefix = \"lb.example.com/\"\nallow_annotations = [\"drain-timeout\", \"scheduler\", \"weights\"]\n"
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

func (e *weirEngine) served(t testing.TB) []string {
	t.Helper()
	ctx := within(t, 30*time.Second)
	var doc struct {
		Frontends []struct {
			Service, Name, Address string
			Servers                []struct{ Weight int }
		}
	}
	if err := e.c.relay.get(ctx, "/services", &doc); err != nil {
		return []string{err.Error()} // the deletion of thousands of Services takes its loop tens of seconds
	}
	var served []string
	for _, f := range doc.Frontends {
		for _, s := range f.Servers {
			if f.Service != "" && f.Name != "kubernetes" && s.Weight > 0 {
				served = append(served, f.Service+" "+f.Address)
			}
		}
	}
	if len(served) > 0 {
		return served // the rest is asked for only when it decides: a check waits for two seconds of drain
	}
	// A Service that lost its endpoints first has no backend and is still there. Its address
	// stays while connections drain, and refuses clients then.
	var state struct{ Kernel struct{ Services, VIPs int } }
	must(t, e.c.relay.get(ctx, "/status", &state))
	if n := state.Kernel.Services; n > 1 {
		served = append(served, fmt.Sprintf("%d Services beside default/kubernetes", n-1))
	}
	if n := state.Kernel.VIPs; n > 1 {
		served = append(served, fmt.Sprintf("%d addresses beside that of default/kubernetes", n-1))
	}
	if len(served) > 0 {
		return served
	}
	// A drain that ends during the next check takes the address away between the two writes of its Service.
	// Each program that a box starts costs as much as ten reads of a file.
	local, err := e.c.box.ReadFile(ctx, "/proc/net/fib_trie")
	must(t, err)
	if !strings.Contains(local, "|-- 127.0.0.1\n") {
		t.Fatalf("the kernel's list of routes has no 127.0.0.1:\n%s", local)
	}
	if lbLocal.MatchString(local) {
		served = append(served, lbIP+" is an address of the node")
	}
	return served
}

// lbLocal matches the kernel's list of IPv4 routes if lbIP is an address of the node.
var lbLocal = regexp.MustCompile(`\|-- ` + regexp.QuoteMeta(lbIP) + `\n\s+/32 host LOCAL`)

func quoted(words []string) string {
	var out []string
	for _, w := range words {
		out = append(out, fmt.Sprintf("%q", w))
	}
	return strings.Join(out, ", ")
}

// kubeProxyEngine is kube-proxy in one of its modes, the peer.
type kubeProxyEngine struct {
	c     *conformance
	mode  string // "ipvs", "iptables" or "nftables"
	proxy *lab.Proxy
}

// name returns the mode, too, unless it is that of the conformance checks.
func (e *kubeProxyEngine) name() string {
	if e.mode == "ipvs" {
		return peerMode
	}
	return peerMode + " " + e.mode
}

func (e *kubeProxyEngine) patience() time.Duration { return 8 * time.Second }

func (e *kubeProxyEngine) start(t testing.TB, o options) {
	t.Helper()
	ipvs := map[string]any{"excludeCIDRs": o.excludeCIDRs, "scheduler": o.scheduler}
	p := lab.ProxyOptions{Mode: e.mode, Config: map[string]any{
		"ipvs": ipvs, "iptables": map[string]any{"masqueradeAll": o.masqueradeAll}, "nodePortAddresses": o.nodePortAddresses,
	}}
	if !o.noDetector {
		p.ClusterCIDRs = []netip.Prefix{netip.MustParsePrefix(podCIDR), netip.MustParsePrefix(podCIDR6)}
	}
	e.c.zone(t, !o.noZone)
	proxy, err := e.c.kube.StartProxy(within(t, 5*time.Minute), e.c.box, p)
	must(t, err)
	e.proxy = proxy
}

func (e *kubeProxyEngine) stop(t testing.TB) {
	t.Helper()
	if e.proxy == nil {
		return
	}
	if err := e.proxy.Cleanup(within(t, time.Minute)); err != nil {
		t.Log(err) // it leaves objects, and reports that
	}
	e.proxy = nil
}

// renew starts kube-proxy in a kernel without virtual servers: some that it leaves would answer the next check.
func (e *kubeProxyEngine) renew(t testing.TB) {
	t.Helper()
	e.stop(t)
	e.c.box.Must(t, "ipvsadm", "-C")
	e.start(t, *e.c.options)
}

func (e *kubeProxyEngine) restart(t testing.TB) {
	t.Helper()
	must(t, e.proxy.Signal(syscall.SIGTERM))
	if _, err := e.proxy.Wait(within(t, time.Minute)); err != nil {
		t.Fatal(err)
	}
	e.start(t, *e.c.options)
}

func (e *kubeProxyEngine) served(t testing.TB) []string {
	t.Helper()
	// ipvsadm would keep the processor from kube-proxy: this is asked until nothing is served.
	text, err := e.c.box.ReadFile(within(t, 30*time.Second), "/proc/net/ip_vs")
	must(t, err)
	return servers(text)
}

// servers are the real servers of Services in the kernel's list of virtual servers: those with a weight, but for the API
// server, which has port 6443.
func servers(text string) (out []string) {
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		if len(f) > 3 && f[0] == "->" && f[1] != "RemoteAddress:Port" && !strings.HasSuffix(f[1], ":192B") && f[3] != "0" {
			out = append(out, strings.Join(f, " "))
		}
	}
	return out
}
