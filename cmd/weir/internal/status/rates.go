package status

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Orders are what Rates can be sorted by, the usual one first.
func Orders() []string { return []string{"connections", "packets", "bytes", "active", "name"} }

// Sort puts frontends, and the backends of each, in one of Orders: the busiest first. It
// tells whether there is such an order.
func (r *Rates) Sort(by string) bool {
	if !slices.Contains(Orders(), by) {
		return false
	}
	slices.SortStableFunc(r.Frontends, func(x, y FrontendRates) int {
		return cmp.Or(-cmp.Compare(x.by(by), y.by(by)), order(by == "name", x.Service, y.Service))
	})
	for _, f := range r.Frontends {
		slices.SortStableFunc(f.Backends, func(x, y BackendRates) int {
			return cmp.Or(-cmp.Compare(x.by(by), y.by(by)), order(by == "name", x.Backend, y.Backend))
		})
	}
	return true
}

// order compares names where that is wanted.
func order(wanted bool, x, y string) int {
	if wanted {
		return strings.Compare(x, y)
	}
	return 0
}

// by is what one of Orders looks at.
func (r Rate) by(order string) float64 {
	switch order {
	case "connections":
		return r.Connections
	case "packets":
		return r.PacketsIn + r.PacketsOut
	case "bytes":
		return r.BytesIn + r.BytesOut
	case "active":
		return float64(r.Active)
	}
	return 0
}

// Table implements Tabler, in the columns of ipvsadm -Ln --rate.
func (r Rates) Table(w io.Writer, _ time.Time) {
	addr := len("  -> RemoteAddress:Port")
	for _, f := range r.Frontends {
		addr = max(addr, len(proto(f.Frontend)))
		for _, b := range f.Backends {
			addr = max(addr, len("  -> "+b.Backend))
		}
	}
	over := "since weir top began"
	if r.Seconds > 0 {
		over = fmt.Sprintf("in the last %.1f s", r.Seconds)
	}
	t := r.Total
	fmt.Fprintf(w, "%d frontends, %s: %s connections/s, %s packets/s in, %s out, %s bytes/s in, %s out, %d active\n\n", len(r.Frontends), over,
		short(t.Connections), short(t.PacketsIn), short(t.PacketsOut), short(t.BytesIn), short(t.BytesOut), t.Active)
	row := func(name string, cells [6]string, last string) {
		line := fmt.Sprintf("%-*s", addr, name)
		for _, c := range cells {
			line += fmt.Sprintf(" %7s", c)
		}
		fmt.Fprintln(w, strings.TrimRight(line+"  "+last, " "))
	}
	row("Prot LocalAddress:Port", [6]string{"CPS", "InPPS", "OutPPS", "InBPS", "OutBPS", "Active"}, "Service")
	row("  -> RemoteAddress:Port", [6]string{}, "")
	for _, f := range r.Frontends {
		row(proto(f.Frontend), f.cells(), f.Service)
		for _, b := range f.Backends {
			row("  -> "+b.Backend, b.cells(), "")
		}
	}
}

// proto writes a frontend as ipvsadm does: the protocol first.
func proto(frontend string) string {
	addr, p, ok := strings.Cut(frontend, "/")
	if !ok {
		return "FWM  " + frontend
	}
	return fmt.Sprintf("%-4s %s", strings.ToUpper(p), addr)
}

func (r Rate) cells() [6]string {
	return [6]string{short(r.Connections), short(r.PacketsIn), short(r.PacketsOut), short(r.BytesIn), short(r.BytesOut), strconv.FormatUint(r.Active, 10)}
}

// short is a number in at most six characters, with the prefixes of SI: 0, 0.4, 12.3,
// 1234, 45.6k, 7.89M.
func short(x float64) string {
	switch {
	case x == 0:
		return "0"
	case x < 99.95:
		return strconv.FormatFloat(x, 'f', 1, 64)
	case x < 9999.5:
		return strconv.FormatFloat(x, 'f', 0, 64)
	}
	for _, unit := range []string{"k", "M", "G"} {
		x /= 1000
		if x < 99.95 {
			return strconv.FormatFloat(x, 'f', 1, 64) + unit
		}
		if x < 999.5 {
			return strconv.FormatFloat(x, 'f', 0, 64) + unit
		}
	}
	return strconv.FormatFloat(x/1000, 'f', 1, 64) + "T"
}
