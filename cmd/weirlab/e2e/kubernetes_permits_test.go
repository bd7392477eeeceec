package e2e

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"weir/cmd/weirlab/internal/traffic"
)

// clusterPermits is a box without permitted ranges: it serves nothing. weir doctor prints the
// missing lines, and with them it serves.
func clusterPermits(t *testing.T, s *land) {
	config := "[[kubernetes]]\nname = \"prod\"\nkubeconfig = \"prod.kubeconfig\"\n"
	s.balance(t, s.prod, "web", vip4, "", "10.2.0.11")
	defer forget(t, s.prod, "web")
	s.run(t, config)
	var found []finding
	eventually(t, 30*time.Second, func() error {
		found = s.doctor(t)
		if lines := missingLines(found); len(lines) != 2 {
			return fmt.Errorf("weir doctor prints %q: %+v", lines, found)
		}
		return nil
	})
	s.repair(t, found, []fault{
		{check: "cluster-ranges", names: "no endpoint is used, because its Nodes have no pod CIDRs"},
		{check: "cluster-ranges", names: "LoadBalancer addresses of another controller are not served"},
	}...)
	s.silent(t, vip4+":80")
	config += strings.Join(missingLines(found), "\n") + "\n"
	s.reload(t, config)
	s.answers(t, vip4+":80", "web1")

	s.reload(t, config+"require_pod_backed = true\n")
	eventually(t, 30*time.Second, func() error {
		if got := fate(t.Context(), s.client1, "tcp", vip4+":80"); got != traffic.Refused {
			return fmt.Errorf("an endpoint without a reference to a Pod: %v", got)
		}
		return nil
	})
	do(t, s.prod, "PATCH", slicesPath+"/web", `{"endpoints": [{"addresses": ["10.2.0.13"], "conditions": {"ready": true}},
		{"addresses": ["10.2.0.12"], "conditions": {"ready": true}, "targetRef": {"kind": "Pod", "namespace": "default", "name": "web-2"}}]}`)
	s.answers(t, vip4+":80", "web2")
	const note = `endpoint 10.2.0.13 of EndpointSlice web is not used: its targetRef is no Pod of namespace "default"`
	if out := s.box.Must(t, s.weir, "explain", vip4+":80"); !strings.Contains(out, note) {
		t.Errorf("explain:\n%s", out)
	}
	eventually(t, eventTime, func() error {
		if n := s.metric(t, `weir_kubernetes_events_total{cluster="prod"}`); n < 1 {
			return fmt.Errorf("no Event is written")
		}
		return nil
	})
}

// missingLines are the lines that weir doctor prints for the configuration.
func missingLines(found []finding) (out []string) {
	for _, x := range found {
		if line := regexp.MustCompile(`[a-z_]+_ranges = \[.*\]$`).FindString(x.Fix); x.ID == "cluster-ranges" && line != "" {
			out = append(out, line)
		}
	}
	return out
}
