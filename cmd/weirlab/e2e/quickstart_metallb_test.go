package e2e

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"weir/cmd/weirlab/lab"
)

// metallbKinds are those of MetalLB's resources, and the version of each.
var metallbKinds = map[string]string{
	"IPAddressPool": "v1beta1", "BGPPeer": "v1beta2", "BGPAdvertisement": "v1beta1", "L2Advertisement": "v1beta1", "BFDProfile": "v1beta1", "Community": "v1beta1",
}

// plural is how the API server calls objects of a kind.
func plural(kind string) string {
	name := strings.ToLower(kind)
	if strings.HasSuffix(name, "y") {
		return strings.TrimSuffix(name, "y") + "ies"
	}
	return name + "s"
}

// metallbResources are those that the quick start speaks of, by their kinds.
var metallbResources = map[string]string{
	"IPAddressPool/public":    `{"addresses": ["192.0.2.0/24"], "avoidBuggyIPs": true}`,
	"IPAddressPool/office":    `{"addresses": ["10.1.0.80-10.1.0.99"], "autoAssign": false}`,
	"BGPPeer/tor1":            `{"myASN": 64500, "peerASN": 64501, "peerAddress": "10.1.0.254"}`,
	"BGPAdvertisement/public": `{"ipAddressPools": ["public"]}`,
	"L2Advertisement/office":  `{"ipAddressPools": ["office"], "interfaces": ["eth0"]}`,
}

// hasMetalLB makes of a lab's API that of a cluster with MetalLB, as far as it is written there:
// nothing runs. A Service has an address of it.
func hasMetalLB(t *testing.T, k *lab.Kube) {
	t.Helper()
	for kind, version := range metallbKinds {
		do(t, k, http.MethodPost, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", fmt.Sprintf(`{
			"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "%[1]s.metallb.io"},
			"spec": {"group": "metallb.io", "scope": "Namespaced", "names": {"plural": %[1]q, "singular": %[2]q, "kind": %[3]q},
				"versions": [{"name": %[4]q, "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object",
					"properties": {"spec": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}}}]}}`,
			plural(kind), strings.ToLower(kind), kind, version))
	}
	do(t, k, http.MethodPost, "/api/v1/namespaces", `{"metadata": {"name": "metallb-system"}}`)
	for kind, version := range metallbKinds {
		path := "/apis/metallb.io/" + version + "/namespaces/metallb-system/" + plural(kind)
		eventually(t, time.Minute, func() error { // the API server takes its time with a new kind
			status, answer, err := k.Do(t.Context(), lab.KubeAdmin, http.MethodGet, path, "")
			if err == nil && status != http.StatusOK {
				err = fmt.Errorf("%s: %d %s", path, status, answer)
			}
			return err
		})
		for name, spec := range metallbResources {
			if of, name, _ := strings.Cut(name, "/"); of == kind {
				do(t, k, http.MethodPost, path, fmt.Sprintf(`{"apiVersion": "metallb.io/%s", "kind": %q, "metadata": {"name": %q}, "spec": %s}`, version, kind, name, spec))
			}
		}
	}
	for kind, name := range map[string]string{"Deployment": "controller", "DaemonSet": "speaker"} {
		do(t, k, http.MethodPost, "/apis/apps/v1/namespaces/metallb-system/"+plural(kind), fmt.Sprintf(`{"apiVersion": "apps/v1", "kind": %q,
			"metadata": {"name": %[2]q}, "spec": {"selector": {"matchLabels": {"a": %[2]q}}, "template": {"metadata": {"labels": {"a": %[2]q}},
			"spec": {"containers": [{"name": "it", "image": "it"}]}}}}`, kind, name))
	}
	do(t, k, http.MethodPost, servicesPath, `{"apiVersion": "v1", "kind": "Service", "metadata": {"name": "shop"}, "spec": {"type": "LoadBalancer",
		"selector": {"app": "web"}, "ports": [{"name": "http", "port": 80, "targetPort": 8080}]}}`)
	do(t, k, http.MethodPatch, servicesPath+"/shop/status", `{"status": {"loadBalancer": {"ingress": [{"ip": "192.0.2.7"}]}}}`)
}

// TestQuickStartMetalLB is a box that takes MetalLB's pools and Services over, with BGP and ARP.
func TestQuickStartMetalLB(t *testing.T) {
	t.Parallel()
	lab.RequireSystemd(t)
	lab.Routers.Require(t)
	must(t, lab.CheckPeers())
	plan := lab.Site{
		Hosts: []lab.Host{
			{Name: "client", Nets: lab.Nets{"lan": "10.9.0.2/24"}, Routes: []string{"default via 10.9.0.1"}},
			{Name: "tor1", Forward: true, Nets: lab.Nets{"lan": "10.9.0.1/24", "eth0": "10.1.0.254/24"}},
			{Name: "near", Nets: lab.Nets{"eth0": "10.1.0.100/24"}},
			{Name: "api", Nets: lab.Nets{"eth1": "10.2.0.101/24"}},
		},
		Boxes: []lab.Box{{
			Name: "box", Systemd: true, Nets: lab.Nets{"eth0": "10.1.0.5/24", "eth1": "10.2.0.5/24"},
			Routes: []string{"10.9.0.0/24 via 10.1.0.254", "10.244.0.0/16 dev eth1"},
		}},
	}
	for i := range 2 {
		plan.Hosts = append(plan.Hosts, lab.Host{
			Name: fmt.Sprintf("pod%d", i+1), Nets: lab.Nets{"eth1": fmt.Sprintf("10.244.1.%d/24", 11+i)}, Routes: []string{"10.2.0.0/24 dev eth1"},
		})
	}
	q := &quickstart{Lab: lab.Start(t, plan), file: "quickstart-metallb.md"}
	for i := range 2 {
		serveSight(t, q.Host(fmt.Sprintf("pod%d", i+1)))
	}
	k := q.Kube(t, "api", lab.KubeOptions{})
	hasMetalLB(t, k)
	controller(t, k, "10.244.1.11", "10.244.1.12")
	hasNode(t, k, "10.244.1.0/24")
	q.awaitTyping(t, "box")
	q.kubectl(t, "box", map[string]*lab.Kube{"/root/.kube/config": k})
	q.routed(t, "tor1", "10.1.0.254", "10.1.0.5")
	q.typeAll(t)
}
