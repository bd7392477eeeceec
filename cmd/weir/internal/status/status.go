// Package status holds the documents that a running weir gives to the command
// line, and how they read as tables, JSON and YAML. The JSON field names are
// stable. The package gathers nothing itself; of
// weir it imports only lb, for the keys that join what different parts know.
package status

import (
	"encoding/json"
	"fmt"
	"io"
	"net/netip"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"sigs.k8s.io/yaml"

	"weir/lb"
)

// State is how a box is, in one word.
type State string

// The states.
const (
	Starting State = "starting" // the kernel does not hold the first state yet
	OK       State = "ok"       // everything that is wanted holds
	Degraded State = "degraded" // weir works, but something needs a look
	Failed   State = "failed"   // weir can't do its job
	// NotRunning is said by the command line: there is no daemon to say anything.
	NotRunning State = "not running"
)

// Absent is what there is to say of a box on which no daemon answers; its fields
// are those of Status.
type Absent struct {
	State State    `json:"state"`
	Why   []string `json:"why"`
}

// Table implements Tabler.
func (a Absent) Table(w io.Writer, _ time.Time) {
	fmt.Fprintf(w, "weir is %s: %s\n", a.State, strings.Join(a.Why, "; "))
}

// Status is one box at a glance.
type Status struct {
	State State `json:"state"`
	// Why has a line for each thing that keeps State from being ok.
	Why     []string  `json:"why,omitempty"`
	Version string    `json:"version"`
	PID     int       `json:"pid"`
	Started time.Time `json:"started"`
	Config  Config    `json:"config"`
	Kernel  Kernel    `json:"kernel"`
	Backend Backends  `json:"backends"`
	Notes   []Note    `json:"notes"`
	Drains  []Drain   `json:"drains"`
}

// Config tells of the configuration in force and the last attempt to load one.
type Config struct {
	File   string    `json:"file"`
	Loaded time.Time `json:"loaded"`
	// Error is why the last reload was refused; the configuration of Loaded is
	// still in force then.
	Error string `json:"error,omitempty"`
}

// Kernel tells what the kernel holds of weir's.
type Kernel struct {
	Release        string    `json:"release"`
	IPTables       string    `json:"iptables"`
	Services       int       `json:"services"`
	VirtualServers int       `json:"virtual_servers"`
	RealServers    int       `json:"real_servers"`
	VIPs           int       `json:"vips"`
	SetMembers     int       `json:"set_members"`
	LastSync       time.Time `json:"last_sync"`
	LastAudit      time.Time `json:"last_audit"`
	// Pending Ops have failed and are tried again; Held ones wait for a source.
	Pending int `json:"pending_ops"`
	Held    int `json:"held_ops"`
	// Drift counts objects that others altered and weir put right.
	Drift uint64 `json:"drift_total"`
	// Error is why the kernel could not be read the last time.
	Error string `json:"error,omitempty"`
}

// Backends counts backends by verdict; Unchecked have no check.
type Backends struct {
	Up       int `json:"up"`
	Down     int `json:"down"`
	Unknown  int `json:"unknown"`
	Draining int `json:"draining"`
}

// Note is what could not be done for a Service.
type Note struct {
	Service string `json:"service"`
	Reason  string `json:"reason"`
	Text    string `json:"text"`
}

// Drain is a backend whose connections are ending.
type Drain struct {
	Frontend string    `json:"frontend"`
	Backend  string    `json:"backend"`
	Deadline time.Time `json:"deadline"`
}

// Services are the virtual servers as ipvsadm shows them, with their Service.
type Services struct {
	Frontends []Frontend `json:"frontends"`
}

// Frontend is one virtual server.
type Frontend struct {
	Key       lb.Frontend `json:"-"`
	Service   string      `json:"service"`
	Address   string      `json:"address"`
	Port      uint16      `json:"port"`
	Protocol  string      `json:"protocol"`
	Scheduler string      `json:"scheduler"`
	// Affinity is the persistence timeout in seconds.
	Affinity uint32   `json:"affinity_seconds,omitempty"`
	Servers  []Server `json:"servers"`
	Traffic  *Traffic `json:"traffic,omitempty"`
}

// Server is one real server.
type Server struct {
	Key      netip.AddrPort `json:"-"`
	Address  string         `json:"address"`
	Weight   uint32         `json:"weight"`
	Upper    uint32         `json:"max_connections,omitempty"`
	Lower    uint32         `json:"min_connections,omitempty"`
	Active   uint32         `json:"active"`
	Inactive uint32         `json:"inactive"`
	// Health is up, down, unknown, or empty without a check; Error is what the
	// check met.
	Health   string   `json:"health,omitempty"`
	Error    string   `json:"error,omitempty"`
	Draining bool     `json:"draining,omitempty"`
	Traffic  *Traffic `json:"traffic,omitempty"`
}

// Traffic counts since the kernel made the virtual or real server.
type Traffic struct {
	Connections uint64 `json:"connections"`
	PacketsIn   uint64 `json:"packets_in"`
	PacketsOut  uint64 `json:"packets_out"`
	BytesIn     uint64 `json:"bytes_in"`
	BytesOut    uint64 `json:"bytes_out"`
}

// Conns are entries of the kernel's IPVS connection table.
type Conns struct {
	Conns []Conn `json:"connections"`
	// More tells that there are more than were asked for.
	More bool `json:"more,omitempty"`
}

