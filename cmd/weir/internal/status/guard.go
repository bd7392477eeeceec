package status

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"weir/cmd/weir/internal/status/text"
)

// Guard are the sources after a mass deletion that is not accepted yet.
type Guard struct {
	Guarded []GuardedSource `json:"guarded"` // one for each source
}

// GuardedSource are the deleted objects of one source that are still served.
type GuardedSource struct {
	Source string    `json:"source"`
	Since  time.Time `json:"since"`
	// Until is when the deletion is accepted in any case; absent is never.
	Until     time.Time `json:"until,omitzero"`
	Services  int       `json:"services"`
	Frontends int       `json:"frontends"`
	Backends  int       `json:"backends"`
	// First are the first of the Services.
	First []string `json:"first"`
}

// Table implements Tabler.
func (g Guard) Table(w io.Writer, now time.Time) {
	if len(g.Guarded) == 0 {
		fmt.Fprintln(w, "no source is guarded")
		return
	}
	tw := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	fmt.Fprintln(tw, "SOURCE\tGUARDED\tUNTIL\tSERVICES\tFRONTENDS\tBACKENDS\tFIRST")
	for _, h := range g.Guarded {
		fmt.Fprintf(tw, "%s\t%s\t%s\t%d\t%d\t%d\t%s\n", h.Source, text.Age(now.Sub(h.Since)), h.until(now),
			h.Services, h.Frontends, h.Backends, strings.Join(h.First, " "))
	}
	tw.Flush()
	fmt.Fprintf(w, "\nTo accept the deletions: weir guard release %s\n", g.Guarded[0].Source)
}

func (h GuardedSource) until(now time.Time) string {
	if h.Until.IsZero() {
		return "released"
	}
	return "in " + text.Age(h.Until.Sub(now))
}

// problem describes the hold in one line.
func (h GuardedSource) problem() string {
	return fmt.Sprintf("%s removed %s and %s at once; the guard retains them (weir guard)", h.Source, text.Count(h.Frontends, "frontend"), text.Count(h.Backends, "backend"))
}
