package kube

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"weir/cmd/weir/internal/config/load"
	"weir/cmd/weir/internal/config/source"
	"weir/k8ssync"
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
	peers := map[netip.Addr]string{
		netip.MustParseAddr("10.0.0.1"):   "a backend of static/a",
		netip.MustParseAddr("192.0.2.99"): "the API server of cluster prod",
	}
	for n, want := range []k8ssync.Refused{
		{Peers: peers, Ranges: []k8ssync.Range{
			{Prefix: netip.MustParsePrefix("10.2.0.0/16"), What: "pods of cluster stage"},
			{Prefix: netip.MustParsePrefix("10.96.0.0/16"), What: "ClusterIPs of cluster stage"},
		}},
		{Peers: peers, Ranges: []k8ssync.Range{{Prefix: netip.MustParsePrefix("10.1.0.0/16"), What: "pods of cluster prod"}}},
	} {
		if got := refused(cfg, n); !reflect.DeepEqual(got, want) {
			t.Errorf("cluster %d:\n%+v, want\n%+v", n, got, want)
		}
	}
}
