// Package kube follows the Kubernetes clusters of a configuration: their Services, the mass-deletion guard, the own Node,
// Notes and health check ports. It never writes to the kernel and never decides which backend gets traffic.
package kube

import (
	"context"
	"fmt"
	"log/slog"
	"reflect"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"weir/cmd/weir/internal/kernelmode"
	"weir/cmd/weir/internal/supervise"
	"weir/k8ssync"
	"weir/lb"
)

// Cluster follows one cluster: a k8ssync.Cluster, or that of a test.
type Cluster interface {
	Run(ctx context.Context) error
	// Changed gets a value when Take has an update, or Status has changed in a way that matters to the kernel. Take
	// returns the changes since the last call, at first the whole state.
	Changed() <-chan struct{}
	Take() (lb.Update, bool)
	Status() k8ssync.Status
	// Commit reports that everything that was taken has been checked, and the namespaces in which the guard blocks
	// some of it.
	Commit(guarded []string)
	// Refuse replaces the addresses that no VIP may have.
	Refuse(r k8ssync.Refused)
	// Provide replaces the addresses that weir assigns to Services of the cluster.
	Provide(p k8ssync.Provided)
	// Report replaces the Notes about Services of the cluster. It does not block.
	Report(notes []lb.Note)
}

// Clusters are the followed clusters, each in a goroutine of its own. A cluster that is slow, unreachable or sends
// nonsense delays no other, and one that panics is restarted. The loop owns it; other goroutines read Followers.
type Clusters struct {
	// Follow makes a Cluster; tests replace it.
	Follow func(k8ssync.Config, *slog.Logger) Cluster
	// Signal gets a value when a cluster has news.
	Signal chan struct{}

	log  *slog.Logger
	wait sync.WaitGroup
	all  map[string]*Follower
	gone map[string]chan struct{} // Follower.done of removed ones
}

// New returns Clusters that follow nothing until Set.
func New(log *slog.Logger) *Clusters {
	return &Clusters{
		Follow: func(c k8ssync.Config, log *slog.Logger) Cluster { return k8ssync.New(c, log) },
		Signal: make(chan struct{}, 1),
		log:    log,
		all:    map[string]*Follower{},
		gone:   map[string]chan struct{}{},
	}
}

// Follower is one cluster and the goroutine that follows it.
type Follower struct {
	stop       context.CancelFunc
	done       chan struct{} // closed when its goroutine has ended
	reported   []lb.Note
	reportedTo Cluster
	// reloaded is true from a change of the block by the operator until the next update of the cluster.
	reloaded bool
	node     kernelmode.Node // the own one, as last known

	mu      sync.Mutex     // of the fields below, which Snapshot reads from any goroutine
	cfg     k8ssync.Config // only the loop replaces it
	current Cluster
	failure string // of the last run, until the next one begins
	panics  uint64
}

// Snapshot is a followed cluster at one moment. It does not change.
type Snapshot struct {
	Name, Node string
	Kinds      map[lb.VIPKind]bool
	Status     k8ssync.Status
	Panics     uint64
}

// Snapshot returns the state of the cluster now. It is safe for concurrent use.
func (f *Follower) Snapshot() Snapshot {
	f.mu.Lock()
	defer f.mu.Unlock()
	s := Snapshot{f.cfg.Name, f.cfg.NodeName, f.cfg.Kinds, f.current.Status(), f.panics}
	if f.failure != "" {
		s.Status.Connected, s.Status.Error = false, f.failure
	}
	return s
}

// NodeLeaves reports whether the box's own Node is being deleted, or about to be by the cluster autoscaler: load balancers
// in front of it must send new clients elsewhere, while it serves its open connections (KEP-3836).
func NodeLeaves(followers []*Follower) bool {
	return slices.ContainsFunc(followers, func(f *Follower) bool {
		s := f.Snapshot()
		return s.Node != "" && s.Status.NodeLeaving
	})
}

