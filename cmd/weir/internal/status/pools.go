package status

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"weir/cmd/weir/internal/status/text"
)

// Pools are the pools of addresses for Services of type LoadBalancer.
type Pools struct {
	Pools []Pool `json:"pools"` // by priority and name
	// Addresses are the addresses that are not free, sorted.
	Addresses []PoolAddress `json:"addresses"`
	// Pending are the Services that wait for an address.
	Pending []Pending `json:"pending"`
	Writer  Writer    `json:"writer"` // the box that assigns addresses
	// IgnoredNodes are the addresses of Nodes that count as free, by cluster.
	IgnoredNodes []IgnoredNodes `json:"ignored_nodes,omitempty"`
}

// Pool is one pool and its use.
type Pool struct {
	Name     string   `json:"name"`
	Ranges   []string `json:"ranges"`   // as in the configuration
	Priority int      `json:"priority"` // the lowest comes first
	// AutoAssign is set if Services without a request get addresses of it.
	AutoAssign bool   `json:"auto_assign"`
	Size       Amount `json:"size"`     // the sum of the following
	Used       int    `json:"used"`     // assigned to Services
	Retained   int    `json:"retained"` // retained for deleted Services
	Reserved   int    `json:"reserved"` // named by a [[reservation]]
	Foreign    int    `json:"foreign"`  // in the status of a Service without a claim
	Avoided    int    `json:"avoided"`  // first and last addresses, assigned on request only
	Free       Amount `json:"free"`     // not assigned
	// OutsidePool counts those of Used that no pool would assign today. Pending counts the
	// Services that wait for an address of this pool, by reason. Only the writer knows it.
	OutsidePool int            `json:"outside_pool"`
	Pending     map[string]int `json:"pending"`
}

// Amount is a number of addresses: an IPv6 pool may exceed any integer type.
type Amount float64

// String formats large numbers as the next lower power of two: "~2^64".
func (a Amount) String() string {
	if a < 1e7 {
		return fmt.Sprintf("%.0f", float64(a))
	}
	fraction, exponent := math.Frexp(float64(a))
	if fraction == 0.5 {
		return fmt.Sprintf("2^%d", exponent-1)
	}
	return fmt.Sprintf("~2^%d", exponent-1)
}

// Number returns the amount as a plain number.
func (a Amount) Number() float64 { return float64(a) }

// Taken returns the number of addresses that are not free.
func (x Pool) Taken() int { return x.Used + x.Retained + x.Reserved + x.Foreign + x.Avoided }

// PoolAddress is an address that is not free.
type PoolAddress struct {
	Address string `json:"address"`
	// Pool is empty if no pool has the address any more.
	Pool string `json:"pool,omitempty"`
	// Services are those that have it, or had it.
	Services []string     `json:"services"`
	State    AddressState `json:"state"`
	// Until is when a retained address becomes free.
	Until time.Time `json:"until,omitzero"`
	// OutsidePool is the reason why no pool would assign it today.
	OutsidePool string `json:"outside_pool,omitempty"`
}

// AddressState is the reason why an address is not free.
type AddressState string

// The states of an address.
const (
	AddressUsed     AddressState = "used"
	AddressRetained AddressState = "retained" // for a deleted Service
	AddressReserved AddressState = "reserved"
)

// Pending is a Service that waits for an address.
type Pending struct {
	Service string `json:"service"`
	Reason  string `json:"reason"`
	Text    string `json:"text"`
}

// Writer is the box that assigns addresses now.
type Writer struct {
	// Cluster has the claims.
	Cluster string `json:"cluster,omitempty"`
	// Holder is the box that has the Lease; empty if none does or it is not known.
	Holder string    `json:"holder,omitempty"`
	Self   bool      `json:"self"` // it is this box
	Since  time.Time `json:"since,omitzero"`
	// Error is the reason why no addresses can be assigned now; Unreadable are the reasons
	// why clusters can't be read, by name. Their Services retain their addresses.
	Error      string            `json:"error,omitempty"`
	Unreadable map[string]string `json:"unreadable,omitempty"`
}

// Addresses are a summary of the pools.
type Addresses struct {
	// Used and Retained addresses of all Pools; Free is the rest, IPv4 and IPv6 together.
	Pools    int    `json:"pools"`
	Used     int    `json:"used"`
	Retained int    `json:"retained"`
	Free     Amount `json:"free"`
	// Pending counts Services that wait for an address, by reason; OutsidePool those with
	// an address that no pool would assign today.
	Pending     map[string]int `json:"pending"`
	OutsidePool int            `json:"outside_pool"`
	Writer      Writer         `json:"writer"` // the box that assigns addresses
	// IgnoredNodes: see Pools.
	IgnoredNodes []IgnoredNodes `json:"ignored_nodes,omitempty"`
}

// IgnoredNodes are the addresses of a cluster's Nodes in pools for other clusters.
type IgnoredNodes struct {
	Cluster   string   `json:"cluster"`
	Count     int      `json:"count"`     // number of all of them
	Addresses []string `json:"addresses"` // the first three
}

