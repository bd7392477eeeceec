package status

import (
	"cmp"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"
)

// Health is what the checks say of each backend, and what has no check.
type Health struct {
	// Backends in the order of Service, port and address.
	Backends []CheckedBackend `json:"backends"`
	// Unchecked are the services without a check, by name.
	Unchecked []Unchecked `json:"unchecked"`
}

// CheckedBackend is a backend of a port of a service, and what its check says.
type CheckedBackend struct {
	Service string `json:"service"`
	// Port is that of the service, such as "80/tcp".
	Port    string `json:"port"`
	Backend string `json:"backend"`
	// Verdict is up, down, or unknown before the first check; Since is when it became so.
	Verdict string    `json:"verdict"`
	Since   time.Time `json:"since,omitzero"`
	// Checked is when the last check ended, Took how long it took, in seconds.
	Checked time.Time `json:"checked,omitzero"`
	Took    float64   `json:"took_seconds"`
	// Error is what the last check that failed met; of a backend that is up it
	// is past, or did not happen often enough yet.
	Error    string `json:"error,omitempty"`
	Checks   uint64 `json:"checks_total"`   // since the start
	Failures uint64 `json:"failures_total"` // since the start
	// Lost tells that too few backends of the port are up for its quorum: it has what the
	// service says for that case, its fallback or nobody.
	Lost bool `json:"lost,omitempty"`
}

// Unchecked is a service that has no check.
type Unchecked struct {
	Service  string `json:"service"`
	Backends int    `json:"backends"`
	// Why says who knows instead whether its backends work.
	Why string `json:"why"`
}

// Well tells whether no backend is down.
func (h Health) Well() bool {
	for _, b := range h.Backends {
		if b.Verdict == "down" {
			return false
		}
	}
	return true
}

// Table implements Tabler. What is down comes first.
func (h Health) Table(w io.Writer, now time.Time) {
	fmt.Fprintf(w, "%s\n", h.Line())
	if len(h.Backends) > 0 {
		fmt.Fprintln(w)
		tw := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
		fmt.Fprintln(tw, "SERVICE\tPORT\tBACKEND\tVERDICT\tSINCE\tCHECKED\tTOOK\tERROR")
		for _, verdict := range []string{"down", "unknown", "up"} {
			for _, b := range h.Backends {
				if b.Verdict == verdict {
					fmt.Fprintf(tw, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", b.Service, b.Port, b.Backend, b.Verdict,
						b.since(now), since(now, b.Checked), b.took(), b.problem())
				}
			}
		}
		tw.Flush()
	}
	if len(h.Unchecked) > 0 {
		fmt.Fprintf(w, "\nNot checked (%d):\n", len(h.Unchecked))
	}
	for i, u := range h.Unchecked {
		if i == maxLines {
			fmt.Fprintf(w, "  and %d more: weir health -o json\n", len(h.Unchecked)-i)
			break
		}
		fmt.Fprintf(w, "  %s  %d backends  %s\n", u.Service, u.Backends, u.Why)
	}
}

// Line says in one line whether all is well.
func (h Health) Line() string {
	if len(h.Backends) == 0 {
		return "no backend is checked"
	}
	n := map[string]int{}
	for _, b := range h.Backends {
		n[b.Verdict]++
	}
	switch {
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

// took is how long the last check took.
func (b CheckedBackend) took() string {
	if b.Checked.IsZero() {
		return "-"
	}
	d := time.Duration(b.Took * float64(time.Second))
	if d >= 10*time.Millisecond {
		return d.Round(time.Millisecond).String()
	}
	return d.Round(10 * time.Microsecond).String()
}

// since is for how long the verdict holds.
func (b CheckedBackend) since(now time.Time) string {
	if b.Since.IsZero() {
		return "-"
	}
	return age(now, b.Since)
}

// problem is what keeps a backend, or its port, from being well.
func (b CheckedBackend) problem() string {
	var out []string
	if b.Verdict != "up" && b.Error != "" {
		out = append(out, b.Error)
	}
	if b.Lost {
		out = append(out, "quorum lost")
	}
	return cmp.Or(strings.Join(out, "; "), "-")
}
