package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"weir/cmd/weirlab/lab"
)

// The addresses of Services on nodesSite.
const (
	nodesWeb   = "10.96.0.50" // everywhere
	nodesNear  = "10.96.0.51" // externalTrafficPolicy Local, on n1 and n2
	nodesInner = "10.96.0.52" // internalTrafficPolicy Local, on n1 and n2
	nodesVIP   = "192.0.2.50" // of near, routed to one node as a BGP peer would
	outsiderIP = "192.168.0.200"
)

// nodes are the three, each with its weir.
type nodes struct {
	*lab.Lab
	kube  *lab.Kube
	nodes [4]*site // from 1
}

func newNodes(t *testing.T) *nodes {
	t.Helper()
	must(t, lab.CheckPeers())
	s := &nodes{Lab: lab.Start(t, nodesSite())}
	s.kube = s.Kube(t, "api", lab.KubeOptions{})
	grant(t, s.kube)
	weir := lab.Build(t, "weir/cmd/weir")
	for n := 1; n <= 3; n++ {
		box := s.Box(fmt.Sprintf("n%d", n))
		must(t, s.kube.AddNode(within(t, 30*time.Second), box))
		greet(t, s.Host(fmt.Sprintf("P%d", n)), "tcp4", ":8080")
		must(t, box.WriteFile(within(t, 10*time.Second), "/etc/weir/kubeconfig", s.kube.Kubeconfig(lab.KubeWeir), 0o600))
		s.nodes[n] = &site{Lab: s.Lab, box: box, weir: weir}
	}
	return s
}

const nodesConfig = `[kernel]
sync_period = "2s"
cluster_cidrs = ["10.244.0.0/16"]
decapsulate_from = ["192.168.0.3"]
[[kubernetes]]
name = "prod"
kubeconfig = "kubeconfig"
node_name = "$HOSTNAME"
allow_annotations = ["forward"]
guard_threshold = "100%"
`

// serve makes a Service; slice has the hosts of its endpoints, "P1 P3".
func (s *nodes) serve(t testing.TB, name, spec, slice string) {
	t.Helper()
	do(t, s.kube, "POST", servicesPath, fmt.Sprintf(
		`{"apiVersion": "v1", "kind": "Service", "metadata": {"name": %q}, "spec": %s}`, name, spec))
	s.slice(t, "POST", "", name, slice)
}

func (s *nodes) slice(t testing.TB, method, path, name, where string) {
	t.Helper()
	var endpoints []any
	for p := range strings.FieldsSeq(where) {
		endpoints = append(endpoints, map[string]any{
			"addresses": []string{fmt.Sprintf("10.244.%s.2", p[1:])}, "nodeName": "n" + p[1:], "conditions": map[string]bool{"ready": true},
		})
	}
	text, err := json.Marshal(map[string]any{
		"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
		"metadata":  map[string]any{"name": name, "labels": map[string]string{"kubernetes.io/service-name": name}},
		"ports":     []any{map[string]any{"name": "http", "port": 8080, "protocol": "TCP"}},
		"endpoints": endpoints,
	})
	must(t, err)
	do(t, s.kube, method, slicesPath+path, string(text))
}

// want claims, within patience, which servers a visitor reaches, "P1 P2" or a fate, and as
// which of the given addresses all servers see him.
func (s *nodes) want(t testing.TB, v visitor, addr, who string, saw ...string) {
	t.Helper()
	eventually(t, retryTime, func() error {
		times := 1
		if strings.HasPrefix(who, "P") {
			times = 3*len(strings.Fields(who)) + 1
		}
		var met []string
		for _, one := range v(within(t, 30*time.Second), times, visitTime, "tcp", addr) {
			met = append(met, one.Server+string(one.End))
			if one.End == "" && !slices.Contains(saw, one.Saw) {
				return fmt.Errorf("%s: %s saw %s, want one of %v", addr, one.Server, one.Saw, saw)
			}
		}
		slices.Sort(met)
		if got := strings.Join(slices.Compact(met), " "); got != who {
			return fmt.Errorf("%s: %s, want %s", addr, got, who)
		}
		return nil
	})
}

