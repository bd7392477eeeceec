package traffic

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"weir/cmd/weir/internal/status/text"
)

// Orders returns the sort orders of Rates, the default first.
func Orders() []string { return []string{"connections", "packets", "bytes", "active", "name"} }

// Sort sorts frontends, and the backends of each, by one of Orders, the busiest first. It
// reports whether the order exists.
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

// order compares names if wanted.
func order(wanted bool, x, y string) int {
	if wanted {
		return strings.Compare(x, y)
	}
	return 0
}

// by returns the sort key of an order.
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
	over := "since the start of weir top"
	if r.Seconds > 0 {
		over = fmt.Sprintf("in the last %.1f s", r.Seconds)
	}
	t := r.Total
	fmt.Fprintf(w, "%s, %s: %s connections/s, %s packets/s in, %s out, %s bytes/s in, %s out, %d active\n\n", text.Count(len(r.Frontends), "frontend"), over,
		text.Short(t.Connections), text.Short(t.PacketsIn), text.Short(t.PacketsOut), text.Short(t.BytesIn), text.Short(t.BytesOut), t.Active)
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
		service := f.Service
		if f.Check {
			service += " (check)" // as weir services
		}
		row(proto(f.Frontend), f.cells(), service)
		for _, b := range f.Backends {
			row("  -> "+b.Backend, b.cells(), "")
		}
	}
}

// proto formats a frontend like ipvsadm: the protocol first.
func proto(frontend string) string {
	addr, p, ok := strings.Cut(frontend, "/")
	if !ok {
		return "FWM  " + frontend
	}
	return fmt.Sprintf("%-4s %s", strings.ToUpper(p), addr)
}

func (r Rate) cells() [6]string {
	return [6]string{text.Short(r.Connections), text.Short(r.PacketsIn), text.Short(r.PacketsOut), text.Short(r.BytesIn), text.Short(r.BytesOut), strconv.FormatUint(r.Active, 10)}
}
