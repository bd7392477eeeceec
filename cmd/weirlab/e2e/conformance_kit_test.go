package e2e

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"weir/cmd/weirlab/lab"
)

// Conformance: what Kubernetes means by a Service, as claims about packets. Each
// check states Services and EndpointSlices, which go through a real API server, and
// who then reaches what:
//
//	k.given(kubeService("web", clusterIP("172.30.0.41"), port("80/tcp")), kubeEndpoints("web", "R1 L1"))
//	k.want(pod, "tcp 172.30.0.41:80", "L1 R1 keep")
//
// Outcomes are "refused", "dropped", "refused or dropped", or the names of all backends that answer
// and whether they see the client's address ("keep") or one of the node's ("masq").
//
// The checks are numbered for good, so that one can speak of them. They are put to
// each engine in turn, in the same kernel: weir with IPVS, weir with iptables, and,
// where somebody asks for the comparison, kube-proxy in IPVS mode.

// The node and who is around it:
//
//	pod 10.0.0.2 ---------- podnet --\          /-- lan 192.168.0.2 --- neighbour 192.168.0.9
//	L1..L4 10.180.2.1..4 -- pods -----  node  ----- alt 192.168.1.2
//	R1..R5 10.180.0.1..5 -- remote --/          \-- ext --- outside 203.0.113.2, blocked 203.0.113.130
//
// L are pods on the node, R pods on other nodes, S1 and S2 one of each that speak SCTP; 10.0.0.0/8 is the cluster's. IPv6
// has the same last numbers.
const (
	nodeName   = "node"
	nodeZone   = "zone-a"
	nodeAddr   = "192.168.0.2"
	altAddr    = "192.168.1.2"
	podCIDR    = "10.0.0.0/8"
	podCIDR6   = "fd00:10::/32"
	nodeAddr6  = "fd00:192:168::2"
	podAddr    = "10.0.0.2"
	outsider   = "203.0.113.2"
	blockedOne = "203.0.113.130"
)

// conformanceSite is the node and its surroundings, and an API server.
func conformanceSite() lab.Site {
	local := lab.Host{Name: "local", Nets: lab.Nets{"pods": addresses("10.180.2.%d/24 fd00:10:180:2::%d/64", 4)},
		Routes: []string{"default via 10.180.2.254", "default via fd00:10:180:2::fe"}}
	remote := lab.Host{Name: "remote", Nets: lab.Nets{"remote": addresses("10.180.0.%d/24 fd00:10:180::%d/64", 5)},
		Routes: []string{"default via 10.180.0.254", "default via fd00:10:180::fe"}}
	out := func(name, v4, v6 string) lab.Host {
		return lab.Host{Name: name, Nets: lab.Nets{"ext": v4 + "/24 " + v6 + "/64"},
			Routes: []string{"default via 203.0.113.1", "default via 2001:db8:e::1"}}
	}
	return lab.Site{
		Hosts: []lab.Host{
			local, remote,
			{Name: "pod", Nets: lab.Nets{"podnet": podAddr + "/24 fd00:10::2/64"}, Routes: []string{"default via 10.0.0.254", "default via fd00:10::fe"}},
			out("outside", outsider, "2001:db8:e::2"), out("blocked", blockedOne, "2001:db8:e::130"),
			{Name: "api", Nets: lab.Nets{"mgmt": "192.168.99.2/24"}},
		},
		Boxes: []lab.Box{{Name: "node", Forward: true, Nets: lab.Nets{
			"lan": nodeAddr + "/24 " + nodeAddr6 + "/64", "alt": altAddr + "/24 fd00:192:169::2/64", "ext": "203.0.113.1/24 2001:db8:e::1/64",
			"pods": "10.180.2.254/24 fd00:10:180:2::fe/64", "remote": "10.180.0.254/24 fd00:10:180::fe/64",
			"podnet": "10.0.0.254/24 fd00:10::fe/64", "mgmt": "192.168.99.1/24",
		}}},
	}
}

