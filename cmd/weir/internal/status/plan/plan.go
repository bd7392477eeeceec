// Package plan holds the difference between a configuration and the present state of the
// kernel, routes and addresses. It never computes the difference itself.
package plan

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"weir/cmd/weir/internal/status/text"
)

// Diff is the difference between the kernel and a configuration.
type Diff struct {
	Operations []Operation `json:"operations"` // in the order in which they would run
	Notes      []string    `json:"notes,omitempty"`
	// Routes are the changes of routes and addresses.
	Routes Routes `json:"routes"`
	Impact Impact `json:"impact"` // on clients
	// All lists the base objects in the table too.
	All bool `json:"-"`
}

// Operation is one change of an object in the kernel.
type Operation struct {
	Verb   string `json:"verb"`   // add, change or delete
	Kind   string `json:"kind"`   // sysctl, device, set, rules, member, virtual_server, real_server, ...
	Object string `json:"object"` // as in the log
	// Anchor is set for the virtual servers that keep conntrack alive, and serve no client.
	Anchor bool `json:"anchor,omitempty"`
}

// Impact is the effect of a plan on clients.
type Impact struct {
	// VIPs would not be served any more.
	VIPs []string `json:"vips,omitempty"`
	// Backends would receive no new connections; Removed of them would be removed
	// immediately. Draining are connections that may end by themselves, Cut
	// those that would be cut.
	Backends int `json:"backends"`
	Removed  int `json:"removed"`
	Draining int `json:"draining"`
	Cut      int `json:"cut"`
	// Redirected are backends that change from forward = "nat" to "direct", and Masqueraded
	// their connections. Until these end, the kernel can lose such a backend to new clients.
	Redirected  int `json:"redirected"`
	Masqueraded int `json:"masqueraded"`
}

// isBase reports whether an operation adds an object that every configuration needs.
func (o Operation) isBase() bool {
	return o.Verb == "add" && (o.Anchor || slices.Contains([]string{"sysctl", "device", "set", "rules"}, o.Kind))
}

// kind returns the kind of object for the line of base objects.
func (o Operation) kind() string {
	if o.Anchor {
		return "anchor " + strings.ReplaceAll(o.Kind, "_", " ")
	}
	return strings.Replace(o.Kind, "rules", "rule set", 1)
}

// Table implements Tabler.
func (d Diff) Table(w io.Writer, now time.Time) {
	verbs, base := map[string]int{}, map[string]int{}
	for _, o := range d.Operations {
		verbs[o.Verb]++
		if o.isBase() && !d.All {
			base[o.kind()]++
		}
	}
	if len(base) > 0 {
		var kinds []string
		for _, kind := range slices.Sorted(maps.Keys(base)) {
			kinds = append(kinds, text.Count(base[kind], kind))
		}
		fmt.Fprintf(w, "add base objects: %s (--all lists them)\n", strings.Join(kinds, ", "))
	}
	for _, o := range d.Operations {
		if d.All || !o.isBase() {
			fmt.Fprintln(w, o.Verb, o.Object)
		}
	}
	for _, n := range d.Notes {
		fmt.Fprintln(w, "note", n)
	}
	d.Routes.Table(w, now)
	if len(d.Operations) == 0 {
		fmt.Fprintln(w, "no changes: the kernel matches the configuration")
	} else {
		fmt.Fprintf(w, "%d to add, %d to change, %d to delete\n", verbs["add"], verbs["change"], verbs["delete"])
	}
	if counts := d.Routes.Counts(); counts != "" {
		fmt.Fprintln(w, counts)
	}
	if x := d.Impact; len(x.VIPs) > 0 {
		fmt.Fprintf(w, "impact: %s no longer served\n", text.Names(x.VIPs))
	}
	if x := d.Impact; x.Backends > 0 {
		fmt.Fprintf(w, "impact: %s removed, %d of them immediately: %d live connections may end by themselves, %d are cut\n",
			text.Count(x.Backends, "backend"), x.Removed, x.Draining, x.Cut)
	}
	if x := d.Impact; x.Masqueraded > 0 {
		fmt.Fprintf(w, "impact: %s from nat to direct with %s: until these end, the kernel can lose such a backend to new clients; see Forwarding methods in concepts.md\n",
			text.Count(x.Redirected, "change"), text.Count(x.Masqueraded, "live connection"))
	}
	if len(d.Routes.Restart) > 0 {
		fmt.Fprintf(w, "impact: a reload would be refused, because these keys need a restart: %s\n", text.Names(d.Routes.Restart))
	}
}

// Routes are the changes of routes and addresses that a configuration would cause.
type Routes struct {
	Announce []Route `json:"announce"` // prefixes that would be announced
	Change   []Route `json:"change"`   // prefixes with other attributes or routers
	Withdraw []Route `json:"withdraw"` // prefixes that would be withdrawn
	// OutsidePool are Services with an address that no pool would assign any more. They
	// retain it.
	OutsidePool []OutsidePool `json:"outside_pool"`
	// Restart are the keys for which a reload would refuse the configuration.
	Restart []string `json:"restart,omitempty"`
}

// Route is a prefix and its paths.
type Route struct {
	Prefix string `json:"prefix"`
	Paths  []Path `json:"paths"` // one for each set of attributes
}

// Path is a path of a prefix as it is advertised to some peers.
type Path struct {
	Peers      []string `json:"peers"`
	Attributes []string `json:"attributes"` // as in weir plan
}

// OutsidePool is an address that no pool would assign to its Service any more.
type OutsidePool struct {
	Service string `json:"service"`
	Address string `json:"address"`
	Text    string `json:"text"`
}

// Table implements Tabler: a line for each, in the words of a plan.
func (r Routes) Table(w io.Writer, _ time.Time) {
	for _, x := range r.Announce {
		x.write(w, "announce", "to")
	}
	for _, x := range r.Change {
		x.write(w, "change", "to")
	}
	for _, x := range r.Withdraw {
		x.write(w, "withdraw", "from")
	}
	for _, x := range r.OutsidePool {
		fmt.Fprintf(w, "note %s: retains %s, which no pool would assign any more: %s\n", x.Service, x.Address, x.Text)
	}
}

// Counts returns the numbers in one line; "" if there are none.
func (r Routes) Counts() string {
	if len(r.Announce)+len(r.Change)+len(r.Withdraw) == 0 {
		return ""
	}
	return fmt.Sprintf("routes: %d to announce, %d to change, %d to withdraw", len(r.Announce), len(r.Change), len(r.Withdraw))
}

func (x Route) write(w io.Writer, verb, word string) {
	for _, path := range x.Paths {
		text := fmt.Sprintf("%s %s %s %s", verb, x.Prefix, word, strings.Join(path.Peers, " "))
		if len(path.Attributes) > 0 && word == "to" {
			text += " with " + strings.Join(path.Attributes, " ")
		}
		fmt.Fprintln(w, text)
	}
}
