// Package conformance is the table of the conformance checks: a column for each engine,
// and the page of the manual. It never runs a check: tests do, and save their columns.
package conformance

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// The engines, in the order of their columns.
const (
	IPVS      = "IPVS"
	NFTables  = "nftables"
	Netfilter = "netfilter" // with sets and rules of nf_tables
	Iptables  = "iptables"  // mode netfilter with iptables
	KubeProxy = "kube-proxy"
)

// Engines are all of them.
var Engines = []string{IPVS, NFTables, Netfilter, Iptables, KubeProxy}

// Column has the results of one engine.
type Column struct {
	Engine string
	Kernel string // as uname -r prints it
	// Probes is the number of visits that must agree after a state is reached, and Locations that
	// of the places from which negative checks visit.
	Probes, Locations int
	Rows              []Row // in the order of the checks
}

// Row is the result of one check.
type Row struct {
	Number int
	Name   string
	Run    bool     // false for a check that was not put
	Lacks  string   // the reason why the check is not applicable
	Faults []string // the differences from the check
	Known  bool     // reports whether the faults are a known failure
	Note   string   // " (200 Services)": a difference from the name of the check
	Took   time.Duration
	Start  time.Duration // the part of Took in which the engine was started with other options
}

// Word is the content of the row's cell.
func (r Row) Word() string {
	switch {
	case r.Lacks != "":
		return "not applicable: " + r.Lacks
	case !r.Run:
		return "not run"
	case len(r.Faults) == 0:
		return "pass" + r.Note
	case r.Known:
		return "known failure" + r.Note
	}
	return "FAIL" + r.Note
}

// total counts the checks that passed and those that were put, and adds up their times.
func (c Column) total() (passed, put int, took, start time.Duration) {
	for _, r := range c.Rows {
		if !r.Run || r.Lacks != "" {
			continue
		}
		put++
		took += r.Took
		start += r.Start
		if len(r.Faults) == 0 {
			passed++
		}
	}
	return passed, put, took, start
}

// Complete returns an error if a check was put to some engines only, or to none.
func Complete(columns []Column) error {
	if len(columns) != len(Engines) {
		return fmt.Errorf("%d columns of %d", len(columns), len(Engines))
	}
	for _, c := range columns {
		for _, r := range c.Rows {
			if !r.Run && r.Lacks == "" {
				return fmt.Errorf("check %d was not put to %s", r.Number, c.Engine)
			}
		}
	}
	return nil
}

// Save writes a column into a folder, for Load.
func (c Column) Save(folder string) error {
	text, err := json.Marshal(c)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(folder, c.Engine+".json"), text, 0o600)
}

// Load reads the columns of a folder, in the order of Engines. Those that are missing are left out.
func Load(folder string) ([]Column, error) {
	var out []Column
	for _, engine := range Engines {
		text, err := os.ReadFile(filepath.Join(folder, engine+".json"))
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		var c Column
		if err := json.Unmarshal(text, &c); err != nil {
			return nil, fmt.Errorf("read the column of %s: %w", engine, err)
		}
		out = append(out, c)
	}
	return out, nil
}

// Sort puts columns into the order of Engines.
func Sort(columns []Column) {
	slices.SortFunc(columns, func(a, b Column) int {
		return slices.Index(Engines, a.Engine) - slices.Index(Engines, b.Engine)
	})
}

// faults lists the differences that a column has seen.
func (c Column) faults() (out []string) {
	for _, r := range c.Rows {
		if len(r.Faults) > 0 {
			out = append(out, fmt.Sprintf("%d %s: %s", r.Number, c.Engine, strings.Join(r.Faults, "; ")))
		}
	}
	return out
}

