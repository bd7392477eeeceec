package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"weir/cluster"
	"weir/cluster/l2"
	"weir/cluster/owner"
	"weir/cmd/weir/internal/status"
)

var (
	descMembers       = desc("fleet_members", "Known members of the fleet, including this box, by state.", "state")
	descFleetFit      = desc("fleet_fit", "1 while this box is fit.")
	descFleetSettled  = desc("fleet_stable", "1 while this box has been fit for preempt_delay.")
	descFleetCutOff   = desc("fleet_isolated", "1 while no client can reach this box, so that it has released gateways and masquerade_source.")
	descFleetFailed   = desc("fleet_failed", "1 while this box does not participate in the fleet, for instance because its port is in use.")
	descFleetVIPs     = desc("fleet_vips", "VIPs that some member serves, by the role of this box.", "role")
	descOwnedVIPs     = desc("fleet_owned_vips", "VIPs that this box owns.")
	descMoves         = desc("fleet_moves_total", "VIPs that moved to or from this box.", "reason")
	descSuspects      = desc("fleet_suspects", "Members that have not answered this box in time.")
	descSuspicions    = desc("fleet_suspicions_total", "Times that a member did not answer this box in time.")
	descJoins         = desc("fleet_joins_total", "Members that joined.")
	descDeaths        = desc("fleet_deaths_total", "Members that were declared dead.")
	descNameConflicts = desc("fleet_name_conflicts_total", "Messages of a second box with the name of a member.")
	descRefusedGossip = desc("fleet_refused_total", "Messages that no key decrypts, or that belong to another fleet.")
	descReplayed      = desc("fleet_replayed_total", "States and messages of members that were older than the known state: recorded by a host, or late.")
	descDroppedWords  = desc("fleet_dropped_total", "Unrequested or duplicate member messages, and requests beyond the rate limit.")
	descStrain        = desc("fleet_health_score", "Delay of this box in failure detection, from 0 (none) to 7.")
	descUnjoined      = desc("fleet_join_unreachable", "Entries of join that are unreachable.")
	descDiffers       = desc("fleet_source_differs", "1 while a source differs from that of another member.", "source")
	descDisorder      = desc("fleet_mh_order_differs", "Frontends with scheduler mh for which a member has a different order or weights of backends.", "member")

	descL2VIPs       = desc("l2_vips", "VIPs of this box on an interface, by state.", "interface", "state")
	descL2Carrier    = desc("l2_carrier", "1 while the interface is up and has a carrier.", "interface")
	descL2Answered   = desc("l2_requests_answered_total", "ARP requests and neighbor solicitations answered.", "interface")
	descL2Gratuitous = desc("l2_gratuitous_total", "Gratuitous ARP messages and unsolicited neighbor advertisements sent.", "interface")
	descL2Probes     = desc("l2_probes_total", "Probes sent before the box answers for an address.", "interface")
	descL2Conflicts  = desc("l2_conflicts_total", "Uses of an address by another host while this box owned or probed it.", "interface", "reason")
	descL2Takeovers  = desc("l2_takeovers_total", "Addresses that this box began to answer for.", "interface")
	descL2Overruled  = desc("l2_overruled_total", "Addresses of dead members that this box took over although another host answered for them.", "interface")
	descL2Unheard    = desc("l2_receive_dropped_total", "Frames dropped because they arrived too fast, or because the code that reads them panicked.", "interface")
	descL2Unsent     = desc("l2_send_failed_total", "Frames that the interface refused.", "interface")
)

// fleet exports the fleet and layer 2; nothing without [fleet] and [l2].
func (x Sample) fleet(out chan<- prometheus.Metric) {
	n, s := x.Fleet, x.Status
	if n.Fleet && s.Fleet != nil {
		for _, state := range status.MemberStates {
			gauge(out, descMembers, float64(s.Fleet.Members[state]), string(state))
		}
		for _, role := range []status.VIPRole{status.RoleOwner, status.RoleStandby, status.RoleOut, status.RoleNothing} {
			gauge(out, descFleetVIPs, float64(s.Fleet.VIPs[role]), string(role))
		}
		gauge(out, descFleetFit, boolValue(n.Fit))
		gauge(out, descFleetSettled, boolValue(n.Stable))
		gauge(out, descFleetCutOff, boolValue(s.Fleet.Isolated))
		gauge(out, descFleetFailed, boolValue(s.Fleet.Error != ""))
		gauge(out, descOwnedVIPs, float64(n.Owned))
		for reason := owner.Only; reason <= owner.Starting; reason++ {
			count(out, descMoves, n.Moves[reason], reason.String())
		}
		gauge(out, descSuspects, float64(n.Suspects))
		gauge(out, descUnjoined, float64(len(s.Fleet.UnreachableNames)))
		differing := map[string]bool{}
		for _, x := range s.Fleet.Differing {
			differing[x.Source] = true
			gauge(out, descDiffers, 1, x.Source)
		}
		for _, source := range n.Sources {
			if !differing[source] {
				gauge(out, descDiffers, 0, source)
			}
		}
		for name, frontends := range n.Disorders {
			gauge(out, descDisorder, float64(frontends), name)
		}
	}
	if n.Fleet && x.Gossip != nil {
		gossip(out, *x.Gossip)
	}
	if n.L2 && s.L2 != nil && x.L2 != nil {
		layer2(out, s.L2, *x.L2)
	}
}

// gossip exports the messages between members.
func gossip(out chan<- prometheus.Metric, s cluster.Status) {
	n := s.Counters
	count(out, descSuspicions, n.Suspicions)
	count(out, descJoins, n.Joins)
	count(out, descDeaths, n.Deaths)
	count(out, descNameConflicts, n.Conflicts)
	count(out, descRefusedGossip, n.Refused)
	count(out, descReplayed, n.Replayed)
	count(out, descDroppedWords, n.Dropped)
	gauge(out, descStrain, float64(s.HealthScore))
}

// layer2 exports ARP and NDP.
func layer2(out chan<- prometheus.Metric, doc *status.L2, now l2.Status) {
	for _, x := range doc.Interfaces {
		for state, n := range map[l2.State]int{l2.Answered: x.Answered, l2.Probing: x.Probing, l2.Contested: x.Contested, l2.Idle: x.Idle} {
			gauge(out, descL2VIPs, float64(n), x.Name, state.String())
		}
	}
	for _, x := range now.Interfaces {
		gauge(out, descL2Carrier, boolValue(x.Carrier), x.Name)
		count(out, descL2Answered, x.Answered, x.Name)
		count(out, descL2Gratuitous, x.Gratuitous, x.Name)
		count(out, descL2Probes, x.Probes, x.Name)
		count(out, descL2Conflicts, x.MemberConflicts, x.Name, "member")
		count(out, descL2Conflicts, x.ForeignConflicts, x.Name, "foreign")
		count(out, descL2Takeovers, x.Takeovers, x.Name)
		count(out, descL2Overruled, x.Overruled, x.Name)
		count(out, descL2Unheard, x.ReceiveDrops, x.Name)
		count(out, descL2Unsent, x.SendDrops, x.Name)
	}
}
