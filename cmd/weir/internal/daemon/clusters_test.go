package daemon

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	dto "github.com/prometheus/client_model/go"

	"weir/cmd/weir/internal/config"
	"weir/cmd/weir/internal/kernelmode"
	"weir/cmd/weir/internal/kube"
	"weir/cmd/weir/internal/metrics"
	"weir/k8ssync"
	"weir/lb"
)

// fakeBox is a box with a Fake for its kernel, for what the loop does with clusters.
func fakeBox(t *testing.T, guards map[string]lb.GuardOptions) (*box, *land) {
	l := newLand(t)
	b := newTestBox(&config.Config{})
	b.sources.clusters = l.Clusters
	b.sources.latency.Since = b.passes.progress.started
	base := lb.Base{Device: "kube-ipvs0", Families: []lb.Family{lb.IPv4}}
	b.target.rec = lb.NewReconciler(&lb.Fake{}, lb.Options{Base: base, Guards: guards}, config.Source, "prod")
	b.sources.pools = poolsOf(&giver{})
	b.metrics = metrics.New(func() metrics.Sample { return metrics.Sample{} })
	l.Set(t.Context(), blocks("prod"))
	synctest.Wait()
	return b, l
}

// sync is a pass without what is for the real kernel.
func (b *box) sync(t *testing.T) {
	t.Helper()
	if _, err := b.target.rec.Sync(context.Background(), time.Now()); err != nil {
		t.Fatal(err)
	}
	b.sources.watchGuard(time.Now())
	b.sources.programmed(time.Now())
}

// served is a Service of prod at its own VIP.
func served(n int) lb.Service {
	return lb.Service{
		Scheduler: lb.Scheduler{Name: "rr"},
		ID:        shop(fmt.Sprint("s", n)),
		VIPs:      []lb.VIP{{Addr: netip.AddrFrom4([4]byte{192, 0, 2, byte(n)})}},
		Ports:     []lb.Port{{Proto: lb.TCP, Port: 80, Backends: []lb.Backend{{Addr: netip.MustParseAddrPort("10.0.0.1:80"), Weight: 1}}}},
	}
}

func TestREADYWaitsForClustersButNotForLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, l := fakeBox(t, nil)
		b.target.rec.Update(lb.Update{Source: config.Source, Synced: true})
		if b.passes.progress.mayBegin(b.target.rec.Catalog().Waiting(), b.passes.progress.started.Add(clusterPatience-1), b.log) {
			t.Error("it does not wait")
		}
		if !b.passes.progress.mayBegin(b.target.rec.Catalog().Waiting(), b.passes.progress.started.Add(clusterPatience), b.log) {
			t.Error("it waits for ever")
		}
		if got := b.passes.progress.patience(); !got.Equal(b.passes.progress.started.Add(clusterPatience)) {
			t.Errorf("it looks again in %s", got.Sub(b.passes.progress.started))
		}
		l.towns[0].send(lb.Update{Synced: true})
		if <-l.Signal; !b.sources.receive() || !b.passes.progress.mayBegin(b.target.rec.Catalog().Waiting(), b.passes.progress.started, b.log) {
			t.Error("it waits for a cluster that has spoken")
		}
	})
}

func TestLatencyIsFromTheTriggerToThePass(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, l := fakeBox(t, nil)
		before := b.passes.progress.started.Add(-time.Second) // without a meaning for weir
		time.Sleep(time.Minute)
		l.towns[0].send(lb.Update{Put: []lb.Service{served(1)}, Triggered: map[lb.ServiceID]time.Time{
			shop("s1"): time.Now().Add(-2 * time.Second), shop("s2"): before, shop("s3"): time.Now().Add(time.Second),
		}})
		<-l.Signal
		b.sources.receive()
		b.sync(t)
		b.sync(t)
		if h := metricOf(t, b, "weir_programming_duration_seconds").GetHistogram(); h.GetSampleCount() != 2 || h.GetSampleSum() != 2 {
			t.Errorf("%d samples of %v s", h.GetSampleCount(), h.GetSampleSum())
		}
	})
}

