package lb

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// Query asks what a client's new connection to a frontend meets.
type Query struct {
	Frontend Frontend
	// Client is where the packet comes from. The zero Addr is anybody outside, who
	// is in all source ranges.
	Client netip.Addr
	// Detectors are those of the static rules.
	Detectors Detectors
	Names     Names
	// Sources are what masqueraded connections bear (Base.Sources).
	Sources []netip.Addr
	// Fleet is what a box alone does not have; nil does not ask for Survival.
	Fleet *Fleet
}

// Names are what things are called in the kernel.
type Names struct {
	// Prefix begins the names of sets; "" is KUBE.
	Prefix string
	// Chain gives the chain of table nat that is a virtual server. It is nil where
	// IPVS has virtual servers.
	Chain func(Frontend) string
}

// Detectors are what the static rules tell pods by (lb/linux.Config).
type Detectors struct {
	ClusterCIDRs  []netip.Prefix
	MasqueradeAll bool
	// Interfaces tells that pods are known by the interface they come in by too,
	// which an address does not tell.
	Interfaces bool
}

// Explanation is the answer to a Query: in words, but for what can be counted on.
type Explanation struct {
	Frontend string `json:"frontend"`
	// Client is the address, and From what it is to the box: "outside", "inside",
	// "this box".
	Client string `json:"client,omitempty"`
	From   string `json:"from"`
	// Claims are the Services that want the frontend, the winner first.
	Claims []Claim `json:"claims,omitempty"`
	// Here says why the address is on this box; it is empty if it is not.
	Here string `json:"here,omitempty"`
	// Steps are what the packet meets, in its order.
	Steps []Step `json:"steps"`
	// Candidates are all backends that could get it, those in use first.
	Candidates []Candidate `json:"candidates,omitempty"`
	Fate       Fate        `json:"fate"` // what becomes of a new connection
	// Source is what the backend sees as the client's address.
	Source SourceAddr `json:"source,omitempty"`
	// Bears is what the backend sees where it is masqueraded; absent for an address of
	// this box.
	Bears netip.Addr `json:"bears,omitzero"`
	// Survival tells whether established connections outlive this box; absent if nobody
	// asks, or nobody is served.
	Survival *Survival `json:"survival,omitempty"`
	// Why tells why the frontend is not served, and Nearest what is.
	Why     string   `json:"why,omitempty"`
	Nearest []string `json:"nearest,omitempty"`
	// Notes are those of the Services in Claims.
	Notes []string `json:"notes,omitempty"`
}

// Claim is a Service that wants the frontend.
type Claim struct {
	Service string `json:"service"`
	// VIP says by which of its VIPs: "LoadBalancer 192.0.2.1 (traffic policy
	// Local)".
	VIP  string `json:"vip"`
	Wins bool   `json:"wins"` // it has the frontend
}

// Step is one thing that a packet meets: where, by which object, and with which
// result.
type Step struct {
	What   string `json:"what"`             // the name of the step
	Object string `json:"object,omitempty"` // what in the kernel does it
	Result string `json:"result"`           // what comes of it
}

// Candidate is a backend that could get the packet.
type Candidate struct {
	Addr   netip.AddrPort `json:"addr"` // the backend
	State  CandidateState `json:"state"`
	Weight uint32         `json:"weight"`
	// Why says why it is not in use.
	Why string `json:"why,omitempty"`
}

// CandidateState is whether a backend takes new connections.
type CandidateState string

// The states of candidates.
const (
	InUse  CandidateState = "in use"
	Closed CandidateState = "closed" // it is there with weight 0, for its old connections
	Out    CandidateState = "out"    // it is not there
)

// SourceAddr is what a backend sees as the client's address.
type SourceAddr string

// What backends see.
const (
	SourceKept        SourceAddr = "kept"        // the client's own address
	SourceMasqueraded SourceAddr = "masqueraded" // Explanation.Bears, or an address of this box
	SourceEither      SourceAddr = "either"      // it depends on the interface that the client comes in by, or on whether it gets itself
)

