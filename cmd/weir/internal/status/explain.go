package status

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"weir/lb"
)

// Explanation is what becomes of a client of one frontend; of all of a VIP, if no
// port was asked for.
type Explanation struct {
	// Ports are the frontends of a VIP, when no port was asked for.
	Ports []ExplainedPort `json:"ports,omitempty"`
	// More is how many more ports there are.
	More int `json:"more,omitempty"`
	// Why tells why there are none, and Nearest what is served elsewhere.
	Why     string   `json:"why,omitempty"`
	Nearest []string `json:"nearest,omitempty"`
	// Packet is what a client of one frontend meets.
	Packet *lb.Explanation `json:"packet,omitempty"`
	// OldData are the clusters that the answer rests on, as far as it may be too
	// old: those of the Services that want the address; of one that nobody wants,
	// all.
	OldData []OldData `json:"old_data,omitempty"`
	// Address tells how the address came to its Services, absent without pools;
	// Announced what routers hear of it, absent where there are none or nobody has it.
	Address   *Given        `json:"address,omitempty"`
	Announced *Announcement `json:"announced,omitempty"`
	// Owned tells who of the fleet serves the address; absent without [cluster] and
	// [l2], and for what nobody serves.
	Owned *Owned `json:"owned,omitempty"`
}

// Rests gives the answer those of the clusters that it rests on.
func (e *Explanation) Rests(clusters []Cluster) {
	sources := map[string]bool{}
	name := func(service string) {
		source, _, _ := strings.Cut(service, "/")
		sources[source] = true
	}
	for _, p := range e.Ports {
		name(p.Service)
	}
	if e.Packet != nil {
		for _, c := range e.Packet.Claims {
			name(c.Service)
		}
	}
	e.OldData = slices.DeleteFunc(OldDataOf(clusters), func(o OldData) bool { return len(sources) > 0 && !sources[o.Cluster] })
}

// writeWay writes how the address came here, and how clients find it.
func (e Explanation) writeWay(w io.Writer, now time.Time) {
	if e.Address != nil || e.Announced != nil || e.Owned != nil {
		fmt.Fprintln(w)
	}
	if e.Address != nil {
		fmt.Fprintln(w, "address:", e.Address.text(now))
	}
	if e.Owned != nil {
		e.Owned.write(w, now)
	}
	if e.Announced != nil {
		e.Announced.write(w, now)
	}
}

// ExplainedPort is one frontend of a VIP, in short.
type ExplainedPort struct {
	Frontend string `json:"frontend"`
	Service  string `json:"service"`
	Fate     string `json:"fate"` // what becomes of a new connection
	Why      string `json:"why,omitempty"`
	// Survival tells whether established connections outlive this box; absent where
	// nobody else could take them over.
	Survival *lb.Survival `json:"survival,omitempty"`
}

// text is what becomes of connections there.
func (p ExplainedPort) text() string {
	out := p.Fate
	if p.Why != "" {
		out += ": " + p.Why
	}
	switch {
	case p.Survival == nil:
	case p.Survival.Survives:
		out += "; connections outlive this box"
	default:
		var because []string
		for _, r := range p.Survival.Because {
			because = append(because, string(r))
		}
		out += "; connections end with this box: " + strings.Join(because, ", ")
	}
	return out
}

// Table implements Tabler.
func (e Explanation) Table(w io.Writer, now time.Time) {
	defer writeOldData(w, e.OldData, now)
	defer e.writeWay(w, now)
	if e.Packet != nil {
		fmt.Fprint(w, e.Packet.String())
		return
	}
	if len(e.Ports) == 0 {
		fmt.Fprintln(w, "not served:", e.Why)
		for _, f := range e.Nearest {
			fmt.Fprintln(w, "nearest:", f)
		}
		return
	}
	tw := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	for _, p := range e.Ports {
		fmt.Fprintf(tw, "%s\t%s\t%s\n", p.Frontend, p.Service, p.text())
	}
	tw.Flush()
	if e.More > 0 {
		fmt.Fprintf(w, "and %d more\n", e.More)
	}
	fmt.Fprintf(w, "\nmore of one: weir explain %s\n", example(e.Ports))
}

