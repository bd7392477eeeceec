package e2e

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"weir/cmd/weirlab/lab"
)

// TestNodePortBackends has a box reach pods via their nodes, the web servers. Each of them answers at the node port, as
// the proxy of a node does.
func TestNodePortBackends(t *testing.T) {
	t.Parallel()
	s := newLand(t, 1, lab.KubeOptions{})
	s.serveAll(t, 30080)
	for _, name := range webs {
		serveEcho(t, s.Host(name), 30070)
	}
	for i, name := range webs {
		do(t, s.prod, "POST", "/api/v1/nodes", fmt.Sprintf(`{"metadata": {"name": %q}, "status": {
			"addresses": [{"type": "InternalIP", "address": "10.2.0.%d"}], "conditions": [{"type": "Ready", "status": "True"}]}}`, name, 11+i))
	}
	s.run(t, follows("backends = \"nodeports\"\nscheduler = \"wrr\"", "prod"))
	const vip, at = "192.0.2.80", "192.0.2.80:80"
	s.balance(t, s.prod, "shop", vip, "", "10.244.1.1", "10.244.1.2")
	do(t, s.prod, "PATCH", slicesPath+"/shop", `{"ports": [{"name": "http", "port": 8080}, {"name": "echo", "port": 7000}]}`)
	// If weir writes the status at the same moment, the API server repeats its transaction, and takes the ports of the
	// first attempt for those of another Service.
	eventually(t, 10*time.Second, func() error {
		status, answer, err := s.prod.Do(within(t, 30*time.Second), lab.KubeAdmin, "PATCH", servicesPath+"/shop", `{"spec": {"ports": [
			{"name": "http", "port": 80, "targetPort": 8080, "nodePort": 30080}, {"name": "echo", "port": 7000, "nodePort": 30070}]}}`)
		if err != nil || status/100 != 2 {
			return fmt.Errorf("set the node ports: status %d, %w\n%s", status, err, answer)
		}
		return nil
	})
	s.answers(t, at, webs...)

	// A node fails, and all do: more likely the control plane has lost its nodes.
	open := holdMany(t, 6, s.client1, vip+":7000")
	by := open[0].Server
	failed := slices.Index(webs, by)
	rest := slices.Delete(slices.Clone(webs), failed, failed+1)
	s.ready(t, by, "Unknown")
	s.answers(t, at, rest...)
	moves(t, open...)
	for _, name := range rest {
		s.ready(t, name, "False")
	}
	s.answers(t, at, webs...)
	for _, name := range webs {
		s.ready(t, name, "True")
	}
	s.answers(t, at, webs...)
	do(t, s.prod, "DELETE", "/api/v1/nodes/"+rest[0], "")
	s.answers(t, at, by, rest[1])

	// With the policy Local only nodes with endpoints, by their numbers.
	do(t, s.prod, "PATCH", servicesPath+"/shop", `{"spec": {"externalTrafficPolicy": "Local"}}`)
	s.onNodes(t, "shop", by, by, by, rest[1])
	s.answers(t, at, by, rest[1])
	eventually(t, 30*time.Second, func() error {
		met := map[string]int{}
		for range 8 {
			a, err := get(t.Context(), s.client1, at)
			if err != nil { // the policy comes before the endpoints
				return err
			}
			met[a.server]++
		}
		if met[by] != 6 || met[rest[1]] != 2 {
			return fmt.Errorf("three endpoints on %s and one on %s: 8 visits met %v", by, rest[1], met)
		}
		return nil
	})
	s.onNodes(t, "shop", rest[1])
	s.answers(t, at, rest[1])
}

// ready sets the condition of a node.
func (s *land) ready(t testing.TB, node, status string) {
	t.Helper()
	do(t, s.prod, "PATCH", "/api/v1/nodes/"+node+"/status", fmt.Sprintf(`{"status": {"conditions": [{"type": "Ready", "status": %q}]}}`, status))
}

// onNodes gives a Service an endpoint for each name of a node.
func (s *land) onNodes(t testing.TB, service string, nodes ...string) {
	t.Helper()
	var endpoints []string
	for i, n := range nodes {
		endpoints = append(endpoints, fmt.Sprintf(`{"addresses": ["10.244.1.%d"], "conditions": {"ready": true}, "nodeName": %q}`, 1+i, n))
	}
	do(t, s.prod, "PATCH", slicesPath+"/"+service, `{"endpoints": [`+strings.Join(endpoints, ", ")+`]}`)
}
