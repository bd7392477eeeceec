// Package explain holds the answer of weir explain: the path of a packet, and the pool,
// the owner and the routes of its address. It never searches for the answer itself.
package explain

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"weir/cmd/weir/internal/status"
	"weir/cmd/weir/internal/status/routing"
	"weir/cmd/weir/internal/status/text"
	"weir/lb"
)

// Answer is the path of a packet to one frontend, or without a port the list of
// frontends of a VIP.
type Answer struct {
	// Ports are the frontends of a VIP, without a port in the request.
	Ports []Port `json:"ports,omitempty"`
	// More counts further ports.
	More int `json:"more,omitempty"`
	// Reason is the reason why there are none, Nearest the nearest frontends.
	Reason  string   `json:"reason,omitempty"`
	Nearest []string `json:"nearest,omitempty"`
	// Packet is the path of a packet to one frontend.
	Packet *lb.Explanation `json:"packet,omitempty"`
	// OldData are the clusters that the answer depends on, if they may be out of date. They are
	// the clusters of the Services at the address, or all if there is none.
	OldData []status.OldData `json:"old_data,omitempty"`
	// Address is the pool and claim of the address, absent without pools; Announced is
	// its advertisement, absent without routers or without a Service.
	Address   *Assigned     `json:"address,omitempty"`
	Announced *Announcement `json:"announced,omitempty"`
	// Owned is the owner in the fleet; absent without [fleet] and [l2], and for an
	// address without a Service.
	Owned *Owned `json:"owned,omitempty"`
	// Mode and Rules are those of the kernel in weir status: ipvs, and nftables.
	Mode  string `json:"mode"`
	Rules string `json:"rules"`
}

// SetOldData sets OldData from all clusters.
func (a *Answer) SetOldData(clusters []status.Cluster) {
	sources := map[string]bool{}
	name := func(service string) {
		source, _, _ := strings.Cut(service, "/")
		sources[source] = true
	}
	for _, p := range a.Ports {
		name(p.Service)
	}
	if a.Packet != nil {
		for _, c := range a.Packet.Claims {
			name(c.Service)
		}
	}
	a.OldData = slices.DeleteFunc(status.OldDataOf(clusters), func(o status.OldData) bool { return len(sources) > 0 && !sources[o.Cluster] })
}

// writeBox writes the owner of the rules, and the pool, the owner and the routes of the address.
func (a Answer) writeBox(w io.Writer, now time.Time) {
	if a.Rules != "" || a.Address != nil || a.Announced != nil || a.Owned != nil {
		fmt.Fprintln(w)
	}
	if a.Rules != "" {
		fmt.Fprintln(w, "kernel:", status.RulesText(a.Mode, a.Rules))
	}
	if a.Address != nil {
		fmt.Fprintln(w, "address:", a.Address.text(now))
	}
	if a.Owned != nil {
		a.Owned.write(w, now)
	}
	if a.Announced != nil {
		a.Announced.write(w, now)
	}
}

// Port is one frontend of a VIP, in short.
type Port struct {
	Frontend string `json:"frontend"`
	Service  string `json:"service"`
	Fate     string `json:"fate"` // of a new connection
	// Reason is the reason for Fate.
	Reason string `json:"reason,omitempty"`
	// Survival reports whether established connections survive the loss of this box;
	// absent where no other box could take them over.
	Survival *lb.Survival `json:"survival,omitempty"`
}

