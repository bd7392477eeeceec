package backendhost

import (
	"context"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"
)

// Report is the result of a check.
type Report struct {
	OK    bool    `json:"ok"`    // each part is in effect
	Parts []State `json:"parts"` // in the order of weir backend
}

// State is one part of the configuration of a server.
type State struct {
	Wanted string `json:"wanted"` // the wanted state: "device tunl0 is up"
	// Fault is the reason why it is not in effect; empty if it is.
	Fault string `json:"fault,omitempty"`
	// Fix are the commands that bring it into effect.
	Fix string `json:"fix,omitempty"`
}

// Check compares the server with a specification.
func (h Host) Check(ctx context.Context, s Spec) Report {
	r := Report{OK: true}
	for _, p := range s.steps() {
		x := State{Wanted: p.what, Fault: p.fault(ctx, h)}
		if x.Fault != "" {
			r.OK = false
			lines := make([]string, len(p.do))
			for i, c := range p.do {
				lines[i] = shell(c)
			}
			x.Fix = strings.Join(lines, " && ")
		}
		r.Parts = append(r.Parts, x)
	}
	return r
}

// Table writes the report for people.
func (r Report) Table(w io.Writer, _ time.Time) {
	tw := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	for _, p := range r.Parts {
		result := "ok"
		if p.Fault != "" {
			result = "FAULT"
		}
		fmt.Fprintf(tw, "%s\t%s\t%s\n", result, p.Wanted, p.Fault)
	}
	_ = tw.Flush() // to a terminal or a pipe
	for _, p := range r.Parts {
		if p.Fix != "" {
			fmt.Fprintf(w, "fix: %s\n", p.Fix)
		}
	}
}
