package daemon

import (
	"context"
	"log/slog"
	"sync"
	"testing"

	"weir/cmd/weir/internal/kube"
	"weir/k8ssync"
	"weir/lb"
)

// town is a cluster of a test.
type town struct {
	cfg     k8ssync.Config
	changed chan struct{}

	mu       sync.Mutex
	queue    lb.Update
	reported [][]lb.Note
	judged   []bool // of Commit
	status   k8ssync.Status
}

func (c *town) Run(ctx context.Context) error {
	<-ctx.Done()
	return nil
}

func (c *town) Changed() <-chan struct{} { return c.changed }

func (c *town) Take() (lb.Update, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	u := c.queue
	c.queue = lb.Update{}
	return u, u.Synced || len(u.Put)+len(u.Delete) > 0
}

func (c *town) Status() k8ssync.Status {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.status
}

func (c *town) Refuse(k8ssync.Refused) {}

func (c *town) Provide(k8ssync.Provided) {}

func (c *town) Commit(held []string) { c.judged = append(c.judged, len(held) > 0) }

func (c *town) Report(notes []lb.Note) { c.reported = append(c.reported, notes) }

// send makes an update of the town available.
func (c *town) send(u lb.Update) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.queue = u
	c.changed <- struct{}{}
}

// land is the clusters of a test, and every town that was ever followed.
type land struct {
	*kube.Clusters
	mu    sync.Mutex
	towns []*town
}

func newLand(t *testing.T) *land {
	l := &land{Clusters: kube.New(slog.New(slog.DiscardHandler))}
	l.Follow = func(cfg k8ssync.Config, _ *slog.Logger) kube.Cluster {
		l.mu.Lock()
		defer l.mu.Unlock()
		c := &town{cfg: cfg, changed: make(chan struct{}, 1), status: k8ssync.Status{Connected: true, Synced: true}}
		l.towns = append(l.towns, c)
		return c
	}
	t.Cleanup(l.Stop)
	return l
}

func blocks(names ...string) (out []k8ssync.Config) {
	for _, n := range names {
		out = append(out, k8ssync.Config{Name: n})
	}
	return out
}

func shop(name string) lb.ServiceID {
	return lb.ServiceID{Source: "prod", Namespace: "shop", Name: name}
}
