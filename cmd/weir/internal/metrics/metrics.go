// Package metrics exports the state of a box to Prometheus. It never asks the loop or changes anything: each scrape gets a
// Sample, and the counters of events are added as they happen.
package metrics

import (
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"weir/bgp"
	"weir/cluster"
	"weir/cluster/l2"
	"weir/cmd/weir/internal/fleet"
	"weir/cmd/weir/internal/kube"
	"weir/cmd/weir/internal/status"
	"weir/k8ssync"
	"weir/lb"
	"weir/lb/health"
	"weir/lb/linux"
)

// Sample is the state of a box at a scrape.
type Sample struct {
	Status  status.Status
	Objects map[string]int // by lb.Kind
	// Checks are the numbers of health checks.
	Checks   health.Stats
	Kernel   *linux.Counters
	Peers    []bgp.PeerStatus
	Fleet    fleet.Numbers
	Gossip   *cluster.Status         // nil without [fleet]
	L2       *l2.Status              // nil without [l2]
	Provider *k8ssync.ProviderStatus // nil if there were never pools
	// HealthPorts are the open healthCheckNodePorts, ProbesOK and ProbesFailed their answers with 200 and 503.
	HealthPorts            int
	ProbesOK, ProbesFailed uint64
}

// Metrics are the counters and histograms of events. Make them with New.
type Metrics struct {
	registry   *prometheus.Registry
	syncs      prometheus.Histogram
	failures   prometheus.Counter
	ops        *prometheus.CounterVec
	opErrors   prometheus.Counter
	drift      *prometheus.CounterVec
	reloadOK   prometheus.Gauge
	reloadTime prometheus.Gauge
	latency    *prometheus.HistogramVec
	results    results
	announcing prometheus.Histogram
	assigning  prometheus.Histogram
	takeovers  prometheus.Histogram
	reads      reads
	perBackend atomic.Bool
}

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
		reloadOK: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "weir_config_last_reload_successful", Help: "1 if the last attempt to load the configuration succeeded.",
		}),
		reloadTime: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "weir_config_last_reload_success_timestamp_seconds", Help: "Time when the active configuration was loaded.",
		}),
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
	m.registry.MustRegister(m.syncs, m.failures, m.ops, m.opErrors, m.drift, m.reloadOK, m.reloadTime, m.latency, m.results.releases, m.results.hooks, m.announcing, m.assigning, m.takeovers, m.reads.drains, m.reads.audits,
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		collector(sample))
	m.Reloaded(nil)
	return m
}

// results count outcomes.
type results struct{ releases, hooks *prometheus.CounterVec }

// Hooked counts a run of a hook, by its result.
func (m *Metrics) Hooked(result string) { m.results.hooks.WithLabelValues(result).Inc() }

// reads are the durations of readings that other goroutines make for the loop.
type reads struct{ drains, audits prometheus.Histogram }

// PerBackend sets whether scrapes have series of single backends; initially they have none.
func (m *Metrics) PerBackend(on bool) { m.perBackend.Store(on) }

// Gatherer returns the metrics for an HTTP handler or a test.
func (m *Metrics) Gatherer() prometheus.Gatherer { return m.registry }

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

// Reloaded records the result of a reload.
func (m *Metrics) Reloaded(err error) {
	if err != nil {
		m.reloadOK.Set(0)
		return
	}
	m.reloadOK.Set(1)
	m.reloadTime.SetToCurrentTime()
}

// desc returns the description of a metric of a Sample.
func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("weir_"+name, help, labels, nil)
}

var (
	descBuild       = desc("build_info", "Always 1, with the version as a label.", "version")
	descUp          = desc("up", "1 while weir is ok or degraded, 0 while it starts or fails.")
	descServices    = desc("services", "Services, of clusters and static ones.")
	descObjects     = desc("objects", "weir's objects in the kernel.", "kind")
	descPending     = desc("ops_pending", "Failed operations that wait for a retry.")
	descBlocked     = desc("ops_blocked", "Deletions that wait for a source to sync.")
	descDrains      = desc("drains", "Backends that drain.")
	descNotes       = desc("notes", "Notes on Services, by reason.", "reason")
	descUnconfirmed = desc("config_trial_remaining_seconds", "Time left until a configuration on trial is rolled back; 0 without a trial.")
	descReturned    = desc("config_rolled_back", "1 while the configuration of before a trial is active and the file differs.")
	descLastSync    = desc("last_sync_timestamp_seconds", "Time of the last sync or audit; absent before the first.")

	descChecks = desc("checks_total", "Health checks made, by result.", "result")

	descMessages = desc("netlink_messages_total", "Netlink requests sent to the kernel.", "part")
	descSends    = desc("netlink_sends_total", "System calls that carried netlink requests.", "part")
	descRefused  = desc("netlink_errors_total", "Netlink requests that the kernel refused.", "part")
	descRetries  = desc("netlink_retries_total", "Batches repeated because a reply was lost.", "part")
	descMoved    = desc("mh_reordered_total", "Real servers of scheduler mh that were moved to the common order of all members.")
	descRuleset  = desc("ruleset_reads_total", "Audits by their reading of sets and rules: read, or unchanged since the last one and not read.", "result")
	descExecs    = desc("execs_total", "Programs run: iptables-save and iptables-restore.")
)

