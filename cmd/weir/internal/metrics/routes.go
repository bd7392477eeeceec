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