func example(ports []ExplainedPort) string {
	f, proto, _ := strings.Cut(ports[0].Frontend, "/")
	if proto == lb.TCP.String() {
		return f
	}
	return f + " --proto " + proto
}

// Announcement is what routers hear of a VIP.
type Announcement struct {
	// State is announced, standby, draining or kept-by-floor, or why the VIP is
	// withheld; Text says that to people.
	State string `json:"state"`
	Text  string `json:"text,omitempty"`
	// Role is what the box is to the VIP in a fleet, whether State comes of that or not:
	// standby or out; absent where it is announced as the rules say.
	Role string `json:"role,omitempty"`
	// Since is when it came to be so, Until when it ends by itself; absent where that
	// is not known.
	Since time.Time `json:"since,omitzero"`
	Until time.Time `json:"until,omitzero"`
	// Peers are all of them, sorted.
	Peers []Hearing `json:"peers"`
}

// Hearing is what one router hears of a VIP.
type Hearing struct {
	Peer string `json:"peer"`
	// State and Text: see Announcement.
	State string `json:"state"`
	Text  string `json:"text,omitempty"`
	// Rule is the one that counts, Prefix what the router hears: the VIP itself, or an
	// aggregate.
	Rule   string `json:"rule,omitempty"`
	Prefix string `json:"prefix,omitempty"`
	// Up tells that there is a session.
	Up bool `json:"up"`
}

// Given is how an address came to its Services.
type Given struct {
	// Pool is the one that has the address, empty if none has; Claim is the object that
	// holds it in the home cluster.
	Pool  string `json:"pool,omitempty"`
	Claim string `json:"claim,omitempty"`
	// State, Services, Until, Stranded: see PoolAddress.
	State    AddressState `json:"state,omitempty"`
	Services []string     `json:"services,omitempty"`
	Until    time.Time    `json:"until,omitzero"`
	Stranded string       `json:"stranded,omitempty"`
}

// text says it in a line.
func (g Given) text(now time.Time) string {
	var out strings.Builder
	if g.Pool == "" {
		out.WriteString("of no pool")
	} else {
		fmt.Fprintf(&out, "pool %s", g.Pool)
	}
	switch {
	case g.State == AddressHeld:
		fmt.Fprintf(&out, ", held for %s for %s", strings.Join(g.Services, ", "), age(g.Until, now))
	case g.State != "":
		fmt.Fprintf(&out, ", %s by %s", g.State, dash(g.Services))
	default:
		out.WriteString(", free")
	}
	if g.Claim != "" {
		fmt.Fprintf(&out, ", claim %s", g.Claim)
	}
	if g.Stranded != "" {
		fmt.Fprintf(&out, "; stranded: %s", g.Stranded)
	}
	return out.String()
}

// write writes the part of an explanation that is about routers.
func (a Announcement) write(w io.Writer, now time.Time) {
	line := "announced"
	if a.State != line {
		line = a.State
		if !a.Until.IsZero() {
			line += " for " + age(a.Until, now)
		} else if !a.Since.IsZero() {
			line += " since " + age(now, a.Since)
		}
		line += ": " + a.Text
	}
	if a.Role != "" && a.Role != a.State {
		line += " (and " + a.Role + ": " + TextOf(a.Role) + ")"
	}
	fmt.Fprintln(w, "routes:", line)
	for _, p := range a.Peers {
		text := p.State
		if p.Text != "" {
			text += ": " + p.Text
		}
		if p.Prefix != "" {
			text = p.Prefix + " " + text
		}
		if p.Rule != "" {
			text += " (rule " + p.Rule + ")"
		}
		if p.Prefix != "" && !p.Up {
			text += ", but there is no session"
		}
		fmt.Fprintf(w, "  to %s: %s\n", p.Peer, text)
	}
}
