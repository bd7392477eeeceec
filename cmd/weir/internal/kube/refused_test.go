package kube

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"weir/cmd/weir/internal/config"
	"weir/cmd/weir/internal/config/load"
	"weir/cmd/weir/internal/config/source"
	"weir/cmd/weir/internal/kernelmode"
	"weir/k8ssync"
	"weir/lb/linux"
)

func TestRefusedAddresses(t *testing.T) {
	file := filepath.Join(t.TempDir(), "kubeconfig")
	const kubeconfig = `
apiVersion: v1
kind: Config
current-context: c
contexts: [{name: c, context: {cluster: k}}]
clusters: [{name: k, cluster: {server: "https://192.0.2.99:6443"}}]
`
	if err := os.WriteFile(file, []byte(kubeconfig), 0o600); err != nil {
		t.Fatal(err)
	}
	text := fmt.Sprintf(`
[[service]]
name = "a"
vips = ["192.0.2.1"]
ports = [80]
backends = ["10.0.0.1"]
[bgp]
asn = 65000
[[bgp.peer]]
name = "tor"
address = "192.0.2.98"
asn = 65001
[fleet]
join = ["192.0.2.97", "edge2.example.com", "[2001:db8::97]:7946"]
insecure_without_key = true
name = "edge"
[[kubernetes]]
name = "prod"
kubeconfig = %q
pod_cidrs = ["10.1.0.0/16"]
[[kubernetes]]
name = "stage"
kubeconfig = "/nowhere"
pod_cidrs = ["10.2.0.0/16"]
service_cidrs = ["10.96.0.0/16"]
`, file)
	cfg, err := load.Parse("weir.toml", []byte(text), source.Disk{})
	if err != nil {
		t.Fatal(err)
	}
	backends := map[netip.Addr]string{netip.MustParseAddr("10.0.0.1"): "a backend of static/a"}
	peers := map[netip.Addr]string{
		netip.MustParseAddr("192.0.2.99"):   "the API server of cluster prod",
		netip.MustParseAddr("192.0.2.98"):   "the router tor",
		netip.MustParseAddr("192.0.2.97"):   "a member of the fleet",
		netip.MustParseAddr("2001:db8::97"): "a member of the fleet",
	}
	for n, want := range []k8ssync.Refused{
		{Peers: peers, Backends: backends, Ranges: []k8ssync.Range{
			{Prefix: netip.MustParsePrefix("10.2.0.0/16"), What: "pods of cluster stage"},
			{Prefix: netip.MustParsePrefix("10.96.0.0/16"), What: "ClusterIPs of cluster stage"},
		}},
		{Peers: peers, Backends: backends, Ranges: []k8ssync.Range{{Prefix: netip.MustParsePrefix("10.1.0.0/16"), What: "pods of cluster prod"}}},
	} {
		if got := refused(cfg, n); !reflect.DeepEqual(got, want) {
			t.Errorf("cluster %d:\n%+v, want\n%+v", n, got, want)
		}
	}
}

// TestConfigsKnowTheKernel shows that clusters learn whether the kernel can make and decapsulate tunnels.
func TestConfigsKnowTheKernel(t *testing.T) {
	t.Parallel()
	cfg := &config.Config{Clusters: []config.Cluster{{Config: k8ssync.Config{Name: "prod"}}}}
	if c := Configs(cfg, "1", kernelmode.Mode{Use: linux.ModeNetfilter})[0]; !c.NoIPVS || c.Decapsulates {
		t.Errorf("mode netfilter: %+v", c)
	}
	cfg.Kernel.DecapsulateFrom = []netip.Addr{netip.MustParseAddr("10.9.0.1")}
	if c := Configs(cfg, "1", kernelmode.Mode{Use: linux.ModeIPVS})[0]; c.NoIPVS || !c.Decapsulates {
		t.Errorf("mode ipvs: %+v", c)
	}
}
