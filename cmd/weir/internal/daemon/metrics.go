package daemon

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"weir/cmd/weir/internal/status"
	"weir/lb"
	"weir/lb/linux"
)

// metrics are the counters that the loop writes. Gauges, health and traffic are
// read when somebody scrapes (collector).
type metrics struct {
	registry   *prometheus.Registry
	syncs      prometheus.Histogram
	failures   prometheus.Counter
	ops        *prometheus.CounterVec
	opErrors   prometheus.Counter
	drift      *prometheus.CounterVec
	reloadOK   prometheus.Gauge
	reloadTime prometheus.Gauge
	latency    *prometheus.HistogramVec
	releases   *prometheus.CounterVec
	announcing prometheus.Histogram
	assigning  prometheus.Histogram
	takeovers  prometheus.Histogram
}

func newMetrics(b *box) *metrics {
	m := &metrics{
		registry: prometheus.NewRegistry(),
		syncs: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "weir_sync_duration_seconds", Help: "Time that syncs and audits took.",
			Buckets: prometheus.ExponentialBuckets(0.0005, 2, 16),
		}),
		failures: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "weir_sync_failures_total", Help: "Syncs and audits that could not read the kernel.",
		}),
		ops: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "weir_ops_total", Help: "Operations applied to the kernel.",
		}, []string{"verb", "kind"}),
		opErrors: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "weir_op_errors_total", Help: "Operations that failed or had to wait for one that failed.",
		}),
		drift: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "weir_drift_total", Help: "Objects that somebody else altered and weir put right.",
		}, []string{"kind"}),
		reloadOK: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "weir_config_last_reload_successful", Help: "1 if the last attempt to load the configuration succeeded.",
		}),
		reloadTime: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "weir_config_last_reload_success_timestamp_seconds", Help: "When the configuration in force was loaded.",
		}),
	}
	m.latency, m.releases, m.announcing, m.assigning = newLatency(), newReleases(), newAnnouncing(), newAssigning()
	m.takeovers = newTakeovers()
	m.registry.MustRegister(m.syncs, m.failures, m.ops, m.opErrors, m.drift, m.reloadOK, m.reloadTime, m.latency, m.releases, m.announcing, m.assigning, m.takeovers,
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		collector{b})
	m.reloaded(nil)
	return m
}

func (m *metrics) pass(rep lb.Report, err error, took time.Duration) {
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

func (m *metrics) reloaded(err error) {
	if err != nil {
		m.reloadOK.Set(0)
		return
	}
	m.reloadOK.Set(1)
	m.reloadTime.SetToCurrentTime()
}

// desc makes the description of a metric that collector reads at a scrape.
func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("weir_"+name, help, labels, nil)
}

var (
	descBuild       = desc("build_info", "Always 1; the version is a label.", "version")
	descUp          = desc("up", "1 if weir is ok or degraded, 0 while it starts or fails.")
	descServices    = desc("services", "Services in the catalog.")
	descObjects     = desc("objects", "Objects of weir's that the kernel holds.", "kind")
	descPending     = desc("ops_pending", "Operations that failed and are tried again.")
	descHeld        = desc("ops_held", "Deletions that wait for a source to sync.")
	descDrains      = desc("drains", "Backends whose connections are ending.")
	descNotes       = desc("notes", "Notes: what could not be done for services.", "reason")
	descUnconfirmed = desc("config_unconfirmed_seconds", "How long a configuration on trial has left until the old one comes back; 0 while none is on trial.")
	descReturned    = desc("config_returned", "1 while the configuration from before a trial is in force, and not what the file says.")
	descLastSync    = desc("last_sync_timestamp_seconds", "When the last sync or audit ended; absent before the first.")

	descBackendUp = desc("backend_up", "1 if the check of a backend says up, 0 if down; absent before its first verdict.",
		"service", "port", "protocol", "backend")
	descChecks    = desc("checks_total", "Health checks made, by result.", "result")
	descCheckTime = desc("check_last_duration_seconds", "Time that the last check of a backend took.", "service", "port", "protocol", "backend")

	descMessages = desc("kernel_messages_total", "Netlink requests sent to the kernel.", "part")
	descSends    = desc("kernel_sends_total", "System calls that carried netlink requests.", "part")
	descRefused  = desc("kernel_refused_total", "Netlink requests that the kernel refused.", "part")
	descRetries  = desc("kernel_retries_total", "Batches sent again because a reply was lost.", "part")
	descMoved    = desc("mh_moved_total", "Real servers of scheduler mh that were put in the order which all members have.")
	descExecs    = desc("execs_total", "Programs run: iptables-save and iptables-restore.")
)