// Explain tells what a new connection meets, by what the kernel was last seen or
// made to hold. It is right after Adopt or a Sync. It reads everything: its cost is
// the size of the box.
func (r *Reconciler) Explain(q Query) Explanation { return r.ExplainAll([]Query{q})[0] }

// ExplainAll answers several queries for little more than one costs.
func (r *Reconciler) ExplainAll(queries []Query) []Explanation {
	about := map[Frontend][]Object{}
	for _, q := range queries {
		about[q.Frontend] = nil
		if m, ok := r.lead(q.Frontend); ok {
			about[MarkFrontend(m.Family(), m.Mark)] = nil
		}
	}
	for id, o := range r.have {
		if id.kind() != kindMember && id.kind() != kindRealServer {
			continue
		}
		if f, ok := frontendOf(id); ok {
			if known, asked := about[f]; asked {
				about[f] = append(known, o)
			}
		}
	}
	notes := map[ServiceID][]Note{}
	for _, n := range r.Notes() {
		notes[n.Service] = append(notes[n.Service], n)
	}
	out := make([]Explanation, len(queries))
	for i, q := range queries {
		out[i] = r.explain(q, about, notes)
	}
	return out
}

func (r *Reconciler) explain(q Query, about map[Frontend][]Object, notes map[ServiceID][]Note) Explanation {
	x := explainer{Reconciler: r, q: q, f: q.Frontend, face: q.Frontend, about: about, notes: notes}
	x.e.Frontend = q.Frontend.String()
	x.e.From = x.from()
	if q.Client.IsValid() {
		x.e.Client = q.Client.String()
	}
	x.claims()
	x.walk()
	x.candidates()
	if x.e.Fate != Served {
		x.e.Why = x.why()
		x.nearest()
	}
	x.survival()
	return x.e
}

type explainer struct {
	*Reconciler
	q    Query
	f    Frontend
	face Frontend // that the client meets: f, or that of a mark
	e    Explanation

	about map[Frontend][]Object // members and real servers in the kernel
	notes map[ServiceID][]Note

	ids []ServiceID // who wants it
	// The winner, its VIP and port.
	won  bool
	svc  Service
	vip  VIP
	port Port
}

func (x *explainer) step(what string, object fmt.Stringer, format string, args ...any) {
	s := Step{What: what, Result: fmt.Sprintf(format, args...)}
	if object != nil {
		s.Object = object.String()
	}
	if m, ok := object.(Member); ok { // as ipset list knows it
		name := m.Set.Name(cmp.Or(x.q.Names.Prefix, "KUBE"), m.Family())
		s.Object = strings.Replace(s.Object, m.Set.String(), name, 1)
	}
	x.e.Steps = append(x.e.Steps, s)
}

// end is the last step of a packet.
func (x *explainer) end(fate Fate, what string, object fmt.Stringer, format string, args ...any) {
	x.e.Fate = fate
	x.step(what, object, format, args...)
}

func (x *explainer) held(id Object) bool {
	_, ok := x.have[id]
	return ok
}

// from says what the client is to the box.
func (x *explainer) from() string {
	switch dev, host := x.facts.HostAddrs[x.q.Client]; {
	case host:
		return "this box (" + dev + ")"
	case x.host():
		return "this box (loopback)"
	case x.inside():
		return "inside"
	case x.q.Detectors.Interfaces:
		return "outside, unless it comes in by an interface of pods"
	}
	return "outside"
}

// host tells whether the client is the box itself.
func (x *explainer) host() bool {
	_, host := x.facts.HostAddrs[x.q.Client]
	return host || x.q.Client.IsLoopback()
}

// inside tells whether the client is the box itself, or a pod by its address.
func (x *explainer) inside() bool {
	return x.host() || slices.ContainsFunc(x.q.Detectors.ClusterCIDRs, func(n netip.Prefix) bool { return n.Contains(x.q.Client) })
}

