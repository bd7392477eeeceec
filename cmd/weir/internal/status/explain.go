package status

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"weir/lb"
)

// Explanation is what becomes of a client of one frontend; of all of a VIP, if no
// port was asked for.
type Explanation struct {
	// Ports are the frontends of a VIP, when no port was asked for.
	Ports []ExplainedPort `json:"ports,omitempty"`
	// More is how many more ports there are.
	More int `json:"more,omitempty"`
	// Why tells why there are none, and Nearest what is served elsewhere.
	Why     string   `json:"why,omitempty"`
	Nearest []string `json:"nearest,omitempty"`
	// Packet is what a client of one frontend meets.
	Packet *lb.Explanation `json:"packet,omitempty"`
	// OldData are the clusters that the answer rests on, as far as it may be too
	// old: those of the Services that want the address; of one that nobody wants,
	// all.
	OldData []OldData `json:"old_data,omitempty"`
}

// Rests gives the answer those of the clusters that it rests on.
func (e *Explanation) Rests(clusters []Cluster) {
	sources := map[string]bool{}
	name := func(service string) {
		source, _, _ := strings.Cut(service, "/")
		sources[source] = true
	}
	for _, p := range e.Ports {
		name(p.Service)
	}
	if e.Packet != nil {
		for _, c := range e.Packet.Claims {
			name(c.Service)
		}
	}
	e.OldData = slices.DeleteFunc(OldDataOf(clusters), func(o OldData) bool { return len(sources) > 0 && !sources[o.Cluster] })
}

// ExplainedPort is one frontend of a VIP, in short.
type ExplainedPort struct {
	Frontend string `json:"frontend"`
	Service  string `json:"service"`
	Fate     string `json:"fate"`
	Why      string `json:"why,omitempty"`
}

// Table implements Tabler.
func (e Explanation) Table(w io.Writer, now time.Time) {
	defer writeOldData(w, e.OldData, now)
	if e.Packet != nil {
		fmt.Fprint(w, e.Packet.String())
		return
	}
	if len(e.Ports) == 0 {
		fmt.Fprintln(w, "not served:", e.Why)
		for _, f := range e.Nearest {
			fmt.Fprintln(w, "nearest:", f)
		}
		return
	}
	tw := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	for _, p := range e.Ports {
		fate := p.Fate
		if p.Why != "" {
			fate += ": " + p.Why
		}
		fmt.Fprintf(tw, "%s\t%s\t%s\n", p.Frontend, p.Service, fate)
	}
	tw.Flush()
	if e.More > 0 {
		fmt.Fprintf(w, "and %d more\n", e.More)
	}
	fmt.Fprintf(w, "\nmore of one: weir explain %s\n", example(e.Ports))
}

func example(ports []ExplainedPort) string {
	f, proto, _ := strings.Cut(ports[0].Frontend, "/")
	if proto == lb.TCP.String() {
		return f
	}
	return f + " --proto " + proto
}
