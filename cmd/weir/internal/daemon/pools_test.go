package daemon

import (
	"context"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"weir/cmd/weir/internal/addresses"
	"weir/cmd/weir/internal/kube"
	"weir/cmd/weir/internal/status"
	"weir/k8ssync"
	"weir/k8ssync/ipam"
	"weir/lb"
)

// giver is an allocator of a test.
type giver struct {
	run      func(ctx context.Context, n int32) error // of the nth time
	runs     atomic.Int32
	notes    []lb.Note
	outside  []ipam.Note
	status   k8ssync.ProviderStatus
	followed []map[string]*k8ssync.Cluster
	cfg      k8ssync.ProviderConfig
	asked    int // how often for its Status
}

func (g *giver) Configure(cfg k8ssync.ProviderConfig) { g.cfg = cfg }

func (g *giver) Follow(clusters map[string]*k8ssync.Cluster) {
	g.followed = append(g.followed, clusters)
}

func (g *giver) Run(ctx context.Context) error {
	return g.run(ctx, g.runs.Add(1))
}

func (g *giver) Changed() <-chan struct{} { return nil }

func (g *giver) Notes() []lb.Note { return g.notes }

func (g *giver) Status() k8ssync.ProviderStatus {
	g.asked++
	return g.status
}

func (g *giver) OutsidePool(ipam.Config) []ipam.Note { return g.outside }

func (g *giver) TakeLatencies() []time.Duration { return nil }

// poolsOf returns pools with an allocator of a test.
func poolsOf(a addresses.Allocator, cfg k8ssync.ProviderConfig) *addresses.Pools {
	return addresses.New(cfg, slog.New(slog.DiscardHandler), func(k8ssync.ProviderConfig, *slog.Logger) addresses.Allocator { return a })
}

// onePool is a configuration with a pool.
func onePool(t *testing.T) k8ssync.ProviderConfig {
	t.Helper()
	r, err := ipam.ParseRange("198.51.100.0/28")
	if err != nil {
		t.Fatal(err)
	}
	return k8ssync.ProviderConfig{IPAM: ipam.Config{Pools: []ipam.Pool{{Name: "public", Ranges: []ipam.Range{r}}}}}
}

func TestNotesOfTheAllocatorAreShownAndNotReportedTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, l := fakeBox(t, nil)
		b.sources.probes = kube.NewHealthPorts(b.log, func() bool { return true })
		b.sources.pools = poolsOf(&giver{notes: []lb.Note{{Service: shop("web"), Reason: lb.AddressPending, Text: "pool public is full"}}}, k8ssync.ProviderConfig{})
		want := []status.Note{{Service: "prod/shop/web", Reason: "address-pending", Text: "pool public is full"}}
		if diff := cmp.Diff(want, b.sources.note(nil)); diff != "" {
			t.Errorf("-want +got:\n%s", diff)
		}
		if told := l.towns[0].reported; len(told) != 0 {
			t.Errorf("the cluster is told %v", told)
		}
	})
}
