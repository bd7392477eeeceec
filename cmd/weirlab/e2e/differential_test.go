package e2e

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
)

// The differential test compares weir with kube-proxy, which decides what is correct. A seed
// determines random Services, which go through a real API server. weir and the modes of kube-proxy serve
// them one after the other, in the same kernel, and all targets are visited from all locations. A
// difference from one of the modes fails the test unless the table knownDifferences has it.

// differentialSeeds in the environment selects seeds, and the number of Services of each:
// WEIR_DIFFERENTIAL=17, 1-50 or 17/10. Without it a short form is run.
const differentialSeeds = "WEIR_DIFFERENTIAL"

// differentialRecord in the environment names a file with a line for each seed that was compared. Seeds that
// have passed are not compared again, so that a run may end at any moment and go on later.
const differentialRecord = "WEIR_DIFFERENTIAL_RECORD"

// seedRecord has the results of seeds. The zero value has no file.
type seedRecord struct {
	path           string
	passed, failed map[string]bool
}

func readSeeds(path string) (seedRecord, error) {
	r := seedRecord{path, map[string]bool{}, map[string]bool{}}
	text, err := os.ReadFile(path)
	if path == "" || errors.Is(err, fs.ErrNotExist) {
		return r, nil
	}
	for line := range strings.Lines(string(text)) {
		if name, passed := strings.CutSuffix(strings.TrimSpace(line), ": passed"); passed {
			r.passed[name] = true
		} else if name, failed := strings.CutSuffix(strings.TrimSpace(line), ": FAILED"); failed {
			r.failed[name] = true
		}
	}
	return r, err
}

func (r seedRecord) add(name string, passed bool) error {
	if r.path == "" {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(r.path), 0o755); err != nil {
		return err
	}
	f, err := os.OpenFile(r.path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(f, "%s: %s\n", name, map[bool]string{true: "passed", false: "FAILED"}[passed])
	return errors.Join(err, f.Close())
}

// seedRange is what differentialSeeds selects.
type seedRange struct {
	first, last uint64
	services    int
}

// shortSeeds are those of make test: 30 has nearly all properties in 10 Services.
const shortSeeds = "30/10"

func parseSeeds(text string) (seedRange, error) {
	seeds, count, counted := strings.Cut(text, "/")
	first, last, several := strings.Cut(seeds, "-")
	if !several {
		last = first
	}
	if !counted {
		count = "30"
	}
	var r seedRange
	var errs [3]error
	r.first, errs[0] = strconv.ParseUint(first, 10, 64)
	r.last, errs[1] = strconv.ParseUint(last, 10, 64)
	r.services, errs[2] = strconv.Atoi(count)
	for _, err := range errs {
		if err != nil {
			return r, fmt.Errorf("%s=%s: want SEED, FIRST-LAST or SEED/SERVICES: %w", differentialSeeds, text, err)
		}
	}
	return r, nil
}

func TestDifferential(t *testing.T) {
	text := os.Getenv(differentialSeeds)
	if text == "" {
		text = shortSeeds
	}
	seeds, err := parseSeeds(text)
	if err != nil {
		t.Fatal(err)
	}
	record, err := readSeeds(os.Getenv(differentialRecord))
	if err != nil {
		t.Fatal(err)
	}
	c := newConformanceOn(t, differentialSite())
	c.becomeComparable(t)
	limit, limited := t.Deadline()
	var slowest time.Duration
	for seed := seeds.first; seed <= seeds.last; seed++ {
		name := fmt.Sprintf("seed %d, %d Services", seed, seeds.services)
		if record.failed[name] && record.passed[name] {
			t.Errorf("%s: failed, and passed later with the same sources; soak --again forgets both", name)
		}
		if record.passed[name] {
			t.Logf("%s: passed before", name)
			continue
		}
		if limited && time.Until(limit) < 2*slowest {
			t.Fatalf("the time is over before %s; the next run goes on there", name)
		}
		begin := time.Now()
		if record.failed[name] {
			t.Errorf("%s: failed before, with the same sources", name)
		}
		passed := t.Run(name, func(t *testing.T) { c.differential(t, seed, seeds.services) })
		slowest = max(slowest, time.Since(begin))
		if err := record.add(name, passed); err != nil {
			t.Error(err)
		}
	}
}

// becomeComparable gives the node a default route, without which no process of it reaches a VIP of
// kube-proxy in other modes than IPVS, and its Node the address of the second family. The source address of the
// route is that of the Node, by which source ranges admit a node.
func (c *conformance) becomeComparable(t testing.TB) {
	t.Helper()
	c.box.Must(t, "sh", "-c", fmt.Sprintf("ip route add default via %s src %s && ip -6 route add default via 2001:db8:e::2 src %s", outsider, nodeAddr, nodeAddr6))
	ctx := within(t, time.Minute)
	for _, m := range c.Machines() { // or the node's redirects would have pods reach each other without it
		if _, err := m.Run(ctx, "sh", "-c", "for f in /proc/sys/net/ipv*/conf/*/accept_redirects; do echo 0 >$f; done"); err != nil {
			t.Fatal(err)
		}
	}
	node, err := c.api.CoreV1().Nodes().Get(ctx, nodeName, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	node.Status.Addresses = append(node.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: nodeAddr6})
	if _, err := c.api.CoreV1().Nodes().UpdateStatus(ctx, node, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// differential compares all engines for the Services of one seed.
func (c *conformance) differential(t *testing.T, seed uint64, n int) {
	services := randomServices(seed, n)
	for _, s := range services {
		c.each(t, s.objects, c.put)
	}
	defer c.deleteAll(t)
	probes := probesOf(services)
	var proxies []engineResults
	for _, mode := range []string{"iptables", "nftables"} {
		proxies = append(proxies, c.measure(t, &kubeProxyEngine{c: c, mode: mode}, probes))
	}
	modes := []string{nftablesMode, netfilterMode}
	if soaking() {
		modes = append(modes, ipvsMode, iptablesMode)
	}
	for _, mode := range modes {
		got := c.measure(t, &weirEngine{c: c, mode: mode}, probes)
		c.compare(t, seed, n, got, proxies, probes)
	}
	if t.Failed() {
		return
	}
	answered := 0
	for _, p := range probes {
		if len(proxies[1].of[p].answers) > 0 {
			answered++
		}
	}
	figure(t, fmt.Sprintf("seed %d: targets that locations visited, and were answered by kube-proxy", seed), fmt.Sprintf("%d, %d", len(probes), answered))
}

// engineResults are the results of all probes with one engine.
type engineResults struct {
	engine string
	of     map[probe]probed
}

// measure runs an engine, probes all targets, and removes the engine from the kernel.
func (c *conformance) measure(t *testing.T, e engine, probes []probe) engineResults {
	t.Helper()
	begin := time.Now()
	c.options = &options{nodePortAddresses: []string{"192.168.0.0/24", "fd00:192:168::/64"}}
	e.start(t, *c.options)
	started := time.Since(begin)
	r := engineResults{e.name(), c.probeAll(t, probes)}
	e.stop(t)
	if left := c.cleanKernel(t); left != "" {
		t.Fatalf("%s left this in the kernel:\n%s", e.name(), left)
	}
	t.Logf("%s: %d probes in %.1f s, %.1f s of it to start", e.name(), len(probes), time.Since(begin).Seconds(), started.Seconds())
	return r
}

// deleteAll deletes the Services and EndpointSlices of the seed.
func (c *conformance) deleteAll(t testing.TB) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), time.Minute)
	defer cancel()
	for _, all := range []struct {
		client rest.Interface
		of     string
	}{{c.api.CoreV1().RESTClient(), "services"}, {c.api.DiscoveryV1().RESTClient(), "endpointslices"}} {
		if err := all.client.Delete().Namespace(kubeNamespace).Resource(all.of).Param("labelSelector", madeHere).Do(ctx).Error(); err != nil {
			t.Fatal(err)
		}
	}
}

