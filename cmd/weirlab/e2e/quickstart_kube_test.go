package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"weir/cmd/weirlab/lab"
)

// controller does for a lab's API what a cluster's own controllers do: each Service with a selector
// has an EndpointSlice of the pods, whatever their labels.
func controller(t *testing.T, k *lab.Kube, pods ...string) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	t.Cleanup(func() { cancel(); <-done })
	go func() {
		defer close(done)
		made := map[string]bool{}
		for tick := time.NewTicker(200 * time.Millisecond); ; {
			select {
			case <-ctx.Done():
				tick.Stop()
				return
			case <-tick.C:
				for _, name := range selecting(ctx, k) {
					if !made[name] {
						made[name] = sliceFor(ctx, k, name, pods)
					}
				}
			}
		}
	}()
}

// selecting are the Services that want endpoints.
func selecting(ctx context.Context, k *lab.Kube) (names []string) {
	var list struct {
		Items []struct {
			Metadata struct{ Name string }
			Spec     struct{ Selector map[string]string }
		}
	}
	_, text, err := k.Do(ctx, lab.KubeAdmin, http.MethodGet, servicesPath, "")
	if err != nil || json.Unmarshal([]byte(text), &list) != nil {
		return nil
	}
	for _, s := range list.Items {
		if len(s.Spec.Selector) > 0 {
			names = append(names, s.Metadata.Name)
		}
	}
	return names
}

func sliceFor(ctx context.Context, k *lab.Kube, service string, pods []string) bool {
	var endpoints []map[string]any
	for _, p := range pods {
		endpoints = append(endpoints, map[string]any{"addresses": []string{p}, "conditions": map[string]bool{"ready": true}})
	}
	text, err := json.Marshal(map[string]any{
		"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4", "endpoints": endpoints,
		"metadata": map[string]any{"name": service, "labels": map[string]string{"kubernetes.io/service-name": service}},
		"ports":    []any{map[string]any{"name": "http", "port": 8080, "protocol": "TCP"}},
	})
	if err != nil {
		return false
	}
	status, _, err := k.Do(ctx, lab.KubeAdmin, http.MethodPost, slicesPath, string(text))
	return err == nil && status/100 == 2
}

// kubectl puts kubectl on a box, and an administrator's kubeconfigs by their files.
func (q *quickstart) kubectl(t testing.TB, box string, admins map[string]*lab.Kube) {
	t.Helper()
	q.Box(box).Must(t, "cp", lab.Build(t, "weir/cmd/weirlab/internal/kubectl"), "/usr/local/bin/kubectl")
	for file, k := range admins {
		must(t, q.Box(box).WriteFile(t.Context(), file, k.Kubeconfig(lab.KubeAdmin), 0o600))
	}
}

// routed has a host become the router that weir prints the configuration for.
func (q *quickstart) routed(t *testing.T, host, id, box string) {
	q.after = func(s step, out string) {
		if strings.HasPrefix(s.command, "weir bgp router-config") {
			out = strings.NewReplacer("ROUTER-ID", id, "BOX-ADDRESS", box).Replace(out)
			q.Router(t, host, lab.BIRD, out)
		}
	}
}

// TestQuickStartClusters is a box before two clusters, with BGP.
func TestQuickStartClusters(t *testing.T) {
	t.Parallel()
	lab.RequireSystemd(t)
	lab.Routers.Require(t)
	must(t, lab.CheckPeers())
	back := func(name string, addr string) lab.Host {
		return lab.Host{Name: name, Nets: lab.Nets{"eth1": addr}, Routes: []string{"10.2.0.0/24 dev eth1"}}
	}
	plan := lab.Site{
		Hosts: []lab.Host{
			{Name: "client", Nets: lab.Nets{"lan": "10.9.0.2/24"}, Routes: []string{"default via 10.9.0.1"}},
			{Name: "tor1", Forward: true, Nets: lab.Nets{"lan": "10.9.0.1/24", "eth0": "10.0.0.1/24"}},
			{Name: "api1", Nets: lab.Nets{"eth1": "10.2.0.101/24"}}, {Name: "api2", Nets: lab.Nets{"eth1": "10.2.0.102/24"}},
			back("pod1", "10.244.1.11/24"), back("pod2", "10.244.1.12/24"), back("pod3", "10.245.1.11/24"),
		},
		Boxes: []lab.Box{{
			Name: "box", Systemd: true, Nets: lab.Nets{"eth0": "10.0.0.5/24", "eth1": "10.2.0.5/24"},
			Routes: []string{"10.9.0.0/24 via 10.0.0.1", "10.244.0.0/16 dev eth1", "10.245.0.0/16 dev eth1"},
		}},
	}
	q := &quickstart{Lab: lab.Start(t, plan), file: "quickstart-clusters.md"}
	for i := range 3 {
		serveSight(t, q.Host(fmt.Sprintf("pod%d", i+1)))
	}
	prod, staging := q.Kube(t, "api1", lab.KubeOptions{}), q.Kube(t, "api2", lab.KubeOptions{})
	controller(t, prod, "10.244.1.11", "10.244.1.12")
	controller(t, staging, "10.245.1.11")
	hasNode(t, prod, "10.244.1.0/24")
	hasNode(t, staging, "10.245.1.0/24")
	q.awaitTyping(t, "box")
	q.kubectl(t, "box", map[string]*lab.Kube{"/root/prod.admin": prod, "/root/staging.admin": staging})
	q.routed(t, "tor1", "10.0.0.1", "10.0.0.5")
	q.typeAll(t)
}

