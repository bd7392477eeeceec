package conformance

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"
)

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
%d more visits must agree with it. Negative checks visit %d times from each of %d locations.
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
	return b.String()
}
