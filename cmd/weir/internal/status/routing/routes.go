package routing

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"weir/cmd/weir/internal/status/text"
)

// Routes are the advertised and the withheld routes.
type Routes struct {
	// ASN is the box's own; 0: the configuration has no [bgp].
	ASN uint32 `json:"asn"`
	// Problem is the reason why nothing is announced.
	Problem string `json:"problem,omitempty"`
	// Peer is the requested router; empty for all.
	Peer   string  `json:"peer,omitempty"`
	Routes []Route `json:"routes"` // by prefix
	// Withheld are VIPs that are not announced; with Peer, not to that one.
	Withheld []WithheldVIP `json:"withheld"`
}

// Route is one prefix as it is advertised to some routers. A prefix with different
// attributes for different routers has more than one Route.
type Route struct {
	Prefix string `json:"prefix"`
	// VIPs are the VIPs within the prefix.
	VIPs []VIPRoute `json:"vips"`
	// LocalPref is advertised to routers of the box's own AS.
	LocalPref        *uint32  `json:"local_pref,omitempty"`
	MED              *uint32  `json:"med,omitempty"`     // absent if there is none
	Prepend          int      `json:"prepend,omitempty"` // how many more times the own AS is in the path
	Communities      []string `json:"communities"`       // RFC 1997
	LargeCommunities []string `json:"large_communities"` // RFC 8092
	// Peers are the routers that it is for, Advertised those with a session.
	Peers      []string     `json:"peers"`
	Advertised []Advertised `json:"advertised"`
}

// VIPRoute is a VIP that is announced.
type VIPRoute struct {
	Address string `json:"address"`
	// State is announced, standby, draining or min-announced.
	State    string   `json:"state"`
	Services []string `json:"services"`
}

// Advertised is a route as one router has it.
type Advertised struct {
	Peer    string   `json:"peer"`
	Address string   `json:"address"`
	NextHop string   `json:"next_hop"` // an address of the box
	ASPath  []uint32 `json:"as_path"`  // the nearest first
}

// WithheldVIP is a VIP that is not announced.
type WithheldVIP struct {
	Address string `json:"address"`
	// Reason is one of no-backend, not-programmed, not-served, drained, out, reannounce-delay,
	// no-rule, refused-by-rule, family, no-peer.
	Reason string `json:"reason"`
	Text   string `json:"text"`
	// Since is the start of this state, Until its end; absent if not known.
	Since    time.Time `json:"since,omitzero"`
	Until    time.Time `json:"until,omitzero"`
	Services []string  `json:"services"`
}

// withheldTexts are the texts for reasons.
var withheldTexts = map[string]string{
	"no-backend":       "no port has a backend that takes new connections from outside",
	"not-programmed":   "its objects are not in the kernel yet",
	"not-served":       "no Service has a frontend there",
	"drained":          "an operator has drained it: weir undrain",
	"out":              "another member of the fleet serves it instead of this one: weir members",
	"reannounce-delay": "it has a backend again, but not for long enough (bgp.reannounce_delay)",
	"no-rule":          "no [[bgp.advertise]] is for it",
	"refused-by-rule":  "a rule has announce = false",
	"family":           "no session carries its family",
	"no-peer":          "there is no [[bgp.peer]]",
	"standby":          "another member of the fleet owns it: routers prefer that one (bgp.standby)",
	"min-announced":    "no backend is left, but too many others have lost theirs (bgp.min_announced)",
	"draining":         "an operator drains it: routers prefer other boxes",
}

// TextOf returns the text for the reason of a state of a route.
func TextOf(reason string) string { return withheldTexts[reason] }

// Table implements Tabler, in the columns of show bgp.
func (r Routes) Table(w io.Writer, now time.Time) {
	if r.ASN == 0 {
		fmt.Fprintln(w, noBGP)
		return
	}
	if r.Problem != "" {
		fmt.Fprintf(w, "problem: %s\n\n", r.Problem)
	}
	tw := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	fmt.Fprintln(tw, "Network\tNext Hop\tLocPrf\tMED\tPath\tCommunities\tAdvertised to\tServices")
	for _, x := range r.Routes {
		fmt.Fprintf(tw, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", x.Prefix, x.nextHop(), metric(x.LocalPref), metric(x.MED), x.path(),
			text.Dash(slices.Concat(x.Communities, x.LargeCommunities)), x.to(), x.services())
	}
	tw.Flush()
	if len(r.Withheld) == 0 {
		return
	}
	fmt.Fprintf(w, "\nWithheld (%d):\n", len(r.Withheld))
	tw = tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	for _, x := range r.Withheld {
		fmt.Fprintf(tw, "  %s\t%s\t%s\t%s\n", x.Address, x.reason(now), text.Dash(x.Services), x.Text)
	}
	tw.Flush()
}

func (x WithheldVIP) reason(now time.Time) string {
	switch {
	case !x.Until.IsZero():
		return fmt.Sprintf("%s for %s", x.Reason, text.Age(x.Until.Sub(now)))
	case !x.Since.IsZero():
		return fmt.Sprintf("%s since %s", x.Reason, text.Age(now.Sub(x.Since)))
	}
	return x.Reason
}

// one returns a value that all routers share, or "several".
func (x Route) one(of func(Advertised) string) string {
	var all []string
	for _, a := range x.Advertised {
		all = append(all, of(a))
	}
	slices.Sort(all)
	switch all = slices.Compact(all); len(all) {
	case 0:
		return "-"
	case 1:
		return all[0]
	}
	return "several"
}

func (x Route) nextHop() string { return x.one(func(a Advertised) string { return a.NextHop }) }

func (x Route) path() string {
	return x.one(func(a Advertised) string {
		var out []string
		for _, n := range a.ASPath {
			out = append(out, strconv.FormatUint(uint64(n), 10))
		}
		return strings.Join(append(out, "i"), " ")
	})
}

// to returns the routers that have the route; those without a session are in brackets.
func (x Route) to() string {
	have := map[string]int{}
	for _, a := range x.Advertised {
		have[a.Peer]++
	}
	var out []string
	for _, p := range x.Peers {
		switch n := have[p]; n {
		case 0:
			out = append(out, "("+p+")")
		case 1:
			out = append(out, p)
		default:
			out = append(out, fmt.Sprintf("%s×%d", p, n))
		}
	}
	return text.Dash(out)
}

// services returns the Services of the route.
func (x Route) services() string {
	var out []string
	for _, v := range x.VIPs {
		text := strings.Join(v.Services, " ")
		if v.State != "announced" {
			text += " (" + v.State + ")"
		}
		out = append(out, text)
	}
	slices.Sort(out)
	out = slices.Compact(out)
	const most = 3 // an aggregate may have thousands
	if len(out) > most {
		out = append(out[:most], fmt.Sprintf("and %d more", len(out)-most))
	}
	return text.Dash(out)
}

func metric(v *uint32) string {
	if v == nil {
		return "-"
	}
	return strconv.FormatUint(uint64(*v), 10)
}
