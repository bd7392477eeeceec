package lab_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"strings"
	"testing"
	"time"

	"weir/cmd/weirlab/internal/props"
	"weir/cmd/weirlab/lab"
)

// A Service that is made through the API is served by kube-proxy on the box, in both of its modes on the
// same kernel, and its cleanup takes it away.
func TestKubeProxyOnABox(t *testing.T) {
	soakOnly(t, "TestConformanceShort, TestDifferential and TestBenchShort have kube-proxy on a box; only its cleanup is not judged there")
	site := lab.Start(t, lab.Site{
		Hosts: []lab.Host{
			{Name: "client", Nets: lab.Nets{"front": "10.1.0.2/24 fd01::2/64"}, Routes: []string{"default via 10.1.0.1", "default via fd01::1"}},
			{Name: "api", Nets: lab.Nets{"front": "10.1.0.5/24 fd01::5/64"}},
			{Name: "web1", Nets: lab.Nets{"back": "10.2.0.11/24 fd02::11/64"}, Routes: []string{"default via 10.2.0.1", "default via fd02::1"}},
			{Name: "web2", Nets: lab.Nets{"back": "10.2.0.12/24 fd02::12/64"}, Routes: []string{"default via 10.2.0.1", "default via fd02::1"}},
		},
		Boxes: []lab.Box{{Name: "box", Forward: true, Nets: lab.Nets{"front": "10.1.0.1/24 fd01::1/64", "back": "10.2.0.1/24 fd02::1/64"}}},
	})
	k := site.Kube(t, "api", lab.KubeOptions{})
	for _, name := range []string{"web1", "web2"} {
		serveName(t, site.Host(name), ":8080")
	}
	vips := makeService(t, k, "web")
	for _, family := range []struct{ name, web string }{{"IPv4", "10.2.0.1%d"}, {"IPv6", "fd02::1%d"}} {
		makeEndpoints(t, k, "web", family.name, fmt.Sprintf(family.web, 1), fmt.Sprintf(family.web, 2))
	}
	for _, mode := range []string{"ipvs", "iptables"} {
		t.Run(mode, func(t *testing.T) { proxies(t, site, k, mode, vips) })
	}
}

// proxies runs kube-proxy in a mode for the length of a test.
func proxies(t *testing.T, site *lab.Lab, k *lab.Kube, mode string, vips []string) {
	box := site.Box("box")
	begin := time.Now()
	p, err := k.StartProxy(within(t), box, lab.ProxyOptions{
		Mode: mode, ClusterCIDRs: []netip.Prefix{netip.MustParsePrefix("10.244.0.0/16"), netip.MustParsePrefix("fd44::/64")},
		Config: map[string]any{"ipvs": map[string]any{"scheduler": "wrr"}},
	})
	lab.Must(t, err)
	t.Logf("synced after %v; memory of kube-proxy %d MiB", time.Since(begin).Round(time.Millisecond), memoryOf(t, box, p.Proc))
	for i, seen := range []string{"10.2.0.1", "fd02::1"} { // the client is no pod
		vip := netip.AddrPortFrom(netip.MustParseAddr(vips[i]), 80).String()
		met := map[string]int{}
		for range 20 {
			a, err := props.Ask(within(t), site.Host("client").DialContext, vip)
			if err != nil {
				t.Fatalf("%s: %v", vip, err)
			}
			met[a.Server]++
			if a.Saw != seen {
				t.Errorf("%s: %s saw %s, want the box's address %s", vip, a.Server, a.Saw, seen)
			}
		}
		if met["web1"]+met["web2"] != 20 || met["web1"] == 0 || met["web2"] == 0 {
			t.Errorf("%s: met %v, want both", vip, met)
		}
	}
	has := map[string]bool{
		"ipvs":     strings.Contains(box.Must(t, "ipvsadm", "-Sn"), "-A -t "+vips[0]+":80 -s wrr"),
		"iptables": strings.Contains(box.Must(t, "iptables-save", "-t", "nat"), "KUBE-SEP-"),
	}
	if want := map[string]bool{"ipvs": mode == "ipvs", "iptables": mode == "iptables"}; !maps.Equal(has, want) {
		t.Errorf("the kernel serves by %v, want %v", has, want)
	}
	lab.Must(t, p.Cleanup(within(t)))
	left := box.Must(t, "sh", "-c", "iptables-save; ip6tables-save; ipvsadm -Sn; ip link")
	for _, its := range []string{"KUBE-SERVICES", "KUBE-SVC-", "KUBE-POSTROUTING", "-A -t", "kube-ipvs0"} {
		if strings.Contains(left, its) {
			t.Errorf("%s is left by the cleanup:\n%s", its, left)
		}
	}
}

const endpointSlices = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices"

// makeEndpoints makes the EndpointSlice of one family of a Service, on port 8080.
func makeEndpoints(t *testing.T, k *lab.Kube, service, family string, addrs ...string) {
	t.Helper()
	var endpoints []map[string]any
	for _, addr := range addrs {
		endpoints = append(endpoints, map[string]any{"addresses": []string{addr}, "conditions": map[string]bool{"ready": true}})
	}
	text, err := json.Marshal(map[string]any{
		"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": family,
		"metadata":  map[string]any{"name": service + "-" + strings.ToLower(family), "labels": map[string]string{"kubernetes.io/service-name": service}},
		"endpoints": endpoints, "ports": []map[string]any{{"port": 8080, "protocol": "TCP", "name": ""}},
	})
	lab.Must(t, err)
	call(t, k, 201, lab.KubeAdmin, "POST", endpointSlices, string(text))
}