// refusing is a kernel that takes no real servers while it is set.
type refusing struct {
	*lb.Fake
	refuse bool
}

func (k *refusing) Apply(ctx context.Context, ops []lb.Op) []error {
	if _, server := ops[0].Object.(lb.RealServer); server && k.refuse {
		return slices.Repeat([]error{errors.New("no memory")}, len(ops))
	}
	return k.Fake.Apply(ctx, ops)
}

func TestLatencyIsOfProgrammedServices(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, _ := fakeBox(t, nil)
		b.sources.latency.Since = time.Time{} // every change is measured
		kernel := &refusing{Fake: &lb.Fake{}, refuse: true}
		base := lb.Base{Device: "kube-ipvs0", Families: []lb.Family{lb.IPv4}}
		guards := map[string]lb.GuardOptions{"prod": {Share: 0.4, Least: 1, Window: time.Minute, Timeout: time.Hour}}
		b.target.rec = lb.NewReconciler(kernel, lb.Options{Base: base, Guards: guards}, "prod")
		say := func(services ...lb.Service) {
			b.target.rec.Update(lb.Update{Source: "prod", Put: services, Synced: true})
			b.sources.latency.Add(lb.Update{Triggered: map[lb.ServiceID]time.Time{shop("s1"): time.Now()}})
		}
		counted := func(what string, want uint64, sum float64) {
			t.Helper()
			b.sync(t)
			if h := metricOf(t, b, "weir_programming_duration_seconds").GetHistogram(); h.GetSampleCount() != want || h.GetSampleSum() != sum {
				t.Errorf("%s: %d samples of %v s, want %d of %v s", what, h.GetSampleCount(), h.GetSampleSum(), want, sum)
			}
		}
		say(served(1), served(2))
		counted("the kernel refuses it", 0, 0)
		kernel.refuse = false
		time.Sleep(3 * time.Second)
		counted("it has taken it", 1, 3)
		say(served(2))
		counted("a guard holds it", 1, 3)
		b.target.rec.Release("prod")
		time.Sleep(time.Minute)
		counted("somebody has released it", 1, 3)
		if n := b.sources.latency.Pending(); n != 0 {
			t.Errorf("%d are left", n)
		}
	})
}

func TestGuardReleasesAreCountedByReason(t *testing.T) {
	for _, tt := range []struct {
		how string
		end func(b *box, l *land)
	}{
		{kube.Confirmed, func(b *box, _ *land) { b.target.rec.Release("prod"); b.sources.guard.Release("prod") }},
		{kube.Overdue, func(*box, *land) { time.Sleep(time.Hour) }},
		{kube.Recovered, func(b *box, _ *land) {
			b.target.rec.Update(lb.Update{Source: "prod", Put: []lb.Service{served(1), served(2), served(3), served(4)}, Synced: true})
		}},
	} {
		t.Run(tt.how, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b, l := fakeBox(t, map[string]lb.GuardOptions{"prod": {Share: 0.4, Least: 1, Window: time.Minute, Timeout: time.Hour}})
				b.target.rec.Update(lb.Update{Source: config.Source, Synced: true})
				b.target.rec.Update(lb.Update{Source: "prod", Put: []lb.Service{served(1), served(2), served(3), served(4)}, Synced: true})
				b.sync(t)
				b.target.rec.Update(lb.Update{Source: "prod", Put: []lb.Service{served(1)}, Synced: true})
				b.sync(t)
				held := kube.GuardedSources(b.sources.guard.Guarded)
				if len(held) != 1 || held[0].Services != 3 || held[0].Source != "prod" {
					t.Fatalf("held: %+v", held)
				}
				tt.end(b, l)
				b.sync(t)
				if got := l.towns[0].judged; !slices.Equal(got, []bool{false, true, false}) {
					t.Errorf("the cluster was told %v of what is held", got)
				}
				n := scrape(t, b)[`weir_guard_releases_total{reason="`+tt.how+`"}`]
				if len(b.sources.guard.Guarded) != 0 || n != 1 {
					t.Errorf("held at the end: %+v, counted %v", b.sources.guard.Guarded, n)
				}
			})
		})
	}
}

