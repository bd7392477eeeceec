// Package status holds the documents that a running weir publishes, and their form as
// tables, JSON and YAML. It never gathers anything itself: other packages fill in the
// documents. The documents of weir plan, weir explain, weir top and weir bgp have packages
// of their own in this folder. The JSON field names are stable.
package status

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"sigs.k8s.io/yaml"

	"weir/cmd/weir/internal/status/text"
	"weir/lb"
)

// State is the state of a box in one word.
type State string

// The states.
const (
	Starting State = "starting" // the first state is not in the kernel yet
	OK       State = "ok"       // everything works
	Degraded State = "degraded" // weir works, with problems
	Failed   State = "failed"   // weir does not work
	// NotRunning is set by the command line: there is no daemon.
	NotRunning State = "not running"
)

// Absent is the status of a box without a daemon; its fields are those of Status.
type Absent struct {
	State    State     `json:"state"`
	Problems []Problem `json:"problems"` // the error, and the state of the kernel
}

// Table implements Tabler.
func (a Absent) Table(w io.Writer, _ time.Time) {
	fmt.Fprintf(w, "weir is %s: %s\n", a.State, strings.Join(texts(a.Problems), "; "))
}

// Status is a summary of one box.
type Status struct {
	State State `json:"state"`
	// Problems are the reasons why State is not ok.
	Problems []Problem `json:"problems,omitempty"`
	Version  string    `json:"version"`
	PID      int       `json:"pid"`
	Started  time.Time `json:"started"`
	Config   Config    `json:"config"` // the one in force
	Kernel   Kernel    `json:"kernel"` // the objects of weir in the kernel
	Backend  Backends  `json:"backends"`
	// Clusters are sorted by name.
	Clusters []Cluster `json:"clusters"`
	// Guarded are sources after a mass deletion that is not accepted yet.
	Guarded []GuardedSource `json:"guarded"`
	Notes   []Note          `json:"notes"`  // unfulfilled requests, by Service
	Drains  []Drain         `json:"drains"` // removed backends with connections left
	// BGP is absent without [bgp], Addresses without a [[pool]].
	BGP       *BGP       `json:"bgp,omitempty"`
	Addresses *Addresses `json:"addresses,omitempty"`
	// Drained are the drains of VIPs by an operator; absent without [bgp].
	Drained *Drained `json:"drained,omitempty"`
	// Fleet is absent without [fleet], L2 without [l2].
	Fleet *Fleet `json:"fleet,omitempty"`
	L2    *L2    `json:"l2,omitempty"`
}

// Config describes the configuration in force and the last attempt to load one.
type Config struct {
	File   string    `json:"file"`   // the path of the first file
	Loaded time.Time `json:"loaded"` // when the one in force was loaded
	// Error is the reason why the last reload was refused; the configuration of Loaded
	// is still in force then.
	Error string `json:"error,omitempty"`
	// Trial is present until the configuration is confirmed, RolledBack after a trial
	// that was not confirmed, until the file is reloaded.
	Trial      *Trial      `json:"trial,omitempty"`
	RolledBack *RolledBack `json:"rolled_back,omitempty"`
}

// Kernel describes the kernel and counts the objects of weir in it.
type Kernel struct {
	Release string `json:"release"` // as in uname -r
	// Mode is ipvs or netfilter. Fallback is set if the kernel has no IPVS and the
	// configuration did not ask for netfilter.
	Mode           string    `json:"mode"`
	Fallback       bool      `json:"fallback,omitempty"`
	Rules          string    `json:"rules"`                     // the owner of sets and rules: nftables, iptables-nft or iptables-legacy
	IPTablesReason string    `json:"iptables_reason,omitempty"` // why weir selected iptables; absent if it did not
	Services       int       `json:"services"`
	VirtualServers int       `json:"virtual_servers"` // their number
	RealServers    int       `json:"real_servers"`    // over all virtual servers
	VIPs           int       `json:"vips"`            // their number
	SetMembers     int       `json:"set_members"`     // over all sets
	LastSync       time.Time `json:"last_sync"`       // when the kernel last matched the configuration
	LastAudit      time.Time `json:"last_audit"`      // when the whole kernel was last compared
	// Pending operations have failed and are retried. Blocked ones wait for a source. Postponed ones come next, a part at a
	// time: real servers, of virtual servers that get thousands.
	Pending   int `json:"pending_ops"`
	Blocked   int `json:"blocked_ops"`
	Postponed int `json:"postponed_ops,omitempty"`
	// Drift counts repaired objects that other programs had changed.
	Drift uint64 `json:"drift_total"`
	// Error is the reason why the last reading of the kernel failed.
	Error string `json:"error,omitempty"`
	// Programming is how far a pass of many operations is; absent without one.
	Programming *Programming `json:"programming,omitempty"`
}

// RulesText returns the mode and the owner of the rules: "mode ipvs, rules in nftables".
func RulesText(mode, rules string) string { return fmt.Sprintf("mode %s, rules in %s", mode, rules) }

// Programming is how far a pass of many operations is.
type Programming struct {
	Done  int `json:"done"`  // operations that were applied, failed, or wait for another one
	Total int `json:"total"` // operations of the pass
}

// ProgrammingOf returns nil for no operations at all.
func ProgrammingOf(done, total int) *Programming {
	if total == 0 {
		return nil
	}
	return &Programming{Done: done, Total: total}
}

