package daemon

import (
	"maps"
	"slices"

	"github.com/prometheus/client_golang/prometheus"

	"weir/cluster"
	"weir/cluster/owner"
	"weir/cmd/weir/internal/status"
	"weir/l2"
)

var (
	descMembers       = desc("fleet_members", "Members of the fleet that are known, this box included, by how they are.", "state")
	descFleetFit      = desc("fleet_fit", "1 while this box is fit to serve.")
	descFleetSettled  = desc("fleet_settled", "1 while this box has been fit for long enough to take VIPs over.")
	descFleetCutOff   = desc("fleet_cut_off", "1 while nobody can reach this box, so that it has let go of gateways and of what masqueraded connections bear.")
	descFleetFailed   = desc("fleet_failed", "1 while this box takes no part in the fleet, for instance because its port is taken.")
	descFleetVIPs     = desc("fleet_vips", "VIPs that some member serves, by what this box does about them.", "role")
	descOwnedVIPs     = desc("fleet_owned_vips", "VIPs that this box owns.")
	descMoves         = desc("fleet_moves_total", "VIPs that this box took over from another member, or gave away.", "why")
	descSuspects      = desc("fleet_suspects", "Members that have not answered this box for too long.")
	descSuspicions    = desc("fleet_suspicions_total", "Times that a member did not answer this box for too long.")
	descJoins         = desc("fleet_joins_total", "Members that came.")
	descDeaths        = desc("fleet_deaths_total", "Members that were found dead.")
	descNameConflicts = desc("fleet_name_conflicts_total", "Messages of a second box with a member's name.")
	descRefusedGossip = desc("fleet_refused_total", "Messages that no key decrypts, or that are another fleet's.")
	descDroppedWords  = desc("fleet_dropped_total", "Words that were not asked for or came twice, and requests for Words that came faster than they were read.")
	descStrain        = desc("fleet_strain", "How late this box is with its own part of finding dead members, 0 to 7.")
	descUnjoined      = desc("fleet_unjoined", "Names to join that can't be reached.")
	descDiffers       = desc("fleet_digest_differs", "1 while a source has been another on some other member for a while.", "source")
	descDisorder      = desc("fleet_order_differs", "Frontends with scheduler mh whose backends a member has in another order, or with other weights.", "member")

	descL2VIPs       = desc("l2_vips", "VIPs that this box is to answer for, by how far that is.", "interface", "state")
	descL2Carrier    = desc("l2_carrier", "1 while the interface is up and has a carrier.", "interface")
	descL2Answered   = desc("l2_requests_answered_total", "ARP requests and neighbor solicitations answered.", "interface")
	descL2Gratuitous = desc("l2_gratuitous_total", "Unasked ARP messages and neighbor advertisements sent.", "interface")
	descL2Probes     = desc("l2_probes_total", "Probes sent before an address was answered for.", "interface")
	descL2Conflicts  = desc("l2_conflicts_total", "Times that somebody else used an address that this box held or was about to.", "interface", "who")
	descL2Takeovers  = desc("l2_takeovers_total", "Addresses that this box began to answer for.", "interface")
	descL2Unheard    = desc("l2_unheard_total", "Frames that came too fast to be read.", "interface")
	descL2Unsent     = desc("l2_unsent_total", "Frames that the interface did not take.", "interface")
)

func newTakeovers() prometheus.Histogram {
	return prometheus.NewHistogram(prometheus.HistogramOpts{
		Name:    "weir_l2_takeover_seconds",
		Help:    "Time from when this box came to own an address until it answered for it.",
		Buckets: prometheus.ExponentialBuckets(0.05, 2, 12),
	})
}

// fleetNumbers are what the loop publishes for metrics. It is never changed once made.
type fleetNumbers struct {
	fleet, l2 bool
	fit       bool
	settled   bool
	mine      int
	moves     map[owner.Why]uint64
	suspects  int
	disorders map[string]int
	sources   []string // of which this box has told the fleet
	// gossip and answerer are asked when somebody scrapes; nil without.
	gossip   gossip
	answerer answerer
}