// Conn is one connection.
type Conn struct {
	Protocol string `json:"protocol"`
	Client   string `json:"client"`
	Frontend string `json:"frontend"`
	Backend  string `json:"backend"`
	State    string `json:"state"`
	// Expires is the seconds until the kernel forgets it.
	Expires uint32 `json:"expires_seconds"`
}

// Tabler is a document that reads as a table.
type Tabler interface {
	// Table writes the document for people; now is for ages.
	Table(w io.Writer, now time.Time)
}

// Write writes a document as "table", "json" or "yaml".
func Write(w io.Writer, doc Tabler, format string, now time.Time) error {
	switch format {
	case "table":
		doc.Table(w, now)
		return nil
	case "json":
		enc := json.NewEncoder(w)
		enc.SetIndent("", "  ")
		return enc.Encode(doc)
	case "yaml":
		text, err := yaml.Marshal(doc)
		if err != nil {
			return err
		}
		_, err = w.Write(text)
		return err
	}
	return fmt.Errorf("output format %q is none of table, json, yaml", format)
}

// Line says in one line whether all is well.
func (s Status) Line() string {
	if s.State == OK {
		return fmt.Sprintf("weir is ok: %d services on %d VIPs", s.Kernel.Services, s.Kernel.VIPs)
	}
	return fmt.Sprintf("weir is %s: %s", s.State, strings.Join(s.Why, "; "))
}

// Table implements Tabler. The first line says whether all is well.
func (s Status) Table(w io.Writer, now time.Time) {
	fmt.Fprintf(w, "%s\n\n", s.Line())
	tw := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	fmt.Fprintf(tw, "Version:\t%s, pid %d, up %s\n", s.Version, s.PID, age(now, s.Started))
	fmt.Fprintf(tw, "Config:\t%s, loaded %s\n", s.Config.File, since(now, s.Config.Loaded))
	fmt.Fprintf(tw, "Kernel:\t%s, iptables %s\n", s.Kernel.Release, s.Kernel.IPTables)
	fmt.Fprintf(tw, "Holds:\t%d virtual servers, %d real servers, %d set members\n",
		s.Kernel.VirtualServers, s.Kernel.RealServers, s.Kernel.SetMembers)
	fmt.Fprintf(tw, "Backends:\t%d up, %d down, %d unknown, %d draining\n",
		s.Backend.Up, s.Backend.Down, s.Backend.Unknown, s.Backend.Draining)
	fmt.Fprintf(tw, "Synced:\t%s, audited %s, %d drifted objects put right since the start\n",
		since(now, s.Kernel.LastSync), since(now, s.Kernel.LastAudit), s.Kernel.Drift)
	tw.Flush()
	if len(s.Notes) > 0 {
		fmt.Fprintf(w, "\nNotes (%d):\n", len(s.Notes))
		for i, n := range s.Notes {
			if i == maxLines {
				fmt.Fprintf(w, "  and %d more: weir status -o json\n", len(s.Notes)-i)
				break
			}
			fmt.Fprintf(w, "  %s  %s  %s\n", n.Service, n.Reason, n.Text)
		}
	}
	if len(s.Drains) > 0 {
		fmt.Fprintf(w, "\nDraining (%d):\n", len(s.Drains))
		for i, d := range s.Drains {
			if i == maxLines {
				fmt.Fprintf(w, "  and %d more: weir status -o json\n", len(s.Drains)-i)
				break
			}
			fmt.Fprintf(w, "  %s of %s, at most %s\n", d.Backend, d.Frontend, age(d.Deadline, now))
		}
	}
}

// maxLines keeps each list of the status on one screen.
const maxLines = 8

// Table implements Tabler, in the columns of ipvsadm -Ln: virtual servers with
// their real servers under them. What is a fact of weir's comes last.
func (s Services) Table(w io.Writer, _ time.Time) {
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
		row(f.name(), f.flags(), f.Service)
		for _, r := range f.Servers {
			n := func(x uint32) string { return strconv.FormatUint(uint64(x), 10) }
			row("  -> "+r.Address, fmt.Sprintf(numbers, "Masq", n(r.Weight), n(r.Active), n(r.Inactive)), r.health())
		}
	}
}

func (f Frontend) name() string {
	return fmt.Sprintf("%-4s %s", strings.ToUpper(f.Protocol), hostPort(f.Address, f.Port))
}

func (f Frontend) flags() string {
	if f.Affinity == 0 {
		return f.Scheduler
	}
	return fmt.Sprintf("%s persistent %d", f.Scheduler, f.Affinity)
}

func (r Server) health() string {
	out := r.Health
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

// since says how long before now t was, for people; a zero t was never.
func since(now, t time.Time) string {
	if t.IsZero() {
		return "never"
	}
	return age(now, t) + " ago"
}

// age is the time from t to now, for people: "3s", "5m", "2h", "9d".
func age(now, t time.Time) string {
	switch d := now.Sub(t); {
	case d < time.Minute:
		return fmt.Sprintf("%ds", max(0, int(d.Seconds())))
	case d < time.Hour:
		return fmt.Sprintf("%dm", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh", int(d.Hours()))
	default:
		return fmt.Sprintf("%dd", int(d.Hours()/24))
	}
}
