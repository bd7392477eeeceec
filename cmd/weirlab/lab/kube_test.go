package lab_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"weir/cmd/weirlab/lab"
)

// One API, and what happens to it, one thing after the other.
func TestKube(t *testing.T) {
	site := lab.Start(t, lab.Site{Hosts: []lab.Host{
		{Name: "api", Nets: lab.Nets{"front": "10.1.0.5/24 fd01::5/64"}},
		{Name: "client", Nets: lab.Nets{"front": "10.1.0.2/24 fd01::2/64"}},
	}})
	if err := lab.BuildPeers(t.Context(), os.Stderr); err != nil { // not part of the time to start
		t.Fatal(err)
	}
	begin := time.Now()
	k := site.Kube(t, "api", lab.KubeOptions{Users: []lab.KubeUser{{Name: "operator", Groups: []string{"system:masters"}}}})
	t.Logf("ready after %v; memory of kube-apiserver %d MiB, of etcd %d MiB",
		time.Since(begin).Round(time.Millisecond), memoryOf(t, site.Host("api"), k.Server()), memoryOf(t, site.Host("api"), k.Etcd()))
	t.Run("Services can be made at once", func(t *testing.T) { madeAtOnce(t, k) })
	t.Run("users", func(t *testing.T) { knowsUsers(t, k) })
	t.Run("other machines reach it", func(t *testing.T) { isReached(t, site, k) })
	t.Run("a restart keeps everything", func(t *testing.T) { keepsThroughRestart(t, k) })
	t.Run("it hangs and goes on", func(t *testing.T) { hangs(t, k) })
	t.Run("older resourceVersions expire", func(t *testing.T) { expires(t, k) })
	t.Run("an older state comes back", func(t *testing.T) { restores(t, k) })
	t.Run("many objects at once", func(t *testing.T) { loads(t, k) })
}

const services = "/api/v1/namespaces/default/services"

// makeService makes a Service and gives its first ClusterIP.
func makeService(t *testing.T, k *lab.Kube, name string) (ips []string) {
	t.Helper()
	var svc struct {
		Spec struct{ ClusterIPs []string }
	}
	text := call(t, k, 201, lab.KubeAdmin, "POST", services, fmt.Sprintf(`{"apiVersion": "v1", "kind": "Service",
		"metadata": {"name": %q}, "spec": {"ipFamilyPolicy": "RequireDualStack", "type": "LoadBalancer", "ports": [{"port": 80}]}}`, name))
	lab.Must(t, json.Unmarshal([]byte(text), &svc))
	return svc.Spec.ClusterIPs
}

// call asks the API and wants a status.
func call(t *testing.T, k *lab.Kube, want int, user, method, path, body string) string {
	t.Helper()
	status, answer, err := k.Do(within(t), user, method, path, body)
	lab.Must(t, err)
	if status != want {
		t.Fatalf("%s %s by %s: status %d, want %d: %s", method, path, user, status, want, answer)
	}
	return answer
}

// memoryOf is what a process of a host holds of this machine's memory, in MiB.
func memoryOf(t *testing.T, m *lab.Machine, p *lab.Proc) int {
	t.Helper()
	status := m.Must(t, "cat", fmt.Sprintf("/proc/%d/status", p.Pid()))
	n := 0
	if _, err := fmt.Sscan(regexp.MustCompile(`VmRSS:\s+(\d+)`).FindStringSubmatch(status)[1], &n); err != nil {
		t.Fatal(err)
	}
	return n >> 10
}

func madeAtOnce(t *testing.T, k *lab.Kube) {
	ips := makeService(t, k, "first")
	if len(ips) != 2 || !netip.MustParsePrefix("10.96.0.0/16").Contains(netip.MustParseAddr(ips[0])) ||
		!netip.MustParsePrefix("fd00:96::/112").Contains(netip.MustParseAddr(ips[1])) {
		t.Errorf("ClusterIPs %v, want one of each family's range", ips)
	}
}

func knowsUsers(t *testing.T, k *lab.Kube) {
	for _, user := range []string{lab.KubeNobody, lab.KubeWeir} {
		call(t, k, 403, user, "GET", services, "")
	}
	allowed(t, k, lab.KubeProxyUser) // by the role that Kubernetes has for it
	call(t, k, 403, lab.KubeProxyUser, "DELETE", services+"/first", "")
	call(t, k, 200, "operator", "GET", services+"/first", "")
	if version := call(t, k, 200, lab.KubeNobody, "GET", "/version", ""); !strings.Contains(version, `"gitVersion": "v1.`) {
		t.Errorf("it is of no version: %s", version)
	}
	const roles = "/apis/rbac.authorization.k8s.io/v1/clusterrole"
	call(t, k, 201, lab.KubeAdmin, "POST", roles+"s", `{"metadata": {"name": "reader"},
		"rules": [{"apiGroups": [""], "resources": ["services"], "verbs": ["list"]}]}`)
	call(t, k, 201, lab.KubeAdmin, "POST", roles+"bindings", `{"metadata": {"name": "reader"},
		"roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "reader"},
		"subjects": [{"kind": "ServiceAccount", "namespace": "weir", "name": "weir"}]}`)
	allowed(t, k, lab.KubeWeir)
	call(t, k, 403, lab.KubeWeir, "GET", services+"/first", "")
}