// Print prints columns side by side, and the differences below them.
func Print(out io.Writer, columns []Column) {
	if len(columns) == 0 {
		return
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprint(w, "\nno.\tcheck")
	for _, c := range columns {
		fmt.Fprintf(w, "\t%s", c.Engine)
	}
	fmt.Fprintln(w)
	for i, check := range columns[0].Rows {
		fmt.Fprintf(w, "%d\t%s", check.Number, check.Name)
		for _, c := range columns {
			r := c.Rows[i]
			fmt.Fprintf(w, "\t%s", r.Word())
			if r.Run && r.Lacks == "" {
				fmt.Fprintf(w, " %.1f s", r.Took.Seconds())
			}
		}
		fmt.Fprintln(w)
	}
	fmt.Fprint(w, "\tpassed")
	var faults []string
	for _, c := range columns {
		passed, put, took, start := c.total()
		fmt.Fprintf(w, "\t%d of %d in %.0f s (%.0f s of it to start engines)", passed, put, took.Seconds(), start.Seconds())
		faults = append(faults, c.faults()...)
	}
	fmt.Fprintln(w)
	_ = w.Flush()
	if len(faults) > 0 {
		fmt.Fprintf(out, "\ndifferences\n  %s\n", strings.Join(faults, "\n  "))
	}
}

// Page is the page of the manual.
func Page(columns []Column, now time.Time, processor, versions string) string {
	first := columns[0]
	var b strings.Builder
	fmt.Fprintf(&b, `# Conformance with Kubernetes Services

%d checks state Services and EndpointSlices through a real API server, and then send packets. After a state is reached,
%d more visits must agree with it: a state that an engine leaves for a moment fails.
Negative checks visit %d times from each of %d locations.
`+"`make conformance ARGS='--write packaging/doc'`"+` writes this page.

- Date: %s
- Kernel: Linux %s, one simulated processor
- Processor: %s
- Versions: %s

`, len(first.Rows), first.Probes, first.Probes, first.Locations, now.UTC().Format(time.DateOnly), first.Kernel, processor, versions)
	titles := map[string]string{IPVS: "weir, IPVS", NFTables: "weir, IPVS, nftables", Netfilter: "weir, netfilter, nftables",
		Iptables: "weir, netfilter, iptables", KubeProxy: "kube-proxy, IPVS"}
	fmt.Fprint(&b, "| No. | Check |")
	for _, c := range columns {
		fmt.Fprintf(&b, " %s |", titles[c.Engine])
	}
	fmt.Fprintf(&b, "\n|---|---|%s\n", strings.Repeat("---|", len(columns)))
	for i, check := range first.Rows {
		fmt.Fprintf(&b, "| %d | %s |", check.Number, check.Name)
		for _, c := range columns {
			fmt.Fprintf(&b, " %s |", strings.Replace(c.Rows[i].Word(), "FAIL", "fail", 1))
		}
		fmt.Fprintln(&b)
	}
	fmt.Fprint(&b, "| | passed |")
	for _, c := range columns {
		passed, put, _, _ := c.total()
		fmt.Fprintf(&b, " %d of %d |", passed, put)
	}
	fmt.Fprintln(&b)
	for _, c := range columns {
		faults := c.firstFaults()
		if len(faults) == 0 {
			continue
		}
		fmt.Fprintf(&b, "\n## Failures of %s\n\nThe first one of each check. The backend sees the client's address (`keep`) or the box's (`masq`).\n", titles[c.Engine])
		if c.Engine == KubeProxy && strings.Contains(strings.Join(faults, "\n"), " at first and then refused ") {
			fmt.Fprint(&b, fillsSetsLate)
		}
		fmt.Fprintf(&b, "\n```text\n%s\n```\n", strings.Join(faults, "\n"))
	}
	return b.String()
}

// fillsSetsLate explains why another run has other failures. The rule's counter grew by one packet in each check that
// failed so, and in no other: kubernetes/pkg/proxy/ipvs/proxier.go, syncProxyRules.
const fillsSetsLate = `
"At first and then refused" is a race in kube-proxy, and each run meets it in other checks.
kube-proxy gives an address to IPVS, and then fills its ipsets in random order.
While set KUBE-IPVS-IPS has the address and the set of its ports has not, chain KUBE-IPVS-FILTER rejects new connections.
`

// firstFaults lists the first difference of each check.
func (c Column) firstFaults() (out []string) {
	for _, r := range c.Rows {
		if len(r.Faults) > 0 {
			first, _, _ := strings.Cut(r.Faults[0], "\n")
			out = append(out, fmt.Sprintf("%2d  %s", r.Number, first))
		}
	}
	return out
}