// collector reads what is a fact rather than an event, when it is asked for. The
// counters of traffic are not among it: see traffic.go.
type collector struct{ b *box }

// Describe implements prometheus.Collector. Describing nothing makes it
// unchecked: which services there are changes.
func (c collector) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector.
func (c collector) Collect(out chan<- prometheus.Metric) {
	c.b.announcements(context.Background())
	c.box(out)
	s := c.b.status()
	c.rest(out, s)
	c.trial(out, s.Config)
	c.speaking(out, s)
	c.draining(out, s)
	c.sharing(out, s)
	c.giving(out)
	c.health(out)
	c.kernel(out)
	c.conntrack(out)
}

func gauge(out chan<- prometheus.Metric, d *prometheus.Desc, v float64, labels ...string) {
	out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
}

func count(out chan<- prometheus.Metric, d *prometheus.Desc, v uint64, labels ...string) {
	out <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(v), labels...)
}

func (c collector) box(out chan<- prometheus.Metric) {
	v := c.b.published.Load()
	s := c.b.status()
	gauge(out, descBuild, 1, s.Version)
	gauge(out, descUp, boolValue(s.State == status.OK || s.State == status.Degraded))
	gauge(out, descServices, float64(s.Kernel.Services))
	for kind, n := range v.counts {
		gauge(out, descObjects, float64(n), kind)
	}
	gauge(out, descPending, float64(s.Kernel.Pending))
	gauge(out, descHeld, float64(s.Kernel.Held))
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
	c.clusters(out, s)
}

func (c collector) health(out chan<- prometheus.Metric) {
	stats := c.b.checks.Stats()
	count(out, descChecks, stats.Checks-stats.Failures, "success")
	count(out, descChecks, stats.Failures, "failure")
	for _, x := range c.b.checks.Backends() {
		labels := []string{x.Service.String(), strconv.Itoa(int(x.Port.Port)), x.Port.Proto.String(), x.Backend.String()}
		if x.Verdict != "unknown" {
			gauge(out, descBackendUp, boolValue(x.Verdict == "up"), labels...)
			gauge(out, descCheckTime, x.Took.Seconds(), labels...)
		}
	}
}

func (c collector) kernel(out chan<- prometheus.Metric) {
	n := c.b.kernel.Counters()
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
}

func boolValue(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// listenWeb opens the address for metrics and health, if there is one.
func listenWeb(addr string) (net.Listener, error) {
	if addr == "" {
		return nil, nil
	}
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("listen on daemon.listen: %w", err)
	}
	return l, nil
}

// webHandler answers /metrics, /healthz (should new traffic come here?) and /livez
// (should the process be restarted?), and with the status page.
func (b *box) webHandler() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", b.metricsHandler())
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		v, line := b.published.Load(), b.status().Line()
		switch {
		case !v.isAlive(time.Now()):
			line = hangs
		case v.isLeaving():
			line = "this Node leaves its cluster: " + line
		}
		healthy(w, b.isHealthy() && !v.isLeaving() && !v.isDrained(), line)
	})
	mux.HandleFunc("GET /livez", func(w http.ResponseWriter, _ *http.Request) {
		line, alive := b.status().Line(), b.published.Load().isAlive(time.Now())
		if !alive {
			line = hangs
		}
		healthy(w, alive, line)
	})
	b.handlePage(mux)
	return mux
}

// hangs is what there is to say of a loop that does not turn.
const hangs = "weir hangs: it has not looked after the kernel for more than two sync periods"

func healthy(w http.ResponseWriter, ok bool, line string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	if !ok {
		w.WriteHeader(http.StatusServiceUnavailable)
	}
	fmt.Fprintln(w, line)
}