// numbers gives that, as of now.
func (f *fleet) numbers() fleetNumbers {
	if f == nil {
		return fleetNumbers{}
	}
	out := fleetNumbers{
		fleet: f.cfg != nil, l2: f.answer.cfg != nil, fit: f.stand.why == "", settled: f.stand.now.Said == owner.Settled,
		mine: f.share.mine, moves: maps.Clone(f.share.moves), disorders: map[string]int{}, gossip: f.gossip, answerer: f.answer.answerer,
	}
	out.sources = slices.Collect(maps.Keys(f.say.word.sources))
	for name, v := range f.fellows {
		out.disorders[name] = f.differ.orders[name].frontends
		if v.member.Suspect {
			out.suspects++
		}
	}
	return out
}

// sharing gives what is known of the fleet; nothing without [cluster] and [l2].
func (c collector) sharing(out chan<- prometheus.Metric, s status.Status) {
	n := c.b.published.Load().numbers
	if n.fleet && s.Fleet != nil {
		for _, state := range status.MemberStates {
			gauge(out, descMembers, float64(s.Fleet.Members[state]), string(state))
		}
		for _, role := range []status.VIPRole{status.RoleOwner, status.RoleStandby, status.RoleOut, status.RoleNothing} {
			gauge(out, descFleetVIPs, float64(s.Fleet.VIPs[role]), string(role))
		}
		gauge(out, descFleetFit, boolValue(n.fit))
		gauge(out, descFleetSettled, boolValue(n.settled))
		gauge(out, descFleetCutOff, boolValue(s.Fleet.CutOff))
		gauge(out, descFleetFailed, boolValue(s.Fleet.Error != ""))
		gauge(out, descOwnedVIPs, float64(n.mine))
		for why := owner.Only; why <= owner.Starting; why++ {
			count(out, descMoves, n.moves[why], why.String())
		}
		gauge(out, descSuspects, float64(n.suspects))
		gauge(out, descUnjoined, float64(len(s.Fleet.Unjoined)))
		differing := map[string]bool{}
		for _, x := range s.Fleet.Differing {
			differing[x.Source] = true
			gauge(out, descDiffers, 1, x.Source)
		}
		for _, source := range n.sources {
			if !differing[source] {
				gauge(out, descDiffers, 0, source)
			}
		}
		for name, frontends := range n.disorders {
			gauge(out, descDisorder, float64(frontends), name)
		}
	}
	if n.fleet && n.gossip != nil {
		gossiping(out, n.gossip.Status())
	}
	if n.l2 && s.L2 != nil {
		answering(out, s.L2, n.answerer.Status())
	}
}

// gossiping gives what is known of messages between members.
func gossiping(out chan<- prometheus.Metric, s cluster.Status) {
	n := s.Counters
	count(out, descSuspicions, n.Suspicions)
	count(out, descJoins, n.Joins)
	count(out, descDeaths, n.Deaths)
	count(out, descNameConflicts, n.Conflicts)
	count(out, descRefusedGossip, n.Refused)
	count(out, descDroppedWords, n.Dropped)
	gauge(out, descStrain, float64(s.Strain))
}

// answering gives what is known of ARP and NDP.
func answering(out chan<- prometheus.Metric, doc *status.L2, now l2.Status) {
	for _, x := range doc.Interfaces {
		for state, n := range map[l2.State]int{l2.Held: x.Held, l2.Probing: x.Probing, l2.Contested: x.Contested, l2.Idle: x.Idle} {
			gauge(out, descL2VIPs, float64(n), x.Name, state.String())
		}
	}
	for _, x := range now.Interfaces {
		gauge(out, descL2Carrier, boolValue(x.Carrier), x.Name)
		count(out, descL2Answered, x.Answered, x.Name)
		count(out, descL2Gratuitous, x.Gratuitous, x.Name)
		count(out, descL2Probes, x.Probes, x.Name)
		count(out, descL2Conflicts, x.FellowConflicts, x.Name, "member")
		count(out, descL2Conflicts, x.StrangerConflicts, x.Name, "stranger")
		count(out, descL2Takeovers, x.Takeovers, x.Name)
		count(out, descL2Unheard, x.Unheard, x.Name)
		count(out, descL2Unsent, x.Unsent, x.Name)
	}
}
