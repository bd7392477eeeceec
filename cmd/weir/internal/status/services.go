package status

import (
	"fmt"
	"io"
	"net/netip"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"weir/cmd/weir/internal/status/traffic"
	"weir/lb"
)

// Services are the virtual servers in the form of ipvsadm, with their Services.
type Services struct {
	Frontends []Frontend `json:"frontends"`
	// OldData are the clusters with Services that may be out of date.
	OldData []OldData `json:"old_data,omitempty"`
}

// Frontend is one virtual server.
type Frontend struct {
	Key lb.Frontend `json:"-"`
	// Mixed reports that the backends are of the other family.
	Mixed bool `json:"-"`
	// Service is empty for a foreign one; Source, Namespace and Name are its parts.
	Service   string `json:"service"`
	Source    string `json:"source,omitempty"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name,omitempty"`
	// Kind is that of the VIP: LoadBalancer, ClusterIP, ExternalIP or NodePort.
	// Local is set with a traffic policy of Local.
	Kind  string `json:"kind,omitempty"`
	Local bool   `json:"local,omitempty"`
	// HealthCheckNodePort is the port for probes of this node; absent if the Service has none.
	HealthCheckNodePort uint16 `json:"health_check_node_port,omitempty"`
	// Owner is the member of the fleet that owns the VIP, Role the role of this box;
	// empty without [fleet].
	Owner    string  `json:"owner,omitempty"`
	Role     VIPRole `json:"role,omitempty"`
	Address  string  `json:"address"`
	Port     uint16  `json:"port"`
	Protocol string  `json:"protocol"`
	// Mark is the number of a firewall mark, of a frontend without address and port. It serves a
	// group, or clients inside the cluster with a traffic policy of Local, or checks.
	Mark uint32 `json:"mark,omitempty"`
	// Given is set if Mark is a firewall mark itself: that of a service with fwmark, or a foreign
	// one. It has all protocols then, and Protocol is tcp.
	Given bool `json:"given,omitempty"`
	// Group is set for the frontends of a group: the one with the mark serves all clients.
	Group bool `json:"group,omitempty"`
	// Check is set if only checks of this box use the mark: they reach the VIPs at one backend.
	Check     bool   `json:"check,omitempty"`
	Scheduler string `json:"scheduler"`
	// Affinity is the persistence timeout in seconds.
	Affinity uint32            `json:"affinity_seconds,omitempty"`
	Servers  []Server          `json:"servers"`           // real servers, in the order of the kernel
	Traffic  *traffic.Counters `json:"traffic,omitempty"` // since the kernel made it; absent for foreign ones
}

// Server is one real server.
type Server struct {
	Key     netip.AddrPort `json:"-"`
	Address string         `json:"address"`
	Forward string         `json:"forward"` // as ipvsadm shows it: Masq, Route (direct), Tunnel or Local
	// Tunnel is the tunnel with its parameters: "gue port 6080 checksum full".
	Tunnel   string `json:"tunnel,omitempty"`
	Weight   uint32 `json:"weight"`
	Upper    uint32 `json:"max_connections,omitempty"` // no new connections while so many are open
	Lower    uint32 `json:"min_connections,omitempty"` // new ones below
	Active   uint32 `json:"active"`
	Inactive uint32 `json:"inactive"`
	// Health is up, down, unknown, or empty without a check; Error is the error of the
	// check.
	Health   string            `json:"health,omitempty"`
	Error    string            `json:"error,omitempty"`
	Draining bool              `json:"draining,omitempty"` // removed, with connections left
	Traffic  *traffic.Counters `json:"traffic,omitempty"`  // since the kernel made it
}

// Conns are entries of the kernel's IPVS connection table.
type Conns struct {
	Conns []Conn `json:"connections"` // by client
	// More is set if there are more than the limit.
	More bool `json:"more,omitempty"`
}

// Conn is one connection.
type Conn struct {
	Protocol string `json:"protocol"`
	Client   string `json:"client"`
	Frontend string `json:"frontend"`
	Backend  string `json:"backend"`
	State    string `json:"state"`
	// Expires is the number of seconds until the kernel removes it.
	Expires uint32 `json:"expires_seconds"`
}

// CountedAt returns the counters of virtual servers at a time. Missing counters are zero.
func (s Services) CountedAt(at time.Time) traffic.Totals {
	out := traffic.Totals{Time: at, Frontends: make([]traffic.Frontend, len(s.Frontends))}
	for i, f := range s.Frontends {
		x := traffic.Frontend{Frontend: f.Key.String(), Service: f.Service, Check: f.Check, Backends: make([]traffic.Backend, len(f.Servers))}
		if f.Traffic != nil {
			x.Counters = *f.Traffic
		}
		for j, b := range f.Servers {
			x.Backends[j] = traffic.Backend{Backend: b.Address, Active: b.Active, Inactive: b.Inactive}
			if b.Traffic != nil {
				x.Backends[j].Counters = *b.Traffic
			}
		}
		out.Frontends[i] = x
	}
	return out
}

