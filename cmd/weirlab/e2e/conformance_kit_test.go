package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"weir/cmd/weirlab/internal/traffic"
	"weir/cmd/weirlab/lab"
)

// Conformance: what Kubernetes means by a Service, as claims about packets. Each
// check states Services and EndpointSlices, which go through a real API server, and
// who then reaches what, with the kit of kit_test.go:
//
//	k.given(kubeService("web", clusterIP("172.30.0.41"), ports("80/tcp")), kubeEndpoints("web", "R1 L1"))
//	k.want(pod, "tcp 172.30.0.41:80", "L1 R1 keep")
//
// The checks are numbered for good, so that one can speak of them. They are put to
// each engine in turn, in the same kernel: weir with IPVS, weir with iptables, and,
// where the comparison is requested, kube-proxy in IPVS mode.

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

// podNames are the backends that speak TCP and UDP.
var podNames = []string{"L1", "L2", "L3", "L4", "R1", "R2", "R3", "R4", "R5"}

// addresses gives n pairs of addresses, numbered from 1.
func addresses(format string, n int) string {
	var out []string
	for i := range n {
		out = append(out, fmt.Sprintf(format, i+1, i+1))
	}
	return strings.Join(out, " ")
}

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
	// lacks returns why the check is not applicable to an engine.
	lacks map[string]string
	run   func(k *kubeKit)
}

// options are what an engine is configured with, beside the API server.
type options struct {
	masqueradeAll     bool
	masqueradeBit     int  // 0 is the default
	noDetector        bool // no client is known to be inside
	nodePortAddresses []string
	scheduler         string
	excludeCIDRs      []string
	noZone            bool
}

// engine serves the node as a Kubernetes service proxy.
type engine interface {
	name() string
	// patience is a limit against hanging, until the state of the API is in effect. Checks that promise
	// a time measure it themselves.
	patience() time.Duration
	// start serves with these options, and stop leaves a kernel as it was before.
	start(t testing.TB, o options)
	stop(t testing.TB)
	// restart stops without cleaning up and starts again.
	restart(t testing.TB)
	// served lists the Services of checks that the engine still serves.
	served(t testing.TB) []string
}

// kubeKit puts one check to one engine. Its faults are collected for the table.
type kubeKit struct {
	*kit
	c      *conformance
	engine engine

	mu     sync.Mutex
	faults []string
	note   string // for the cell of the table
}

func newKubeKit(t testing.TB, c *conformance, e engine) *kubeKit {
	k := &kubeKit{c: c, engine: e}
	k.kit = &kit{t: t, patience: e.patience(), visitor: c.visitor, source: c.source, fault: k.collect}
	if e.name() != peerMode {
		k.applied = k.explained
		k.evidence = k.kernelHas
	}
	return k
}

// kernelHas logs the connections of a target, and what the kernel has to forward to it.
func (k *kubeKit) kernelHas(network, addr string) {
	at := netip.MustParseAddrPort(addr).Addr().String()
	out, err := k.c.box.Run(within(k.t, 10*time.Second), "sh", "-c", `date +%T.%N; conntrack -L -p "$1" -d "$2" 2>&1 | cut -c1-150 | tail -30
		ipvsadm -Sn 2>&1 | grep -F -- "$2" | head -20; { nft list ruleset; iptables-save; } 2>&1 | grep -F -- "$2" | cut -c1-200 | head -20`, "sh", strings.TrimRight(network, "46"), at)
	k.t.Logf("the kernel has for %s %s (%v):\n%s", network, addr, err, out.Stdout)
}

func (k *kubeKit) collect(format string, args ...any) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.faults = append(k.faults, fmt.Sprintf(format, args...))
}

// enough ends a check of kube-proxy at its first fault: what follows would wait for a state
// that does not come, and the table has one cell for all of it.
type enough struct{}

