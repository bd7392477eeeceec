package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"weir/cmd/weirlab/internal/traffic"
	"weir/cmd/weirlab/lab"
)

// What the chapter about the provider has on the site: a client behind a router,
// which learns from the box where addresses are.
const (
	edgeHost = "edge"
	farHost  = "far"
	edgeAddr = "10.1.0.254"
	boxAddr  = "10.1.0.1"
	given    = "198.18.0.0/16" // the pool; its addresses begin with
	givenNet = "198.18."
	claimsIn = "weir-system"
)

// edgeConfig is the router. It refuses an address without a route at once, so that a client
// can ask often.
const edgeConfig = `
router id 10.1.0.254;
protocol device { scan time 1; }
protocol kernel { ipv4 { export where source = RTS_BGP; }; }
protocol bgp box {
	local as 65000; neighbor 10.1.0.1 as 65001; connect delay time 1; connect retry time 1; error wait time 1, 2;
	ipv4 { import all; export none; };
}
`

// toEdge is the box's side of that.
const toEdge = `
[bgp]
asn = 65001
drain_delay = "0s"
[[bgp.peer]]
name = "edge"
address = "10.1.0.254"
asn = 65000
connect_retry = "2s"
families = ["ipv4"]
`

// provider measures addresses that are given, and announced to a router.
func (b providerBench) provider(ctx context.Context) error {
	if err := lab.Routers.Check(); err != nil {
		return err
	}
	if err := b.openAPI(ctx); err != nil {
		return err
	}
	if err := b.unload(ctx); err != nil {
		return err
	}
	edge := b.site.Host(edgeHost)
	if _, err := edge.Run(ctx, "sh", "-ec", `sysctl -qw net.ipv4.icmp_ratelimit=0
ip link add nowhere type veth peer name beyond; ip link set nowhere up; ip link set beyond up
ip route add `+given+` dev nowhere
iptables -A FORWARD -o nowhere -j REJECT --reject-with icmp-net-unreachable`); err != nil {
		return err
	}
	if _, err := lab.StartRouter(ctx, edge, lab.BIRD, edgeConfig); err != nil {
		return err
	}
	for _, part := range []func(context.Context) error{b.firstPackets, b.addresses, b.routes} {
		if err := part(ctx); err != nil {
			return err
		}
	}
	return nil
}

// provides runs weir in the box's own network, with the cluster, a pool and the router.
func (b providerBench) provides(ctx context.Context) error {
	toml := "[kernel]\n" + quiet + "[daemon]\nstate_dir = \"/tmp/bench/state\"\n" + toEdge +
		fmt.Sprintf("[[kubernetes]]\nname = \"bench\"\nkubeconfig = %q\nendpoint_ranges = [\"10.250.0.0/16\"]\n[[pool]]\nname = \"bench\"\naddresses = [%q]\n", kubeconfig, given)
	if err := errors.Join(b.configure(ctx, toml), b.box.WriteFile(ctx, kubeconfig, b.kube.Kubeconfig(lab.KubeAdmin), 0o600)); err != nil {
		return err
	}
	return b.begins(ctx)
}

// begins runs weir in the box's own network, from nothing.
func (b providerBench) begins(ctx context.Context) error {
	if _, err := b.home.sh(ctx, "rm -rf /tmp/bench/state; mkdir /tmp/bench/state"); err != nil {
		return err
	}
	_, err := b.home.start(ctx)
	return err
}

// ends stops weir and takes all of it away.
func (b providerBench) ends(ctx context.Context) error {
	if err := b.home.stop(ctx); err != nil {
		return err
	}
	_, err := b.home.sh(ctx, b.weir+" cleanup --config "+configFile)
	return err
}