func TestNodes(t *testing.T) {
	t.Parallel()
	s := newNodes(t)
	for n, config := range []string{1: nodesConfig, 2: iptablesNode, 3: nodesConfig} {
		if n > 0 {
			s.nodes[n].run(t, config)
		}
	}
	s.serve(t, "web", `{"type": "NodePort", "clusterIP": "`+nodesWeb+`", "ports": [{"name": "http", "port": 80, "targetPort": 8080, "nodePort": 30080}]}`, "P1 P2 P3")
	s.serve(t, "near", `{"type": "LoadBalancer", "externalTrafficPolicy": "Local", "healthCheckNodePort": 30032, "clusterIP": "`+nodesNear+`",
		"ports": [{"name": "http", "port": 80, "targetPort": 8080, "nodePort": 30081}]}`, "P1 P2")
	do(t, s.kube, http.MethodPatch, servicesPath+"/near/status", `{"status": {"loadBalancer": {"ingress": [{"ip": "`+nodesVIP+`"}]}}}`)
	s.serve(t, "inner", `{"internalTrafficPolicy": "Local", "clusterIP": "`+nodesInner+`", "ports": [{"name": "http", "port": 80, "targetPort": 8080}]}`, "P1 P2")
	chapters(t, s, []storyOn[*nodes]{
		{"ClusterIP", nodesClusterIP},
		{"NodePort of another node", nodesNodePort},
		{"externalTrafficPolicy Local", nodesExternalLocal},
		{"internalTrafficPolicy Local", nodesInternalLocal},
		{"tunnels from an edge box", nodesTunnels},
		{"a node loses its power", nodesPower},
	})
}

func (s *nodes) from(host string) visitor { return fromHost(s.Host(host), "") }

const (
	guest1 = "10.244.11.2"
	guest3 = "10.244.13.2"
)

// Pods see each other's addresses, wherever they are.
func nodesClusterIP(t *testing.T, s *nodes) {
	s.want(t, s.from("guest1"), nodesWeb+":80", "P1 P2 P3", guest1)
	s.want(t, s.from("guest3"), nodesWeb+":80", "P1 P2 P3", guest3)
	// A backend that meets itself sees its node.
	s.want(t, s.from("P2"), nodesWeb+":80", "P1 P2 P3", "10.244.2.2", "10.244.2.254")
	// A process of a node, before pods of its own and of others.
	s.want(t, fromNode(s.nodes[3], "", ""), nodesWeb+":80", "P1 P2 P3", "192.168.0.3", "10.244.3.254")
}

func nodesNodePort(t *testing.T, s *nodes) {
	for n := 1; n <= 3; n++ {
		at := fmt.Sprintf("192.168.0.%d:30080", n)
		seen := []string{fmt.Sprintf("192.168.0.%d", n), fmt.Sprintf("10.244.%d.254", n)}
		s.want(t, s.from("outside"), at, "P1 P2 P3", seen...)
		s.want(t, s.from("guest3"), at, "P1 P2 P3", seen...)
	}
}