func (k *kubeKit) proceed() {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.engine.name() == peerMode && len(k.faults) > 0 {
		panic(enough{})
	}
}

func (k *kubeKit) want(who client, target, want string) {
	k.t.Helper()
	k.proceed()
	k.kit.want(who, target, want)
}

func (k *kubeKit) wantAll(clients []client, targets []string, want string) {
	k.t.Helper()
	k.proceed()
	k.kit.wantAll(clients, targets, want)
}

func (k *kubeKit) eventually(what string, f func() bool) bool {
	k.t.Helper()
	k.proceed()
	return k.kit.eventually(what, f)
}

func (k *kubeKit) holds(who client, target string) heldConn {
	k.t.Helper()
	k.proceed()
	return k.kit.holds(k.c.machine(who), who, target)
}

func (h heldConn) alive(k *kubeKit) { h.wantAlive(k.kit) }

// everywhere are the locations of negative checks: each probes ten times.
var everywhere = []client{pod, itself, outside, blocked, "L4", "R5"}

// wantEverywhere claims an outcome for all locations.
func (k *kubeKit) wantEverywhere(target, want string) {
	k.t.Helper()
	k.wantAll(everywhere, []string{target}, want)
}

// meets returns who answered in so many visits, sorted, and other ends.
func (k *kubeKit) meets(who client, target string, times int) []string {
	k.proceed()
	network, addr, _ := strings.Cut(target, " ")
	var met []string
	for _, s := range k.visitor(who, network, addr)(k.t.Context(), times, visitTime, network, addr) {
		met = append(met, s.Server+string(s.End))
	}
	slices.Sort(met)
	return slices.Compact(met)
}

// wantServer claims who answers, whatever the source.
func (k *kubeKit) wantServer(who client, target, server string) {
	k.t.Helper()
	if met := k.meets(who, target, probes); len(met) != 1 || met[0] != server {
		k.fault("%s to %s: %v, want %s", who, target, met, server)
	}
}

// wantPong claims that an address answers echo requests.
func (k *kubeKit) wantPong(who client, addr string) {
	k.t.Helper()
	k.proceed()
	if got := pinged(k.t, k.c.machine(who), addr, "pong"); got != "pong" {
		k.fault("%s asks %s for an echo: %s", who, addr, got)
	}
}

// wantHealth claims how a health check port answers, and that it goes on to answer so.
func (k *kubeKit) wantHealth(who client, addr string, code, endpoints int) {
	k.t.Helper()
	k.proceed()
	want := fmt.Sprintf("%d, weight %d, localEndpoints %d", code, endpoints, endpoints)
	got := ""
	if !k.eventually(fmt.Sprintf("%s asks %s: %s", who, addr, want), func() bool {
		got = k.health(who, addr)
		return got == want
	}) {
		k.fault("the answer was %s", got)
		return
	}
	for i := range probes {
		if got := k.health(who, addr); got != want {
			k.fault("%s asks %s: %s at first and then %s (question %d of %d)", who, addr, want, got, i+1, probes)
			return
		}
	}
}

func (k *kubeKit) health(who client, addr string) string {
	transport := &http.Transport{DialContext: k.c.machine(who).DialContext, DisableKeepAlives: true}
	h := http.Client{Transport: transport, Timeout: visitTime}
	resp, err := h.Get("http://" + addr + "/healthz")
	if err != nil {
		return string(traffic.OutcomeOf(err))
	}
	defer func() { _ = resp.Body.Close() }()
	var body struct{ LocalEndpoints *int }
	if err := json.NewDecoder(resp.Body).Decode(&body); err != nil || body.LocalEndpoints == nil {
		return fmt.Sprintf("%d, and no localEndpoints in the body", resp.StatusCode)
	}
	return fmt.Sprintf("%d, weight %s, localEndpoints %d", resp.StatusCode, resp.Header.Get("X-Load-Balancing-Endpoint-Weight"), *body.LocalEndpoints)
}
