// Package status holds the documents that a running weir gives to the command
// line, and how they read as tables, JSON and YAML. The JSON field names are
// stable. The package gathers nothing itself; of
// weir it imports only lb, for the keys that join what different parts know.
package status

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"

	"sigs.k8s.io/yaml"
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
	Config  Config    `json:"config"` // what is in force
	Kernel  Kernel    `json:"kernel"` // what the kernel holds of weir's
	Backend Backends  `json:"backends"`
	// Clusters are those that are followed, by name.
	Clusters []Cluster `json:"clusters"`
	// Held are sources that took away much at once and are not believed yet.
	Held   []Hold  `json:"held"`
	Notes  []Note  `json:"notes"`  // what could not be done, by Service
	Drains []Drain `json:"drains"` // backends whose connections are ending
	// BGP is absent without [bgp], Addresses without a [[pool]].
	BGP       *BGP       `json:"bgp,omitempty"`
	Addresses *Addresses `json:"addresses,omitempty"`
	// Drained is what an operator has taken from the sight of routers; absent without
	// [bgp].
	Drained *Drained `json:"drained,omitempty"`
	// Fleet is absent without [cluster], L2 without [l2].
	Fleet *Fleet `json:"fleet,omitempty"`
	L2    *L2    `json:"l2,omitempty"`
}

// Config tells of the configuration in force and the last attempt to load one.
type Config struct {
	File   string    `json:"file"`   // the path of the first file
	Loaded time.Time `json:"loaded"` // when what is in force was loaded
	// Error is why the last reload was refused; the configuration of Loaded is
	// still in force then.
	Error string `json:"error,omitempty"`
	// Trial is there while it has to be confirmed, Returned once it was not, until the
	// file is loaded again.
	Trial    *Trial    `json:"trial,omitempty"`
	Returned *Returned `json:"returned,omitempty"`
}

// Kernel tells what the kernel holds of weir's.
type Kernel struct {
	Release string `json:"release"` // as uname -r says it
	// Mode is what balances: ipvs, or iptables. Fallback tells that this is for
	// want of IPVS, not because somebody wanted it.
	Mode           string    `json:"mode"`
	Fallback       bool      `json:"fallback,omitempty"`
	IPTables       string    `json:"iptables"` // legacy or nft
	Services       int       `json:"services"`
	VirtualServers int       `json:"virtual_servers"` // how many are there
	RealServers    int       `json:"real_servers"`    // over all virtual servers
	VIPs           int       `json:"vips"`            // how many are there
	SetMembers     int       `json:"set_members"`     // over all sets
	LastSync       time.Time `json:"last_sync"`       // when the kernel was last as wanted
	LastAudit      time.Time `json:"last_audit"`      // when the whole kernel was last read
	// Pending Ops have failed and are tried again; Held ones wait for a source.
	Pending int `json:"pending_ops"`
	Held    int `json:"held_ops"`
	// Drift counts objects that others altered and weir put right.
	Drift uint64 `json:"drift_total"`
	// Error is why the kernel could not be read the last time.
	Error string `json:"error,omitempty"`
}

// Backends counts the backends that are checked, by verdict.
type Backends struct {
	Up       int `json:"up"`       // their checks succeed
	Down     int `json:"down"`     // their checks fail
	Unknown  int `json:"unknown"`  // no check has ended yet
	Draining int `json:"draining"` // removed, with connections left
}

// Note is what could not be done for a Service.
type Note struct {
	Service string `json:"service"`
	Reason  string `json:"reason"`
	Text    string `json:"text"`
	// Informational tells that nothing is wrong: a Service whose backends are all
	// on other nodes, or scaled to none.
	Informational bool `json:"informational,omitempty"`
}

