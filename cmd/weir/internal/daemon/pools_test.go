package daemon

import (
	"context"
	"log/slog"
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
	notes   []lb.Note
	outside []ipam.Note
	status  k8ssync.ProviderStatus
	asked   int // how often for what costs work for each Service
}

func (g *giver) Configure(k8ssync.ProviderConfig) {}

func (g *giver) Follow(map[string]*k8ssync.Cluster) {}

func (g *giver) Run(ctx context.Context) error {
	<-ctx.Done()
	return nil
}

func (g *giver) Changed() <-chan struct{} { return nil }

func (g *giver) Summary() (k8ssync.ProviderStatus, []lb.Note) {
	g.asked++
	return g.status, g.notes
}

func (g *giver) Status() k8ssync.ProviderStatus {
	g.asked++
	return g.status
}

func (g *giver) Counters() k8ssync.ProviderCounters { return g.status.Counters }

func (g *giver) OutsidePool(ipam.Config) []ipam.Note { return g.outside }

func (g *giver) TakeLatencies() []time.Duration { return nil }

// poolsOf returns pools with an allocator of a test.
func poolsOf(a addresses.Allocator) *addresses.Pools {
	return addresses.New(k8ssync.ProviderConfig{}, slog.New(slog.DiscardHandler), func(k8ssync.ProviderConfig, *slog.Logger) addresses.Allocator { return a })
}

// onePool is a configuration with a pool.
func onePool(t *testing.T) k8ssync.ProviderConfig {
	t.Helper()
	r, err := ipam.ParseRange("198.51.100.0/28")
	must(t, err)
	return k8ssync.ProviderConfig{IPAM: ipam.Config{Pools: []ipam.Pool{{Name: "public", Ranges: []ipam.Range{r}}}}}
}

func TestNotesOfTheAllocatorAreShownAndNotReportedTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, l := fakeBox(t, nil)
		b.sources.probes = kube.NewHealthPorts(b.log, func() bool { return true })
		b.sources.pools = poolsOf(&giver{notes: []lb.Note{{Service: shop("web"), Reason: lb.AddressPending, Text: "pool public is full"}}})
		want := []status.Note{{Service: "prod/shop/web", Reason: "address-pending", Text: "pool public is full"}}
		if diff := cmp.Diff(want, b.sources.note(nil)); diff != "" {
			t.Errorf("-want +got:\n%s", diff)
		}
		if told := l.towns[0].reported; len(told) != 0 {
			t.Errorf("the cluster is told %v", told)
		}
	})
}
