package main

import (
	"context"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"time"

	"weir/cmd/weirlab/internal/traffic"
	"weir/cmd/weirlab/lab"
)

// The cluster of the demo: a real API, and hosts that are its pods.
const (
	shop          = "shop"
	shopNamespace = "/api/v1/namespaces/default/services"
	shopSlices    = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices"
)

var shopPods = []string{"pod1", "pod2", "pod3"}

// startCluster starts a Kubernetes API and makes a Service in it.
func (d *demo) startCluster(ctx context.Context) (err error) {
	if lab.CheckPeers() != nil {
		d.step("for the second half, a real Kubernetes API is built from source, once:")
		if err := lab.BuildPeers(ctx, d.out); err != nil {
			return err
		}
	}
	d.step("etcd and kube-apiserver start on a host beside the box; a Service is made there:")
	if d.kube, err = lab.StartKube(ctx, d.Host("api"), lab.KubeOptions{}); err != nil {
		return err
	}
	claims := map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": "weir-system"}}
	if err := d.call(ctx, http.MethodPost, "/api/v1/namespaces", claims); err != nil {
		return err
	}
	service := map[string]any{
		"apiVersion": "v1", "kind": "Service", "metadata": map[string]any{"name": shop},
		"spec": map[string]any{
			"type": "LoadBalancer", "ipFamilyPolicy": "RequireDualStack", "ports": []any{map[string]any{"port": 80, "targetPort": 8080}},
		},
	}
	if err := d.call(ctx, http.MethodPost, shopNamespace, service); err != nil {
		return err
	}
	for _, family := range []string{"IPv4", "IPv6"} {
		if err := d.call(ctx, http.MethodPost, shopSlices, d.shopSlice(family, "")); err != nil {
			return err
		}
	}
	fmt.Fprintf(d.out, `
  Service default/%s, type LoadBalancer, port 80, pods %s, which are hosts here.
  It has no address: there is no cloud here, and so no controller that would assign one.
`, shop, strings.Join(shopPods, " "))
	return d.box.WriteFile(ctx, "/etc/weir/kubeconfig", d.kube.Kubeconfig(lab.KubeAdmin), 0o600)
}

// shopSlice is the EndpointSlice of one family, with all pods ready but one, if
// any, that terminates.
func (d *demo) shopSlice(family, leaving string) map[string]any {
	var endpoints []any
	for i, pod := range shopPods {
		addr := fmt.Sprintf("10.244.0.1%d", i+1)
		if family == "IPv6" {
			addr = fmt.Sprintf("fd00:244::1%d", i+1)
		}
		endpoints = append(endpoints, map[string]any{
			"addresses":  []string{addr},
			"conditions": map[string]any{"ready": pod != leaving, "serving": true, "terminating": pod == leaving},
		})
	}
	return map[string]any{
		"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": family,
		"metadata": map[string]any{
			"name": shop + "-" + strings.ToLower(family), "labels": map[string]string{"kubernetes.io/service-name": shop},
		},
		"endpoints": endpoints, "ports": []any{map[string]any{"name": "", "port": 8080, "protocol": "TCP"}},
	}
}

// call asks the API server for something that it must grant.
func (d *demo) call(ctx context.Context, method, path string, object map[string]any) error {
	_, err := d.kube.Ask(ctx, method, path, text(object))
	return err
}

