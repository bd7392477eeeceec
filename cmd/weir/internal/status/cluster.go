package status

import (
	"cmp"
	"fmt"
	"io"
	"time"

	"weir/cmd/weir/internal/status/text"
)

// Cluster is the state of a Kubernetes cluster as this box sees it.
type Cluster struct {
	Name  string       `json:"name"`
	State ClusterState `json:"state"`
	// Since is when the watches were opened or broken; Error is the reason why they are
	// not open.
	Since time.Time `json:"since"`
	Error string    `json:"error,omitempty"`
	// LastContact is the time of the last answer of the API server; with Stale it is the
	// time of the file.
	LastContact time.Time `json:"last_contact"`
	// Stale is set if the Services come from the file and not from the API server.
	Stale bool `json:"stale"`
	// Services are the served ones; Objects counts the watched objects by kind.
	Services  int `json:"services"`
	Endpoints int `json:"endpoints"`
	// KernelObjects is about the number of kernel objects that all Services need; OverBudget
	// counts the Services that are not served because there are too many.
	KernelObjects int            `json:"kernel_objects"`
	OverBudget    int            `json:"over_budget"`
	Objects       map[string]int `json:"objects"`       // watched objects by kind
	Relists       uint64         `json:"relists_total"` // readings of whole lists
	// Missing has keys of the block that must be set. Each has the ranges of objects that
	// are not used for that reason, as a value to check.
	Missing map[string][]string `json:"missing,omitempty"`
	// Kinds are the kinds of VIPs that are served; Node is the box's own, if it is one.
	Kinds []string `json:"kinds"`
	Node  string   `json:"node,omitempty"`
	// SnapshotError is the reason why the snapshot can't be read or written.
	SnapshotError string `json:"snapshot_error,omitempty"`
	// Events counts the written Events; EventsError is the reason why they can't be written.
	Events      uint64 `json:"events_total"`
	EventsError string `json:"events_error,omitempty"`
	// Panics counts the restarts of the watches after a panic.
	Panics uint64 `json:"panics_total"`
}

// ClusterState is the state of the watches of a cluster.
type ClusterState string

// The states of a cluster.
const (
	Connected   ClusterState = "connected"   // watches are open
	Unreachable ClusterState = "unreachable" // watches are closed; the last known state is served
	Waiting     ClusterState = "waiting"     // the API server has not answered yet
)

// OldData is a cluster with Services that may be out of date.
type OldData struct {
	Cluster string       `json:"cluster"`
	State   ClusterState `json:"state"`
	// Since, LastContact, Stale: see Cluster.
	Since       time.Time `json:"since"`
	LastContact time.Time `json:"last_contact"`
	Stale       bool      `json:"stale"`
}

// OldDataOf returns the clusters with Services that may be out of date.
func OldDataOf(clusters []Cluster) []OldData {
	var out []OldData
	for _, c := range clusters {
		if c.State != Connected || c.Stale {
			out = append(out, OldData{c.Name, c.State, c.Since, c.LastContact, c.Stale})
		}
	}
	return out
}

// text returns one line about the cluster.
func (o OldData) text(now time.Time) string {
	switch {
	case o.State == Waiting:
		return fmt.Sprintf("cluster %s: has not answered yet", o.Cluster)
	case o.Stale:
		return fmt.Sprintf("cluster %s: from its file of %s", o.Cluster, text.Ago(now, o.LastContact))
	}
	return fmt.Sprintf("cluster %s: unreachable since %s, last contact %s", o.Cluster, text.Ago(now, o.Since), text.Ago(now, o.LastContact))
}

// WriteOldData writes one line for each.
func WriteOldData(w io.Writer, old []OldData, now time.Time) {
	if len(old) > 0 {
		fmt.Fprintln(w)
	}
	for _, o := range old {
		fmt.Fprintln(w, o.text(now))
	}
}

// problem describes the problem of a cluster; "" if there is none.
func (c Cluster) problem(now time.Time) string {
	var line string
	switch c.State {
	case Connected:
		if line = cmp.Or(c.Error, c.SnapshotError, c.EventsError); line != "" {
			line = fmt.Sprintf("cluster %s: %s", c.Name, line)
		}
		return line
	case Waiting:
		line = fmt.Sprintf("cluster %s has not answered yet", c.Name)
	default:
		line = fmt.Sprintf("cluster %s is unreachable, last contact %s", c.Name, text.Ago(now, c.LastContact))
	}
	if c.Error != "" {
		line += ": " + c.Error
	}
	return line
}

func (c Cluster) condition(now time.Time) string {
	switch {
	case c.State == Connected:
		return fmt.Sprintf("connected %s, last contact %s", text.Age(now.Sub(c.Since)), text.Ago(now, c.LastContact))
	case c.State == Waiting:
		return "waiting " + text.Age(now.Sub(c.Since))
	case c.Stale:
		return fmt.Sprintf("unreachable %s, from the file of %s", text.Age(now.Sub(c.Since)), text.Ago(now, c.LastContact))
	}
	return fmt.Sprintf("unreachable %s, last contact %s", text.Age(now.Sub(c.Since)), text.Ago(now, c.LastContact))
}

func (c Cluster) where() string {
	if c.Node == "" {
		return ""
	}
	return ", node " + c.Node
}
