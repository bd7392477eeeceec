package e2e

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"weir/cmd/weirlab/internal/traffic"
	"weir/cmd/weirlab/lab"
)

const nodesTunnel = "192.0.2.51" // of tunnelled, on the edge box and on the nodes

// iptablesNode is the configuration of a node with iptables.
var iptablesNode = strings.Replace(nodesConfig, "[kernel]\n", "[kernel]\nrules = \"iptables\"\n", 1)

// edgeConfig makes a box an edge box of the cluster. It has routes to the pods.
const edgeConfig = `[kernel]
sync_period = "2s"
[[kubernetes]]
name = "prod"
kubeconfig = "kubeconfig"
load_balancer_ranges = ["192.0.2.0/24"]
endpoint_ranges = ["10.244.0.0/16"]
allow_annotations = ["forward"]
guard_threshold = "100%"
`

// nodesTunnels makes n3 an edge box, which sends packets through tunnels to the other nodes.
func nodesTunnels(t *testing.T, s *nodes) {
	edge, outside := s.nodes[3], s.Host("outside")
	edge.reload(t, edgeConfig)
	defer edge.reload(t, nodesConfig)
	do(t, s.kube, "POST", servicesPath, `{"apiVersion": "v1", "kind": "Service", "metadata": {"name": "tunnelled", "annotations": {"weir/forward": "tunnel"}},
		"spec": {"type": "LoadBalancer", "externalTrafficPolicy": "Local", "ports": [{"name": "http", "port": 80, "targetPort": 8080}]}}`)
	defer forget(t, s.kube, "tunnelled")
	s.slice(t, "POST", "", "tunnelled", "P1 P2")
	do(t, s.kube, http.MethodPatch, servicesPath+"/tunnelled/status", `{"status": {"loadBalancer": {"ingress": [{"ip": "`+nodesTunnel+`"}]}}}`)
	outside.Must(t, "ip", "route", "replace", nodesTunnel, "via", "192.168.0.3")
	const at = nodesTunnel + ":80"
	s.want(t, s.from("outside"), at, "P1 P2", outsiderIP)
	if out := edge.box.Must(t, edge.weir, "explain", at, "--from", outsiderIP); strings.Count(out, "in use, weight 1, by tunnel ipip") != 2 {
		t.Errorf("explain:\n%s", out)
	}

	// The edge box gets the packets of clients, and no reply.
	edge.box.Must(t, "sh", "-ec", "iptables -t raw -A PREROUTING -d "+nodesTunnel+"; iptables -t raw -A PREROUTING -s "+nodesTunnel+"; iptables -t raw -A PREROUTING -s 10.244.0.0/16 -d "+outsiderIP)
	c, first := stay(t, outside, at)
	upload(t, c)
	requests, replies := 0, 0
	for line := range strings.Lines(edge.box.Must(t, "iptables", "-t", "raw", "-nvxL", "PREROUTING")) {
		var packets, bytes int
		if _, err := fmt.Sscan(line, &packets, &bytes); err == nil && strings.Fields(line)[len(strings.Fields(line))-1] == nodesTunnel {
			requests += packets
		} else if err == nil {
			replies += packets
		}
	}
	if requests < 20 || replies != 0 {
		t.Errorf("after an upload to %s the edge box has %d packets of the client and %d replies", first.server, requests, replies)
	}
	edge.box.Must(t, "iptables", "-t", "raw", "-F")

	s.tunnelsReachVIPsOnly(t)
	s.uploadsFitTunnels(t, at)
	s.tunnelMoves(t, at)

	// Another program removes the device, or lets it forward.
	for _, damage := range []string{"ip link del weir-c0a80003", "sysctl -qw net.ipv4.conf.weir-c0a80003.forwarding=1"} {
		s.nodes[2].box.Must(t, "sh", "-ec", damage)
		eventually(t, 20*time.Second, func() error {
			if out, err := s.nodes[2].box.Run(t.Context(), "sysctl", "-n", "net.ipv4.conf.weir-c0a80003.forwarding"); err != nil || out.Stdout != "0\n" {
				return fmt.Errorf("after %s: %v %s", damage, err, out.Stdout)
			}
			return nil
		})
	}
	s.want(t, s.from("outside"), at, "P2", outsiderIP)

	// A node without the key has no device, and reports the reason.
	s.nodes[1].reload(t, strings.Replace(nodesConfig, "decapsulate_from", "#", 1))
	eventually(t, 20*time.Second, func() error {
		out := s.nodes[1].box.Must(t, s.nodes[1].weir, "explain", at, "--from", outsiderIP)
		if links := s.nodes[1].box.Must(t, "ip", "-br", "link"); strings.Contains(links, "weir-") || !strings.Contains(out, "this node decapsulates no packets of edge boxes") {
			return fmt.Errorf("without decapsulate_from:\n%s\n%s", links, out)
		}
		return nil
	})
	s.nodes[1].reload(t, nodesConfig)

	// With the policy Cluster the edge box uses the pods themselves, and reports the reason.
	do(t, s.kube, http.MethodPatch, servicesPath+"/tunnelled", `{"spec": {"externalTrafficPolicy": "Cluster"}}`)
	s.want(t, s.from("outside"), at, "P2", "192.168.0.3")
	const reason = "weir/forward tunnel: with externalTrafficPolicy Cluster"
	if out := edge.box.Must(t, edge.weir, "explain", at, "--from", outsiderIP); !strings.Contains(out, reason) {
		t.Errorf("explain with the policy Cluster:\n%s", out)
	}
	eventually(t, eventTime, func() error {
		status, text, err := s.kube.Do(within(t, 30*time.Second), lab.KubeAdmin, http.MethodGet, "/api/v1/namespaces/default/events", "")
		if err != nil || status != http.StatusOK || !strings.Contains(text, reason) {
			return fmt.Errorf("no Event is written: %d, %v\n%s", status, err, text)
		}
		return nil
	})
}