// loseOne deletes a pod under load, as Kubernetes does: the API marks that it
// terminates, and it goes on answering for a while.
func (d *demo) loseOne(ctx context.Context) error {
	d.step("under load, pod2 is deleted: its EndpointSlices mark it as terminating, and it stops a second later:")
	load := startLoad(ctx, d.Host("client"), shopVIPs)
	defer load.Stop()
	if err := load.Wait(ctx, 200); err != nil {
		return err
	}
	deleted := time.Now()
	for _, family := range []string{"IPv4", "IPv6"} {
		slice := d.shopSlice(family, "pod2")
		name := slice["metadata"].(map[string]any)["name"].(string)
		if err := d.call(ctx, http.MethodPut, shopSlices+"/"+name, slice); err != nil {
			return err
		}
	}
	if err := d.drained(ctx, "10.244.0.12:8080", "[fd00:244::12]:8080"); err != nil {
		return err
	}
	followed := time.Now()
	if err := traffic.Pause(ctx, time.Until(deleted.Add(time.Second))); err != nil {
		return err
	}
	d.stop["pod2"]()
	if err := load.Wait(ctx, 600); err != nil {
		return err
	}
	tries := load.Stop()
	return d.results(tries, deleted, followed, "before pod2 was deleted",
		fmt.Sprintf("until weir had followed (%d ms)", followed.Sub(deleted).Milliseconds()), "after that, with two pods", true)
}

// loseAPI kills the API server. No client of the Service notices.
func (d *demo) loseAPI(ctx context.Context) error {
	d.step("the API server crashes:")
	if err := d.kube.Kill(ctx); err != nil {
		return err
	}
	if err := d.away(ctx); err != nil {
		return err
	}
	if err := d.spread(ctx, shopVIPs, slices.Delete(slices.Clone(shopPods), 1, 2)); err != nil {
		return err
	}
	return d.show(ctx, "weir status", d.weir, "status")
}

// away waits until weir has noticed that the API server is.
func (d *demo) away(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	for {
		out, err := d.box.Run(ctx, d.weir, "status", "-o", "json") // its exit status is the state
		if strings.Contains(out.Stdout, `"unreachable"`) {
			return nil
		}
		if ctx.Err() != nil {
			return fmt.Errorf("wait for the cluster to be away: %w", err)
		}
	}
}

// demoRouter is BIRD on the router: it routes packets as the box announces.
const demoRouter = `
router id 10.1.0.254;
protocol device { }
protocol kernel { ipv4 { export where source = RTS_BGP; }; }
protocol kernel { ipv6 { export where source = RTS_BGP; }; }
protocol bgp box {
	local as 65000; neighbor 10.1.0.1 as 65001; passive on; error wait time 1, 2;
	ipv4 { import all; export none; };
	ipv6 { import all; export none; };
}
`

// announced waits until the router knows the static VIPs.
func (d *demo) announced(ctx context.Context) error {
	d.step("weir announces the VIPs to the router, which is BIRD:")
	return d.showRoutes(ctx, demoVIPs)
}

// announcedShop waits until the cluster's Service has addresses and the router knows them.
func (d *demo) announcedShop(ctx context.Context) error {
	d.step("weir allocates addresses of the pool to the Service, serves them, and announces them:")
	if err := d.showRoutes(ctx, shopVIPs); err != nil {
		return err
	}
	return d.show(ctx, "weir pools", d.weir, "pools")
}

// showRoutes waits until the router's kernel has routes to VIPs, and shows them.
func (d *demo) showRoutes(ctx context.Context, vips []string) error {
	wait, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	for _, vip := range vips {
		addr := netip.MustParseAddrPort(vip).Addr()
		for {
			route, err := d.Host("router").KernelRoute(wait, netip.PrefixFrom(addr, addr.BitLen()).String())
			if err == nil && len(route.Via) > 0 {
				break
			}
			if wait.Err() != nil {
				_ = d.show(ctx, "weir status", d.weir, "status") // beside the error that counts
				return fmt.Errorf("the router has no route to %s: %w", addr, wait.Err())
			}
		}
	}
	for _, command := range []string{"ip -4 route show proto bird", "ip -6 route show proto bird"} {
		out, err := d.Host("router").Run(ctx, strings.Fields(command)...)
		if err != nil {
			return err
		}
		fmt.Fprintf(d.out, "\nrouter# %s\n%s", command, indent(out.Stdout))
	}
	return nil
}

// startDemoRouter starts the router's BGP.
func startDemoRouter(ctx context.Context, l *lab.Lab) error {
	_, err := lab.StartRouter(ctx, l.Host("router"), lab.BIRD, demoRouter)
	return err
}
