package status

import (
	"cmp"
	"fmt"
	"io"
	"time"
)

// Cluster is a Kubernetes cluster as a box knows it.
type Cluster struct {
	Name  string       `json:"name"`
	State ClusterState `json:"state"`
	// Since is when the watches were opened, or when they broke; Error why they
	// are not open.
	Since time.Time `json:"since"`
	Error string    `json:"error,omitempty"`
	// Heard is when the API server said something the last time. Of a cluster that
	// is served from its file it is when that was written.
	Heard time.Time `json:"heard"`
	// Stale tells that what is served comes from the file and not from the API
	// server.
	Stale bool `json:"stale"`
	// Services are those that are served; Objects counts what is followed, by
	// kind.
	Services  int            `json:"services"`
	Endpoints int            `json:"endpoints"`
	Objects   map[string]int `json:"objects"`       // how many of each kind are followed
	Relists   uint64         `json:"relists_total"` // how often whole lists were read
	// Kinds are the VIPs that are served; Node is the box's own, if it is one.
	Kinds []string `json:"kinds"`
	Node  string   `json:"node,omitempty"`
	// FileError is why the last-known-good file can't be read or written.
	FileError string `json:"file_error,omitempty"`
	// Events counts those that were written; EventsError is why they can't be.
	Events      uint64 `json:"events_total"`
	EventsError string `json:"events_error,omitempty"`
	// Panics counts how often following it panicked and was begun anew.
	Panics uint64 `json:"panics_total"`
}

// ClusterState is how well a box knows a cluster, in one word.
type ClusterState string

// The states of a cluster.
const (
	Connected ClusterState = "connected" // watches are open
	Away      ClusterState = "away"      // they are not; what was heard last stands
	Waiting   ClusterState = "waiting"   // nothing has been heard yet
)

// OldData tells that a cluster's Services are served by what it said once.
type OldData struct {
	Cluster string       `json:"cluster"`
	State   ClusterState `json:"state"`
	// Since, Heard, Stale: see Cluster.
	Since time.Time `json:"since"`
	Heard time.Time `json:"heard"`
	Stale bool      `json:"stale"`
}

// OldDataOf gives those of clusters that are served by what they said once.
func OldDataOf(clusters []Cluster) []OldData {
	var out []OldData
	for _, c := range clusters {
		if c.State != Connected || c.Stale {
			out = append(out, OldData{c.Name, c.State, c.Since, c.Heard, c.Stale})
		}
	}
	return out
}

// text says it in a line.
func (o OldData) text(now time.Time) string {
	switch {
	case o.State == Waiting:
		return fmt.Sprintf("cluster %s: has not answered yet", o.Cluster)
	case o.Stale:
		return fmt.Sprintf("cluster %s: from its file of %s", o.Cluster, since(now, o.Heard))
	}
	return fmt.Sprintf("cluster %s: away since %s, as of %s", o.Cluster, since(now, o.Since), since(now, o.Heard))
}

// writeOldData writes a line for each, if there are any.
func writeOldData(w io.Writer, old []OldData, now time.Time) {
	if len(old) > 0 {
		fmt.Fprintln(w)
	}
	for _, o := range old {
		fmt.Fprintln(w, o.text(now))
	}
}

// bad says what is wrong with a cluster, "" if nothing is.
func (c Cluster) bad(now time.Time) string {
	var why string
	switch c.State {
	case Connected:
		if why = cmp.Or(c.Error, c.FileError, c.EventsError); why != "" {
			why = fmt.Sprintf("cluster %s: %s", c.Name, why)
		}
		return why
	case Waiting:
		why = fmt.Sprintf("cluster %s has not answered yet", c.Name)
	default:
		why = fmt.Sprintf("cluster %s is away, its Services are as of %s", c.Name, since(now, c.Heard))
	}
	if c.Error != "" {
		why += ": " + c.Error
	}
	return why
}

func (c Cluster) condition(now time.Time) string {
	switch {
	case c.State == Connected:
		return fmt.Sprintf("connected %s, heard %s", age(now, c.Since), since(now, c.Heard))
	case c.State == Waiting:
		return "waiting " + age(now, c.Since)
	case c.Stale:
		return fmt.Sprintf("away %s, from the file of %s", age(now, c.Since), since(now, c.Heard))
	}
	return fmt.Sprintf("away %s, as of %s", age(now, c.Since), since(now, c.Heard))
}

func (c Cluster) where() string {
	if c.Node == "" {
		return ""
	}
	return ", node " + c.Node
}