// agrees reports whether an engine has the result of kube-proxy. With session affinity one client sees one
// backend, of the set that the Service without affinity has.
func agrees(p probe, engine, proxy engineResults) bool {
	got, want := engine.of[p], proxy.of[p]
	if p.service.sticky() {
		want = proxy.of[p.twin()]
	}
	if !p.service.sticky() || len(want.answers) == 0 {
		return got.String() == want.String()
	}
	for answer := range got.answers {
		if !want.answers[answer] {
			return false
		}
	}
	return len(got.answers) == 1 && len(got.ends) == 0
}

// compare fails the test for each difference from a mode of kube-proxy that is not known. The differences come last,
// where the end of a run quotes them.
func (c *conformance) compare(t *testing.T, seed uint64, n int, weir engineResults, proxies []engineResults, probes []probe) {
	t.Helper()
	known := map[string]int{}
	iptables, nftables := proxies[0], proxies[1]
	var unknown []probe
	for _, p := range probes {
		if agrees(p, weir, iptables) && agrees(p, weir, nftables) {
			continue
		}
		if d := knownDifference(p, weir, iptables, nftables); d != nil {
			known[d.situation]++
			continue
		}
		unknown = append(unknown, p)
	}
	for situation, count := range known {
		t.Logf("weir %s, known difference: %s: %d targets", weir.engine, situation, count)
	}
	shown := map[*randomService]bool{}
	for _, p := range unknown {
		if !shown[p.service] {
			shown[p.service] = true
			t.Logf("%s=%d/%d repeats it. The Service:\n%s", differentialSeeds, seed, n, p.service)
		}
	}
	for _, p := range unknown {
		t.Errorf("seed %d, %s: weir %s has %s; kube-proxy has %s (iptables) and %s (nftables)", seed, p, weir.engine, weir.of[p], iptables.of[p], nftables.of[p])
	}
}