// Set follows the clusters of a configuration. A cluster with a changed block is restarted, and its Services stay
// as they are until it has synced; the others go on.
func (c *Clusters) Set(ctx context.Context, wanted []k8ssync.Config) {
	for name, f := range c.all {
		if !slices.ContainsFunc(wanted, func(w k8ssync.Config) bool { return w.Name == name }) {
			f.stop()
			delete(c.all, name)
			c.gone[name] = f.done
			c.log.Info("cluster removed", "cluster", name)
		}
	}
	for _, w := range wanted {
		old := c.all[w.Name]
		if old == nil || !old.update(w) {
			c.all[w.Name] = c.begin(ctx, w, old)
		}
	}
}

// update brings a configuration into force without a restart, and reports whether that is possible: only the refused
// and the provided addresses may differ.
func (f *Follower) update(wanted k8ssync.Config) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	before, after := f.cfg, wanted
	before.Refused, after.Refused = k8ssync.Refused{}, k8ssync.Refused{}
	before.Provided, after.Provided = k8ssync.Provided{}, k8ssync.Provided{}
	if !reflect.DeepEqual(before, after) {
		return false
	}
	f.cfg = wanted
	f.current.Refuse(wanted.Refused)
	f.current.Provide(wanted.Provided)
	return true
}

// begin follows a cluster after old, or a removed one of the name, has ended: both would write one file.
func (c *Clusters) begin(ctx context.Context, cfg k8ssync.Config, old *Follower) *Follower {
	ctx, stop := context.WithCancel(ctx)
	f := &Follower{cfg: cfg, stop: stop, done: make(chan struct{})}
	f.current = c.Follow(cfg, c.log)
	before := c.gone[cfg.Name]
	delete(c.gone, cfg.Name)
	if old != nil {
		before = old.done
		f.panics, f.reloaded = old.panicked(0), true
		if cfg.NodeName == old.cfg.NodeName {
			f.node = old.node
		}
		old.stop()
	}
	c.wait.Go(func() {
		defer close(f.done)
		if before != nil {
			<-before
		}
		f.run(ctx, c, c.log.With("cluster", cfg.Name))
	})
	return f
}

const (
	// minPause is the pause after a failure. Each failure that follows soon doubles it, up to maxPause.
	minPause = supervise.Pause
	maxPause = 5 * time.Minute
)

// run follows the cluster until ctx ends, and restarts it after a failure.
func (f *Follower) run(ctx context.Context, c *Clusters, log *slog.Logger) {
	pause := minPause
	for {
		begin := time.Now()
		err := f.once(ctx, c, log)
		if ctx.Err() != nil {
			return
		}
		if time.Since(begin) > maxPause {
			pause = minPause
		}
		log.Error("cluster failed; its Services stay and it is restarted", "error", err, "in", pause)
		f.fail(err)
		supervise.Wake(c.Signal)
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
		pause = min(2*pause, maxPause)
		f.renew(c)
	}
}

// once runs the current cluster, and returns its panic as an error.
func (f *Follower) once(ctx context.Context, c *Clusters, log *slog.Logger) (err error) {
	ctx, stop := context.WithCancel(ctx)
	var forward sync.WaitGroup
	defer func() { stop(); forward.Wait() }()
	cluster := f.cluster()
	forward.Go(func() {
		for {
			select {
			case <-ctx.Done():
				return
			case <-cluster.Changed():
				supervise.Wake(c.Signal)
			}
		}
	})
	defer func() {
		if p := recover(); p != nil {
			log.Error("cluster panicked", "value", fmt.Sprint(p), "stack", string(debug.Stack()))
			f.panicked(1)
			err = fmt.Errorf("panic: %v", p)
		}
	}()
	if err := cluster.Run(ctx); err != nil {
		return err
	}
	return fmt.Errorf("it ended by itself")
}

