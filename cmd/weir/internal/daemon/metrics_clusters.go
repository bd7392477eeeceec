package daemon

import (
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"weir/cmd/weir/internal/status"
	"weir/lb"
)

// latencyBuckets are those of kube-proxy's network_programming_duration_seconds
// (pkg/proxy/metrics), so that the two can be compared, and finer ones below.
var latencyBuckets = slices.Concat(
	[]float64{0.01, 0.025, 0.05, 0.1},
	prometheus.LinearBuckets(0.25, 0.25, 2),
	prometheus.LinearBuckets(1, 1, 59),
	prometheus.LinearBuckets(60, 5, 12),
	prometheus.LinearBuckets(120, 30, 7),
)

func newLatency() *prometheus.HistogramVec {
	return prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "weir_programming_latency_seconds",
		Help:    "Time from the change of an EndpointSlice, as its cluster says, until the kernel held it.",
		Buckets: latencyBuckets,
	}, []string{"cluster"})
}

func newReleases() *prometheus.CounterVec {
	v := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "weir_guard_releases_total", Help: "Held syncs that ended, and how.",
	}, []string{"how"})
	for _, how := range []string{confirmed, overdue, recovered} {
		v.WithLabelValues(how)
	}
	return v
}

var (
	descHeldSyncs = desc("held_syncs", "Sources that took away much at once and are not believed yet.")
	descHeldParts = desc("guard_held", "What is held of a source.", "source", "kind")
	descAge       = desc("kubernetes_data_age_seconds", "How long ago the cluster said something; absent before it did.", "cluster")
	descConnected = desc("kubernetes_connected", "1 while the watches of a cluster are open.", "cluster")
	descStale     = desc("kubernetes_stale", "1 while a cluster is served from its last-known-good file.", "cluster")
	descFollowed  = desc("kubernetes_objects", "Objects of a cluster that are followed.", "cluster", "kind")
	descEndpoints = desc("kubernetes_endpoints", "Endpoints of a cluster.", "cluster")
	descRelists   = desc("kubernetes_relists_total", "How often a whole list was read.", "cluster")
	descEvents    = desc("kubernetes_events_total", "Events written about what can't be done for Services.", "cluster")
	descPanics    = desc("kubernetes_panics_total", "How often following a cluster panicked and was begun anew.", "cluster")
	descFile      = desc("kubernetes_file_failed", "1 while the last-known-good file of a cluster can't be read or written.", "cluster")
	descMode      = desc("mode_info", "Always 1; what balances is a label, and whether it is for want of IPVS.", "mode", "fallback")
	descConflicts = desc("conflicts", "Frontends that a service does not have because another one has them.")
	descProbes    = desc("health_port_requests_total", "Requests to healthCheckNodePorts, by status.", "code")
	descProbePort = desc("health_ports", "healthCheckNodePorts that are open.")
)

// clusters gives what is known of clusters.
func (c collector) clusters(out chan<- prometheus.Metric, s status.Status) {
	for _, x := range s.Clusters {
		if !x.Heard.IsZero() {
			gauge(out, descAge, max(0, time.Since(x.Heard).Seconds()), x.Name)
		}
		gauge(out, descConnected, boolValue(x.State == status.Connected), x.Name)
		gauge(out, descStale, boolValue(x.Stale), x.Name)
		for kind, n := range x.Objects {
			gauge(out, descFollowed, float64(n), x.Name, kind)
		}
		gauge(out, descEndpoints, float64(x.Endpoints), x.Name)
		count(out, descRelists, x.Relists, x.Name)
		count(out, descPanics, x.Panics, x.Name)
		count(out, descEvents, x.Events, x.Name)
		gauge(out, descFile, boolValue(x.FileError != ""), x.Name)
	}
}

// rest gives what came with clusters but is the box's own.
func (c collector) rest(out chan<- prometheus.Metric, s status.Status) {
	gauge(out, descHeldSyncs, float64(len(s.Held)))
	for _, h := range s.Held {
		gauge(out, descHeldParts, float64(h.Services), h.Source, "services")
		gauge(out, descHeldParts, float64(h.Frontends), h.Source, "frontends")
		gauge(out, descHeldParts, float64(h.Backends), h.Source, "backends")
	}
	fallback := "false"
	if s.Kernel.Fallback {
		fallback = "true"
	}
	gauge(out, descMode, 1, s.Kernel.Mode, fallback)
	conflicts := 0
	for _, n := range s.Notes {
		if n.Reason == string(lb.Conflict) {
			conflicts++
		}
	}
	gauge(out, descConflicts, float64(conflicts))
	count(out, descProbes, c.b.probes.ok.Load(), "200")
	count(out, descProbes, c.b.probes.bad.Load(), "503")
	gauge(out, descProbePort, float64(len(c.b.probes.open())))
}
