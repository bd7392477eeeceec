package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"weir/cmd/weirlab/lab"
)

// land is the plain site with one cluster or two, prod and stage.
type land struct {
	*site
	prod, stage *lab.Kube
	files       []string // of its account's rights; all if empty
}

// now is by the box's clock, as in an annotation. That of user-mode Linux falls
// behind the host's: what happens there now is in the box's future.
func (s *land) now(t testing.TB) string {
	t.Helper()
	return strings.TrimSpace(s.box.Must(t, "date", "-u", "+%Y-%m-%dT%H:%M:%S.%NZ"))
}

// newLand boots the plain site with so many clusters, in which weir has the rights of files of
// rbacFolder and no others; those of all if none is named.
func newLand(t *testing.T, clusters int, o lab.KubeOptions, files ...string) *land {
	t.Helper()
	must(t, lab.CheckPeers())
	s := &land{site: openSite(t, kubeSite(clusters)), files: files}
	s.join(t, clusters, o, s.box)
	return s
}

// join starts the clusters, and gives boxes credentials of weir's for each.
func (s *land) join(t testing.TB, clusters int, o lab.KubeOptions, boxes ...*lab.Machine) {
	t.Helper()
	for i, name := range []string{"prod", "stage"}[:clusters] {
		k := s.Kube(t, kubes[i], o)
		grant(t, k, s.files...)
		*[]**lab.Kube{&s.prod, &s.stage}[i] = k
		for _, box := range boxes {
			must(t, box.WriteFile(within(t, 10*time.Second), "/etc/weir/"+name+".kubeconfig", k.Kubeconfig(lab.KubeWeir), 0o600))
		}
	}
}

// follows is the configuration for clusters, with the same in all of them. Their pods are
// the web servers, which are in no pod CIDR of a Node. The tests assign the addresses of Services.
func follows(extra string, clusters ...string) string {
	var b strings.Builder
	if !strings.Contains(extra, "pod_cidrs") && !strings.Contains(extra, "node_name") && !strings.Contains(extra, "nodeports") {
		extra = "endpoint_ranges = [\"10.2.0.0/16\", \"fd02::/16\"]\n" + extra
	}
	if !strings.Contains(extra, "load_balancer_ranges") && !strings.Contains(extra, "node_name") && !strings.Contains(extra, `serve = ["ClusterIP"]`) {
		extra = "load_balancer_ranges = [\"192.0.2.0/24\", \"198.51.100.0/24\", \"2001:db8:2::/64\"]\n" + extra
	}
	for _, name := range clusters {
		fmt.Fprintf(&b, "[[kubernetes]]\nname = %q\nkubeconfig = %q\n%s\n", name, name+".kubeconfig", extra)
	}
	return b.String()
}

// do is a request that must succeed.
func do(t testing.TB, k *lab.Kube, method, path, body string) {
	t.Helper()
	_, err := k.Ask(within(t, 30*time.Second), method, path, body)
	must(t, err)
}

const (
	servicesPath = "/api/v1/namespaces/default/services"
	slicesPath   = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices"
)

// balance makes a Service with a LoadBalancer address and the given backends; more
// is more of its spec.
func (s *land) balance(t testing.TB, k *lab.Kube, name, vip, more string, backends ...string) {
	t.Helper()
	do(t, k, "POST", servicesPath, fmt.Sprintf(`{"apiVersion": "v1", "kind": "Service", "metadata": {"name": %q},
		"spec": {"type": "LoadBalancer", "ports": [{"name": "http", "port": 80, "targetPort": 8080}]%s}}`, name, more))
	s.sliceOf(t, k, "POST", "", name, backends...)
	do(t, k, "PATCH", servicesPath+"/"+name+"/status", fmt.Sprintf(`{"status": {"loadBalancer": {"ingress": [{"ip": %q}]}}}`, vip))
}

