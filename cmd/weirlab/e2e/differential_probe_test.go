package e2e

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"weir/cmd/weirlab/lab"
)

// locations are the clients of the differential test: outside the cluster, in the source ranges or not,
// a pod without a Service, the node, and a pod of the node that may be an endpoint of the Service.
var locations = []client{outside, blocked, pod, itself, "L1"}

// differentialSite is the conformance site with a host for each pod. Pods reach each other through the
// node only, as if each had a cable to it: else replies between two pods would not pass the node.
func differentialSite() lab.Site {
	s := conformanceSite()
	s.Hosts = slices.DeleteFunc(s.Hosts, func(h lab.Host) bool { return h.Name == "local" || h.Name == "remote" })
	for _, name := range podNames {
		network, net4, net6 := "pods", "10.180.2.", "fd00:10:180:2::"
		if name[0] == 'R' {
			network, net4, net6 = "remote", "10.180.0.", "fd00:10:180::"
		}
		s.Hosts = append(s.Hosts, lab.Host{
			Name: name, Nets: lab.Nets{network: backendAddr(name, false) + "/24 " + backendAddr(name, true) + "/64"},
			Routes: []string{"default via " + net4 + "254", net4 + "0/25 via " + net4 + "254", "default via " + net6 + "fe", net6 + "/121 via " + net6 + "fe"},
		})
	}
	return s
}

// probed is the result of all visits from one location to one target.
type probed struct {
	answers map[string]bool // "L1 keep": the backend, and the source address that it saw
	ends    map[string]bool // "refused", "dropped"
}

func (p probed) String() string {
	words := slices.Concat(slices.Sorted(maps.Keys(p.answers)), slices.Sorted(maps.Keys(p.ends)))
	return strings.Join(words, ", ")
}

// only reports whether all visits ended in this way.
func (p probed) only(end string) bool { return len(p.answers) == 0 && len(p.ends) == 1 && p.ends[end] }

// probe names one cell of the comparison.
type probe struct {
	service *randomService
	number  int // of the target
	from    client
}

func (p probe) target() target { return p.service.targets[p.number] }

// twin is the same probe of the Service without affinity.
func (p probe) twin() probe { return probe{p.service.twin, p.number, p.from} }

func (p probe) String() string {
	t := p.target()
	return fmt.Sprintf("%s to %s of %s, %s %s", p.from, t.kind, p.service.name(), t.network, t.addr)
}

const (
	// unseen is the probability that a set of backends is reported too small.
	unseen = 1e-7
	// batch is the largest number of visits at about the same time.
	batch = 10
	// probing limits the targets that are visited at the same time, and waiting is the time after which a
	// visit is no load any more: it waits for an answer that a dropped packet does not get. On a busy machine
	// other visits are slow, too, so no more than four times as many run.
	probing, waiting = 8, 1500 * time.Millisecond
	// unanswered is the time without an answer after which a packet was dropped. The client sends at least four SYNs in it.
	// A node that gets a fifth of a processor answers a burst of visits after four seconds.
	unanswered = 8 * time.Second
)

// visitsWithout is the number of visits that see no further backend until a set of n is complete: a
// choice at random among n+1 would omit one of them with probability unseen.
func visitsWithout(n int) int {
	return int(math.Ceil(math.Log(unseen) / math.Log(float64(n)/float64(n+1))))
}

// probesOf lists all cells of some Services.
func probesOf(services []*randomService) []probe {
	var all []probe
	for _, s := range services {
		for number := range s.targets {
			for _, from := range locations {
				all = append(all, probe{s, number, from})
			}
		}
	}
	return all
}

// probeAll visits all targets from all locations.
func (c *conformance) probeAll(t testing.TB, all []probe) map[probe]probed {
	t.Helper()
	results := make([]probed, len(all))
	var g errgroup.Group
	g.SetLimit(4 * probing)
	busy := make(chan struct{}, probing)
	for i, p := range all {
		g.Go(func() error {
			busy <- struct{}{}
			waits := sync.OnceFunc(func() { <-busy })
			defer waits()
			defer time.AfterFunc(waiting, waits).Stop()
			results[i] = c.probe(t, p)
			return nil
		})
	}
	_ = g.Wait()
	out := map[probe]probed{}
	for i, p := range all {
		out[p] = results[i]
	}
	return out
}

// probe visits one target until its set of backends is complete.
func (c *conformance) probe(t testing.TB, p probe) probed {
	to := p.target()
	r := probed{answers: map[string]bool{}, ends: map[string]bool{}}
	servers := map[string]bool{}
	visit := c.visitor(p.from, to.network, to.addr)
	for idle, first := 0, true; first || len(servers) > 0 && len(servers) < p.service.endpoints[to.six] && idle < visitsWithout(len(servers)); first = false {
		for _, v := range visit(t.Context(), batch, unanswered, to.network, to.addr) {
			idle++
			if v.End != "" {
				r.ends[string(v.End)] = true
				continue
			}
			if !servers[v.Server] {
				servers[v.Server], idle = true, 0
			}
			r.answers[v.Server+" "+c.source(p.from, v.Saw)] = true
		}
	}
	return r
}

// cleanKernel ends what an engine left of its connections, and returns what it left of its objects.
func (c *conformance) cleanKernel(t testing.TB) string {
	t.Helper()
	c.box.Must(t, "conntrack", "-F")
	// kube-proxy shares this chain with the kubelet and leaves it.
	for _, program := range []string{"iptables", "ip6tables"} {
		c.box.Must(t, "sh", "-c", strings.ReplaceAll("if PROGRAM -S KUBE-FIREWALL; then PROGRAM -D INPUT -j KUBE-FIREWALL; PROGRAM -D OUTPUT -j KUBE-FIREWALL; PROGRAM -F KUBE-FIREWALL; PROGRAM -X KUBE-FIREWALL; fi", "PROGRAM", program))
	}
	var left []string
	all := c.box.Must(t, "sh", "-c", "iptables-save; ip6tables-save; ipvsadm -Sn; ip -br link; nft list tables; ipset list -n")
	for line := range strings.Lines(all) {
		for _, its := range []string{"KUBE-", "kube-", "WEIR", "weir", "-A -"} {
			if strings.Contains(line, its) && !strings.HasPrefix(line, "#") {
				left = append(left, strings.TrimSpace(line))
				break
			}
		}
	}
	return strings.Join(left, "\n")
}
