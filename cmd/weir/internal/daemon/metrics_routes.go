package daemon

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

func newAnnouncing() prometheus.Histogram {
	return prometheus.NewHistogram(prometheus.HistogramOpts{
		Name:    "weir_announce_latency_seconds",
		Help:    "Time from what the box heard (a source, a check, the kernel, an operator) until the speaker had the route for its routers.",
		Buckets: prometheus.ExponentialBuckets(0.001, 2, 15),
	})
}

func newAssigning() prometheus.Histogram {
	return prometheus.NewHistogram(prometheus.HistogramOpts{
		Name:    "weir_assign_latency_seconds",
		Help:    "Time from when a Service was seen to want an address until its status said it.",
		Buckets: prometheus.ExponentialBuckets(0.001, 2, 20),
	})
}

// measureAnnouncing takes down how long it took from since until GoBGP has what the
// speaker has been told by now.
func (b *box) measureAnnouncing(since time.Time) {
	if since.IsZero() {
		return
	}
	speaker := b.announcer.speaker
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), configureTimeout)
		defer cancel()
		if speaker.Settled(ctx) == nil {
			b.metrics.announcing.Observe(time.Since(since).Seconds())
		}
	}()
}
