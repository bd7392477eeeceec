package daemon

import (
	"github.com/prometheus/client_golang/prometheus"

	"weir/bgp"
	"weir/cmd/weir/internal/status"
)

var (
	descBGPFailed  = desc("bgp_failed", "1 while the speaker can't do its work, for instance because its port is taken.")
	descPeerUp     = desc("bgp_up", "1 while the session with a router is established.", "peer", "address")
	descFlaps      = desc("bgp_flaps_total", "Established sessions that were lost.", "peer", "address")
	descAdvertised = desc("bgp_advertised", "Prefixes that a router has from weir.", "peer", "address")
	descReceived   = desc("bgp_received", "Prefixes that a router sends; none is used.", "peer", "address")
	descLimit      = desc("bgp_prefix_limit", "How many a router may send before its session ends.", "peer", "address")
	descBFDUp      = desc("bgp_bfd_up", "1 while the BFD session beside it is up; absent without BFD.", "peer", "address")
	descAnnounced  = desc("routes_announced", "VIPs that are announced.")
	descStandby    = desc("routes_standby", "Announced VIPs that another member of the fleet owns: routers are told to prefer that one.")
	descKept       = desc("routes_kept", "Announced VIPs without a backend, which the floor keeps.")
	descWithheld   = desc("routes_withheld", "VIPs that are not announced.", "reason")
	descDrainedBox = desc("drained", "1 while the whole box is drained.")
	descDrainedVIP = desc("drained_vips", "VIPs that are drained by themselves.")
	descDrainFile  = desc("drain_file_failed", "1 while the drain state can't be kept for the next start, or could not be read at this one.")

	descPoolSize    = desc("pool_size", "Addresses of a pool.", "pool")
	descPoolUse     = desc("pool_addresses", "Addresses of a pool by what has become of them.", "pool", "state")
	descStranded    = desc("addresses_stranded", "Addresses that the pools would not give their Services today.")
	descWaiting     = desc("addresses_pending", "Services that wait for an address.", "reason")
	descWriter      = desc("address_writer", "1 while this box is the one that gives addresses.")
	descTransitions = desc("address_writer_transitions_total", "How often this box began or ceased to be that.")
	descWrites      = desc("address_status_writes_total", "Statuses of Services written by this box.")
	descWriteErrors = desc("address_errors_total", "Requests for addresses that an API server refused or did not answer.")
	descAssigned    = desc("addresses_assigned_total", "Addresses given by this box.")
	descReleased    = desc("addresses_released_total", "Addresses taken back by this box.")
	descClaimLost   = desc("address_conflicts_total", "Claims that somebody else had changed first.")
)

// speaking gives what is known of routers and routes; nothing without [bgp].
func (c collector) speaking(out chan<- prometheus.Metric, s status.Status) {
	if s.BGP == nil {
		return
	}
	gauge(out, descBGPFailed, boolValue(s.BGP.Problem != ""))
	for _, p := range c.b.look(glanceAge).Peers {
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
	gauge(out, descKept, float64(s.BGP.Kept))
	for reason, n := range s.BGP.Withheld {
		gauge(out, descWithheld, float64(n), reason)
	}
}

// draining gives what is drained; nothing where nothing can be.
func (c collector) draining(out chan<- prometheus.Metric, s status.Status) {
	if d := s.Drained; d != nil {
		gauge(out, descDrainedBox, boolValue(d.All != nil))
		gauge(out, descDrainedVIP, float64(len(d.VIPs)))
		gauge(out, descDrainFile, boolValue(d.Error != ""))
	}
}

// giving gives what is known of addresses; nothing where there have never been pools.
func (c collector) giving(out chan<- prometheus.Metric) {
	if !c.b.published.Load().pooled {
		return
	}
	s := c.b.provider.Status()
	stranded := 0
	for _, u := range s.Usage.Pools {
		gauge(out, descPoolSize, u.Size.Float64(), u.Name)
		for state, n := range map[string]float64{
			"used": float64(u.Used), "held": float64(u.Held), "reserved": float64(u.Reserved), "taken": float64(u.Taken),
			"avoided": float64(u.Avoided), "free": u.Free.Float64(),
		} {
			gauge(out, descPoolUse, n, u.Name, state)
		}
		stranded += u.Stranded
	}
	gauge(out, descStranded, float64(stranded))
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
