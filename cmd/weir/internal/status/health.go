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

// Health is the health of each checked backend, and the services without a check.
type Health struct {
	// Backends in the order of Service, port and address.
	Backends []CheckedBackend `json:"backends"`
	// Unchecked are the services without a check, by name.
	Unchecked []Unchecked `json:"unchecked"`
}

// CheckedBackend is a backend of a port of a service, with the result of its check.
type CheckedBackend struct {
	Service string `json:"service"`
	// Port is that of the service, such as "80/tcp".
	Port    string `json:"port"`
	Backend string `json:"backend"`
	// Address is the address that is checked: backend, or vip.
	Address string `json:"address"`
	// State is up, down, or unknown before the first check; Since is when it became so.
	State string    `json:"state"`
	Since time.Time `json:"since,omitzero"`
	// Void is set if the checks have had no result for a while because of this box: then State is out of
	// date.
	Void bool `json:"void,omitempty"`
	// Checked is the end of the last check, Duration its duration in seconds.
	Checked  time.Time `json:"checked,omitzero"`
	Duration float64   `json:"duration_seconds"`
	// Error is the error of the last check that failed or had no result. Of a backend that is up it
	// is past, or did not happen often enough yet.
	Error    string `json:"error,omitempty"`
	Checks   uint64 `json:"checks_total"`   // since the start
	Failures uint64 `json:"failures_total"` // since the start
	// Flaps counts the changes of State between up and down since the start.
	Flaps uint64 `json:"flaps_total"`
	// QuorumLost is set if too few backends of the port are up: then when_down of the
	// service applies.
	QuorumLost bool `json:"quorum_lost,omitempty"`
}

// Unchecked is a service that has no check.
type Unchecked struct {
	Service  string `json:"service"`
	Backends int    `json:"backends"`
	// Reason is the reason why there is no check.
	Reason string `json:"reason"`
}

// OK reports whether no backend is down.
func (h Health) OK() bool {
	return !slices.ContainsFunc(h.Backends, func(b CheckedBackend) bool { return b.State == "down" })
}

// Table implements Tabler. Backends that are down come first.
func (h Health) Table(w io.Writer, now time.Time) {
	fmt.Fprintf(w, "%s\n", h.Line())
	if len(h.Backends) > 0 {
		fmt.Fprintln(w)
		tw := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
		fmt.Fprintln(tw, "SERVICE\tPORT\tBACKEND\tSTATE\tSINCE\tCHECKED\tDURATION\tERROR")
		for _, state := range []string{"down", "unknown", "up"} {
			for _, b := range h.Backends {
				if b.State == state {
					fmt.Fprintf(tw, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", b.Service, b.Port, b.target(), b.State,
						b.since(now), text.Ago(now, b.Checked), b.duration(), b.problem())
				}
			}
		}
		tw.Flush()
	}
	if len(h.Unchecked) > 0 {
		fmt.Fprintf(w, "\nNot checked (%d):\n", len(h.Unchecked))
	}
	for _, u := range h.Unchecked {
		fmt.Fprintf(w, "  %s  %s  %s\n", u.Service, text.Count(u.Backends, "backend"), u.Reason)
	}
}

// Line returns a summary in one line.
func (h Health) Line() string {
	if len(h.Backends) == 0 {
		return "no backend is checked"
	}
	n := map[string]int{}
	for _, b := range h.Backends {
		if n[b.State]++; b.Void {
			n["void"]++
		}
	}
	switch {
	case n["void"] > 0:
		return fmt.Sprintf("%d of %d backends are down, and the checks of %d have no result", n["down"], len(h.Backends), n["void"])
	case n["down"] > 0:
		return fmt.Sprintf("%d of %d backends are down", n["down"], len(h.Backends))
	case n["unknown"] > 0:
		return fmt.Sprintf("%d of %d backends are not known yet", n["unknown"], len(h.Backends))
	}
	if len(h.Backends) == 1 {
		return "the one backend is up"
	}
	return fmt.Sprintf("all %d backends are up", len(h.Backends))
}

// target returns the backend, and whether its VIPs are checked.
func (b CheckedBackend) target() string {
	if b.Address == "vip" {
		return b.Backend + " (VIP)"
	}
	return b.Backend
}

// duration formats the duration of the last check.
func (b CheckedBackend) duration() string {
	if b.Checked.IsZero() {
		return "-"
	}
	d := time.Duration(b.Duration * float64(time.Second))
	if d >= 10*time.Millisecond {
		return d.Round(time.Millisecond).String()
	}
	return d.Round(10 * time.Microsecond).String()
}

// since formats the time since the last change of the state.
func (b CheckedBackend) since(now time.Time) string {
	if b.Since.IsZero() {
		return "-"
	}
	return text.Age(now.Sub(b.Since))
}

// problem describes the problem of a backend or its port.
func (b CheckedBackend) problem() string {
	var out []string
	switch {
	case b.Void:
		out = append(out, "no result: "+b.Error)
	case b.State != "up" && b.Error != "":
		out = append(out, b.Error)
	}
	if b.QuorumLost {
		out = append(out, "quorum lost")
	}
	return cmp.Or(text.OneLine(strings.Join(out, "; ")), "-")
}
