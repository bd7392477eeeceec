package lb

import "net/netip"

// Fleet is what a box has to keep established connections alive beyond itself.
type Fleet struct {
	// Others are how many other boxes serve the VIP.
	Others int
	// SloppyTCP tells that boxes take up TCP connections in their midst.
	SloppyTCP bool
	// Sync tells that kernels tell each other of connections.
	Sync bool
	// Sources are what masqueraded connections bear, on all boxes (Base.Sources).
	Sources []netip.Addr
}

// Survival is whether established connections outlive the loss of this box.
type Survival struct {
	Survives bool `json:"survives"`
	// Because says why not, all of it; Needs what weir can't see and what must be so.
	Because []SurvivalReason `json:"because,omitempty"`
	Needs   []SurvivalReason `json:"needs,omitempty"`
}

// SurvivalReason is why connections do not survive, or what they need.
type SurvivalReason string