// allowed waits until a user may list Services: the API server learns of roles by a watch.
func allowed(t *testing.T, k *lab.Kube, user string) {
	t.Helper()
	for limit := time.Now().Add(time.Minute); ; {
		status, _, err := k.Do(within(t), user, "GET", services, "")
		if status == 200 {
			return
		}
		if time.Now().After(limit) {
			t.Fatalf("%s may list Services by now: status %d, %v", user, status, err)
		}
	}
}

// isReached uses the kubeconfig's address, certificate and token with a client of others.
func isReached(t *testing.T, site *lab.Lab, k *lab.Kube) {
	client := site.Host("client")
	lab.Must(t, client.WriteFile(within(t), "/root/ca.crt", string(k.CA()), 0o644))
	for _, url := range []string{k.URL(), "https://[fd01::5]:6443"} {
		out := client.Must(t, "curl", "-sf", "--cacert", "/root/ca.crt", "-H", "Authorization: Bearer "+k.Token("operator"), url+services+"/first")
		if !strings.Contains(out, `"clusterIP"`) {
			t.Errorf("%s: %s", url, out)
		}
	}
	config := k.Kubeconfig("operator")
	for _, want := range []string{"server: https://10.1.0.5:6443\n", "token: \"token-of-operator\"\n", "certificate-authority-data: "} {
		if !strings.Contains(config, want) {
			t.Errorf("no %q in the kubeconfig:\n%s", want, config)
		}
	}
}

func keepsThroughRestart(t *testing.T, k *lab.Kube) {
	before := call(t, k, 200, lab.KubeAdmin, "GET", services+"/first", "")
	for name, again := range map[string]func(context.Context) error{
		"in order": k.Restart,
		"killed": func(ctx context.Context) error {
			if err := k.Kill(ctx); err != nil {
				return err
			}
			if _, _, err := k.Do(ctx, lab.KubeAdmin, "GET", services, ""); err == nil {
				t.Error("a dead API server answers")
			}
			return k.Start(ctx)
		},
	} {
		begin := time.Now()
		if err := again(within(t)); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		t.Logf("%s: ready again after %v", name, time.Since(begin).Round(time.Millisecond))
		if after := call(t, k, 200, lab.KubeAdmin, "GET", services+"/first", ""); after != before {
			t.Errorf("%s: before %s\nafter %s", name, before, after)
		}
	}
}

func hangs(t *testing.T, k *lab.Kube) {
	lab.Must(t, k.Freeze())
	short, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if _, answer, err := k.Do(short, lab.KubeAdmin, "GET", services, ""); err == nil {
		t.Errorf("a frozen API server answers: %s", answer)
	}
	lab.Must(t, k.Thaw())
	call(t, k, 200, lab.KubeAdmin, "GET", services, "")
}

func expires(t *testing.T, k *lab.Kube) {
	var list struct {
		Metadata struct{ ResourceVersion string }
	}
	lab.Must(t, json.Unmarshal([]byte(call(t, k, 200, lab.KubeAdmin, "GET", services, "")), &list))
	makeService(t, k, "second")
	lab.Must(t, k.Compact(within(t)))
	lab.Must(t, k.Restart(within(t)))
	watch := services + "?watch=1&timeoutSeconds=5&resourceVersion=" + list.Metadata.ResourceVersion
	status, answer, err := k.Do(within(t), lab.KubeAdmin, "GET", watch, "")
	if err != nil || status != 410 && !strings.Contains(answer, `"code":410`) {
		t.Errorf("a watch from before the compaction: status %d, %s, %v, want 410 Gone", status, answer, err)
	}
}

func restores(t *testing.T, k *lab.Kube) {
	older, err := k.Snapshot(within(t))
	lab.Must(t, err)
	for round := range 2 {
		makeService(t, k, "later")
		call(t, k, 200, lab.KubeAdmin, "DELETE", services+"/first", "")
		lab.Must(t, k.Restore(within(t), older))
		call(t, k, 200, lab.KubeAdmin, "GET", services+"/first", "")
		call(t, k, 404, lab.KubeAdmin, "GET", services+"/later", "")
		t.Logf("round %d: as it was", round+1)
	}
}

