package lb

import (
	"net/netip"
	"slices"
)

// Fleet is the means of a box to keep established connections alive beyond itself.
type Fleet struct {
	// Others is the number of other boxes that serve the VIP.
	Others int
	// SloppyTCP reports that boxes accept packets of TCP connections without their beginning.
	SloppyTCP bool
	// Sync reports that kernels sync their connections.
	Sync bool
	// Sources are the source addresses of masqueraded connections, on all boxes (Base.Sources).
	Sources []netip.Addr
}

// Survival is whether established connections outlive the loss of this box.
type Survival struct {
	Survives bool `json:"survives"` // the connections do
	// Because are all reasons against it.
	Because []SurvivalReason `json:"reasons,omitempty"`
	// Needs are conditions that weir can't check.
	Needs []SurvivalReason `json:"needs,omitempty"`
}

// SurvivalReason is a reason why connections do not survive, or a condition.
type SurvivalReason string

// The reasons.
const (
	// DiesAlone: no other box serves the VIP.
	DiesAlone SurvivalReason = "single-box"
	// DiesRules: virtual servers are rules, and only conntrack knows their connections.
	DiesRules SurvivalReason = "rules"
	// DiesScheduler: another box chooses by its own state.
	DiesScheduler SurvivalReason = "scheduler"
	// DiesAffinity: affinity depends on the first connection of a client.
	DiesAffinity SurvivalReason = "affinity"
	// DiesSloppy and DiesSCTP: another box rejects packets without the beginning of their
	// connection.
	DiesSloppy SurvivalReason = "sloppy-tcp"
	DiesSCTP   SurvivalReason = "sctp"
	// DiesSource: masqueraded backends know the client by an address of this box.
	DiesSource SurvivalReason = "source"
)

// Conditions that weir can't check.
const (
	// NeedsReplies: the replies must come through the box that takes over; NeedsSource:
	// those to the shared source of masqueraded connections.
	NeedsReplies SurvivalReason = "replies"
	NeedsSource  SurvivalReason = "source-address"
	// NeedsSameBackends: all members have the same ones, with the same weights.
	NeedsSameBackends SurvivalReason = "same-backends"
	// NeedsWeight: the backend still takes new connections.
	NeedsWeight SurvivalReason = "backend-in-use"
	// NeedsClient: the client sends something.
	NeedsClient SurvivalReason = "client-sends"
)

// Text describes the reason for people.
func (r SurvivalReason) Text() string {
	return map[SurvivalReason]string{
		DiesAlone:         "no other member serves it",
		DiesRules:         "mode netfilter: conntrack does not sync its connections",
		DiesScheduler:     "another member would choose another backend: use scheduler mh, or [fleet.sync]",
		DiesAffinity:      "another member does not know the backend of the client's first connection: leave the flag port out, or add [fleet.sync]",
		DiesSloppy:        "another member rejects an established connection: set kernel.sloppy_tcp, or add [fleet.sync]",
		DiesSCTP:          "another member rejects an established association: add [fleet.sync]",
		DiesSource:        "backends see an address that is lost with this box: use source_address = \"keep\", or kernel.masquerade_source",
		NeedsReplies:      "the replies of backends come through the member that takes over: by [[l2.gateway]], or as their routes change",
		NeedsSource:       "replies to kernel.masquerade_source come to the member that takes over, and no other client of the backend uses the same port",
		NeedsSameBackends: "all members have the same backends and weights: weir members shows the digests",
		NeedsWeight:       "the backend neither drains nor is down: another member sends no client to such a backend",
		NeedsClient:       "the client sends first: until then packets of the backend are dropped",
	}[r]
}

// Survival computes whether connections of a virtual server outlive the box. Its backends see
// source. rules reports that virtual servers are rules there.
func (f Fleet) Survival(vs VirtualServer, source SourceAddr, rules bool) Survival {
	var s Survival
	hashed := vs.Scheduler.Name == "mh"
	because := func(r SurvivalReason, so bool) {
		if so {
			s.Because = append(s.Because, r)
		}
	}
	because(DiesAlone, f.Others == 0)
	because(DiesRules, rules)
	if !f.Sync && !rules {
		because(DiesScheduler, !hashed)
		because(DiesAffinity, hashed && vs.Affinity > 0 && vs.Scheduler.Flags&WithPort != 0)
		because(DiesSloppy, vs.Frontend.Proto == TCP && !f.SloppyTCP)
		because(DiesSCTP, vs.Frontend.Proto == SCTP)
	}
	shared := f.shares(FamilyOf(vs.Frontend.Addr))
	because(DiesSource, source != SourceKept && !shared)
	if s.Survives = len(s.Because) == 0; s.Survives {
		s.Needs = f.needs(source, vs.Frontend.Proto)
	}
	return s
}

// shares reports whether masqueraded connections of a family have the same source on all boxes.
func (f Fleet) shares(family Family) bool {
	return slices.ContainsFunc(f.Sources, func(a netip.Addr) bool { return FamilyOf(a) == family })
}

func (f Fleet) needs(source SourceAddr, proto Protocol) (out []SurvivalReason) {
	if source != SourceMasqueraded {
		out = append(out, NeedsReplies)
	}
	if source != SourceKept {
		out = append(out, NeedsSource)
	}
	if f.Sync {
		return out
	}
	out = append(out, NeedsSameBackends, NeedsWeight)
	if proto == TCP {
		out = append(out, NeedsClient)
	}
	return out
}

// survival adds the Survival of the virtual server that serves.
func (x *explainer) survival() {
	vs, ok := x.server()
	if x.Fleet == nil || x.e.Fate != Served || !ok {
		return
	}
	s := x.Fleet.Survival(vs, x.e.Source, x.Names.Chain != nil)
	if x.direct {
		s.Needs = slices.DeleteFunc(s.Needs, func(r SurvivalReason) bool { return r == NeedsReplies })
	}
	x.e.Survival = &s
}

// write writes lines for a terminal.
func (s Survival) write(line func(format string, args ...any)) {
	verdict := "its established connections outlive this box"
	if !s.Survives {
		verdict = "its established connections end with this box"
	}
	line("loss        %s", verdict)
	for _, r := range s.Because {
		line("  because   %s", r.Text())
	}
	for _, r := range s.Needs {
		line("  if        %s", r.Text())
	}
}
