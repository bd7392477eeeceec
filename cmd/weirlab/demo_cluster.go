package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
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
	body, err := json.Marshal(object)
	if err != nil {
		return err
	}
	status, answer, err := d.kube.Do(ctx, lab.KubeAdmin, method, path, string(body))
	if err == nil && status/100 != 2 {
		err = fmt.Errorf("%s %s: status %d: %s", method, path, status, answer)
	}
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