// text describes the fate of connections.
func (p Port) text() string {
	out := p.Fate
	if p.Reason != "" {
		out += ": " + p.Reason
	}
	switch {
	case p.Survival == nil:
	case p.Survival.Survives:
		out += "; connections survive the loss of this box"
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
func (a Answer) Table(w io.Writer, now time.Time) {
	defer status.WriteOldData(w, a.OldData, now)
	defer a.writeBox(w, now)
	if a.Packet != nil {
		fmt.Fprint(w, a.Packet.String())
		return
	}
	if len(a.Ports) == 0 {
		fmt.Fprintln(w, "not served:", a.Reason)
		for _, f := range a.Nearest {
			fmt.Fprintln(w, "nearest:", f)
		}
		return
	}
	tw := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	for _, p := range a.Ports {
		fmt.Fprintf(tw, "%s\t%s\t%s\n", p.Frontend, p.Service, p.text())
	}
	tw.Flush()
	if a.More > 0 {
		fmt.Fprintf(w, "and %d more\n", a.More)
	}
	fmt.Fprintf(w, "\ndetails: weir explain %s\n", example(a.Ports))
}

func example(ports []Port) string {
	f, proto, _ := strings.Cut(ports[0].Frontend, "/")
	if proto == lb.TCP.String() {
		return f
	}
	return f + " --proto " + proto
}

// Announcement is the advertisement of a VIP.
type Announcement struct {
	// State is announced, standby, draining or min-announced, or the reason why the VIP is
	// withheld.
	State string `json:"state"`
	Text  string `json:"text,omitempty"`
	// Role is the role of the box for the VIP in a fleet: standby or out; absent where
	// it is announced by the rules.
	Role string `json:"role,omitempty"`
	// Since is the start of this state, Until its end; absent if not known.
	Since time.Time `json:"since,omitzero"`
	Until time.Time `json:"until,omitzero"`
	// Peers are all of them, sorted.
	Peers []PeerRoute `json:"peers"`
}

// PeerRoute is the advertisement of a VIP to one router.
type PeerRoute struct {
	Peer string `json:"peer"`
	// State and Text: see Announcement.
	State string `json:"state"`
	Text  string `json:"text,omitempty"`
	// Rule is the one that applies, Prefix the advertised prefix: the VIP itself, or an
	// aggregate.
	Rule   string `json:"rule,omitempty"`
	Prefix string `json:"prefix,omitempty"`
	// Up is set if there is a session.
	Up bool `json:"up"`
}

// Assigned is the pool and the claim of an address.
type Assigned struct {
	// Pool has the address, empty if none has; Claim is its object in the cluster of
	// the claims.
	Pool  string `json:"pool,omitempty"`
	Claim string `json:"claim,omitempty"`
	// State, Services, Until, OutsidePool: see PoolAddress.
	State    status.AddressState `json:"state,omitempty"`
	Services []string            `json:"services,omitempty"`
	Until    time.Time           `json:"until,omitzero"`
	// OutsidePool is the reason why no pool would assign it today.
	OutsidePool string `json:"outside_pool,omitempty"`
}

// text returns one line.
func (g Assigned) text(now time.Time) string {
	var out strings.Builder
	if g.Pool == "" {
		out.WriteString("outside all pools")
	} else {
		fmt.Fprintf(&out, "pool %s", g.Pool)
	}
	switch {
	case g.State == status.AddressRetained:
		fmt.Fprintf(&out, ", retained for %s for %s", strings.Join(g.Services, ", "), text.Age(g.Until.Sub(now)))
	case g.State != "":
		fmt.Fprintf(&out, ", %s by %s", g.State, text.Dash(g.Services))
	default:
		out.WriteString(", free")
	}
	if g.Claim != "" {
		fmt.Fprintf(&out, ", claim %s", g.Claim)
	}
	if g.OutsidePool != "" {
		fmt.Fprintf(&out, "; outside pool: %s", g.OutsidePool)
	}
	return out.String()
}

// write writes the part of an explanation about routers.
func (a Announcement) write(w io.Writer, now time.Time) {
	line := "announced"
	if a.State != line {
		line = a.State
		if !a.Until.IsZero() {
			line += " for " + text.Age(a.Until.Sub(now))
		} else if !a.Since.IsZero() {
			line += " since " + text.Age(now.Sub(a.Since))
		}
		line += ": " + a.Text
	}
	if a.Role != "" && a.Role != a.State {
		line += " (and " + a.Role + ": " + routing.TextOf(a.Role) + ")"
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
			text += ", no session"
		}
		fmt.Fprintf(w, "  to %s: %s\n", p.Peer, text)
	}
}
