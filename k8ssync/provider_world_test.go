package k8ssync

import (
	"context"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"weir/k8ssync/ipam"
	"weir/lb"
)

// testBalancer is a Service of type LoadBalancer, with an address in its status
// unless that is empty.
func testBalancer(name, clusterIP, ip string, mode *string) *corev1.Service {
	s := testService(name, clusterIP)
	s.Spec.Type = corev1.ServiceTypeLoadBalancer
	s.Spec.Ports[0].NodePort = 30080
	if ip != "" {
		s.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: ip, IPMode: (*corev1.LoadBalancerIPMode)(mode)}}
	}
	return s
}

// briskly is providerTiming for tests.
var briskly = providerTiming{
	// A busy machine must not cost the lease.
	election: electionTiming{lease: 60 * time.Second, deadline: 50 * time.Second, retry: 100 * time.Millisecond},
	grace:    2 * time.Second, request: 5 * time.Second,
	first: 20 * time.Millisecond, last: 200 * time.Millisecond, hidden: 100 * time.Millisecond,
}

// box is one with its clusters and a Provider.
type box struct {
	*Provider
	clusters map[string]*Cluster
	stop     func()
	hold     atomic.Bool // whether the guard blocks namespace shop of all clusters
}

func mustRange(text string) ipam.Range {
	r, err := ipam.ParseRange(text)
	if err != nil {
		panic(err)
	}
	return r
}

// pool is one of these ranges.
func pool(name string, ranges ...string) ipam.Pool {
	p := ipam.Pool{Name: name, AutoAssign: true}
	for _, r := range ranges {
		p.Ranges = append(p.Ranges, mustRange(r))
	}
	return p
}

func providerConfig(identity string, pools ...ipam.Pool) ProviderConfig {
	return ProviderConfig{
		LeaseCluster: "prod", Namespace: "weir-system", Class: "weir/lb", DefaultClass: true, Identity: identity,
		IPAM: ipam.Config{Pools: pools, Retention: time.Hour},
	}
}

// boxes counts those that there are: the first of a test sees that none leaves
// anything behind.
var boxes atomic.Int32

// newBox follows API servers, and gives addresses to their Services.
func newBox(t testing.TB, cfg ProviderConfig, servers map[string]*apiServer, change ...func(*box)) *box {
	t.Helper()
	before, first := runtime.NumGoroutine(), boxes.Add(1) == 1
	s := &box{Provider: NewProvider(cfg, silentLog()), clusters: map[string]*Cluster{}}
	s.timing = briskly
	ctx, cancel := context.WithCancel(context.Background())
	var tasks sync.WaitGroup
	for name, server := range servers {
		c := testCluster(t, server, func(cfg *Config) { cfg.Name, cfg.Events = name, true })
		c.events.gap, c.events.retry = 10*time.Millisecond, 10*time.Millisecond
		s.clusters[name] = c
		tasks.Go(func() { c.Run(ctx) }) //nolint:errcheck // it never fails
		tasks.Go(func() { s.judge(ctx, c) })
	}
	for _, f := range change {
		f(s)
	}
	s.Follow(s.clusters)
	tasks.Go(func() { s.Run(ctx) }) //nolint:errcheck // nor does it
	s.stop = sync.OnceFunc(func() {
		cancel()
		done := make(chan struct{})
		go func() { tasks.Wait(); close(done) }()
		select {
		case <-done:
		case <-time.After(20 * time.Second):
			t.Error("it does not end")
			return
		}
	})
	t.Cleanup(func() {
		s.stop()
		boxes.Add(-1)
		if t.Failed() || !first || poll(20*time.Second, func() bool { return runtime.NumGoroutine() <= before+2 }) {
			return
		}
		stacks := make([]byte, 1<<20)
		t.Errorf("%d goroutines before, %d after:\n%s", before, runtime.NumGoroutine(), stacks[:runtime.Stack(stacks, true)])
	})
	return s
}

// judge takes and commits all updates of a Cluster, like a daemon.
func (b *box) judge(ctx context.Context, c *Cluster) {
	for {
		for _, some := c.Take(); some; _, some = c.Take() {
		}
		var guarded []string
		if b.hold.Load() {
			guarded = []string{"shop"}
		}
		c.Commit(guarded)
		select {
		case <-ctx.Done():
			return
		case <-c.Changed():
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func notesOf(p *box) []lb.Note {
	_, notes := p.Summary()
	return notes
}

// has waits until a Service has addresses, comma separated, and a reason.
func has(t *testing.T, s *apiServer, name, addrs, reason string) {
	t.Helper()
	var got []string
	var cond metav1.Condition
	if !poll(patience, func() bool {
		got, cond = s.statusOf(name)
		return strings.Join(got, ",") == addrs && cond.Reason == reason
	}) {
		t.Fatalf("%s has %v, %s %s %q; want %s, %s", name, got, cond.Status, cond.Reason, cond.Message, addrs, reason)
	}
}