func nodesExternalLocal(t *testing.T, s *nodes) {
	outside := s.Host("outside")
	for n, who := range []string{1: "P1", 2: "P2", 3: "dropped"} {
		if who == "" {
			continue
		}
		outside.Must(t, "ip", "route", "replace", nodesVIP, "via", fmt.Sprintf("192.168.0.%d", n))
		s.want(t, s.from("outside"), nodesVIP+":80", who, outsiderIP)
		s.want(t, s.from("outside"), fmt.Sprintf("192.168.0.%d:30081", n), who, outsiderIP)
		code := map[bool]string{true: "200", false: "503"}[who != "dropped"]
		eventually(t, 20*time.Second, func() error { // the port may open after the last change of the kernel
			if got := s.probes(t, n); got != code {
				return fmt.Errorf("the health of near on n%d is %s, want %s", n, got, code)
			}
			return nil
		})
	}
	s.probesPastAFirewall(t)
	// Pods reach all endpoints, from wherever they are.
	for _, at := range []string{nodesVIP + ":80", nodesNear + ":80"} {
		s.want(t, s.from("guest1"), at, "P1 P2", guest1)
		s.want(t, s.from("guest3"), at, "P1 P2", guest3)
	}
}

// probes asks a node for the health of near from outside, and returns the status of HTTP, "000" for none.
func (s *nodes) probes(t *testing.T, n int) string {
	t.Helper()
	return s.Host("outside").Must(t, "sh", "-c", fmt.Sprintf("curl -s -m 2 -o /dev/null -w '%%{http_code}' http://192.168.0.%d:30032/healthz || true", n))
}

// probesPastAFirewall has a table of nf_tables drop the health check port of a node: weir doctor names the
// chain, and the printed command opens it.
func (s *nodes) probesPastAFirewall(t *testing.T) {
	box := s.nodes[1].box
	box.Must(t, "nft", "add table inet fence; add chain inet fence guard { type filter hook input priority 0; }; add rule inet fence guard tcp dport 30032 drop")
	defer box.Must(t, "nft", "delete table inet fence")
	if got := s.probes(t, 1); got != "000" {
		t.Errorf("behind the firewall a probe gets %s", got)
	}
	s.nodes[1].repair(t, s.nodes[1].doctor(t), fault{check: "nftables", names: "chain guard of nf_tables table inet fence drops probes of healthCheckNodePort 30032: rule 1"})
	eventually(t, 20*time.Second, func() error { // an answer may be late
		if got := s.probes(t, 1); got != "200" {
			return fmt.Errorf("after the command of weir doctor a probe gets %s", got)
		}
		return nil
	})
}

func nodesInternalLocal(t *testing.T, s *nodes) {
	s.want(t, s.from("guest1"), nodesInner+":80", "P1", guest1)
	s.want(t, s.from("guest2"), nodesInner+":80", "P2", "10.244.12.2")
	s.want(t, s.from("guest3"), nodesInner+":80", "dropped")
}

// The others go on as soon as a controller has taken the node's pods out, and the
// node itself when it is back.
func nodesPower(t *testing.T, s *nodes) {
	s.nodes[2].box.PowerCut()
	s.slice(t, "PUT", "/web", "web", "P1 P3")
	s.slice(t, "PUT", "/near", "near", "P1")
	begin := time.Now()
	s.want(t, s.from("guest1"), nodesWeb+":80", "P1 P3", guest1)
	s.want(t, s.from("guest3"), nodesWeb+":80", "P1 P3", guest3)
	figure(t, "a node has lost its power: all others avoid its pods, after its slices say so", time.Since(begin))
	s.want(t, s.from("guest3"), nodesVIP+":80", "P1", guest3)
	s.want(t, s.from("outside"), "192.168.0.1:30080", "P1 P3", "192.168.0.1", "10.244.1.254")
	begin = time.Now()
	must(t, s.nodes[2].box.Boot(within(t, 2*time.Minute)))
	s.nodes[2].start(t)
	figure(t, "and serves again, after it has got it back", time.Since(begin))
	s.want(t, s.from("guest2"), nodesWeb+":80", "P1 P3", "10.244.12.2")
	s.slice(t, "PUT", "/web", "web", "P1 P2 P3")
	s.want(t, s.from("guest3"), nodesWeb+":80", "P1 P2 P3", guest3)
	s.want(t, s.from("outside"), "192.168.0.2:30080", "P1 P2 P3", "192.168.0.2", "10.244.2.254")
}
