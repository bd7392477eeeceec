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
)

// Pools are the addresses that Services of type LoadBalancer are given.
type Pools struct {
	Pools []Pool `json:"pools"` // by priority and name
	// Addresses are those that are not free, sorted.
	Addresses []PoolAddress `json:"addresses"`
	// Pending are the Services that wait for an address.
	Pending []Pending `json:"pending"`
	Writer  Writer    `json:"writer"` // who gives addresses
}

// Pool is one pool and its use. The numbers of IPv6 pools are as large as they are.
type Pool struct {
	Name     string   `json:"name"`
	Ranges   []string `json:"ranges"`   // as in the configuration
	Priority int      `json:"priority"` // the lowest comes first
	// AutoAssign tells that Services that ask for nothing get addresses of it.
	AutoAssign bool `json:"auto_assign"`
	// Size is all the rest together. Held addresses are kept for a while for Services
	// that are gone, Reserved ones for Services that the configuration names; Taken
	// ones have been given by somebody else, Avoided ones are ends of ranges.
	Size     Amount `json:"size"`
	Used     int    `json:"used"`     // addresses that Services have
	Held     int    `json:"held"`     // kept for a Service that is gone
	Reserved int    `json:"reserved"` // kept by [[reservation]]
	Taken    int    `json:"taken"`    // in the status of a Service that has no claim
	Avoided  int    `json:"avoided"`  // ends that only who asks for them gets, and nobody has
	Free     Amount `json:"free"`     // addresses that nobody has
	// Stranded is how many of Used their Services would not get today, Pending how
	// many Services wait for something of this pool, by reason.
	Stranded int            `json:"stranded"`
	Pending  map[string]int `json:"pending"`
}

// Amount is a number of addresses, as exact as a float64: those of an IPv6 pool may be
// more than any integer holds.
type Amount float64

// String writes large numbers as the power of two that is nearest below: "~2^64".
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

// PoolAddress is an address that is not free.
type PoolAddress struct {
	Address string `json:"address"`
	// Pool is empty if no pool has the address any more.
	Pool string `json:"pool,omitempty"`
	// Services have it, or had it.
	Services []string     `json:"services"`
	State    AddressState `json:"state"`
	// Until is when a held address becomes free.
	Until time.Time `json:"until,omitzero"`
	// Stranded is why its Services would not get it today.
	Stranded string `json:"stranded,omitempty"`
}

// AddressState is why an address is not free.
type AddressState string

// The states of an address.
const (
	AddressUsed     AddressState = "used"
	AddressHeld     AddressState = "held" // for a Service that is gone
	AddressReserved AddressState = "reserved"
)

// Pending is a Service that waits for an address.
type Pending struct {
	Service string `json:"service"`
	Reason  string `json:"reason"`
	Text    string `json:"text"`
}

// Writer is which box gives addresses at this time.
type Writer struct {
	// Home is the cluster that holds the claims.
	Home string `json:"home,omitempty"`
	// Holder is the box; empty: nobody, or it is not known.
	Holder string    `json:"holder,omitempty"`
	Me     bool      `json:"me"` // it is this box
	Since  time.Time `json:"since,omitzero"`
	// Error is why no addresses can be given now, Unread why nothing is known of some
	// clusters, by their names: addresses that they had stay theirs.
	Error  string            `json:"error,omitempty"`
	Unread map[string]string `json:"unread,omitempty"`
}

// Addresses are those that are given, at a glance.
type Addresses struct {
	// Used and Held addresses of all Pools; Free is what is left of IPv4 and IPv6
	// together.
	Pools int    `json:"pools"`
	Used  int    `json:"used"`
	Held  int    `json:"held"`
	Free  Amount `json:"free"`
	// Pending counts Services that wait for an address, by reason; Stranded those
	// that would not get theirs today.
	Pending  map[string]int `json:"pending"`
	Stranded int            `json:"stranded"`
	Writer   Writer         `json:"writer"` // who gives addresses
}

