package metrics

import (
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"weir/lb"
)

// Metrics are the counters and histograms of events. Make them with New.
type Metrics struct {
	registry   *prometheus.Registry
	syncs      prometheus.Histogram
	failures   prometheus.Counter
	ops        *prometheus.CounterVec
	opErrors   prometheus.Counter
	drift      *prometheus.CounterVec
	latency    *prometheus.HistogramVec
	results    results
	announcing prometheus.Histogram
	assigning  prometheus.Histogram
	takeovers  prometheus.Histogram
	reads      reads
	perBackend atomic.Bool
}

// results count outcomes.
type results struct{ releases, hooks *prometheus.CounterVec }

// Hooked counts a run of a hook, by its result.
func (m *Metrics) Hooked(result string) { m.results.hooks.WithLabelValues(result).Inc() }

// reads are the durations of readings that other goroutines make for the loop.
type reads struct{ drains, audits prometheus.Histogram }

// Pass counts a sync or an audit.
func (m *Metrics) Pass(rep lb.Report, err error, took time.Duration) {
	m.syncs.Observe(took.Seconds())
	if err != nil {
		m.failures.Inc()
	}
	type labels struct{ verb, kind string }
	ops := map[labels]int{}
	for _, op := range rep.Ops {
		ops[labels{op.Verb.String(), lb.Kind(op.Object)}]++
	}
	for l, n := range ops {
		m.ops.WithLabelValues(l.verb, l.kind).Add(float64(n))
	}
	m.opErrors.Add(float64(rep.Failed))
}

// Drifted counts objects that another program changed.
func (m *Metrics) Drifted(objects []lb.Object) {
	for _, o := range objects {
		m.drift.WithLabelValues(lb.Kind(o)).Inc()
	}
}

// Programmed records the time from a change of a source until the kernel had it.
func (m *Metrics) Programmed(source string, seconds float64) {
	m.latency.WithLabelValues(source).Observe(seconds)
}

// GuardReleased counts the end of a guarded sync.
func (m *Metrics) GuardReleased(reason string) { m.results.releases.WithLabelValues(reason).Inc() }

// Announced records the time from an event until the BGP speaker had its routes.
func (m *Metrics) Announced(d time.Duration) { m.announcing.Observe(d.Seconds()) }

// Assigned records the time from the request for an address until it was in the status.
func (m *Metrics) Assigned(d time.Duration) { m.assigning.Observe(d.Seconds()) }

// TookOver records the time from the ownership of an address until this box answered for it.
func (m *Metrics) TookOver(d time.Duration) { m.takeovers.Observe(d.Seconds()) }

// CountedDrains records the duration of a count of the connections of draining backends.
func (m *Metrics) CountedDrains(d time.Duration) { m.reads.drains.Observe(d.Seconds()) }

// Audited records the time in which an audit has read the kernel.
func (m *Metrics) Audited(d time.Duration) { m.reads.audits.Observe(d.Seconds()) }
