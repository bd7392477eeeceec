package status

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"weir/cmd/weir/internal/status/text"
)

// Drained are the VIPs that an operator drains.
type Drained struct {
	// All is the drain of the whole box. Then VIPs are all VIPs that are or would be
	// announced.
	All *DrainState `json:"all,omitempty"`
	// VIPs by address.
	VIPs []DrainedVIP `json:"vips"`
	// Stopping is set while weir stops, and drains the box for that.
	Stopping bool `json:"stopping,omitempty"`
	// Retained counts the VIPs that are not withdrawn because no other member of the
	// fleet can serve them.
	Retained int `json:"retained,omitempty"`
	// Error is the reason why the state can't be stored, or could not be read.
	Error string `json:"error,omitempty"`
}

// DrainState is the progress of a drain.
type DrainState struct {
	Stage DrainStage `json:"stage"` // of the drain
	Since time.Time  `json:"since"`
	// Withdraws is the time of the withdrawal of the routes.
	Withdraws time.Time `json:"withdraws"`
}

// DrainStage is the stage of a drain in one word.
type DrainStage string

// The stages of a drain.
const (
	// Shutting: routers are asked to prefer others (RFC 8326).
	Shutting DrainStage = "shutting"
	// Withdrawn: the routes are withdrawn.
	Withdrawn DrainStage = "withdrawn"
)

// DrainedVIP is one VIP that is drained.
type DrainedVIP struct {
	Address string `json:"address"`
	DrainState
	// Retained is set if it is not withdrawn because no other member can serve it.
	Retained bool `json:"retained,omitempty"`
	// Owner is the member of the fleet that owns it now; empty if none does or it is not
	// known. Moving is set until the next owner has confirmed.
	Owner  string `json:"owner,omitempty"`
	Moving bool   `json:"moving,omitempty"`
	// Connections are those left, once the routes are withdrawn or about to be.
	Connections int `json:"connections"`
}

// Done reports whether all routes are withdrawn, the next owners have confirmed, and no
// connection is left.
func (d Drained) Done() bool {
	if d.All != nil && d.All.Stage != Withdrawn {
		return false
	}
	return !slices.ContainsFunc(d.VIPs, func(v DrainedVIP) bool { return v.Stage != Withdrawn || v.Moving || v.Connections > 0 })
}

// any reports whether anything is drained.
func (d Drained) any() bool { return d.All != nil || len(d.VIPs) > 0 }

// problems returns the drains as problems.
func (d Drained) problems(now time.Time) (out []Problem) {
	switch {
	case d.Stopping:
		out = append(out, problem(ProblemStopping, "weir is stopping, and steers clients elsewhere since %s (%s)", text.Age(now.Sub(d.All.Since)), d.progress()))
	case d.All != nil:
		out = append(out, problem(ProblemDrained, "THE WHOLE BOX IS DRAINED since %s (%s): weir undrain --all", text.Age(now.Sub(d.All.Since)), d.progress()))
	case len(d.VIPs) == 1:
		v := d.VIPs[0]
		out = append(out, problem(ProblemDrained, "%s IS DRAINED since %s (%s): weir undrain %s", v.Address, text.Age(now.Sub(v.Since)), v.progress(), v.Address))
	case len(d.VIPs) > 1 && d.Retained > 0:
		out = append(out, problem(ProblemDrained, "%d VIPs ARE DRAINED (%s): weir undrain", len(d.VIPs), retainedVIPs(d.Retained)))
	case len(d.VIPs) > 1:
		out = append(out, problem(ProblemDrained, "%d VIPs ARE DRAINED: weir undrain", len(d.VIPs)))
	}
	if d.Error != "" {
		out = append(out, Problem{ProblemDrainState, d.Error})
	}
	return out
}

// retained is the reason why a VIP is not withdrawn.
const retained = "retained: no other member can serve it"

func retainedVIPs(n int) string {
	if n == 1 {
		return "1 VIP " + retained
	}
	return fmt.Sprintf("%d VIPs retained: no other member can serve them", n)
}

// progress returns the stage of the drain of the whole box.
func (d Drained) progress() string {
	if d.Retained > 0 {
		return retainedVIPs(d.Retained)
	}
	return string(d.All.Stage)
}

func (v DrainedVIP) progress() string {
	if v.Retained {
		return retained
	}
	return string(v.Stage)
}

// Table implements Tabler.
func (d Drained) Table(w io.Writer, now time.Time) {
	if d.Error != "" {
		fmt.Fprintln(w, "problem:", d.Error)
	}
	if !d.any() {
		fmt.Fprintln(w, "no VIP is drained")
		return
	}
	switch {
	case d.Stopping:
		fmt.Fprintf(w, "weir is stopping; the whole box is drained since %s: %s\n", text.Age(now.Sub(d.All.Since)), d.text(now))
	case d.All != nil:
		fmt.Fprintf(w, "the whole box is drained since %s: %s\n", text.Age(now.Sub(d.All.Since)), d.text(now))
	}
	if len(d.VIPs) == 0 {
		return
	}
	owned := slices.ContainsFunc(d.VIPs, func(v DrainedVIP) bool { return v.nowAt() != "-" })
	tw := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	fmt.Fprintf(tw, "VIP\tDRAINED\tROUTES\t%sCONNECTIONS\n", column(owned, "NOW AT"))
	for _, v := range d.VIPs {
		fmt.Fprintf(tw, "%s\t%s\t%s\t%s%d\n", v.Address, text.Age(now.Sub(v.Since)), v.text(now), column(owned, v.nowAt()), v.Connections)
	}
	tw.Flush()
}

func (v DrainedVIP) nowAt() string {
	if v.Moving {
		return "(moving)"
	}
	return cmp.Or(v.Owner, "-")
}

// column returns a cell of an optional column.
func column(there bool, text string) string {
	if !there {
		return ""
	}
	return text + "\t"
}

// text describes the progress of the whole box.
func (d Drained) text(now time.Time) string {
	if d.Retained > 0 {
		return "withdrawn, except " + retainedVIPs(d.Retained)
	}
	return d.All.text(now)
}

func (v DrainedVIP) text(now time.Time) string {
	if v.Retained {
		return retained + " (weir drain --force withdraws it)"
	}
	return v.DrainState.text(now)
}

func (s DrainState) text(now time.Time) string {
	if s.Stage == Withdrawn {
		return "withdrawn"
	}
	return fmt.Sprintf("lower preference, withdrawn in %s", text.Age(s.Withdraws.Sub(now)))
}

// Progress describes the rest of the drain in one line; "" if it is done.
func (d Drained) Progress(now time.Time) string {
	if d.Done() {
		return ""
	}
	shutting, moving, left := 0, 0, 0
	next := time.Time{}
	for _, v := range d.VIPs {
		left += v.Connections
		switch {
		case v.Stage == Shutting && !v.Retained:
			shutting++
			next = v.Withdraws
		case v.Moving:
			moving++
		}
	}
	var parts []string
	if shutting > 0 {
		parts = append(parts, fmt.Sprintf("%d of %d VIPs are withdrawn in %s", shutting, len(d.VIPs), text.Age(next.Sub(now))))
	}
	if moving > 0 {
		parts = append(parts, fmt.Sprintf("%d are being taken over", moving))
	}
	if d.Retained > 0 {
		parts = append(parts, retainedVIPs(d.Retained))
	}
	return strings.Join(append(parts, text.Count(left, "connection")+" left"), ", ")
}
