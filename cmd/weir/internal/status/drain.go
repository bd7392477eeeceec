package status

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// Drained is what an operator has taken from the sight of routers.
type Drained struct {
	// All tells that it is the whole box, and VIPs which ones. While All is, they are
	// all VIPs that are announced, and those that would be.
	All *DrainState `json:"all,omitempty"`
	// VIPs by address.
	VIPs []DrainedVIP `json:"vips"`
	// Stopping tells that weir stops, and that the box is drained for that.
	Stopping bool `json:"stopping,omitempty"`
	// Kept counts the VIPs that are not withdrawn because no other member of the fleet
	// can serve them.
	Kept int `json:"kept,omitempty"`
	// Error is why the state can't be kept for the next start, or could not be read
	// at this one.
	Error string `json:"error,omitempty"`
}

// DrainState is how far a drain has come.
type DrainState struct {
	Stage DrainStage `json:"stage"` // how far it is
	Since time.Time  `json:"since"`
	// Withdraws is when the routes are withdrawn, or were.
	Withdraws time.Time `json:"withdraws"`
}

// DrainStage is how far a drain has come, in a word.
type DrainStage string

// The stages of a drain.
const (
	// Shutting: routers are asked to prefer others (RFC 8326).
	Shutting DrainStage = "shutting"
	// Withdrawn: there are no routes any more.
	Withdrawn DrainStage = "withdrawn"
)

// DrainedVIP is one VIP that is drained.
type DrainedVIP struct {
	Address string `json:"address"`
	DrainState
	// Kept tells that it is not withdrawn because no other member can serve it.
	Kept bool `json:"kept,omitempty"`
	// Owner is the member of the fleet that has it now; empty if nobody does, or
	// nobody knows. Moving tells that one is to have it, and does not say yet that it does.
	Owner  string `json:"owner,omitempty"`
	Moving bool   `json:"moving,omitempty"`
	// Connections are those that the kernel still has, once the routes are withdrawn
	// or about to be.
	Connections int `json:"connections"`
}

// Done tells whether all routes are withdrawn, other members have what they are to have,
// and no connection is left.
func (d Drained) Done() bool {
	if d.All != nil && d.All.Stage != Withdrawn {
		return false
	}
	return !slices.ContainsFunc(d.VIPs, func(v DrainedVIP) bool { return v.Stage != Withdrawn || v.Moving || v.Connections > 0 })
}

// any tells whether anything is drained.
func (d Drained) any() bool { return d.All != nil || len(d.VIPs) > 0 }

// bad says what needs a look, the loudest first.
func (d Drained) bad(now time.Time) (out []string) {
	switch {
	case d.Stopping:
		out = append(out, fmt.Sprintf("weir stops, and leads clients elsewhere since %s (%s)", age(now, d.All.Since), d.progress()))
	case d.All != nil:
		out = append(out, fmt.Sprintf("THE WHOLE BOX IS DRAINED since %s (%s): weir undrain --all", age(now, d.All.Since), d.progress()))
	case len(d.VIPs) == 1:
		v := d.VIPs[0]
		out = append(out, fmt.Sprintf("%s IS DRAINED since %s (%s): weir undrain %s", v.Address, age(now, v.Since), v.progress(), v.Address))
	case len(d.VIPs) > 1:
		text := fmt.Sprintf("%d VIPs ARE DRAINED: weir undrain", len(d.VIPs))
		if d.Kept > 0 {
			text = fmt.Sprintf("%d VIPs ARE DRAINED (%s): weir undrain", len(d.VIPs), keptVIPs(d.Kept))
		}
		out = append(out, text)
	}
	if d.Error != "" {
		out = append(out, d.Error)
	}
	return out
}

// kept says why a VIP is not withdrawn.
const kept = "kept: no other member can serve it"

func keptVIPs(n int) string {
	if n == 1 {
		return "1 VIP " + kept
	}
	return fmt.Sprintf("%d VIPs kept: no other member can serve them", n)
}

// progress is how far the whole box is, in a word or two.
func (d Drained) progress() string {
	if d.Kept > 0 {
		return keptVIPs(d.Kept)
	}
	return string(d.All.Stage)
}

func (v DrainedVIP) progress() string {
	if v.Kept {
		return kept
	}
	return string(v.Stage)
}

// Table implements Tabler.
func (d Drained) Table(w io.Writer, now time.Time) {
	if d.Error != "" {
		fmt.Fprintln(w, "problem:", d.Error)
	}
	if !d.any() {
		fmt.Fprintln(w, "nothing is drained")
		return
	}
	switch {
	case d.Stopping:
		fmt.Fprintf(w, "weir stops; the whole box is drained since %s: %s\n", age(now, d.All.Since), d.text(now))
	case d.All != nil:
		fmt.Fprintf(w, "the whole box is drained since %s: %s\n", age(now, d.All.Since), d.text(now))
	}
	if len(d.VIPs) == 0 {
		return
	}
	owned := slices.ContainsFunc(d.VIPs, func(v DrainedVIP) bool { return v.nowAt() != "-" })
	tw := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	fmt.Fprintf(tw, "VIP\tDRAINED\tROUTES\t%sCONNECTIONS\n", column(owned, "NOW AT"))
	for _, v := range d.VIPs {
		fmt.Fprintf(tw, "%s\t%s\t%s\t%s%d\n", v.Address, age(now, v.Since), v.text(now), column(owned, v.nowAt()), v.Connections)
	}
	tw.Flush()
}

func (v DrainedVIP) nowAt() string {
	if v.Moving {
		return "(moving)"
	}
	return cmp.Or(v.Owner, "-")
}

// column is a cell of a column that is not always there.
func column(there bool, text string) string {
	if !there {
		return ""
	}
	return text + "\t"
}

// text says how far the whole box is.
func (d Drained) text(now time.Time) string {
	if d.Kept > 0 {
		return "withdrawn, but for " + keptVIPs(d.Kept)
	}
	return d.All.text(now)
}

func (v DrainedVIP) text(now time.Time) string {
	if v.Kept {
		return kept + " (weir drain --force withdraws it)"
	}
	return v.DrainState.text(now)
}

func (s DrainState) text(now time.Time) string {
	if s.Stage == Withdrawn {
		return "withdrawn"
	}
	return fmt.Sprintf("ask to prefer others, withdrawn in %s", strings.TrimSpace(age(s.Withdraws, now)))
}

// Progress says in a line what is still waited for; "" if nothing is.
func (d Drained) Progress(now time.Time) string {
	if d.Done() {
		return ""
	}
	shutting, moving, left := 0, 0, 0
	next := time.Time{}
	for _, v := range d.VIPs {
		left += v.Connections
		switch {
		case v.Stage == Shutting && !v.Kept:
			shutting++
			next = v.Withdraws
		case v.Moving:
			moving++
		}
	}
	var parts []string
	if shutting > 0 {
		parts = append(parts, fmt.Sprintf("%d of %d VIPs are withdrawn in %s", shutting, len(d.VIPs), strings.TrimSpace(age(next, now))))
	}
	if moving > 0 {
		parts = append(parts, fmt.Sprintf("%d are being taken over", moving))
	}
	if d.Kept > 0 {
		parts = append(parts, keptVIPs(d.Kept))
	}
	return strings.Join(append(parts, fmt.Sprintf("%d connections left", left)), ", ")
}