// ignoredLine returns one line about the ignored addresses of Nodes.
func ignoredLine(ignored []IgnoredNodes) string {
	var by []string
	for _, x := range ignored {
		line := fmt.Sprintf("%d of cluster %s (%s", x.Count, x.Cluster, strings.Join(x.Addresses, ", "))
		if x.Count > len(x.Addresses) {
			line += ", ..."
		}
		by = append(by, line+")")
	}
	return "addresses of Nodes in pools for other clusters, which count as free: " + strings.Join(by, ", ")
}

// line returns a summary in one line.
func (a Addresses) line() string {
	line := fmt.Sprintf("%s, %d used, %d retained, %s free", text.Count(a.Pools, "pool"), a.Used, a.Retained, a.Free)
	var by []string
	for _, reason := range slices.Sorted(maps.Keys(a.Pending)) {
		by = append(by, fmt.Sprintf("%d %s", a.Pending[reason], reason))
	}
	if len(by) > 0 {
		line += "; pending: " + strings.Join(by, ", ")
	}
	switch {
	case a.Writer.Self:
		line += "; assigned by this box"
	case a.Writer.Holder != "":
		line += "; assigned by " + a.Writer.Holder
	default:
		line += "; no box assigns them"
	}
	return line
}

// Table implements Tabler.
func (p Pools) Table(w io.Writer, now time.Time) {
	if len(p.Pools) == 0 && len(p.Addresses) == 0 {
		fmt.Fprintln(w, "no addresses are assigned: the configuration has no [[pool]]")
		return
	}
	tw := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	fmt.Fprintln(tw, "POOL\tPRIORITY\tSIZE\tUSED\tRETAINED\tRESERVED\tFOREIGN\tFREE\tAUTO\tADDRESSES")
	for _, x := range p.Pools {
		auto := "no"
		if x.AutoAssign {
			auto = "yes"
		}
		fmt.Fprintf(tw, "%s\t%d\t%s\t%d\t%d\t%d\t%d\t%s\t%s\t%s\n", x.Name, x.Priority, x.Size, x.Used, x.Retained, x.Reserved, x.Foreign, x.Free, auto,
			strings.Join(x.Ranges, " "))
	}
	tw.Flush()
	fmt.Fprintln(w)
	fmt.Fprintln(w, p.Writer.line(now))
	p.outside(w)
	writePending(w, p.Pending)
	if len(p.IgnoredNodes) > 0 {
		fmt.Fprintf(w, "\nIgnored: %s\n", ignoredLine(p.IgnoredNodes))
	}
}

func (x Writer) line(now time.Time) string {
	var line string
	switch {
	case x.Cluster == "":
		return "Writer: none: " + x.Error
	case x.Self:
		line = fmt.Sprintf("Writer: this box, %s; the claims are in cluster %s", x.Holder, x.Cluster)
	case x.Holder != "":
		line = fmt.Sprintf("Writer: %s; the claims are in cluster %s", x.Holder, x.Cluster)
	default:
		line = fmt.Sprintf("Writer: none; the claims are in cluster %s", x.Cluster)
	}
	if !x.Since.IsZero() && x.Holder != "" {
		line += ", since " + text.Age(now.Sub(x.Since))
	}
	if x.Error != "" {
		line += ": " + x.Error
	}
	return line
}

// outside writes the addresses that no pool would assign after a change of the pools.
func (p Pools) outside(w io.Writer) {
	var lines []string
	for _, a := range p.Addresses {
		if a.OutsidePool != "" {
			lines = append(lines, fmt.Sprintf("  %s of %s: %s", a.Address, strings.Join(a.Services, ", "), a.OutsidePool))
		}
	}
	if len(lines) > 0 {
		fmt.Fprintf(w, "\nOutside pool (%d), addresses retained:\n%s\n", len(lines), strings.Join(lines, "\n"))
	}
}

func writePending(w io.Writer, pending []Pending) {
	if len(pending) > 0 {
		fmt.Fprintf(w, "\nPending (%d):\n", len(pending))
	}
	for _, x := range pending {
		fmt.Fprintf(w, "  %s  %s  %s\n", x.Service, x.Reason, text.OneLine(x.Text))
	}
}

// PoolAddresses are the addresses of one pool that are not free.
type PoolAddresses struct {
	Addresses []PoolAddress `json:"addresses"`
}

// Of returns the addresses of one pool.
func (p Pools) Of(pool string) PoolAddresses {
	out := PoolAddresses{[]PoolAddress{}}
	for _, a := range p.Addresses {
		if a.Pool == pool {
			out.Addresses = append(out.Addresses, a)
		}
	}
	return out
}

// Table implements Tabler.
func (p PoolAddresses) Table(w io.Writer, now time.Time) {
	tw := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	fmt.Fprintln(tw, "ADDRESS\tSTATE\tSERVICES")
	for _, a := range p.Addresses {
		state := string(a.State)
		if !a.Until.IsZero() {
			state += " for " + text.Age(a.Until.Sub(now))
		}
		fmt.Fprintf(tw, "%s\t%s\t%s\n", a.Address, state, cmp.Or(strings.Join(a.Services, ", "), "-"))
	}
	tw.Flush()
}
