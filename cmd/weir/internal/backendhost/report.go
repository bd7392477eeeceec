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
	Well  bool    `json:"well"`  // each part is in effect
	Parts []State `json:"parts"` // in the order of weir backend
}

// State is one part of the configuration of a server.
type State struct {
	What string `json:"what"` // the wanted state: "device tunl0 is up"
	// Fault is the reason why it is not in effect; empty if it is.
	Fault string `json:"fault,omitempty"`
	// Fix are the commands that bring it into effect.
	Fix string `json:"fix,omitempty"`
}

// Check compares the server with a specification.
func (h Host) Check(ctx context.Context, s Spec) Report {
	r := Report{Well: true}
	for _, p := range s.steps() {
		x := State{What: p.what, Fault: p.fault(ctx, h)}
		if x.Fault != "" {
			r.Well = false
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
		verdict := "ok"
		if p.Fault != "" {
			verdict = "FAULT"
		}
		fmt.Fprintf(tw, "%s\t%s\t%s\n", verdict, p.What, p.Fault)
	}
	_ = tw.Flush() // to a terminal or a pipe
	for _, p := range r.Parts {
		if p.Fix != "" {
			fmt.Fprintf(w, "fix: %s\n", p.Fix)
		}
	}
}