// tunnelMoves moves the endpoint from one node to the other under load, as a rollout does: a new
// one is ready before the old one ends.
func (s *nodes) tunnelMoves(t *testing.T, at string) {
	t.Helper()
	outside := s.Host("outside")
	s.slice(t, "PUT", "/tunnelled", "tunnelled", "P1")
	s.want(t, s.from("outside"), at, "P1", outsiderIP)
	load := startLoad(t, outside, traffic.Options{Ask: visiting(outside, "tcp"), Patience: holdPatience}, at)
	c, _ := stay(t, outside, at)
	load.more(t, 20)
	s.slice(t, "PUT", "/tunnelled", "tunnelled", "P1 P2")
	load.more(t, 20)
	do(t, s.kube, http.MethodPatch, slicesPath+"/tunnelled", `{"endpoints": [
		{"addresses": ["10.244.1.2"], "nodeName": "n1", "conditions": {"ready": false, "serving": true, "terminating": true}},
		{"addresses": ["10.244.2.2"], "nodeName": "n2", "conditions": {"ready": true}}]}`)
	s.want(t, s.from("outside"), at, "P2", outsiderIP)
	upload(t, c) // the old one still serves
	s.slice(t, "PUT", "/tunnelled", "tunnelled", "P2")
	load.more(t, 50)
	mustHaveLostNothing(t, load)
	s.want(t, s.from("outside"), at, "P2", outsiderIP)
}

// uploadsFitTunnels uploads over a path with a small MTU from a client that gets no ICMP errors. The nodes
// answer for the edge box, so they lower the MSS. With pmtu_disc = 0 the edge box would fragment.
func (s *nodes) uploadsFitTunnels(t *testing.T, at string) {
	t.Helper()
	edge, outside := s.nodes[3].box, s.Host("outside")
	small := func(config string) string {
		return strings.Replace(config, "decapsulate_from", "decapsulate_mtu = 1400\ndecapsulate_from", 1)
	}
	s.nodes[1].reload(t, small(nodesConfig))
	s.nodes[2].reload(t, small(iptablesNode))
	outside.Must(t, "sh", "-ec", "ethtool -K lan tso off gso off; iptables -A INPUT -p icmp --icmp-type fragmentation-needed -j DROP")
	edge.Must(t, "sh", "-ec", "for n in 1 2; do ip route add 192.168.0.$n dev lan mtu 1400; done")
	defer edge.Must(t, "sh", "-ec", "for n in 1 2; do ip route del 192.168.0.$n dev lan mtu 1400; done; sysctl -qw net.ipv4.vs.pmtu_disc=1")
	defer outside.Must(t, "sh", "-ec", "ethtool -K lan tso on gso on; iptables -F INPUT")
	fragments := func() (n int) {
		t.Helper()
		lines := linesWith(edge.Must(t, "cat", "/proc/net/snmp"), "Ip: ")
		names, values := strings.Fields(lines[0]), strings.Fields(lines[1])
		if _, err := fmt.Sscan(values[slices.Index(names, "FragCreates")], &n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	for _, discovery := range []string{"1", "0"} {
		edge.Must(t, "sysctl", "-qw", "net.ipv4.vs.pmtu_disc="+discovery)
		before, seen := fragments(), map[string]bool{}
		for range 4 { // both nodes: with nftables and with iptables
			c, a := stay(t, outside, at)
			seen[a.server] = true
			upload(t, c)
			if mss := outside.Must(t, "ss", "-tinH", "dst", nodesTunnel); !strings.Contains(mss, "mss:1328") {
				t.Errorf("pmtu_disc %s: the client's segments to %s:\n%s", discovery, a.server, mss) // 12 bytes less, for the timestamps
			}
			c.Close()
		}
		if n := fragments() - before; n > 0 || len(seen) != 2 {
			t.Errorf("pmtu_disc %s: uploads to %v in %d fragments", discovery, seen, n)
		}
	}
	s.nodes[1].reload(t, nodesConfig)
	s.nodes[2].reload(t, iptablesNode)
}

// tunnelsReachVIPsOnly has the edge box send packets through a tunnel to an address of the node and to a ClusterIP.
// They reach the device and nothing behind it.
func (s *nodes) tunnelsReachVIPsOnly(t *testing.T) {
	t.Helper()
	for n := 1; n <= 2; n++ { // with nftables and with iptables
		s.tunnelReachesVIPsOnly(t, n)
	}
}

func (s *nodes) tunnelReachesVIPsOnly(t *testing.T, n int) {
	t.Helper()
	edge, node, own := s.nodes[3].box, s.nodes[n].box, fmt.Sprintf("10.244.%d.254", n)
	edge.Must(t, "sh", "-ec", fmt.Sprintf("ip link add probe type ipip local 192.168.0.3 remote 192.168.0.%d; ip link set probe up; "+
		"ip route add %s dev probe src 192.168.0.3; ip route add %s dev probe src 192.168.0.3", n, own, nodesWeb))
	defer edge.Must(t, "ip", "link", "del", "probe")
	arrived := func() (n int) {
		t.Helper()
		if _, err := fmt.Sscan(node.Must(t, "cat", "/sys/class/net/weir-c0a80003/statistics/rx_packets"), &n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	for _, at := range []string{own + ":99", nodesWeb + ":80"} {
		before := arrived()
		s.want(t, fromNode(s.nodes[3], "", ""), at, "dropped")
		if arrived() == before {
			t.Errorf("%s: no packet reaches the tunnel device", at)
		}
	}
}
