package k8ssync

import (
	"encoding/json"
	"net/url"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/yaml"

	"weir/cmd/weirlab/fuzzing"
)

// FuzzKubeconfig reads any file as a kubeconfig. One that passes has a server, and client-go
// makes of it a configuration that runs no program.
func FuzzKubeconfig(f *testing.F) {
	fuzzing.Wide(f)
	const good = `{apiVersion: v1, kind: Config, current-context: a, contexts: [{name: a, context: {cluster: b, user: c}}, {name: d, context: {cluster: b}}],
clusters: [{name: b, cluster: {server: "https://192.0.2.1:6443"}}], users: [{name: c, user: {token: t}}]}`
	f.Add([]byte(good), "")
	f.Add([]byte(good), "d")
	f.Add([]byte(good), "e")
	f.Add([]byte(`{current-context: a, contexts: [{name: a, context: {cluster: b, user: c}}], clusters: [{name: b, cluster: {server: x, insecure-skip-tls-verify: true}}],
users: [{name: c, user: {exec: {command: sh, apiVersion: v1}}}]}`), "")
	f.Add([]byte(`{clusters: [{name: a}, null], contexts: [null], users: null}`), "a")
	f.Add([]byte("a: &a [*a, *a]\nb: 1"), "")
	f.Fuzz(func(t *testing.T, data []byte, context string) {
		if CheckKubeconfig(data, context) != nil {
			if server, err := KubeconfigServer(data, context); err == nil || KubeconfigRisk(data, context) != "" {
				t.Errorf("a refused file has server %q", server)
			}
			return
		}
		server, err := KubeconfigServer(data, context)
		if err != nil || server == "" {
			t.Fatalf("an accepted file has server %q: %v", server, err)
		}
		file, err := clientcmd.Load(data)
		must(t, err)
		cfg, err := clientcmd.NewNonInteractiveClientConfig(*file, context, &clientcmd.ConfigOverrides{}, nil).ClientConfig()
		if err != nil {
			return // such as a missing file of a certificate; readAccess returns it
		}
		if cfg.ExecProvider != nil || cfg.AuthProvider != nil {
			t.Errorf("an accepted file runs a program: %+v", cfg)
		}
		if u, err := url.Parse(cfg.Host); err == nil && u.Scheme == "http" && KubeconfigRisk(data, context) == "" {
			t.Errorf("%s has no TLS, and no warning", cfg.Host)
		}
	})
}

// FuzzNode reads Nodes from JSON, like answers of the API server. Each address and range that is
// read is valid, and none of them is read twice.
func FuzzNode(f *testing.F) {
	fuzzing.Wide(f)
	for _, text := range []string{
		`{}`, `null`,
		`{metadata: {name: n, labels: {topology.kubernetes.io/zone: a, node.kubernetes.io/exclude-from-external-load-balancers: ""}},
spec: {podCIDRs: [10.0.0.0/24, "fd00::/64"], taints: [{key: ToBeDeletedByClusterAutoscaler}]},
status: {addresses: [{type: InternalIP, address: 192.0.2.1}, {type: ExternalIP, address: "2001:db8::1"}, {type: Hostname, address: n}], conditions: [{type: Ready, status: "True"}]}}`,
		`{spec: {podCIDR: "::ffff:10.0.0.0/104"}, status: {addresses: [{type: InternalIP, address: "fe80::1%eth0"}, {type: InternalIP, address: "::ffff:192.0.2.1"}]}}`,
	} {
		data, err := yaml.YAMLToJSON([]byte(text))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var in *corev1.Node
		if json.Unmarshal(data, &in) != nil {
			return
		}
		n := readNode(in)
		for _, list := range [][]string{printed(n.InternalIPs), printed(n.ExternalIPs), printed(n.PodCIDRs)} {
			seen := map[string]bool{}
			for _, s := range list {
				if seen[s] {
					t.Errorf("%s is read twice", s)
				}
				seen[s] = true
			}
			if len(list) > maxNodeAddrs {
				t.Errorf("%d addresses", len(list))
			}
		}
		for _, a := range append(n.InternalIPs, n.ExternalIPs...) {
			if !a.IsValid() || a.Is4In6() || a.Zone() != "" {
				t.Errorf("address %v", a)
			}
		}
		for _, p := range n.PodCIDRs {
			if !p.IsValid() || p.Addr().Is4In6() || p != p.Masked() {
				t.Errorf("range %v", p)
			}
		}
		cfg := testConfig("")
		env := newEnv(&cfg)
		env.setNodes([]node{n})
	})
}

func printed[T interface{ String() string }](list []T) (out []string) {
	for _, v := range list {
		out = append(out, v.String())
	}
	return out
}

// FuzzWriterLease lets others write the Lease of the writer. At most one box writes, and a Lease
// that this box takes is one that the API server accepts.
func FuzzWriterLease(f *testing.F) {
	fuzzing.Wide(f)
	for _, text := range []string{
		`{}`,
		`{metadata: {name: weir-writer, resourceVersion: "7"}, spec: {holderIdentity: box2, leaseDurationSeconds: 15, leaseTransitions: 3, renewTime: "2026-01-01T00:00:00.000000Z"}}`,
		`{metadata: {resourceVersion: "8"}, spec: {holderIdentity: box1, leaseDurationSeconds: -1, leaseTransitions: 2147483647}}`,
		`{metadata: {resourceVersion: "9"}, spec: {holderIdentity: box2, leaseDurationSeconds: 1, leaseTransitions: 2147483647}}`,
		`{metadata: {resourceVersion: x}, spec: {holderIdentity: "", leaseDurationSeconds: 2147483647}}`,
	} {
		data, err := yaml.YAMLToJSON([]byte(text))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data, uint16(20))
		f.Add(data, uint16(0))
	}
	f.Fuzz(func(t *testing.T, data []byte, later uint16) {
		var lease *coordinationv1.Lease
		if json.Unmarshal(data, &lease) != nil || lease == nil {
			return
		}
		if n := lease.Spec.LeaseTransitions; n != nil && *n < 0 {
			return // the API server stores none
		}
		now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
		e := &election{identity: "box1", timing: defaultElection, until: now.Add(time.Second)}
		e.observe(lease.DeepCopy(), version(lease.ResourceVersion), now)
		if w := e.writer(now); w != "" && w != e.identity && e.writes(now) {
			t.Errorf("%s and this box write", w)
		}
		now = now.Add(time.Duration(later) * time.Second)
		if w := e.writer(now); !e.mayTake(lease, now) {
			if w == e.identity {
				t.Errorf("this box may not renew %s", data)
			}
			return
		}
		e.renew(lease, "weir-system", now)
		s := lease.Spec
		if *s.HolderIdentity != e.identity || *s.LeaseDurationSeconds <= 0 || s.LeaseTransitions != nil && *s.LeaseTransitions < 0 {
			t.Errorf("this box writes %+v over %s", s, data)
		}
	})
}
