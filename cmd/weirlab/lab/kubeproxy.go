package lab

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/netip"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Proxy is a kube-proxy that runs on a box, which is a node of the Kubernetes API: weir's peer, to be
// compared with on the same kernel. It ends with the box or the lab at the latest.
type Proxy struct {
	*Proc
	m       *Machine
	program string
	netns   string
}

// ProxyOptions are the options of kube-proxy.
type ProxyOptions struct {
	Mode string // "ipvs", "iptables" or "nftables"

	// ClusterCIDRs are the addresses of pods, one prefix of each family at most. Other clients
	// are masqueraded on their path to a ClusterIP; without prefixes, no client is.
	ClusterCIDRs []netip.Prefix

	// Netns is the network namespace of the box, as ip netns has it, that kube-proxy runs in; "" is the
	// box's own.
	Netns string

	// Config is laid over the KubeProxyConfiguration (v1alpha1), object by object:
	// {"ipvs": {"scheduler": "wrr"}, "nodePortAddresses": ["10.0.0.0/8"]}.
	Config map[string]any
}

const (
	proxyFolder  = "/etc/kube-proxy"
	proxyMetrics = "127.0.0.1:10249"
)

// StartProxy is LaunchProxy, and returns when kube-proxy has programmed the kernel for the first time, in
// both families.
func (k *Kube) StartProxy(ctx context.Context, box *Machine, o ProxyOptions) (*Proxy, error) {
	p, err := k.LaunchProxy(ctx, box, o)
	if err != nil {
		return nil, err
	}
	const beat = 200 * time.Millisecond // the box has one processor, and kube-proxy needs it
	return p, ready(ctx, p.Proc, beat, p.upToDate)
}

// LaunchProxy makes the box a node and starts kube-proxy on it.
func (k *Kube) LaunchProxy(ctx context.Context, box *Machine, o ProxyOptions) (*Proxy, error) {
	program, err := Peer(KubeProxy)
	if err != nil {
		return nil, err
	}
	if err := k.AddNode(ctx, box); err != nil {
		return nil, err
	}
	config, err := json.MarshalIndent(o.configuration(box), "", "  ")
	if err != nil {
		return nil, fmt.Errorf("%s: configuration of kube-proxy: %w", box.name, err)
	}
	for name, content := range map[string]string{"kubeconfig": k.Kubeconfig(KubeProxyUser), "config.json": string(config)} {
		if err := box.WriteFile(ctx, proxyFolder+"/"+name, content, 0o600); err != nil {
			return nil, err
		}
	}
	p := &Proxy{m: box, program: program, netns: o.Netns}
	p.Proc, err = box.Start(p.inside(program, "--config="+proxyFolder+"/config.json")...)
	return p, err
}

// inside makes a command one that runs where kube-proxy does.
func (p *Proxy) inside(args ...string) []string {
	if p.netns == "" {
		return args
	}
	return append([]string{"ip", "netns", "exec", p.netns}, args...)
}

func (o ProxyOptions) configuration(box *Machine) map[string]any {
	var cidrs []string
	for _, cidr := range o.ClusterCIDRs {
		cidrs = append(cidrs, cidr.String())
	}
	config := map[string]any{
		"apiVersion":         "kubeproxy.config.k8s.io/v1alpha1",
		"kind":               "KubeProxyConfiguration",
		"mode":               o.Mode,
		"hostnameOverride":   box.name,
		"clusterCIDR":        strings.Join(cidrs, ","),
		"metricsBindAddress": proxyMetrics,
		"clientConnection":   map[string]any{"kubeconfig": proxyFolder + "/kubeconfig"},
		// It would resize the table and shorten what is remembered: the kernel stays as it is for others.
		"conntrack": map[string]any{"maxPerCore": 0, "min": 0, "tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s"},
	}
	overlayObject(config, o.Config)
	return config
}

// overlayObject lays one JSON object over another.
func overlayObject(under, over map[string]any) {
	for key, value := range over {
		lower, ok1 := under[key].(map[string]any)
		upper, ok2 := value.(map[string]any)
		if !ok1 || !ok2 {
			under[key] = value
			continue
		}
		lower = maps.Clone(lower)
		overlayObject(lower, upper)
		under[key] = lower
	}
}