func TestGuardIgnoresDeletionsOfAChangedBlock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, l := fakeBox(t, map[string]lb.GuardOptions{"prod": {Share: 0.4, Least: 1, Window: time.Minute, Timeout: time.Hour}})
		b.target.rec.Update(lb.Update{Source: config.Source, Synced: true})
		say := func(want int, services ...lb.Service) {
			t.Helper()
			l.towns[len(l.towns)-1].send(lb.Update{Put: services, Synced: true})
			<-l.Signal
			b.sources.receive()
			b.sync(t)
			if got := b.target.rec.Catalog().Len(); got != want {
				t.Errorf("%d Services are served, want %d; held: %+v", got, want, kube.GuardedSources(b.sources.guard.Guarded))
			}
		}
		say(4, served(1), served(2), served(3), served(4))
		changed := blocks("prod")
		changed[0].Namespaces = []string{"shop"}
		l.Set(t.Context(), changed)
		synctest.Wait()
		say(2, served(1), served(2))
		say(2, served(1)) // of its own accord
		if len(b.sources.guard.Guarded) != 1 {
			t.Error("after the reload nothing is guarded")
		}
		changed[0].Namespaces = nil
		l.Set(t.Context(), changed)
		synctest.Wait()
		say(1, served(2)) // ends the hold, too
		if len(b.sources.guard.Guarded) != 0 {
			t.Errorf("held: %+v", b.sources.guard.Guarded)
		}
		l.Set(t.Context(), changed) // the same: no reason for anything to be gone
		say(1)
		if len(b.sources.guard.Guarded) != 1 {
			t.Error("a reload that changes nothing lets a cluster take away all")
		}
	})
}

func TestTheOwnNodeSetsTheNodePortAddresses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLand(t)
		cfgs := blocks("prod", "stage")
		cfgs[1].NodeName = "node1"
		l.Set(t.Context(), cfgs)
		synctest.Wait()
		l.towns[1].status = k8ssync.Status{Synced: true, NodeAddrs: []netip.Addr{netip.MustParseAddr("10.1.0.1")},
			NodePodCIDRs: []netip.Prefix{netip.MustParsePrefix("10.244.1.0/24")}}
		cfg := &config.Config{Kernel: config.Kernel{NodePortPrimary: true, DetectLocal: config.NodeCIDR}}
		n := l.Node()
		if d := cmp.Diff("[0.0.0.0/32 ::/128 10.1.0.1/32]", fmt.Sprint(kernelmode.LBOptions(cfg, kernelmode.Mode{}, n).NodePortNets)); d != "" {
			t.Errorf("node ports are served at (-want +got):\n%s", d)
		}
		if d := cmp.Diff("[10.244.1.0/24]", fmt.Sprint(kernelmode.KernelConfig(cfg, kernelmode.Mode{}, n, nil).ClusterCIDRs)); d != "" {
			t.Errorf("pods are at (-want +got):\n%s", d)
		}
		if d := cmp.Diff("[0.0.0.0/32 ::/128]", fmt.Sprint(kernelmode.LBOptions(cfg, kernelmode.Mode{}, kernelmode.Node{}).NodePortNets)); d != "" {
			t.Errorf("before the Node has said anything (-want +got):\n%s", d)
		}
	})
}

// metricOf returns the only series of a metric; an empty one if there is none.
func metricOf(t *testing.T, b *box, name string) *dto.Metric {
	t.Helper()
	families, err := b.metrics.Gatherer().Gather()
	must(t, err)
	for _, f := range families {
		if f.GetName() == name {
			return f.GetMetric()[0]
		}
	}
	return &dto.Metric{}
}