// Drain is a backend whose connections are ending.
type Drain struct {
	Frontend string    `json:"frontend"`
	Backend  string    `json:"backend"`
	Deadline time.Time `json:"deadline"`
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
		var table strings.Builder
		doc.Table(&table, now)
		_, err := io.WriteString(w, Plain(table.String()))
		return err
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

// Judge sets State and Why of a box that has begun by what else s says, as of
// now.
func (s *Status) Judge(now time.Time) {
	s.State, s.Why = OK, nil
	if s.Kernel.Error != "" {
		s.State, s.Why = Failed, []string{"the kernel can't be read: " + s.Kernel.Error}
		return
	}
	why := func(format string, args ...any) { s.Why = append(s.Why, fmt.Sprintf(format, args...)) }
	if s.Kernel.Fallback {
		why("this kernel has no IPVS, so iptables balances: no schedulers, weights and limits (kernel.mode = %q if that is meant so)", s.Kernel.Mode)
	}
	if s.Drained != nil {
		for _, bad := range s.Drained.bad(now) {
			why("%s", bad)
		}
	}
	if s.Config.Returned != nil {
		why("%s", s.Config.Returned.text())
	}
	if s.Config.Error != "" {
		why("the last reload was refused: %s", firstLine(s.Config.Error))
	}
	for _, c := range s.Clusters {
		if bad := c.bad(now); bad != "" {
			why("%s", bad)
		}
	}
	if s.BGP != nil {
		for _, bad := range s.BGP.bad(now) {
			why("%s", bad)
		}
	}
	if s.Fleet != nil {
		for _, bad := range s.Fleet.bad() {
			why("%s", bad)
		}
	}
	if s.L2 != nil {
		for _, bad := range s.L2.bad() {
			why("%s", bad)
		}
	}
	if s.Addresses != nil && s.Addresses.Writer.Error != "" {
		why("no addresses are given: %s", s.Addresses.Writer.Error)
	}
	for _, h := range s.Held {
		why("%s", h.why())
	}
	if s.Kernel.Pending > 0 {
		why("%d operations failed and are tried again", s.Kernel.Pending)
	}
	if n := len(s.Notes) - informational(s.Notes); n > 0 {
		why("%s", Count(n, "note"))
	}
	if b := s.Backend; b.Down > 0 {
		why("%d of %d backends are down", b.Down, b.Up+b.Down+b.Unknown)
	}
	if len(s.Why) > 0 {
		s.State = Degraded
	}
}

// informational is how many of the notes are.
func informational(notes []Note) (n int) {
	for _, x := range notes {
		if x.Informational {
			n++
		}
	}
	return n
}

func firstLine(s string) string {
	if line, _, more := strings.Cut(s, "\n"); more {
		return line + " ..."
	}
	return s
}

// Line says in one line whether all is well.
func (s Status) Line() string {
	if s.Config.Trial == nil {
		return s.Verdict()
	}
	return s.Verdict() + "; " + s.Config.Trial.line()
}

// Verdict is Line without what is on trial.
func (s Status) Verdict() string {
	if s.State == OK {
		return fmt.Sprintf("weir is ok: %s on %s", Count(s.Kernel.Services, "service"), Count(s.Kernel.VIPs, "VIP"))
	}
	return fmt.Sprintf("weir is %s: %s", s.State, strings.Join(s.Why, "; "))
}

// Count says how many there are of something: "1 service", "2 services".
func Count(n int, one string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %ss", n, one)
}

// since says how long before now t was, for people; a zero t was never.
func since(now, t time.Time) string {
	if t.IsZero() {
		return "never"
	}
	return age(now, t) + " ago"
}

// age is the time from t to now, for people.
func age(now, t time.Time) string { return Age(now.Sub(t)) }

// Age is a time span for people, in its largest unit: "3s", "5m", "2h", "9d".
func Age(d time.Duration) string {
	switch {
	case d < time.Minute:
		return fmt.Sprintf("%ds", max(0, int(d.Seconds())))
	case d < time.Hour:
		return fmt.Sprintf("%dm", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh", int(d.Hours()))
	}
	return fmt.Sprintf("%dd", int(d.Hours()/24))
}