// cluster returns the current Cluster.
func (f *Follower) cluster() Cluster {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.current
}

func (f *Follower) renew(c *Clusters) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.current, f.failure = c.Follow(f.cfg, c.log), ""
}

func (f *Follower) fail(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.failure = err.Error()
}

// panicked adds to the count of panics, and returns it.
func (f *Follower) panicked(more uint64) uint64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.panics += more
	return f.panics
}

// Names returns the names of the clusters, sorted.
func (c *Clusters) Names() []string {
	out := make([]string, 0, len(c.all))
	for name := range c.all {
		out = append(out, name)
	}
	slices.Sort(out)
	return out
}

// Followers returns the clusters, sorted by name.
func (c *Clusters) Followers() []*Follower {
	out := make([]*Follower, 0, len(c.all))
	for _, name := range c.Names() {
		out = append(out, c.all[name])
	}
	return out
}

// Real returns the followed clusters of Kubernetes, by name; those of tests are left out.
func (c *Clusters) Real() map[string]*k8ssync.Cluster {
	out := map[string]*k8ssync.Cluster{}
	for name, f := range c.all {
		if real, ok := f.cluster().(*k8ssync.Cluster); ok {
			out[name] = real
		}
	}
	return out
}

// Update is a change of a cluster.
type Update struct {
	lb.Update
	// Reloaded marks the first update after the operator changed the block. A deletion in it is the operator's, so
	// the guard does not apply. With a snapshot it is that file, read with the new block; deletions of
	// the cluster itself come with a later update.
	Reloaded bool
}

// Take returns the changes of all clusters since the last call.
func (c *Clusters) Take() []Update {
	var out []Update
	for _, name := range c.Names() {
		f := c.all[name]
		cluster := f.cluster()
		for u, some := cluster.Take(); some; u, some = cluster.Take() {
			u.Source = name
			out = append(out, Update{u, u.Synced && f.reloaded})
			f.reloaded = f.reloaded && !u.Synced
		}
	}
	return out
}

// Commit reports the guarded sources to the clusters, after the guard has checked all updates.
func (c *Clusters) Commit(guarded []lb.GuardedSource) {
	of := map[string][]string{}
	for _, h := range guarded {
		of[h.Source] = h.Namespaces
	}
	for name, f := range c.all {
		f.cluster().Commit(of[name])
	}
}

// Report sends each cluster the Notes about its Services, if they have changed.
func (c *Clusters) Report(notes []lb.Note) {
	of := map[string][]lb.Note{}
	for _, n := range notes {
		if c.all[n.Service.Source] != nil {
			of[n.Service.Source] = append(of[n.Service.Source], n)
		}
	}
	for name, f := range c.all {
		cluster := f.cluster()
		if cluster != f.reportedTo {
			f.reported, f.reportedTo = nil, cluster
		}
		if !slices.Equal(of[name], f.reported) {
			f.reported = of[name]
			cluster.Report(f.reported)
		}
	}
}

// Unreported reports whether a cluster has had no Report since its start.
func (c *Clusters) Unreported() bool {
	for _, f := range c.all {
		if f.cluster() != f.reportedTo {
			return true
		}
	}
	return false
}

// Node returns the box's own Node, as its cluster has it: the box is a Node of one cluster at most. A cluster that is
// restarted does not know it until it has synced. The last known one stays until then: node ports depend on it.
func (c *Clusters) Node() kernelmode.Node {
	for _, f := range c.Followers() {
		s := f.Snapshot()
		if s.Node == "" {
			continue
		}
		if s.Status.Synced {
			f.node = kernelmode.Node{PodCIDRs: s.Status.NodePodCIDRs, Addrs: s.Status.NodeAddrs}
		}
		return f.node
	}
	return kernelmode.Node{}
}

// Stop ends all clusters, and waits for them.
func (c *Clusters) Stop() {
	for _, f := range c.all {
		f.stop()
	}
	c.wait.Wait()
}
