package status

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
)

// Routes are what routers are told, and what they are not told, and why.
type Routes struct {
	// ASN is the box's own; 0: the configuration has no [bgp].
	ASN uint32 `json:"asn"`
	// Problem is why nothing is announced to anybody.
	Problem string `json:"problem,omitempty"`
	// Peer is the router that was asked for; all otherwise.
	Peer   string  `json:"peer,omitempty"`
	Routes []Route `json:"routes"` // by prefix
	// Withheld are VIPs that are not announced; with Peer, not to that one.
	Withheld []WithheldVIP `json:"withheld"`
}

// Route is one prefix as some routers hear of it. A prefix that is told differently
// to different routers is there more than once.
type Route struct {
	Prefix string `json:"prefix"`
	// VIPs are those that it stands for.
	VIPs []VIPRoute `json:"vips"`
	// LocalPref is told to routers of the box's own AS.
	LocalPref        *uint32  `json:"local_pref,omitempty"`
	MED              *uint32  `json:"med,omitempty"`     // absent if there is none
	Prepend          int      `json:"prepend,omitempty"` // how many times more the own AS is in the path
	Communities      []string `json:"communities"`       // RFC 1997
	LargeCommunities []string `json:"large_communities"` // RFC 8092
	// Peers are the routers that it is for, Advertised those of them that have it.
	Peers      []string     `json:"peers"`
	Advertised []Advertised `json:"advertised"`
}

// VIPRoute is a VIP that is announced.
type VIPRoute struct {
	Address string `json:"address"`
	// State is announced, standby, draining or kept-by-floor.
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
	// Reason is one of no-backend, not-programmed, not-served, drained, out, held-down,
	// no-rule, refused-by-rule, family, no-peer.
	Reason string `json:"reason"`
	Text   string `json:"text"`
	// Since is when it came to be so, Until when it ends by itself; absent where that
	// is not known.
	Since    time.Time `json:"since,omitzero"`
	Until    time.Time `json:"until,omitzero"`
	Services []string  `json:"services"`
}

// withheldTexts say reasons to people.
var withheldTexts = map[string]string{
	"no-backend":      "no port has a backend that takes new connections from outside",
	"not-programmed":  "the kernel does not hold all of it yet",
	"not-served":      "no Service has a frontend there",
	"drained":         "an operator has drained it: weir undrain",
	"out":             "another member of the fleet serves it, and this one should not: weir members",
	"held-down":       "it has a backend again, but not for long enough (bgp.hold_down)",
	"no-rule":         "no [[bgp.advertise]] is for it",
	"refused-by-rule": "a rule says announce = false",
	"family":          "no session carries its family",
	"no-peer":         "there is no [[bgp.peer]]",
	"standby":         "another member of the fleet owns it: peers are told to prefer that one (bgp.standby)",
	"kept-by-floor":   "no backend is left, but too many others have lost theirs (bgp.floor)",
	"draining":        "an operator drains it: peers are asked to prefer others",
}

// TextOf says a reason, for which something is withheld or announced nevertheless, to
// people.
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
			dash(slices.Concat(x.Communities, x.LargeCommunities)), x.to(), x.whose())
	}
	tw.Flush()
	if len(r.Withheld) == 0 {
		return
	}
	fmt.Fprintf(w, "\nWithheld (%d):\n", len(r.Withheld))
	tw = tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	for _, x := range r.Withheld {
		fmt.Fprintf(tw, "  %s\t%s\t%s\t%s\n", x.Address, x.reason(now), dash(x.Services), x.Text)
	}
	tw.Flush()
}

func (x WithheldVIP) reason(now time.Time) string {
	switch {
	case !x.Until.IsZero():
		return fmt.Sprintf("%s for %s", x.Reason, age(x.Until, now))
	case !x.Since.IsZero():
		return fmt.Sprintf("%s since %s", x.Reason, age(now, x.Since))
	}
	return x.Reason
}

// one is what all routers have alike.
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

// to are the routers that have it, and in brackets those that have no session.
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
	return dash(out)
}

func (x Route) whose() string {
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
	const most = 3 // an aggregate may stand for thousands
	if len(out) > most {
		out = append(out[:most], fmt.Sprintf("and %d more", len(out)-most))
	}
	return dash(out)
}

func metric(v *uint32) string {
	if v == nil {
		return "-"
	}
	return strconv.FormatUint(uint64(*v), 10)
}

func dash(list []string) string { return cmp.Or(strings.Join(list, " "), "-") }

// BGP is what a box announces, at a glance.
type BGP struct {
	ASN      uint32 `json:"asn"`
	RouterID string `json:"router_id,omitempty"` // the box's BGP identifier
	// Problem is why nothing is announced to anybody.
	Problem string `json:"problem,omitempty"`
	// Up and Down are the names of the peers with and without a session, and of
	// those why there is none. A range is neither.
	Up   []string   `json:"up"`
	Down []DownPeer `json:"down"`
	// Problems are those of sessions that are up.
	Problems []string `json:"problems,omitempty"`
	// Announced counts VIPs, Standby those of them that another member owns, Kept those
	// without a backend that the floor keeps, and Withheld the others by reason.
	Announced int            `json:"announced"`
	Standby   int            `json:"standby,omitempty"`
	Kept      int            `json:"kept_by_floor"`
	Withheld  map[string]int `json:"withheld"`
}

// DownPeer is a router without a session.
type DownPeer struct {
	Name  string    `json:"name"`
	State string    `json:"state"`
	Since time.Time `json:"since,omitzero"`
	Why   string    `json:"why,omitempty"`
}

// line says it in a line.
func (b BGP) line() string {
	text := fmt.Sprintf("AS %d, %d of %d peers up, %s announced", b.ASN, len(b.Up), len(b.Up)+len(b.Down), Count(b.Announced, "VIP"))
	if b.Standby > 0 {
		text += fmt.Sprintf(" (%d on standby)", b.Standby)
	}
	if len(b.Withheld) == 0 {
		return text
	}
	var by []string
	n := 0
	for _, reason := range slices.Sorted(maps.Keys(b.Withheld)) {
		n += b.Withheld[reason]
		by = append(by, fmt.Sprintf("%d %s", b.Withheld[reason], reason))
	}
	return fmt.Sprintf("%s, %d withheld (%s)", text, n, strings.Join(by, ", "))
}

// bad says what needs a look.
func (b BGP) bad(now time.Time) (out []string) {
	if b.Problem != "" {
		out = append(out, "BGP: "+b.Problem)
	}
	for _, p := range b.Down {
		text := fmt.Sprintf("BGP peer %s is down", p.Name)
		if !p.Since.IsZero() {
			text += " since " + age(now, p.Since)
		}
		if p.Why != "" {
			text += ": " + p.Why
		}
		out = append(out, text)
	}
	out = append(out, b.Problems...)
	if b.Kept > 0 {
		out = append(out, Count(b.Kept, "VIP")+" without a backend announced nevertheless: too many have lost theirs (bgp.floor)")
	}
	return out
}