// AddNode makes a machine a node of the cluster, with its own name and its cards' addresses. One that is
// a node already is success.
func (k *Kube) AddNode(ctx context.Context, m *Machine) error {
	var addresses []map[string]string
	for _, addr := range (wiring{m}).addresses() {
		addresses = append(addresses, map[string]string{"type": "InternalIP", "address": addr.String()})
	}
	node, err := json.Marshal(map[string]any{
		"apiVersion": "v1", "kind": "Node",
		"metadata": map[string]any{"name": m.name, "labels": map[string]string{"kubernetes.io/hostname": m.name}},
		"status":   map[string]any{"addresses": addresses},
	})
	if err != nil {
		return err
	}
	status, answer, err := k.Do(ctx, KubeAdmin, http.MethodPost, "/api/v1/nodes", string(node))
	if err != nil {
		return err
	}
	if status != http.StatusCreated && status != http.StatusConflict {
		return fmt.Errorf("add node %s: status %d: %s", m.name, status, answer)
	}
	return nil
}

// Synced is nil when kube-proxy has ended its first sync in both families. Its healthz is fine before
// that.
func (p *Proxy) Synced(ctx context.Context) error {
	_, err := p.syncs(ctx)
	return err
}

// upToDate is nil when no sync is queued and the last one is not recent. kube-proxy learns the zone of its Node beside the
// first sync, and ignores hints until the second one, which comes a second later at the earliest.
func (p *Proxy) upToDate(ctx context.Context) error {
	const calm = 3 * time.Second
	at, err := p.syncs(ctx)
	if err != nil {
		return err
	}
	for _, family := range []string{"IPv4", "IPv6"} {
		last := time.UnixMilli(int64(at[family] * 1000))
		if queued := at["queued_"+family]; queued == 0 || queued > at[family] || time.Since(last) < calm {
			return fmt.Errorf("a sync of %s is queued, or was at %s", family, last)
		}
	}
	return nil
}

// syncs returns the times of the last syncs by family, "IPv4" or "IPv6", and those at which one was queued last, as
// "queued_IPv4". The unit is seconds since 1970.
func (p *Proxy) syncs(ctx context.Context) (map[string]float64, error) {
	metrics, err := p.metrics(ctx)
	if err != nil {
		return nil, err
	}
	at := map[string]float64{}
	for _, m := range lastSync.FindAllStringSubmatch(metrics, -1) {
		if at[m[1]+m[2]], err = strconv.ParseFloat(m[3], 64); err != nil {
			return nil, err
		}
	}
	if at["IPv4"] == 0 || at["IPv6"] == 0 {
		return nil, errors.New("the first sync of both families has not ended")
	}
	return at, nil
}

// metrics starts no program where it can: the box has one processor, and kube-proxy needs it.
func (p *Proxy) metrics(ctx context.Context) (string, error) {
	if p.netns == "" {
		return Get(ctx, p.m, "tcp", proxyMetrics, "/metrics")
	}
	out, err := p.m.Run(ctx, p.inside("curl", "-sf", "http://"+proxyMetrics+"/metrics")...)
	return out.Stdout, err
}

var lastSync = regexp.MustCompile(`(?m)^kubeproxy_sync_proxy_rules_last_(queued_)?timestamp_seconds\{ip_family="(IPv[46])"\} (\S+)$`)

// Cleanup ends kube-proxy and has it take out of the kernel what it put there, by its own --cleanup.
// That fails over chains which others that it removes later still refer to, and is run again then. What
// it does not remove stays: its sets of IPv6, and the chain KUBE-FIREWALL, which is the kubelet's, too.
func (p *Proxy) Cleanup(ctx context.Context) error {
	if err := endProc(ctx, p.Proc, syscall.SIGTERM); err != nil {
		return err
	}
	const runs = 3
	var err error
	for range runs {
		if _, err = p.m.Run(ctx, p.inside(p.program, "--cleanup")...); err == nil {
			return nil
		}
	}
	return err
}