// collector exports Samples. Traffic is not part of them: see traffic.go.
type collector func() Sample

// Describe implements prometheus.Collector. It describes nothing, since the set of services changes.
func (c collector) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector.
func (c collector) Collect(out chan<- prometheus.Metric) {
	s := c()
	s.box(out)
	s.clusters(out)
	s.trial(out)
	s.routes(out)
	s.drains(out)
	s.fleet(out)
	s.addresses(out)
	s.health(out)
	s.kernel(out)
}

func gauge(out chan<- prometheus.Metric, d *prometheus.Desc, v float64, labels ...string) {
	out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
}

func count(out chan<- prometheus.Metric, d *prometheus.Desc, v uint64, labels ...string) {
	out <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(v), labels...)
}

func (x Sample) box(out chan<- prometheus.Metric) {
	s := x.Status
	gauge(out, descBuild, 1, s.Version)
	gauge(out, descUp, boolValue(s.State == status.OK || s.State == status.Degraded))
	gauge(out, descServices, float64(s.Kernel.Services))
	for kind, n := range x.Objects {
		gauge(out, descObjects, float64(n), kind)
	}
	gauge(out, descPending, float64(s.Kernel.Pending))
	gauge(out, descBlocked, float64(s.Kernel.Blocked))
	gauge(out, descDrains, float64(len(s.Drains)))
	if !s.Kernel.LastSync.IsZero() {
		gauge(out, descLastSync, float64(s.Kernel.LastSync.UnixMilli())/1000)
	}
	notes := map[string]int{}
	for _, n := range s.Notes {
		notes[n.Reason]++
	}
	for reason, n := range notes {
		gauge(out, descNotes, float64(n), reason)
	}
}

func (x Sample) health(out chan<- prometheus.Metric) {
	stats := x.Checks
	count(out, descChecks, stats.Checks-stats.Failures, "success")
	count(out, descChecks, stats.Failures, "failure")
}

func (x Sample) kernel(out chan<- prometheus.Metric) {
	conntrack(out)
	if x.Kernel == nil {
		return
	}
	n := x.Kernel
	for part, t := range map[string]*linux.Traffic{
		"ipvs": &n.IPVS, "ipset": &n.IPSet, "route": &n.Route, "conntrack": &n.Conntrack, "reader": &n.Reader,
	} {
		count(out, descMessages, t.Messages.Load(), part)
		count(out, descSends, t.Sends.Load(), part)
		count(out, descRefused, t.Errors.Load(), part)
		count(out, descRetries, t.Retries.Load(), part)
	}
	count(out, descExecs, n.Execs.Load())
	count(out, descMoved, n.Moved.Load())
	count(out, descRuleset, n.RulesRead.Load(), "read")
	count(out, descRuleset, n.RulesKept.Load(), "unchanged")
}

func boolValue(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// trial exports the trial of a configuration.
func (x Sample) trial(out chan<- prometheus.Metric) {
	s := x.Status.Config
	var left, returned float64
	if s.Trial != nil {
		left = max(0, time.Until(s.Trial.Ends).Seconds())
	}
	if s.RolledBack != nil {
		returned = 1
	}
	gauge(out, descUnconfirmed, left)
	gauge(out, descReturned, returned)
}

var (
	descConntrack      = desc("conntrack_entries", "Connections in conntrack, of all programs.")
	descConntrackLimit = desc("conntrack_limit", "Greatest number of connections in conntrack; the kernel drops further ones.")
)

// conntrack exports the size of the connection table, if there is one.
func conntrack(out chan<- prometheus.Metric) {
	entries, limit, ok := linux.ConntrackRoom()
	if !ok {
		return
	}
	gauge(out, descConntrack, float64(entries))
	gauge(out, descConntrackLimit, float64(limit))
}
