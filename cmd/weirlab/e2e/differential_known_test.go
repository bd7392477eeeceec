package e2e

import (
	"os"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// difference is a row of the table "Differences from kube-proxy" of kubernetes.md, named by its case.
type difference struct {
	situation string
	netfilter bool // the case occurs only in weir's mode netfilter
	// covers reports whether the row explains that weir's result differs from that of a mode of
	// kube-proxy. Nil is a row about a case that the differential test does not probe.
	covers func(p probe, weir, iptables, nftables probed) bool
}

// knownDifferences are all rows of the table, in its order.
var knownDifferences = []difference{
	{
		situation: "the node connects to a LoadBalancer or external address of a Service without endpoints",
		covers: func(p probe, weir, iptables, nftables probed) bool {
			return p.from == itself && slices.Contains([]string{"LoadBalancer", "ExternalIP"}, p.target().kind) &&
				weir.only(refused) && iptables.only(silence) && nftables.only(refused)
		},
	},
	{
		situation: "the same with source ranges that admit the node, and `mode = \"netfilter\"`",
		netfilter: true,
		covers: func(p probe, weir, iptables, nftables probed) bool {
			return p.from == itself && p.target().kind == "LoadBalancer" && len(p.service.spec().LoadBalancerSourceRanges) > 0 &&
				weir.only(silence) && iptables.only(silence) && nftables.only(refused)
		},
	},
	{
		situation: "a client outside the source ranges connects to a Service without endpoints",
		covers: func(p probe, weir, iptables, nftables probed) bool {
			return p.target().kind == "LoadBalancer" && len(p.service.spec().LoadBalancerSourceRanges) > 0 &&
				weir.only(silence) && iptables.only(refused) && nftables.only(silence)
		},
	},
	{
		situation: "`externalTrafficPolicy: Local` without an endpoint on the node: the node port of an address outside `node_port_addresses`",
		covers: func(p probe, weir, iptables, nftables probed) bool {
			return p.target().kind == otherNodePort && p.service.spec().ExternalTrafficPolicy == corev1.ServiceExternalTrafficPolicyLocal &&
				weir.only(refused) && iptables.only(silence) && nftables.only(refused)
		},
	},
	{situation: "the source ranges are all of one family: the LoadBalancer addresses of the other"},
	{situation: "the annotation `service.beta.kubernetes.io/load-balancer-source-ranges`, without `spec.loadBalancerSourceRanges`"},
	{situation: "the node connects to a LoadBalancer address with source ranges"},
	{situation: "another port of a VIP"},
	{situation: "ping of a VIP"},
	{situation: "node port on a loopback address"},
	{situation: "node ports without `node_port_addresses`"},
	{situation: "`spec.externalIPs`"},
	{situation: "a VIP that is an address of a node, a pod or an API server, or a ClusterIP of another Service"},
	{situation: "an endpoint that is a VIP, a configured router, an API server, in `fleet.join`, or in `pod_cidrs` or `service_cidrs` of another cluster"},
	{situation: "two Services with one address, port and protocol"},
	{situation: "an EndpointSlice that a deleted Service of the same name owns"},
	{situation: "choice of the endpoint"},
	{situation: "affinity timeout"},
	{situation: "affinity, `externalTrafficPolicy: Local` and several target ports"},
	{situation: "connection to a removed endpoint (TCP)"},
	{situation: "two connections at once from one address and source port, to two VIPs with a common endpoint, with `rules = \"iptables\"`"},
	{situation: "idle TCP connection"},
	{situation: "start while the API server is unreachable"},
	{situation: "the cluster removes most of its objects at once"},
}

// knownDifference returns the row that explains a difference, nil if there is none.
func knownDifference(p probe, weir, iptables, nftables engineResults) *difference {
	for i, d := range knownDifferences {
		if (!d.netfilter || slices.Contains([]string{iptablesMode, netfilterMode}, weir.engine)) && d.covers != nil && d.covers(p, weir.of[p], iptables.of[p], nftables.of[p]) {
			return &knownDifferences[i]
		}
	}
	return nil
}

// The list of the test and the table of the manual have the same cases, each with a reason.
func TestKnownDifferencesAreDocumented(t *testing.T) {
	text, err := os.ReadFile("../../../packaging/doc/kubernetes.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, there := strings.Cut(string(text), "\n## Differences from kube-proxy\n")
	if !there {
		t.Fatal("kubernetes.md has no section about differences from kube-proxy")
	}
	section, _, _ = strings.Cut(section, "\n## ")
	var cases []string
	for line := range strings.Lines(section) {
		cells := strings.Split(strings.TrimSpace(line), " | ")
		if !strings.HasPrefix(line, "| ") || strings.Contains(line, "---") {
			continue
		}
		if len(cells) != 4 || strings.Trim(cells[3], "| ") == "" {
			t.Errorf("want a case, weir, kube-proxy and a reason: %s", line)
		}
		cases = append(cases, strings.TrimPrefix(cells[0], "| "))
	}
	want := []string{"case"}
	for _, d := range knownDifferences {
		want = append(want, d.situation)
	}
	if !slices.Equal(cases, want) {
		t.Errorf("the manual has the cases\n  %s\nand the test\n  %s", strings.Join(cases, "\n  "), strings.Join(want, "\n  "))
	}
}