func (b providerBench) makeNamespace(ctx context.Context) error {
	_, err := b.kube.Ask(ctx, http.MethodPost, "/api/v1/namespaces",
		text(map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": claimsIn}}))
	return err
}

// firstPackets takes the time from the request that creates a Service until a client
// behind the router has a connection to one of its pods.
func (b providerBench) firstPackets(ctx context.Context) error {
	b.report("%d Services are created, one after another", b.provided)
	if err := errors.Join(b.makeNamespace(ctx), b.provides(ctx)); err != nil {
		return err
	}
	l, err := b.site.Host("web").Listen("tcp4", ":8080")
	if err != nil {
		return err
	}
	defer traffic.ServeConns(l, func(net.Conn) {})()
	var reached, created []time.Duration
	for i := range b.provided + 1 {
		all, post, err := b.firstPacket(ctx, i)
		if err != nil {
			return err
		}
		if i > 0 { // with the first one the writer may not have been chosen yet
			reached, created = append(reached, all), append(created, post)
		}
	}
	b.table.times("Service created until its first packet", median(reached), "the API server's part: its answer", median(created), 0)
	b.table.times(fmt.Sprintf("  the slowest of %d", b.provided), slices.Max(reached), "", slices.Max(created), 0)
	return b.ends(ctx)
}

func (b providerBench) firstPacket(ctx context.Context, i int) (reached, created time.Duration, err error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	name, addr := fmt.Sprintf("provided-%d", i), fmt.Sprintf("%s200.%d", givenNet, i+1)
	const slices = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices"
	if _, err := b.kube.Ask(ctx, http.MethodPost, slices, text(sliceOf(name, []string{"10.250.0.1"}))); err != nil {
		return 0, 0, err
	}
	service := balanced(name)
	service["spec"].(map[string]any)["loadBalancerIP"] = addr
	begin := time.Now()
	if _, err := b.kube.Ask(ctx, http.MethodPost, "/api/v1/namespaces/default/services", text(service)); err != nil {
		return 0, 0, err
	}
	created = time.Since(begin)
	for {
		dial, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
		var c net.Conn
		c, err = b.site.Host(farHost).DialContext(dial, "tcp4", addr+":80")
		cancel()
		if err == nil {
			return time.Since(begin), created, c.Close()
		}
		if e := traffic.Pause(ctx, time.Millisecond); e != nil {
			return 0, 0, fmt.Errorf("%s is never reached: %w\n%s", addr, err, b.home.daemon.Output())
		}
	}
}

// balanced is a Service that wants an address.
func balanced(name string) map[string]any {
	return map[string]any{
		"apiVersion": "v1", "kind": "Service", "metadata": map[string]any{"name": name, "namespace": "default"},
		"spec": map[string]any{
			"type": "LoadBalancer", "allocateLoadBalancerNodePorts": false,
			"ports": []any{map[string]any{"port": 80, "protocol": "TCP", "targetPort": 8080}},
		},
	}
}

// addresses takes the time until ten thousand Services that are there have one.
func (b providerBench) addresses(ctx context.Context) error {
	b.report("%s Services wait for an address", count(b.allocated))
	if err := errors.Join(b.kube.Restore(ctx, b.bare), b.makeNamespace(ctx)); err != nil {
		return err
	}
	alone, err := b.writesAlone(ctx)
	if err != nil {
		return err
	}
	objects := map[string]string{}
	for i := range b.allocated {
		service := balanced(fmt.Sprintf("svc-%05d", i))
		meta, spec := service["metadata"].(map[string]any), service["spec"].(map[string]any)
		meta["uid"], meta["creationTimestamp"] = fmt.Sprintf("00000000-0000-0000-0001-%012d", i), "2026-01-01T00:00:00Z"
		spec["clusterIP"], spec["clusterIPs"] = clusterIP(i), []string{clusterIP(i)}
		spec["ipFamilies"], spec["ipFamilyPolicy"] = []string{"IPv4"}, "SingleStack"
		spec["internalTrafficPolicy"], spec["externalTrafficPolicy"], spec["sessionAffinity"] = "Cluster", "Cluster", "None"
		service["status"] = map[string]any{"loadBalancer": map[string]any{}}
		objects["/registry/services/specs/default/"+meta["name"].(string)] = text(service)
	}
	if err := b.kube.Load(ctx, objects); err != nil {
		return err
	}
	given, err := b.watchGiven(ctx)
	if err != nil {
		return err
	}
	defer given.end()
	begin := time.Now()
	if err := b.provides(ctx); err != nil {
		return err
	}
	if err := given.wait(ctx, b.bench, b.allocated); err != nil {
		return fmt.Errorf("%w\n%s", err, b.home.daemon.Output())
	}
	took := time.Since(begin)
	b.table.times(count(b.allocated)+" addresses given, from the start of weir", took, "the API server's part: 2 writes each", alone*time.Duration(b.allocated), 0)
	return b.ends(ctx)
}

// writesAlone is what the API server takes for a claim and a status, one after the
// other, in the form in which weir writes them.
func (b providerBench) writesAlone(ctx context.Context) (time.Duration, error) {
	service := balanced("alone")
	if _, err := b.kube.Ask(ctx, http.MethodPost, "/api/v1/namespaces/default/services", text(service)); err != nil {
		return 0, err
	}
	begin := time.Now()
	for i := range b.writes {
		lease := map[string]any{
			"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": map[string]any{"name": fmt.Sprintf("alone-%d", i)},
			"spec": map[string]any{"holderIdentity": "bench/default/alone"},
		}
		_, err1 := b.kube.Ask(ctx, http.MethodPost, "/apis/coordination.k8s.io/v1/namespaces/"+claimsIn+"/leases", text(lease))
		addr := fmt.Sprintf("198.19.%d.%d", i>>8, i&0xff)
		status := map[string]any{
			"loadBalancer": map[string]any{"ingress": []any{map[string]any{"ip": addr, "ipMode": "VIP"}}},
			"conditions": []any{map[string]any{
				"type": "bench/LoadBalancer", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z", "reason": "Assigned", "message": addr,
			}},
		}
		_, err2 := b.kube.Ask(ctx, http.MethodPatch, "/api/v1/namespaces/default/services/alone/status?fieldManager=bench&force=true",
			text(map[string]any{"apiVersion": "v1", "kind": "Service", "metadata": map[string]any{"name": "alone"}, "status": status}))
		if err := errors.Join(err1, err2); err != nil {
			return 0, err
		}
	}
	return time.Since(begin) / time.Duration(b.writes), nil
}

// givenWatch counts the Services that have an address, by one watch of the API: to list ten thousand Services
// repeatedly would slow down the server that is measured.
type givenWatch struct {
	body  io.Closer
	count atomic.Int64
	done  chan struct{}
	err   error // of the watch; set before done is closed
}

// change is the part of a watch's event that matters.
type change struct {
	Type   string
	Object struct {
		Metadata struct{ Name, ResourceVersion string }
		Status   struct {
			LoadBalancer struct{ Ingress []struct{ IP string } }
		}
	}
}

// watchGiven watches the Services from now on.
func (b *bench) watchGiven(ctx context.Context) (*givenWatch, error) {
	const services = "/api/v1/namespaces/default/services"
	list, err := b.kube.Ask(ctx, http.MethodGet, services+"?limit=1", "")
	if err != nil {
		return nil, err
	}
	var now struct {
		Metadata struct{ ResourceVersion string }
	}
	if err := json.Unmarshal([]byte(list), &now); err != nil {
		return nil, fmt.Errorf("list Services: %w", err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(b.kube.CA())
	client := http.Client{Transport: &http.Transport{DialContext: b.kube.DialContext, TLSClientConfig: &tls.Config{RootCAs: roots}}}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, b.kube.URL()+services+"?watch=true&resourceVersion="+now.Metadata.ResourceVersion, nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Authorization", "Bearer "+b.kube.Token(lab.KubeAdmin))
	resp, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		return nil, errors.Join(fmt.Errorf("watch Services: %s", resp.Status), resp.Body.Close())
	}
	w := &givenWatch{body: resp.Body, done: make(chan struct{})}
	go w.read(resp.Body)
	return w, nil
}

func (w *givenWatch) read(body io.Reader) {
	defer close(w.done)
	have := map[string]bool{}
	for events := json.NewDecoder(body); ; {
		var c change
		if w.err = events.Decode(&c); w.err != nil {
			return
		}
		if in := c.Object.Status.LoadBalancer.Ingress; len(in) > 0 && strings.HasPrefix(in[0].IP, givenNet) {
			have[c.Object.Metadata.Name] = true
			w.count.Store(int64(len(have)))
		}
	}
}

// wait waits until so many Services have an address.
func (w *givenWatch) wait(ctx context.Context, b *bench, want int) error {
	ctx, cancel := context.WithTimeout(ctx, longEnough)
	defer cancel()
	begin := time.Now()
	for told := begin; ; {
		have := int(w.count.Load())
		if have >= want {
			return nil
		}
		if time.Since(told) > 10*time.Second {
			told = time.Now()
			b.report("  %s have one after %s", count(have), span(time.Since(begin)))
		}
		select {
		case <-w.done:
			return fmt.Errorf("the watch of Services ended: %w", w.err)
		case <-ctx.Done():
			return fmt.Errorf("%d of %d Services have an address: %w", have, want, ctx.Err())
		case <-time.After(5 * time.Millisecond):
		}
	}
}

func (w *givenWatch) end() {
	_ = w.body.Close()
	<-w.done
}
