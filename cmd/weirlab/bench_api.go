package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/netip"

	"weir/cmd/weirlab/lab"
)

// The addresses of the chapters about a cluster. All pods are one web server, which
// answers on any address of theirs.
const (
	apiHost   = "api"
	roomAddr  = "10.9.0.2" // a wired room's
	vips      = "10.97."   // the ClusterIPs of many Services begin so
	pods      = "10.128.0.0/9"
	noPods    = "10.244.0.0/16" // without pods: clients are masqueraded
	probed    = "10.96.0.50"    // the Service of the endpoint that changes
	firstPort = 30000           // the NodePort of the first of many Services
)

// benchAPI is a real Kubernetes API beside the box.
type benchAPI struct {
	kube   *lab.Kube         // nil until a chapter wants it
	bare   lab.Snapshot      // of an API without Services
	loaded map[string]string // into the API, by the last chapter
}

// openAPI starts a real Kubernetes API beside the box, once, and lays the routes.
func (b *bench) openAPI(ctx context.Context) error {
	if b.kube != nil {
		return nil
	}
	b.report("start etcd and kube-apiserver")
	kube, err := lab.StartKube(ctx, b.site.Host(apiHost), lab.KubeOptions{
		ServiceCIDRs: []netip.Prefix{netip.MustParsePrefix("10.96.0.0/15")},
	})
	if err != nil {
		return err
	}
	if b.bare, err = kube.Snapshot(ctx); err != nil {
		return err
	}
	b.kube = kube
	program, err := lab.Peer(lab.KubeProxy)
	if err != nil {
		return err
	}
	version, err := b.home.sh(ctx, program+" --version")
	if err != nil {
		return err
	}
	b.table.line("  (kube-proxy and its API: " + version + ")")
	if _, err := b.home.sh(ctx, "sysctl -qw net.netfilter.nf_conntrack_max=262144; ip route add "+pods+" via 10.2.0.11"); err != nil {
		return err
	}
	_, err = b.site.Host("web").Run(ctx, "ip", "route", "add", "local", pods, "dev", "lo")
	return err
}

// populate makes the API hold n Services of a type, with ten endpoints each, one
// more, called changing, and nothing else.
func (b *bench) populate(ctx context.Context, n int, kind string) error {
	if err := b.openAPI(ctx); err != nil {
		return err
	}
	b.report("%s %s Services x %d in the API", count(n), kind, perService)
	if err := b.unload(ctx); err != nil {
		return err
	}
	objects := map[string]string{}
	for i := range n {
		port := map[string]any{"port": 80, "protocol": "TCP", "targetPort": 8080}
		if kind == "NodePort" {
			port["nodePort"] = firstPort + i
		}
		var endpoints []string
		for j := range perService {
			endpoints = append(endpoints, fmt.Sprintf("10.%d.%d.%d", 128+i>>8, i&0xff, j+1))
		}
		put(objects, i, fmt.Sprintf("svc-%05d", i), clusterIP(i), kind, port, endpoints)
	}
	put(objects, n, changed, probed, "ClusterIP", map[string]any{"port": 80, "protocol": "TCP", "targetPort": 8080}, []string{"10.250.0.1"})
	b.loaded = objects
	return b.kube.Load(ctx, objects)
}

// unload removes the Services of an earlier chapter from the API.
func (b *benchAPI) unload(ctx context.Context) error {
	objects := b.loaded
	b.loaded = nil
	return b.kube.Unload(ctx, objects)
}

// changed is the Service with one endpoint, which is replaced.
const changed = "changing"

func clusterIP(i int) string { return fmt.Sprintf("%s%d.%d", vips, i>>8, i&0xff) }

// put adds a Service and its EndpointSlice, as etcd has them.
func put(objects map[string]string, number int, name, vip, kind string, port map[string]any, endpoints []string) {
	meta := func(id int) map[string]any {
		return map[string]any{
			"name": name, "namespace": "default", "creationTimestamp": "2026-01-01T00:00:00Z",
			"uid": fmt.Sprintf("00000000-0000-0000-%04d-%012d", id, number),
		}
	}
	service := map[string]any{
		"apiVersion": "v1", "kind": "Service", "metadata": meta(1), "status": map[string]any{"loadBalancer": map[string]any{}},
		"spec": map[string]any{
			"type": kind, "clusterIP": vip, "clusterIPs": []string{vip}, "ipFamilies": []string{"IPv4"},
			"ipFamilyPolicy": "SingleStack", "internalTrafficPolicy": "Cluster", "sessionAffinity": "None", "ports": []any{port},
		},
	}
	if kind == "NodePort" {
		service["spec"].(map[string]any)["externalTrafficPolicy"] = "Cluster"
	}
	slice := sliceOf(name, endpoints)
	slice["metadata"] = meta(2)
	slice["metadata"].(map[string]any)["labels"] = map[string]string{"kubernetes.io/service-name": name}
	objects["/registry/services/specs/default/"+name] = text(service)
	objects["/registry/endpointslices/default/"+name] = text(slice)
}

func sliceOf(service string, endpoints []string) map[string]any {
	list := make([]any, len(endpoints))
	for i, addr := range endpoints {
		list[i] = map[string]any{
			"addresses": []string{addr}, "conditions": map[string]bool{"ready": true, "serving": true, "terminating": false},
			"nodeName": fmt.Sprintf("node-%d", i), "zone": fmt.Sprintf("zone-%d", i%3),
			"targetRef": map[string]string{"kind": "Pod", "namespace": "default", "name": fmt.Sprintf("%s-%d", service, i), "uid": fmt.Sprintf("00000000-0000-0000-0003-%012d", i)},
		}
	}
	return map[string]any{
		"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
		"metadata":  map[string]any{"name": service, "labels": map[string]string{"kubernetes.io/service-name": service}},
		"endpoints": list, "ports": []any{map[string]any{"name": "", "port": 8080, "protocol": "TCP"}},
	}
}

func text(object any) string {
	out, err := json.Marshal(object)
	if err != nil {
		panic("weirlab: " + err.Error()) // it is made of maps, strings and numbers
	}
	return string(out)
}

// replace has the API give the Service changing another endpoint, its only one.
func (b *bench) replace(ctx context.Context, endpoint string) error {
	const path = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices/" + changed
	if _, err := b.kube.Ask(ctx, http.MethodPut, path, text(sliceOf(changed, []string{endpoint}))); err != nil {
		return fmt.Errorf("replace the endpoint of %s: %w", changed, err)
	}
	return nil
}

// enterWired makes a room that is a node of the cluster: the box's own network
// routes between it, the client, the web server and the API.
func (b *bench) enterWired(ctx context.Context) (*room, error) {
	const name = "node"
	r, err := b.enter(ctx, name)
	if err != nil {
		return nil, err
	}
	_, err = b.home.sh(ctx, `
ip link add wire type veth peer name eth0 netns `+name+`
ip addr add 10.9.0.1/30 dev wire; ip link set wire up
ip -n `+name+` addr add `+roomAddr+`/30 dev eth0; ip -n `+name+` link set eth0 up
ip -n `+name+` route add default via 10.9.0.1
ip route add 10.96.0.0/15 via `+roomAddr+`
ip netns exec `+name+` sysctl -qw net.ipv4.ip_forward=1`)
	return r, err
}
