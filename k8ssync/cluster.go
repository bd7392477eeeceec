package k8ssync

import (
	"context"
	"log/slog"
	"time"

	"weir/lb"
)

// Cluster follows one cluster.
type Cluster struct {
	cfg  Config
	emit func(lb.Update)
	log  *slog.Logger
}

// New makes a Cluster that gives what it finds to emit, one Update at a time: the
// first one that is Synced says everything the cluster has. It does not read the
// kubeconfig yet; that is Run's, which tries for ever.
func New(cfg Config, emit func(lb.Update), log *slog.Logger) *Cluster {
	return &Cluster{cfg: cfg, emit: emit, log: log}
}

// Run follows the cluster until ctx ends. Whatever is wrong with the cluster is
// for Status to say.
func (c *Cluster) Run(ctx context.Context) error {
	<-ctx.Done()
	return nil
}

// Status is how well weir knows a cluster.
type Status struct {
	Name string
	// Connected tells that watches are open, since when Since says; otherwise
	// Since is when they broke and Error why.
	Connected bool
	Since     time.Time
	Error     string
	// Heard is when the API server last said something; of a box that serves from
	// its last-known-good file, when that was written.
	Heard time.Time
	// Stale tells that what is served comes from the last-known-good file.
	Stale bool
	// Synced tells that the cluster has been read whole, from either.
	Synced bool
	// Counts of what is followed, by kind: services, endpointslices, nodes.
	Objects map[string]int
	// Endpoints is how many endpoints there are.
	Endpoints int
	// Relists counts how often a whole list was read.
	Relists uint64
	// SnapshotError is why the last-known-good file can't be read or written.
	SnapshotError string
}

// Status is safe for concurrent use.
func (c *Cluster) Status() Status { return Status{Name: c.cfg.Name} }

// Report writes Events for the Notes about this cluster's Services: once for each,
// and again when it says something else. It returns at once.
func (c *Cluster) Report(notes []lb.Note) {}