// claims finds who wants the frontend. A NodePort gives way to whoever wants just
// one of its addresses.
func (x *explainer) claims() {
	ids := slices.Clone(x.catalog.claims[x.f])
	if slices.Contains(x.facts.nodeAddrs(FamilyOf(x.f.Addr)), x.f.Addr) {
		ids = append(ids, x.catalog.claims[everyAddress(x.f)]...)
	}
	if _, own := x.facts.HostAddrs[x.f.Addr]; own { // who is refused claims nothing
		for _, id := range x.catalog.IDs() {
			svc, _ := x.catalog.Get(id)
			if slices.Contains(svc.Frontends(), x.f) && !slices.Contains(ids, id) {
				ids = append(ids, id)
			}
		}
	}
	x.ids = slices.Compact(ids)
	for _, id := range x.ids {
		svc, _ := x.catalog.Get(id)
		p := planner{svc: svc, facts: &x.facts}
		for _, vip := range svc.VIPs {
			for _, port := range svc.Ports {
				wins := slices.Contains(p.mine(vip, port), x.f)
				if f, ok := vip.frontend(port); !wins && (!ok || f != x.f && f != everyAddress(x.f)) {
					continue
				}
				if wins && !x.won {
					x.won, x.svc, x.vip, x.port = true, svc, vip, port
				}
				x.e.Claims = append(x.e.Claims, Claim{id.String(), vip.String(), wins})
			}
		}
		for _, n := range x.notes[id] {
			x.e.Notes = append(x.e.Notes, n.String())
		}
	}
	slices.SortStableFunc(x.e.Claims, func(a, b Claim) int {
		switch {
		case a.Wins == b.Wins:
			return 0
		case a.Wins:
			return -1
		}
		return 1
	})
}

// String reads "LoadBalancer 192.0.2.1 (traffic policy Local)".
func (v VIP) String() string {
	s := v.Kind.String() + " " + v.Addr.String()
	if v.Kind == NodePort {
		s = fmt.Sprintf("%s on every %s address of the node", v.Kind, FamilyOf(v.Addr))
	}
	if v.Local {
		s += " (traffic policy Local)"
	}
	return s
}

// ports gives the frontends that are served and match, those with addresses most
// like the one asked for first.
func (x *explainer) ports(match func(Frontend) bool) []string {
	var found []Frontend
	for f := range x.catalog.claims {
		if match(f) && (f.Addr.IsUnspecified() || x.held(VirtualServer{Frontend: f})) {
			found = append(found, f)
		}
	}
	slices.SortFunc(found, func(a, b Frontend) int {
		if d := x.distance(a.Addr) - x.distance(b.Addr); d != 0 {
			return d
		}
		return a.Compare(b)
	})
	var out []string
	for _, f := range found {
		owner := x.catalog.claims[f][0]
		out = append(out, fmt.Sprintf("%s of %s", f, owner))
	}
	return out
}

// distance tells how far an address is from the one asked for: the number of bits
// that do not agree at the end.
func (x *explainer) distance(a netip.Addr) int {
	if a.IsUnspecified() {
		return 0
	}
	for bits := a.BitLen(); bits >= 0; bits-- {
		if p, err := x.f.Addr.Prefix(bits); err == nil && p.Contains(a) {
			return a.BitLen() - bits
		}
	}
	return a.BitLen()
}

// String gives the Explanation as lines for a terminal.
func (e Explanation) String() string {
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	client := "anybody outside"
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
		line("%-11s %s", fmt.Sprintf("%d. %s", i+1, s.What), text)
	}
	for _, c := range e.Candidates {
		text := fmt.Sprintf("%s %s, weight %d", c.Addr, c.State, c.Weight)
		if c.Why != "" {
			text += ": " + c.Why
		}
		line("backend     %s", text)
	}
	fate := string(e.Fate)
	switch {
	case e.Source != "":
		fate += ", the client's address is " + e.Source.text(e.Bears)
	case e.Why != "":
		fate += ": " + e.Why
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
	whose := "this box's"
	if bears.IsValid() {
		whose = bears.String() + " (kernel.masquerade_source)"
	}
	switch s {
	case SourceKept:
		return "kept"
	case SourceMasqueraded:
		return "hidden behind " + whose
	}
	return "kept or hidden behind " + whose + ", as the steps say"
}
