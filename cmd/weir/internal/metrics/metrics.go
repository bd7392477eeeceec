// Package metrics exports the state of a box to Prometheus. It never asks the loop or changes anything: each scrape gets a
// Sample, and the counters of events are added as they happen.
package metrics

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"weir/cmd/weir/internal/kube"
)

// New returns metrics that call sample at each scrape.
func New(sample func() Sample) *Metrics {
	m := &Metrics{
		registry: prometheus.NewRegistry(),
		syncs: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "weir_sync_duration_seconds", Help: "Duration of syncs, and of audits without the time in which they read the kernel.",
			Buckets: prometheus.ExponentialBuckets(0.0005, 2, 16),
		}),
		failures: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "weir_sync_failures_total", Help: "Syncs and audits that could not read the kernel.",
		}),
		ops: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "weir_ops_total", Help: "Operations applied to the kernel.",
		}, []string{"verb", "kind"}),
		opErrors: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "weir_op_errors_total", Help: "Operations that failed, or were blocked by a failed one.",
		}),
		drift: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "weir_drift_repairs_total", Help: "Objects that another program changed and weir repaired.",
		}, []string{"kind"}),
		latency: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "weir_programming_duration_seconds",
			Help:    "Time from the change of an EndpointSlice until the kernel had it; kube-proxy's buckets and finer ones.",
			Buckets: latencyBuckets,
		}, []string{"cluster"}),
		results: results{releases: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "weir_guard_releases_total", Help: "Guarded syncs that ended, by reason: confirmed, overdue or recovered.",
		}, []string{"reason"}), hooks: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "weir_hook_runs_total", Help: "Runs of hooks, by result: done, failed or dropped.",
		}, []string{"result"})},
		announcing: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "weir_announce_duration_seconds",
			Help:    "Time from an event (source, check, kernel, operator) until the BGP speaker had the route.",
			Buckets: prometheus.ExponentialBuckets(0.001, 2, 15),
		}),
		assigning: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "weir_address_assign_duration_seconds",
			Help:    "Time from the request of a Service until its status has the address.",
			Buckets: prometheus.ExponentialBuckets(0.001, 2, 20),
		}),
		takeovers: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "weir_l2_takeover_duration_seconds",
			Help:    "Time from the ownership of an address until this box answers for it.",
			Buckets: prometheus.ExponentialBuckets(0.05, 2, 12),
		}),
		reads: reads{drains: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "weir_drain_count_duration_seconds",
			Help:    "Duration of counts of the connections of draining backends.",
			Buckets: prometheus.ExponentialBuckets(0.001, 4, 9),
		}), audits: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "weir_audit_duration_seconds",
			Help:    "Time in which audits read the whole kernel; changes are applied meanwhile.",
			Buckets: prometheus.ExponentialBuckets(0.001, 4, 9),
		})},
	}
	for _, reason := range []string{kube.Confirmed, kube.Overdue, kube.Recovered} {
		m.results.releases.WithLabelValues(reason)
	}
	for _, result := range []string{"done", "failed", "dropped"} {
		m.results.hooks.WithLabelValues(result)
	}
	m.registry.MustRegister(m.syncs, m.failures, m.ops, m.opErrors, m.drift, m.latency, m.results.releases, m.results.hooks, m.announcing, m.assigning, m.takeovers, m.reads.drains, m.reads.audits,
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		collector(sample))
	return m
}

// PerBackend sets whether scrapes have series of single backends; initially they have none.
func (m *Metrics) PerBackend(on bool) { m.perBackend.Store(on) }

// Gatherer returns the metrics for an HTTP handler or a test.
func (m *Metrics) Gatherer() prometheus.Gatherer { return m.registry }

// collector exports Samples. Traffic is not part of them: see traffic.go.
type collector func() Sample

// Describe implements prometheus.Collector. It describes nothing, since the set of services changes.
func (c collector) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector.
func (c collector) Collect(out chan<- prometheus.Metric) {
	s := c()
	s.box(out)
	s.clusters(out)
	s.configuration(out)
	s.routes(out)
	s.drains(out)
	s.fleet(out)
	s.addresses(out)
	s.health(out)
	s.kernel(out)
}
