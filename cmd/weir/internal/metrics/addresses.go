package metrics

import (
	"github.com/prometheus/client_golang/prometheus"
)

var (
	descPoolSize    = desc("pool_size", "Addresses of a pool.", "pool")
	descPoolUse     = desc("pool_addresses", "Addresses of a pool by state: used, retained, reserved, foreign, avoided or free.", "pool", "state")
	descOutsidePool = desc("addresses_outside_pool", "Assigned addresses that the pools no longer permit.")
	descIgnored     = desc("node_addresses_ignored", "Addresses of a cluster's Nodes in pools for other clusters, which count as free.", "cluster")
	descWaiting     = desc("addresses_pending", "Services that wait for an address.", "reason")
	descWriter      = desc("address_writer", "1 while this box assigns addresses.")
	descTransitions = desc("address_writer_transitions_total", "Times that this box became the writer, or ceased to be it.")
	descWrites      = desc("address_status_writes_total", "Statuses of Services written by this box.")
	descWriteErrors = desc("address_errors_total", "Requests for addresses that an API server refused or left unanswered.")
	descAssigned    = desc("addresses_assigned_total", "Addresses assigned by this box.")
	descReleased    = desc("addresses_released_total", "Addresses released by this box.")
	descClaimLost   = desc("address_conflicts_total", "Claims that another client changed first.")
)

// addresses exports pools and the writer; nothing if there were never pools.
func (x Sample) addresses(out chan<- prometheus.Metric) {
	if x.Provider == nil {
		return
	}
	s := x.Provider
	for _, u := range s.Usage.Pools {
		gauge(out, descPoolSize, u.Size.Float64(), u.Name)
		for state, n := range map[string]float64{
			"used": float64(u.Used), "retained": float64(u.Retained), "reserved": float64(u.Reserved), "foreign": float64(u.Taken),
			"avoided": float64(u.Avoided), "free": u.Free.Float64(),
		} {
			gauge(out, descPoolUse, n, u.Name, state)
		}
	}
	gauge(out, descOutsidePool, float64(s.Usage.OutsidePool))
	for name, x := range s.IgnoredNodes {
		gauge(out, descIgnored, float64(x.Count), name)
	}
	for reason, n := range s.Usage.Pending {
		gauge(out, descWaiting, float64(n), string(reason))
	}
	gauge(out, descWriter, boolValue(s.Writing))
	n := s.Counters
	count(out, descTransitions, n.Transitions)
	count(out, descWrites, n.StatusWrites)
	count(out, descWriteErrors, n.Errors)
	count(out, descAssigned, n.Assigned)
	count(out, descReleased, n.Released)
	count(out, descClaimLost, n.Conflicts)
}