// Table implements Tabler, in the columns of ipvsadm -Ln: virtual servers with
// their real servers under them. weir's own columns come last.
func (s Services) Table(w io.Writer, now time.Time) {
	addr := len("  -> RemoteAddress:Port")
	for _, f := range s.Frontends {
		addr = max(addr, len(f.name()))
		for _, r := range f.Servers {
			addr = max(addr, len("  -> "+r.Address))
		}
	}
	// Scheduler and flags take the columns of numbers, as with ipvsadm, unless
	// they are longer.
	const numbers = "%-7s %6s %10s %10s"
	flags := len(fmt.Sprintf(numbers, "", "", "", ""))
	for _, f := range s.Frontends {
		flags = max(flags, len(f.flags()))
	}
	row := func(address, middle, last string) {
		fmt.Fprintln(w, strings.TrimRight(fmt.Sprintf("%-*s  %-*s  %s", addr, address, flags, middle, last), " "))
	}
	row("Prot LocalAddress:Port", "Scheduler Flags", "Service")
	row("  -> RemoteAddress:Port", fmt.Sprintf(numbers, "Forward", "Weight", "ActiveConn", "InActConn"), "Health")
	for _, f := range s.Frontends {
		row(f.name(), f.flags(), f.owner())
		for _, r := range f.Servers {
			n := func(x uint32) string { return strconv.FormatUint(uint64(x), 10) }
			row("  -> "+r.Address, fmt.Sprintf(numbers, r.Forward, n(r.Weight), n(r.Active), n(r.Inactive)), r.health())
		}
	}
	WriteOldData(w, s.OldData, now)
}

func (f Frontend) name() string {
	if f.Mark != 0 {
		family := lb.IPv4
		if strings.Contains(f.Address, ":") {
			family = lb.IPv6
		}
		return fmt.Sprintf("FWM  %d %s", f.Mark, family)
	}
	return fmt.Sprintf("%-4s %s", strings.ToUpper(f.Protocol), hostPort(f.Address, f.Port))
}

// owner returns the Service with its Details.
func (f Frontend) owner() string {
	if more := f.Details(); more != "" {
		return fmt.Sprintf("%s (%s)", f.Service, more)
	}
	return f.Service
}

// Details returns the kind of VIP and the role of this box, unless they are the usual ones.
func (f Frontend) Details() string {
	var more []string
	switch {
	case f.Given:
	case f.Group:
		more = append(more, "group")
	case f.Check:
		more = append(more, "check")
	case f.Mark != 0:
		more = append(more, "inside")
	}
	if f.Kind != "" && f.Kind != lb.LoadBalancer.String() {
		more = append(more, f.Kind)
	}
	if f.Local {
		more = append(more, "Local")
	}
	switch {
	case f.Role == "" || f.Role == RoleOwner:
	case f.Owner != "":
		more = append(more, fmt.Sprintf("%s, %s owns it", f.Role, f.Owner))
	default:
		more = append(more, "no owner")
	}
	return strings.Join(more, ", ")
}

func (f Frontend) flags() string {
	if f.Affinity == 0 {
		return f.Scheduler
	}
	return fmt.Sprintf("%s persistent %d", f.Scheduler, f.Affinity)
}

func (r Server) health() string {
	out := r.Health
	if r.Tunnel != "" {
		out = strings.TrimSpace(out + " tunnel " + r.Tunnel)
	}
	if r.Draining {
		out = strings.TrimSpace(out + " draining")
	}
	if r.Error != "" {
		out = strings.TrimSpace(out + " (" + r.Error + ")")
	}
	return out
}

// Table implements Tabler, in the columns of ipvsadm -Lnc.
func (c Conns) Table(w io.Writer, _ time.Time) {
	tw := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	fmt.Fprintln(tw, "pro\texpire\tstate\tsource\tvirtual\tdestination")
	for _, x := range c.Conns {
		fmt.Fprintf(tw, "%s\t%02d:%02d\t%s\t%s\t%s\t%s\n", strings.ToUpper(x.Protocol),
			x.Expires/60, x.Expires%60, x.State, x.Client, x.Frontend, x.Backend)
	}
	tw.Flush()
	if c.More {
		fmt.Fprintf(w, "(the first %d; --limit shows more)\n", len(c.Conns))
	}
}

func hostPort(addr string, port uint16) string {
	if strings.Contains(addr, ":") {
		return fmt.Sprintf("[%s]:%d", addr, port)
	}
	return fmt.Sprintf("%s:%d", addr, port)
}