// hasNode gives a cluster a Node with a range of pods: a box outside the cluster sends packets
// to these only.
func hasNode(t testing.TB, k *lab.Kube, pods string) {
	t.Helper()
	do(t, k, http.MethodPost, "/api/v1/nodes", fmt.Sprintf(`{"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node1"},
		"spec": {"podCIDR": %[1]q, "podCIDRs": [%[1]q]}}`, pods))
}

// kubeadmMakes is what kubeadm makes in a cluster, as far as the quick start meets it.
var kubeadmMakes = map[string]string{
	"/api/v1/nodes": `{"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node1", "labels": {"kubernetes.io/hostname": "node1"}},
		"spec": {"podCIDR": "10.244.1.0/24", "podCIDRs": ["10.244.1.0/24"]}, "status": {"addresses": [{"type": "InternalIP", "address": "192.168.0.1"}]}}`,
	"/api/v1/namespaces/kube-system/configmaps": `{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "kube-proxy"}, "data": {
		"config.conf": "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\nmode: ipvs\nclusterCIDR: 10.244.0.0/16\nclientConnection: {kubeconfig: /var/lib/kube-proxy/kubeconfig.conf}\n"}}`,
	"/apis/apps/v1/namespaces/kube-system/daemonsets": `{"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": "kube-proxy"}, "spec": {
		"selector": {"matchLabels": {"k8s-app": "kube-proxy"}}, "template": {"metadata": {"labels": {"k8s-app": "kube-proxy"}},
		"spec": {"containers": [{"name": "kube-proxy", "image": "kube-proxy"}]}}}}`,
}

// TestQuickStartNode is weir on a node in place of kube-proxy.
func TestQuickStartNode(t *testing.T) {
	t.Parallel()
	lab.RequireSystemd(t)
	must(t, lab.CheckPeers())
	plan := lab.Site{
		Hosts: []lab.Host{
			{Name: "client", Nets: lab.Nets{"eth0": "192.168.0.200/24"}},
			{Name: "api", Nets: lab.Nets{"eth0": "192.168.0.100/24"}},
		},
		Boxes: []lab.Box{{Name: "node1", Systemd: true, Nets: lab.Nets{"eth0": "192.168.0.1/24", "cni0": "10.244.1.1/24"}}},
	}
	for i := range 2 { // each knows only its node, as a CNI does it, so that replies come back through that
		plan.Hosts = append(plan.Hosts, lab.Host{
			Name: fmt.Sprintf("pod%d", i+1), Nets: lab.Nets{"cni0": fmt.Sprintf("10.244.1.%d/32", 11+i)},
			Routes: []string{"10.244.1.1 dev cni0", "default via 10.244.1.1"},
		})
	}
	q := &quickstart{Lab: lab.Start(t, plan), file: "quickstart-node.md"}
	for i := range 2 {
		serveSight(t, q.Host(fmt.Sprintf("pod%d", i+1)))
	}
	k := q.Kube(t, "api", lab.KubeOptions{})
	for path, object := range kubeadmMakes {
		do(t, k, http.MethodPost, path, object)
	}
	controller(t, k, "10.244.1.11", "10.244.1.12")
	q.awaitTyping(t, "node1")
	q.kubectl(t, "node1", map[string]*lab.Kube{"/root/.kube/config": k})
	q.typeAll(t)
}
