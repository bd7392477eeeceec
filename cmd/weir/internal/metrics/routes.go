package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"weir/bgp"
)

var (
	descBGPFailed  = desc("bgp_failed", "1 while the BGP speaker cannot run, for instance because its port is in use.")
	descPeerUp     = desc("bgp_session_up", "1 while the session with a peer is established.", "peer", "address")
	descFlaps      = desc("bgp_flaps_total", "Established sessions that were lost.", "peer", "address")
	descAdvertised = desc("bgp_advertised", "Prefixes advertised to a peer.", "peer", "address")
	descReceived   = desc("bgp_received", "Prefixes received from a peer; none is used.", "peer", "address")
	descLimit      = desc("bgp_prefix_limit", "Greatest number of received prefixes before the session ends.", "peer", "address")
	descBFDUp      = desc("bgp_bfd_up", "1 while the BFD session of the peer is up; absent without BFD.", "peer", "address")
	descAnnounced  = desc("routes_announced", "Announced VIPs.")
	descStandby    = desc("routes_standby", "VIPs announced with a lower preference because another member owns them.")
	descKept       = desc("routes_without_backends", "Announced VIPs without a backend, kept by min_announced.")
	descWithheld   = desc("routes_withheld", "VIPs that are not announced; weir bgp routes explains the reasons.", "reason")
	descDrainedBox = desc("drained", "1 while the whole box is drained.")
	descDrainedVIP = desc("drained_vips", "VIPs that are drained individually.")
	descDrainFile  = desc("drain_state_failed", "1 while the drain state cannot be stored, or could not be read at the start.")

	descPoolSize    = desc("pool_size", "Addresses of a pool.", "pool")
	descPoolUse     = desc("pool_addresses", "Addresses of a pool by state: used, retained, reserved, foreign, avoided or free.", "pool", "state")
	descOutsidePool = desc("addresses_outside_pool", "Assigned addresses that the pools no longer permit.")
	descWaiting     = desc("addresses_pending", "Services that wait for an address.", "reason")
	descWriter      = desc("address_writer", "1 while this box assigns addresses.")
	descTransitions = desc("address_writer_transitions_total", "Times that this box became the writer, or ceased to be it.")
	descWrites      = desc("address_status_writes_total", "Statuses of Services written by this box.")
	descWriteErrors = desc("address_errors_total", "Requests for addresses that an API server refused or left unanswered.")
	descAssigned    = desc("addresses_assigned_total", "Addresses assigned by this box.")
	descReleased    = desc("addresses_released_total", "Addresses released by this box.")
	descClaimLost   = desc("address_conflicts_total", "Claims that another client changed first.")
)

// routes exports peers and routes; nothing without [bgp].
func (x Sample) routes(out chan<- prometheus.Metric) {
	s := x.Status
	if s.BGP == nil {
		return
	}
	gauge(out, descBGPFailed, boolValue(s.BGP.Problem != ""))
	for _, p := range x.Peers {
		if p.Range.IsValid() && !p.Address.IsValid() {
			continue
		}
		labels := []string{p.Name, p.Address.String()}
		gauge(out, descPeerUp, boolValue(p.State == bgp.Established), labels...)
		count(out, descFlaps, uint64(max(0, p.Flaps)), labels...)
		gauge(out, descAdvertised, float64(p.Advertised), labels...)
		gauge(out, descReceived, float64(p.Prefixes), labels...)
		gauge(out, descLimit, float64(p.MaxPrefixes), labels...)
		if p.BFD.Enabled {
			gauge(out, descBFDUp, boolValue(p.BFD.State == "up"), labels...)
		}
	}
	gauge(out, descAnnounced, float64(s.BGP.Announced))
	gauge(out, descStandby, float64(s.BGP.Standby))
	gauge(out, descKept, float64(s.BGP.MinAnnounced))
	for reason, n := range s.BGP.Withheld {
		gauge(out, descWithheld, float64(n), reason)
	}
}

// drains exports the drains of operators.
func (x Sample) drains(out chan<- prometheus.Metric) {
	if d := x.Status.Drained; d != nil {
		gauge(out, descDrainedBox, boolValue(d.All != nil))
		gauge(out, descDrainedVIP, float64(len(d.VIPs)))
		gauge(out, descDrainFile, boolValue(d.Error != ""))
	}
}

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