// String returns it as "120000 of 650000 operations (18 %)".
func (p Programming) String() string {
	return fmt.Sprintf("%d of %d operations (%d %%)", p.Done, p.Total, 100*p.Done/max(p.Total, 1))
}

// Backends counts the checked backends by state.
type Backends struct {
	Up       int `json:"up"`       // their checks succeed
	Down     int `json:"down"`     // their checks fail
	Unknown  int `json:"unknown"`  // no check has ended yet
	Draining int `json:"draining"` // removed, with connections left
	// Void counts those with checks that have had no result for a while because of this box,
	// VoidError is the error of one of them.
	Void      int    `json:"void"`
	VoidError string `json:"void_error,omitempty"`
}

// Note is a condition of a Service, with a reason and a text.
type Note struct {
	Service string `json:"service"`
	Reason  string `json:"reason"`
	Text    string `json:"text"`
	// Informational is set if nothing is wrong: all backends are on other nodes, or
	// the Service is scaled to zero.
	Informational bool `json:"informational,omitempty"`
}

// Drain is a removed backend with connections left.
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
		_, err := io.WriteString(w, text.Plain(table.String()))
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
	return fmt.Errorf("unknown output format %q; use table, json or yaml", format)
}

// Judge sets State and Problems of a box that has started from the rest of s.
func (s *Status) Judge(now time.Time) {
	s.State, s.Problems = OK, nil
	if s.Kernel.Error != "" {
		s.State, s.Problems = Failed, []Problem{problem(ProblemKernel, "can't read the kernel: %s", s.Kernel.Error)}
		return
	}
	add := func(code ProblemCode, format string, args ...any) {
		s.Problems = append(s.Problems, problem(code, format, args...))
	}
	if s.Kernel.Fallback {
		add(ProblemNoIPVS, "this kernel has no IPVS: fallback to mode netfilter, without schedulers, weights and limits (kernel.mode = %q if that is intended)", s.Kernel.Mode)
	}
	if s.Drained != nil {
		s.Problems = append(s.Problems, s.Drained.problems(now)...)
	}
	if s.Config.RolledBack != nil {
		add(ProblemRolledBack, "%s", s.Config.RolledBack.text())
	}
	if s.Config.Error != "" {
		add(ProblemReload, "the last reload was refused: %s", firstLine(s.Config.Error))
	}
	for _, c := range s.Clusters {
		if text := c.problem(now); text != "" {
			add(ProblemCluster, "%s", text)
		}
	}
	if s.BGP != nil {
		s.Problems = append(s.Problems, s.BGP.problems(now)...)
	}
	if s.Fleet != nil {
		s.Problems = append(s.Problems, s.Fleet.problems()...)
	}
	if s.L2 != nil {
		s.Problems = append(s.Problems, s.L2.problems()...)
	}
	if s.Addresses != nil && s.Addresses.Writer.Error != "" {
		add(ProblemAddresses, "no addresses are assigned: %s", s.Addresses.Writer.Error)
	}
	for _, h := range s.Guarded {
		add(ProblemGuarded, "%s", h.problem())
	}
	if s.Kernel.Pending > 0 {
		add(ProblemOperations, "%s failed, will be retried%s", text.Count(s.Kernel.Pending, "operation"), ownFailure(s.Notes))
	}
	if n := len(s.Notes) - informational(s.Notes); n > 0 {
		add(ProblemNotes, "%s", text.Count(n, "note"))
	}
	if b := s.Backend; b.Down > 0 {
		add(ProblemBackends, "%d of %s down", b.Down, text.Count(b.Up+b.Down+b.Unknown, "backend"))
	}
	if b := s.Backend; b.Void > 0 {
		add(ProblemChecks, "the checks of %d of %s have no result: %s", b.Void, text.Count(b.Up+b.Down+b.Unknown, "backend"), b.VoidError)
	}
	if len(s.Problems) > 0 {
		s.State = Degraded
	}
}

// Hangs sets State and Problems of a judged box that changes nothing any more.
func (s *Status) Hangs() {
	const text = "the main loop has not run for two sync periods and a minute"
	s.State, s.Problems = Failed, slices.Insert(s.Problems, 0, Problem{ProblemHangs, text})
}

// ownFailure returns the first failure of an object that all Services need, as ": reason".
func ownFailure(notes []Note) string {
	weir := lb.ServiceID{}.String()
	for _, x := range notes {
		if x.Service == weir && x.Reason == string(lb.Failed) {
			return ": " + firstLine(x.Text)
		}
	}
	return ""
}

// informational returns the number of informational notes.
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

// Line returns the state and the problems in one line.
func (s Status) Line() string {
	if s.Config.Trial == nil {
		return s.Summary()
	}
	return s.Summary() + "; " + s.Config.Trial.line()
}

// Summary is Line without a trial.
func (s Status) Summary() string {
	line := fmt.Sprintf("weir is %s: %s", s.State, strings.Join(texts(s.Problems), "; "))
	if s.State == OK {
		line = fmt.Sprintf("weir is ok: %s on %s", text.Count(s.Kernel.Services, "service"), text.Count(s.Kernel.VIPs, "VIP"))
	}
	if s.Kernel.Programming != nil {
		line += "; programming the kernel: " + s.Kernel.Programming.String()
	}
	if n := s.Kernel.Postponed; n > 0 {
		line += "; " + text.Count(n, "operation") + " of large services postponed"
	}
	return line
}
