package status

import (
	"fmt"
	"io"
	"strings"
	"time"
)

// PlannedRoutes are what a configuration would change for routers, and for those who
// have addresses.
type PlannedRoutes struct {
	Announce []PlannedRoute `json:"announce"`
	Change   []PlannedRoute `json:"change"`
	Withdraw []PlannedRoute `json:"withdraw"`
	// Stranded are Services whose address no pool would give them any more. They keep
	// it.
	Stranded []Stranded `json:"stranded"`
	// Restart are the keys for which a reload would refuse the configuration.
	Restart []string `json:"restart,omitempty"`
}

// PlannedRoute is a prefix and how routers would hear of it, or have heard.
type PlannedRoute struct {
	Prefix string        `json:"prefix"`
	Paths  []PlannedPath `json:"paths"`
}

// PlannedPath is how some routers hear of a prefix.
type PlannedPath struct {
	Peers      []string `json:"peers"`
	Attributes []string `json:"attributes"`
}

// Stranded is an address that its Service would not get any more.
type Stranded struct {
	Service string `json:"service"`
	Address string `json:"address"`
	Text    string `json:"text"`
}

// Table implements Tabler: a line for each, in the words of a plan.
func (p PlannedRoutes) Table(w io.Writer, _ time.Time) {
	for _, x := range p.Announce {
		x.write(w, "announce", "to")
	}
	for _, x := range p.Change {
		x.write(w, "announce otherwise", "to")
	}
	for _, x := range p.Withdraw {
		x.write(w, "withdraw", "from")
	}
	for _, x := range p.Stranded {
		fmt.Fprintf(w, "note %s: keeps %s, and would not get it any more: %s\n", x.Service, x.Address, x.Text)
	}
}

// Counts says in a line how much it is, "" if it is nothing.
func (p PlannedRoutes) Counts() string {
	if len(p.Announce)+len(p.Change)+len(p.Withdraw) == 0 {
		return ""
	}
	return fmt.Sprintf("routes: %d to announce, %d to announce otherwise, %d to withdraw", len(p.Announce), len(p.Change), len(p.Withdraw))
}

func (x PlannedRoute) write(w io.Writer, verb, word string) {
	for _, path := range x.Paths {
		text := fmt.Sprintf("%s %s %s %s", verb, x.Prefix, word, strings.Join(path.Peers, " "))
		if len(path.Attributes) > 0 && word == "to" {
			text += " with " + strings.Join(path.Attributes, " ")
		}
		fmt.Fprintln(w, text)
	}
}
