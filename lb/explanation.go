package lb

import (
	"fmt"
	"net/netip"
	"strings"
)

// Explanation is the answer to a Query. Its texts are for people.
type Explanation struct {
	Frontend string `json:"frontend"`
	// Client is the address, and From its place: "outside", "inside" or "this box".
	Client string `json:"client,omitempty"`
	From   string `json:"from"`
	// Claims are the Services that want the frontend, the winner first.
	Claims []Claim `json:"claims,omitempty"`
	// Here is the reason why the address is on this box; empty if it is not.
	Here string `json:"here,omitempty"`
	// Steps are the stations of the packet, in its order.
	Steps []Step `json:"steps"`
	// Candidates are all backends that could get it, those in use first.
	Candidates []Candidate `json:"candidates,omitempty"`
	Fate       Fate        `json:"fate"` // the result of a new connection
	// Source is the kind of client address that the backend sees.
	Source SourceAddr `json:"source,omitempty"`
	// MasqueradeSource is the client address of masqueraded connections; absent for an address
	// of this box.
	MasqueradeSource netip.Addr `json:"masquerade_source,omitzero"`
	// Survival reports whether established connections outlive this box; absent if it was
	// not requested, or no client is served.
	Survival *Survival `json:"survival,omitempty"`
	// Reason is why the frontend is not served, and Nearest similar frontends.
	Reason  string   `json:"reason,omitempty"`
	Nearest []string `json:"nearest,omitempty"`
	// Notes are those of the Services in Claims.
	Notes []string `json:"notes,omitempty"`
}

// Claim is a Service that wants the frontend.
type Claim struct {
	Service string `json:"service"`
	// VIP is the VIP of the claim: "LoadBalancer 192.0.2.1 (traffic policy Local)".
	VIP  string `json:"vip"`
	Wins bool   `json:"wins"` // it has the frontend
}

// Step is one station of a packet: the place, the object and the result.
type Step struct {
	Name   string `json:"name"`             // of the step
	Object string `json:"object,omitempty"` // the kernel object of the step
	Result string `json:"result"`           // the result of the step
}

// Candidate is a backend that could get the packet.
type Candidate struct {
	Addr   netip.AddrPort `json:"addr"` // the backend
	State  CandidateState `json:"state"`
	Weight uint32         `json:"weight"`
	// Forward is the forwarding method if it is not masquerading: "direct routing" or "tunnel gre".
	Forward string `json:"forward,omitempty"`
	// Reason is why it is not in use.
	Reason string `json:"reason,omitempty"`
}

// CheckFailed is the Reason of a backend that is down. Its caller knows the results of checks.
const CheckFailed = "its health check failed"

// CandidateState is whether a backend takes new connections.
type CandidateState string

// The states of candidates.
const (
	InUse  CandidateState = "in use"
	Closed CandidateState = "closed" // in the kernel with weight 0, for its old connections
	Out    CandidateState = "out"    // not in the kernel
)

// SourceAddr is the kind of client address that a backend sees.
type SourceAddr string

// The kinds.
const (
	SourceKept        SourceAddr = "kept"        // the client's own address
	SourceMasqueraded SourceAddr = "masqueraded" // Explanation.MasqueradeSource, or an address of this box
	SourceEither      SourceAddr = "either"      // it depends on the interface of the client, or on whether it reaches itself
)

// String returns the Explanation as lines for a terminal.
func (e Explanation) String() string {
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	client := "any outside client"
	if e.Client != "" {
		client = fmt.Sprintf("%s, %s", e.Client, e.From)
	}
	line("%s from %s", e.Frontend, client)
	for _, c := range e.Claims {
		verb := "loses"
		if c.Wins {
			verb = "has it"
		}
		line("service     %s %s: %s", c.Service, verb, c.VIP)
	}
	for i, s := range e.Steps {
		text := s.Result
		if s.Object != "" {
			text = s.Object + ": " + text
		}
		line("%-11s %s", fmt.Sprintf("%d. %s", i+1, s.Name), text)
	}
	for _, c := range e.Candidates {
		text := fmt.Sprintf("%s %s, weight %d", c.Addr, c.State, c.Weight)
		if c.Forward != "" {
			text += ", by " + c.Forward
		}
		if c.Reason != "" {
			text += ": " + c.Reason
		}
		line("backend     %s", text)
	}
	fate := string(e.Fate)
	switch {
	case e.Source != "":
		fate += ", the client's address is " + e.Source.text(e.MasqueradeSource)
	case e.Reason != "":
		fate += ": " + e.Reason
	}
	line("result      %s", fate)
	if e.Survival != nil {
		e.Survival.write(line)
	}
	for _, n := range e.Nearest {
		line("nearest     %s", n)
	}
	for _, n := range e.Notes {
		line("note        %s", n)
	}
	return b.String()
}

func (s SourceAddr) text(bears netip.Addr) string {
	by := "an address of this box"
	if bears.IsValid() {
		by = bears.String() + " (kernel.masquerade_source)"
	}
	switch s {
	case SourceKept:
		return "kept"
	case SourceMasqueraded:
		return "masqueraded as " + by
	}
	return "kept or masqueraded as " + by + ", as the steps show"
}

// Query asks for the result of a client's new connection to a frontend.
type Query struct {
	Frontend Frontend
	// Client is the source of the packet. The zero Addr is any outside client, in all source
	// ranges.
	Client netip.Addr
	// Detectors are those of the static rules.
	Detectors Detectors
	Names     Names
	// Sources are the source addresses of masqueraded connections (Base.Sources).
	Sources []netip.Addr
	// Fleet is the other boxes; nil does not ask for Survival.
	Fleet *Fleet
}

// Names are the names of objects in the kernel.
type Names struct {
	// Prefix begins the names of sets; "" is KUBE.
	Prefix string
	// Chain returns the chain of table nat that is a virtual server. It is nil where IPVS has
	// virtual servers.
	Chain func(Frontend) string
}

// Detectors are the means by which the static rules recognize pods (lb/linux.Config).
type Detectors struct {
	ClusterCIDRs  []netip.Prefix
	MasqueradeAll bool
	// Interfaces reports that the rules also recognize pods by their interface, which an
	// address does not show.
	Interfaces bool
}
