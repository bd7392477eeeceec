package status

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"
)

// Guard is what is held of sources that took away much at once.
type Guard struct {
	Held []Hold `json:"held"` // one for each source
}

// Hold is what is held of one source: it is served on, although the source has
// taken it away.
type Hold struct {
	Source string    `json:"source"`
	Since  time.Time `json:"since"`
	// Until is when the source is believed in any case; absent is never.
	Until     time.Time `json:"until,omitzero"`
	Services  int       `json:"services"`
	Frontends int       `json:"frontends"`
	Backends  int       `json:"backends"`
	// First are the first of the Services.
	First []string `json:"first"`
}

// Table implements Tabler.
func (g Guard) Table(w io.Writer, now time.Time) {
	if len(g.Held) == 0 {
		fmt.Fprintln(w, "nothing is held")
		return
	}
	tw := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	fmt.Fprintln(tw, "SOURCE\tHELD\tUNTIL\tSERVICES\tFRONTENDS\tBACKENDS\tTHE FIRST")
	for _, h := range g.Held {
		fmt.Fprintf(tw, "%s\t%s\t%s\t%d\t%d\t%d\t%s\n", h.Source, age(now, h.Since), h.until(now),
			h.Services, h.Frontends, h.Backends, strings.Join(h.First, " "))
	}
	tw.Flush()
	fmt.Fprintf(w, "\nIf this is meant so: weir guard release %s\n", g.Held[0].Source)
}

func (h Hold) until(now time.Time) string {
	if h.Until.IsZero() {
		return "released"
	}
	return "in " + age(h.Until, now)
}

// why says it in a line.
func (h Hold) why() string {
	return fmt.Sprintf("%s takes away %s and %s at once, which is held (weir guard)", h.Source, Count(h.Frontends, "frontend"), Count(h.Backends, "backend"))
}