// line says it in a line.
func (a Addresses) line() string {
	text := fmt.Sprintf("%s, %d used, %d held, %s free", Count(a.Pools, "pool"), a.Used, a.Held, a.Free)
	var by []string
	for _, reason := range slices.Sorted(maps.Keys(a.Pending)) {
		by = append(by, fmt.Sprintf("%d %s", a.Pending[reason], reason))
	}
	if len(by) > 0 {
		text += "; pending: " + strings.Join(by, ", ")
	}
	switch {
	case a.Writer.Me:
		text += "; this box gives them"
	case a.Writer.Holder != "":
		text += "; " + a.Writer.Holder + " gives them"
	default:
		text += "; nobody gives them"
	}
	return text
}

// Table implements Tabler.
func (p Pools) Table(w io.Writer, now time.Time) {
	if len(p.Pools) == 0 && len(p.Addresses) == 0 {
		fmt.Fprintln(w, "no addresses are given: the configuration has no [[pool]]")
		return
	}
	tw := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	fmt.Fprintln(tw, "POOL\tPRIORITY\tSIZE\tUSED\tHELD\tRESERVED\tTAKEN\tFREE\tAUTO\tADDRESSES")
	for _, x := range p.Pools {
		auto := "no"
		if x.AutoAssign {
			auto = "yes"
		}
		fmt.Fprintf(tw, "%s\t%d\t%s\t%d\t%d\t%d\t%d\t%s\t%s\t%s\n", x.Name, x.Priority, x.Size, x.Used, x.Held, x.Reserved, x.Taken, x.Free, auto,
			strings.Join(x.Ranges, " "))
	}
	tw.Flush()
	fmt.Fprintln(w)
	fmt.Fprintln(w, p.Writer.line(now))
	p.stranded(w)
	writePending(w, p.Pending)
}

func (x Writer) line(now time.Time) string {
	var line string
	switch {
	case x.Home == "":
		return "Writer: nobody: " + x.Error
	case x.Me:
		line = fmt.Sprintf("Writer: this box, %s; the claims are in cluster %s", x.Holder, x.Home)
	case x.Holder != "":
		line = fmt.Sprintf("Writer: %s; the claims are in cluster %s", x.Holder, x.Home)
	default:
		line = fmt.Sprintf("Writer: nobody; the claims are in cluster %s", x.Home)
	}
	if !x.Since.IsZero() && x.Holder != "" {
		line += ", since " + age(now, x.Since)
	}
	if x.Error != "" {
		line += ": " + x.Error
	}
	return line
}

// stranded writes the part about addresses that a changed pool has left behind.
func (p Pools) stranded(w io.Writer) {
	var lines []string
	for _, a := range p.Addresses {
		if a.Stranded != "" {
			lines = append(lines, fmt.Sprintf("  %s of %s: %s", a.Address, strings.Join(a.Services, ", "), a.Stranded))
		}
	}
	if len(lines) == 0 {
		return
	}
	fmt.Fprintf(w, "\nStranded (%d), which keep their addresses:\n", len(lines))
	writeLines(w, lines, "weir pools -o json")
}

func writePending(w io.Writer, pending []Pending) {
	if len(pending) == 0 {
		return
	}
	fmt.Fprintf(w, "\nPending (%d):\n", len(pending))
	var lines []string
	for _, x := range pending {
		lines = append(lines, fmt.Sprintf("  %s  %s  %s", x.Service, x.Reason, x.Text))
	}
	writeLines(w, lines, "weir pools -o json")
}

// writeLines writes as many lines as fit on a screen, and says where the rest is.
func writeLines(w io.Writer, lines []string, rest string) {
	for i, line := range lines {
		if i == maxLines {
			fmt.Fprintf(w, "  and %d more: %s\n", len(lines)-i, rest)
			return
		}
		fmt.Fprintln(w, line)
	}
}

// PoolAddresses are the addresses of one pool that are not free, for people.
type PoolAddresses struct {
	Addresses []PoolAddress `json:"addresses"`
}

// Of gives the addresses of one pool.
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
			state += " for " + age(a.Until, now)
		}
		fmt.Fprintf(tw, "%s\t%s\t%s\n", a.Address, state, cmp.Or(strings.Join(a.Services, ", "), "-"))
	}
	tw.Flush()
}
