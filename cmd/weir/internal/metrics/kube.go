package metrics

import (
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"weir/cmd/weir/internal/connlimit"
	"weir/cmd/weir/internal/status"
	"weir/lb"
)

// latencyBuckets are those of kube-proxy's network_programming_duration_seconds (pkg/proxy/metrics), for comparisons, and
// finer ones below.
var latencyBuckets = slices.Concat(
	[]float64{0.01, 0.025, 0.05, 0.1},
	prometheus.LinearBuckets(0.25, 0.25, 2),
	prometheus.LinearBuckets(1, 1, 59),
	prometheus.LinearBuckets(60, 5, 12),
	prometheus.LinearBuckets(120, 30, 7),
)

var (
	descGuardedSources = desc("guarded_sources", "Sources under the mass-deletion guard.")
	descGuardedObjects = desc("guarded_objects", "Objects that the mass-deletion guard retains.", "source", "kind")
	descAge            = desc("kubernetes_data_age_seconds", "Time since the last message of the cluster, up to three minutes without changes; absent before the first.", "cluster")
	descConnected      = desc("kubernetes_connected", "1 while the watches of a cluster are open.", "cluster")
	descStale          = desc("kubernetes_stale", "1 while a cluster is served from its snapshot.", "cluster")
	descFollowed       = desc("kubernetes_objects", "Watched objects of a cluster.", "cluster", "kind")
	descEndpoints      = desc("kubernetes_endpoints", "Endpoints of a cluster.", "cluster")
	descNeeded         = desc("kubernetes_kernel_objects", "Kernel objects that the Services of a cluster need, about; max_objects limits them.", "cluster")
	descOverMost       = desc("kubernetes_services_over_budget", "Services that are not served because their namespace needs too many kernel objects.", "cluster")
	descRelists        = desc("kubernetes_relists_total", "Complete lists read.", "cluster")
	descEvents         = desc("kubernetes_events_total", "Events written about Services.", "cluster")
	descPanics         = desc("kubernetes_panics_total", "Panics of the code that follows a cluster, each with a restart of that code.", "cluster")
	descSnapshot       = desc("kubernetes_snapshot_failed", "1 while the snapshot of a cluster cannot be read or written.", "cluster")
	descMode           = desc("mode_info", "Always 1, with the balancing mode, whether it is a fallback for missing IPVS, and the owner of the rules as labels.", "mode", "fallback", "rules")
	descConflicts      = desc("conflicts", "Frontends that a service does not get because another one owns them.")
	descProbes         = desc("health_port_requests_total", "Requests to healthCheckNodePorts, by status.", "code")
	descCrowded        = desc("http_connections_dropped_total", "Connections to weir's HTTP ports that were closed for newer ones, since too many were open.")
	descProbePort      = desc("health_ports", "Open healthCheckNodePorts.")
)

// clusters exports the clusters, the guard and the healthCheckNodePorts.
func (x Sample) clusters(out chan<- prometheus.Metric) {
	s := x.Status
	for _, x := range s.Clusters {
		if !x.LastContact.IsZero() {
			gauge(out, descAge, max(0, time.Since(x.LastContact).Seconds()), x.Name)
		}
		gauge(out, descConnected, boolValue(x.State == status.Connected), x.Name)
		gauge(out, descStale, boolValue(x.Stale), x.Name)
		for kind, n := range x.Objects {
			gauge(out, descFollowed, float64(n), x.Name, kind)
		}
		gauge(out, descEndpoints, float64(x.Endpoints), x.Name)
		gauge(out, descNeeded, float64(x.KernelObjects), x.Name)
		gauge(out, descOverMost, float64(x.OverBudget), x.Name)
		count(out, descRelists, x.Relists, x.Name)
		count(out, descPanics, x.Panics, x.Name)
		count(out, descEvents, x.Events, x.Name)
		gauge(out, descSnapshot, boolValue(x.SnapshotError != ""), x.Name)
	}
	gauge(out, descGuardedSources, float64(len(s.Guarded)))
	for _, h := range s.Guarded {
		gauge(out, descGuardedObjects, float64(h.Services), h.Source, "services")
		gauge(out, descGuardedObjects, float64(h.Frontends), h.Source, "frontends")
		gauge(out, descGuardedObjects, float64(h.Backends), h.Source, "backends")
	}
	fallback := "false"
	if s.Kernel.Fallback {
		fallback = "true"
	}
	gauge(out, descMode, 1, s.Kernel.Mode, fallback, s.Kernel.Rules)
	conflicts := 0
	for _, n := range s.Notes {
		if n.Reason == string(lb.Conflict) {
			conflicts++
		}
	}
	gauge(out, descConflicts, float64(conflicts))
	count(out, descCrowded, connlimit.Closed())
	count(out, descProbes, x.ProbesOK, "200")
	count(out, descProbes, x.ProbesFailed, "503")
	gauge(out, descProbePort, float64(x.HealthPorts))
}
