package status

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"weir/cmd/weir/internal/status/text"
)

// BGP is a summary of the sessions and routes of a box.
type BGP struct {
	ASN      uint32 `json:"asn"`
	RouterID string `json:"router_id,omitempty"` // the box's BGP identifier
	// Problem is the reason why nothing is announced.
	Problem string `json:"problem,omitempty"`
	// Up are the names of the peers with a session, Down the peers without one. A
	// range is neither.
	Up   []string   `json:"up"`
	Down []DownPeer `json:"down"`
	// Problems are those of sessions that are up.
	Problems []string `json:"problems,omitempty"`
	// Announced counts VIPs, Standby those of them that another member owns, MinAnnounced
	// those without a backend that bgp.min_announced keeps, Withheld the others by reason.
	Announced    int            `json:"announced"`
	Standby      int            `json:"standby,omitempty"`
	MinAnnounced int            `json:"min_announced"`
	Withheld     map[string]int `json:"withheld"`
}

// DownPeer is a router without a session.
type DownPeer struct {
	Name  string    `json:"name"`
	State string    `json:"state"`
	Since time.Time `json:"since,omitzero"`
	// Reason is the reason why the session is down.
	Reason string `json:"reason,omitempty"`
}

// line returns a summary in one line.
func (b BGP) line() string {
	line := fmt.Sprintf("AS %d, %d of %d peers up, %s announced", b.ASN, len(b.Up), len(b.Up)+len(b.Down), text.Count(b.Announced, "VIP"))
	if b.Standby > 0 {
		line += fmt.Sprintf(" (%d on standby)", b.Standby)
	}
	if len(b.Withheld) == 0 {
		return line
	}
	var by []string
	n := 0
	for _, reason := range slices.Sorted(maps.Keys(b.Withheld)) {
		n += b.Withheld[reason]
		by = append(by, fmt.Sprintf("%d %s", b.Withheld[reason], reason))
	}
	return fmt.Sprintf("%s, %d withheld (%s)", line, n, strings.Join(by, ", "))
}

// problems returns the problems of sessions and routes.
func (b BGP) problems(now time.Time) (out []Problem) {
	if b.Problem != "" {
		out = append(out, problem(ProblemBGP, "BGP: %s", b.Problem))
	}
	for _, p := range b.Down {
		line := fmt.Sprintf("BGP peer %s is down", p.Name)
		if !p.Since.IsZero() {
			line += " since " + text.Age(now.Sub(p.Since))
		}
		if p.Reason != "" {
			line += ": " + p.Reason
		}
		out = append(out, Problem{ProblemBGP, line})
	}
	for _, line := range b.Problems {
		out = append(out, Problem{ProblemBGP, line})
	}
	if b.MinAnnounced > 0 {
		out = append(out, problem(ProblemMinAnnounced, "%s without a backend still announced: too many have lost theirs (bgp.min_announced)", text.Count(b.MinAnnounced, "VIP")))
	}
	return out
}