// loads puts a thousand Services and their endpoints into etcd; watchers receive them, and the API
// server treats them as its own.
func loads(t *testing.T, k *lab.Kube) {
	const many = 1000
	objects := map[string]string{}
	for i := range many {
		meta := fmt.Sprintf(`"name": "many-%d", "namespace": "default", "uid": "00000000-0000-0000-0000-%012d", "creationTimestamp": "2026-01-01T00:00:00Z"`, i, i)
		ip := fmt.Sprintf("10.96.%d.%d", 100+i/250, i%250+1)
		objects[fmt.Sprintf("/registry/services/specs/default/many-%d", i)] = fmt.Sprintf(
			`{"kind": "Service", "apiVersion": "v1", "metadata": {%s}, "spec": {"clusterIP": %q, "clusterIPs": [%[2]q], "ipFamilies": ["IPv4"],
			"ipFamilyPolicy": "SingleStack", "ports": [{"port": 80, "protocol": "TCP"}]}}`, meta, ip)
		objects[fmt.Sprintf("/registry/endpointslices/default/many-%d", i)] = fmt.Sprintf(
			`{"kind": "EndpointSlice", "apiVersion": "discovery.k8s.io/v1", "addressType": "IPv4",
			"metadata": {%s, "labels": {"kubernetes.io/service-name": "many-%d"}}, "endpoints": [{"addresses": ["10.2.0.11"]}]}`, meta, i)
	}
	begin := time.Now()
	lab.Must(t, k.Load(within(t), objects))
	var heard int
	for heard < many {
		text := call(t, k, 200, lab.KubeAdmin, "GET", services, "")
		if heard = strings.Count(text, `"name":"many-`); time.Since(begin) > patience {
			t.Fatalf("%d of %d Services are listed", heard, many)
		}
	}
	t.Logf("%d objects within %v", len(objects), time.Since(begin).Round(time.Millisecond))
	// The API server creates none of these objects again. Its cache of IPAddresses may be behind that of
	// Services when it compares the two, so that it reports some: without them it reports all.
	if text := call(t, k, 200, lab.KubeAdmin, "GET", "/apis/networking.k8s.io/v1/ipaddresses/10.96.100.8", ""); !strings.Contains(text, `"name":"many-7"`) {
		t.Errorf("the IPAddress of a Service: %s", text)
	}
	if text := call(t, k, 200, lab.KubeAdmin, "GET", "/apis/events.k8s.io/v1/namespaces/default/events", ""); strings.Count(text, "NotAllocated") > many/4 {
		t.Errorf("Events: %.300s", text)
	}
	text := call(t, k, 200, lab.KubeAdmin, "GET", endpointSlices+"/many-7", "")
	if !strings.Contains(text, `"10.2.0.11"`) {
		t.Errorf("a slice: %s", text)
	}
	call(t, k, 200, lab.KubeAdmin, "PATCH", services+"/many-7", `{"spec": {"sessionAffinity": "ClientIP"}}`)
	call(t, k, 200, lab.KubeAdmin, "DELETE", services+"/many-7", "")
}

func TestKubeServiceCIDRs(t *testing.T) {
	site := lab.Start(t, lab.Site{Hosts: []lab.Host{{Name: "api", Nets: lab.Nets{"front": "10.1.0.5/24"}}}})
	k := site.Kube(t, "api", lab.KubeOptions{
		ServiceCIDRs: []netip.Prefix{netip.MustParsePrefix("fd12::/112"), netip.MustParsePrefix("172.30.0.0/16")}, NodePorts: "31000-31002",
	})
	if ips := makeService(t, k, "first"); !strings.HasPrefix(ips[0], "fd12::") || !strings.HasPrefix(ips[1], "172.30.") {
		t.Errorf("ClusterIPs %v", ips)
	}
	if text := call(t, k, 200, lab.KubeAdmin, "GET", services+"/first", ""); !strings.Contains(text, `"nodePort":3100`) {
		t.Errorf("no NodePort of the range: %s", text)
	}
	if _, err := lab.StartKube(within(t), site.Host("api"), lab.KubeOptions{}); err == nil || !strings.Contains(err.Error(), "address already in use") {
		t.Errorf("a second API on the host: %v, want an error", err)
	}
}

// TestPeersAreMissed asks a lab elsewhere for its peers.
func TestPeersAreMissed(t *testing.T) {
	t.Chdir(t.TempDir())
	if err := lab.CheckPeers(); err == nil || !strings.Contains(err.Error(), "run this in a folder of weir's source") {
		t.Errorf("outside of the source: %v", err)
	}
	if _, err := lab.Peer("kubectl"); err == nil || !strings.Contains(err.Error(), "want one of etcd, kube-apiserver, kube-proxy") {
		t.Errorf("a peer that is none: %v", err)
	}
}
