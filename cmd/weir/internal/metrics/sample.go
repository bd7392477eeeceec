package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"weir/bgp"
	"weir/cluster"
	"weir/cluster/l2"
	"weir/cmd/weir/internal/fleet"
	"weir/cmd/weir/internal/status"
	"weir/k8ssync"
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

// desc returns the description of a metric of a Sample.
func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("weir_"+name, help, labels, nil)
}

func gauge(out chan<- prometheus.Metric, d *prometheus.Desc, v float64, labels ...string) {
	out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
}

func count(out chan<- prometheus.Metric, d *prometheus.Desc, v uint64, labels ...string) {
	out <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(v), labels...)
}

func boolValue(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