// addresses gives n pairs of addresses, numbered from 1.
func addresses(format string, n int) string {
	var out []string
	for i := range n {
		out = append(out, fmt.Sprintf(format, i+1, i+1))
	}
	return strings.Join(out, " ")
}

// client is somebody who visits.
type client string

// The clients of the checks.
const (
	pod     client = "pod"     // a pod without a Service, on this node
	itself  client = "node"    // a process of the node
	outside client = "outside" // beyond the cluster, in the source ranges
	blocked client = "blocked" // beyond the cluster, not in them
	// The same, of those that speak SCTP.
	sctpPod     client = "sctppod"
	sctpOutside client = "sctpoutside"
)

// claim is one numbered check.
type claim struct {
	number int
	name   string
	// options are how the node is set up; nil is as usual.
	options *options
	// lacks says why the check can't be put to an engine.
	lacks map[string]string
	run   func(k *kit)
}

// options are what an engine is configured with, beside the API server.
type options struct {
	masqueradeAll     bool
	noDetector        bool // nobody is known to be inside
	nodePortAddresses []string
	scheduler         string
	excludeCIDRs      []string
	noZone            bool
}

// engine serves the node as a Kubernetes service proxy.
type engine interface {
	name() string
	// patience is how long it has to bring about what the API says. User-mode Linux
	// is slow, and kube-proxy does much for one change.
	patience() time.Duration
	// start serves with these options, and stop leaves a kernel as it was before.
	start(t testing.TB, o options)
	stop(t testing.TB)
	// restart stops without cleaning up and starts again.
	restart(t testing.TB)
}

// kit puts one check to one engine. What it finds wrong is collected, not fatal:
// the table tells it.
type kit struct {
	t      testing.TB
	c      *conformance
	engine engine
	faults []string
}

func (k *kit) fault(format string, args ...any) {
	k.faults = append(k.faults, fmt.Sprintf(format, args...))
}

// want claims how visits to a target end, "tcp 172.30.0.41:80", within its patience.
func (k *kit) want(from client, target, outcome string) {
	k.t.Helper()
	network, addr, _ := strings.Cut(target, " ")
	if got, ok := k.wantFrom(k.c.visitor(from), string(from), target, outcome); ok {
		k.explained(from, network, addr, got, outcome)
	}
}

// wantFrom gives what was seen, and whether it is what was wanted.
func (k *kit) wantFrom(v visitor, who, target, want string) (string, bool) {
	k.t.Helper()
	network, addr, _ := strings.Cut(target, " ")
	limit := time.Now().Add(k.engine.patience())
	for {
		got := k.observe(v, network, addr, want)
		if got == want || slices.Contains(strings.Split(want, " or "), got) {
			return got, true
		}
		if time.Now().After(limit) {
			k.fault("%s to %s: %s, want %s", who, target, got, want)
			return got, false
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// observe visits as often as it takes to meet everybody that is wanted, and
// somebody who is not.
func (k *kit) observe(v visitor, network, addr, want string) string {
	servers := strings.Fields(want)
	times := 1
	if n := len(servers) - 1; n > 0 && !strings.Contains(want, "refused") && !strings.Contains(want, "dropped") {
		times = 3*n + 1
	}
	ctx, cancel := context.WithTimeout(k.t.Context(), 20*time.Second)
	defer cancel()
	answers, fate := v(ctx, times, network, addr)
	if fate != "" {
		return fate
	}
	met := map[string]bool{}
	sources := map[string]bool{}
	for _, a := range answers {
		met[a.server] = true
		sources[k.c.source(a.saw)] = true
	}
	names := make([]string, 0, len(met)+1)
	for name := range met {
		names = append(names, name)
	}
	slices.Sort(names)
	source := "mixed"
	if len(sources) == 1 {
		for s := range sources {
			source = s
		}
	}
	return strings.Join(append(names, source), " ")
}

// visitor visits an address so many times. Answers are of visits that somebody
// answered; fate says how the first one ended that nobody did.
type visitor func(ctx context.Context, times int, network, addr string) (answers []answer, fate string)