// sliceOf makes (POST to "") or replaces (PUT to "/name") the slice of a Service.
func (s *land) sliceOf(t testing.TB, k *lab.Kube, method, path, name string, backends ...string) {
	t.Helper()
	list := []map[string]any{}
	for _, b := range backends {
		list = append(list, map[string]any{"addresses": []string{b}, "conditions": map[string]bool{"ready": true}, "nodeName": "elsewhere"})
	}
	text, err := json.Marshal(map[string]any{
		"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
		"metadata": map[string]any{
			"name": name, "labels": map[string]string{"kubernetes.io/service-name": name},
			"annotations": map[string]string{"endpoints.kubernetes.io/last-change-trigger-time": s.now(t)},
		},
		"ports":     []any{map[string]any{"name": "http", "port": 8080, "protocol": "TCP"}},
		"endpoints": list,
	})
	must(t, err)
	do(t, k, method, slicesPath+path, string(text))
}

// forget removes Services and their slices.
func forget(t testing.TB, k *lab.Kube, names ...string) {
	t.Helper()
	for _, name := range names {
		do(t, k, http.MethodDelete, slicesPath+"/"+name, "")
		do(t, k, http.MethodDelete, servicesPath+"/"+name, "")
	}
}

// answers waits until each of the given servers answers on a VIP, and no other.
func (s *land) answers(t testing.TB, addr string, want ...string) time.Duration {
	t.Helper()
	return eventually(t, 30*time.Second, func() error {
		got := map[string]bool{}
		for range 2 * len(webs) {
			ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
			a, err := get(ctx, s.client1, addr)
			cancel()
			if err != nil {
				return err
			}
			got[a.server] = true
		}
		if len(got) != len(want) || slices.ContainsFunc(want, func(w string) bool { return !got[w] }) {
			return fmt.Errorf("%v answer on %s, want %v", got, addr, want)
		}
		return nil
	})
}

// silent waits until no server answers on a VIP.
func (s *land) silent(t testing.TB, addr string) {
	t.Helper()
	eventually(t, 30*time.Second, func() error {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if a, err := get(ctx, s.client1, addr); err == nil {
			return fmt.Errorf("%s answers on %s", a.server, addr)
		}
		return nil
	})
}

// statusDoc is the part of weir status that these tests read.
type statusDoc struct {
	State    string                  `json:"state"`
	Problems []struct{ Text string } `json:"problems"`
	Kernel   struct {
		Mode     string `json:"mode"`
		Fallback bool   `json:"fallback"`
		Rules    string `json:"rules"`
	} `json:"kernel"`
	Clusters []struct {
		Name     string `json:"name"`
		State    string `json:"state"`
		Stale    bool   `json:"stale"`
		Services int    `json:"services"`
		Error    string `json:"error"`
	} `json:"clusters"`
	Guarded []struct {
		Source   string `json:"source"`
		Services int    `json:"services"`
	} `json:"guarded"`
	Notes []statusNote `json:"notes"`
}

type statusNote struct {
	Service string `json:"service"`
	Reason  string `json:"reason"`
}

func (s *land) status(t testing.TB) (doc statusDoc) {
	t.Helper()
	s.weirJSON(t, &doc, "status")
	return doc
}

// retryTime is longer than weir waits before it asks an API server again that has not answered: up to 30 s, with
// jitter. eventTime is so for an Event that an API server did not take: a minute.
const (
	retryTime = time.Minute
	eventTime = 90 * time.Second
)

// statusIs waits until weir status shows what ok wants.
func (s *land) statusIs(t testing.TB, what string, ok func(statusDoc) bool) {
	t.Helper()
	eventually(t, retryTime, func() error {
		if doc := s.status(t); !ok(doc) {
			return fmt.Errorf("%s: weir status says %+v", what, doc)
		}
		return nil
	})
}

func cluster(doc statusDoc, name, state string) bool {
	for _, c := range doc.Clusters {
		if c.Name == name {
			return c.State == state
		}
	}
	return false
}

// kubeconfig puts a user's kubeconfig on the box, for the cluster of that name.
func (s *land) kubeconfig(t testing.TB, name, user string) {
	t.Helper()
	must(t, s.box.WriteFile(within(t, 10*time.Second), "/etc/weir/"+name+".kubeconfig", s.prod.Kubeconfig(user), 0o600))
}

// restartWeir ends weir in order and starts it again; the kernel serves meanwhile.
func (s *land) restartWeir(t testing.TB) {
	t.Helper()
	s.stop(t, syscall.SIGTERM)
	s.start(t)
}
