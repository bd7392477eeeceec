package daemon

import (
	"github.com/prometheus/client_golang/prometheus"

	"weir/lb/linux"
)

var (
	descConntrack      = desc("conntrack_entries", "Connections that conntrack has, whoever they are of.")
	descConntrackLimit = desc("conntrack_limit", "How many it may have: beyond that the kernel drops new ones.")
)

// conntrack gives the room that is left for connections; nothing without conntrack.
func (c collector) conntrack(out chan<- prometheus.Metric) {
	entries, limit, ok := linux.ConntrackRoom()
	if !ok {
		return
	}
	gauge(out, descConntrack, float64(entries))
	gauge(out, descConntrackLimit, float64(limit))
}
