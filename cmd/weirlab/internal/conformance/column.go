// Package conformance is the table of the conformance checks: a column for each engine,
// and the page of the manual. It never runs a check: tests do, and save their columns.
package conformance

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
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
