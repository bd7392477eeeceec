package k8ssync

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"weir/lb"
)

// Cluster follows one cluster. Make one with New. All methods may be called at any time,
// before, while and after Run runs, and only Run waits for the network.
type Cluster struct {
	cfg    Config
	timing timing

	store       *store
	conn        *connection
	translation *translation
	out         *outbox
	file        *snapshotFile
	events      *eventWriter

	noted chan struct{} // notes differ
	mu    sync.Mutex
	notes []lb.Note // by Report
}

// New returns a Cluster. It reads nothing: Run does, and retries what can't be read,
// which Status reports.
func New(cfg Config, log *slog.Logger) *Cluster {
	log = log.With("cluster", cfg.Name)
	c := &Cluster{cfg: cfg, timing: defaultTiming.faster(hurry), events: newEventWriter(cfg), noted: make(chan struct{}, 1)}
	c.store = newStore(&c.cfg, most)
	c.out = newOutbox(&c.cfg, c.store.notify)
	unsaved := make(chan struct{}, 1)
	c.conn = &connection{
		cfg: &c.cfg, log: log, timing: &c.timing, store: c.store, unsaved: unsaved,
		use: c.events.use, problems: c.out.problems, since: time.Now(),
	}
	for _, r := range c.cfg.resources() {
		for _, ns := range cfg.scopes(r) {
			c.conn.feeds = append(c.conn.feeds, &feed{
				resource: r, namespace: ns, sink: c.store, limit: most, changed: c.conn.feedChanged, versions: map[key]uint64{},
			})
		}
	}
	c.translation = &translation{
		cfg: &c.cfg, log: log, timing: &c.timing, store: c.store, conn: c.conn, out: c.out,
		unsaved: unsaved, synced: func() { signal(c.noted) }, usage: newUsage(cfg.budget()),
	}
	c.file = &snapshotFile{cfg: &c.cfg, log: log, timing: &c.timing, store: c.store, conn: c.conn, out: c.out, unsaved: unsaved}
	return c
}

// scopes returns the namespaces in which a resource is watched, each with a watch of its
// own; "" is all of them.
func (c *Config) scopes(r resource) []string {
	if len(c.Namespaces) == 0 || r.name == "nodes" {
		return []string{""}
	}
	return c.Namespaces
}

// follows reports whether a namespace is followed.
func (c *Config) follows(namespace string) bool {
	return len(c.Namespaces) == 0 || slices.Contains(c.Namespaces, namespace)
}

// Changed receives a value when Take has something, or when NodePodCIDRs or NodeAddrs of
// Status, which concern the kernel, have changed.
func (c *Cluster) Changed() <-chan struct{} { return c.out.changes }

// Take returns all changes since the last Take as one Update; false is none. The first
// one is Synced, and so is the one that replaces the content of the snapshot.
// A late caller receives each Service once, so that a slow reader costs no memory.
//
// If the API server answers before the file is served, the content of the file comes
// first nevertheless, as an Update of its own, directly followed by that of the API
// server: the guard compares the two (lb.GuardOptions). Call Take until it returns false.
func (c *Cluster) Take() (lb.Update, bool) { return c.out.take() }

// Commit reports that the guard has checked everything that was taken, and the namespaces,
// sorted, in which it blocks some of it. The snapshot has only what was committed, as it is
// what the guard compares with after a restart.
func (c *Cluster) Commit(guarded []string) { c.out.commit(guarded) }

// Run follows the cluster until ctx ends. Status reports all errors of the cluster.
func (c *Cluster) Run(ctx context.Context) error {
	quietKlog()
	c.store.start()
	c.translation.saved = c.file.load()
	var tasks sync.WaitGroup
	tasks.Go(func() { c.conn.run(ctx) })
	tasks.Go(func() { c.events.run(ctx) })
	tasks.Go(func() { c.followNotes(ctx) })
	left := false
	tasks.Go(func() { left = c.file.run(ctx) })
	c.translation.run(ctx)
	tasks.Wait()
	c.file.finish(left)
	return nil
}

// Refuse replaces Config.Refused. It returns at once.
func (c *Cluster) Refuse(r Refused) {
	c.store.configure(func() bool {
		changed := !c.store.refused.equal(r)
		c.store.refused = r
		return changed
	})
}

// Provide replaces Config.Provided. It returns at once.
func (c *Cluster) Provide(p Provided) {
	c.store.configure(func() bool {
		changed := !c.store.provided.equal(p)
		c.store.provided = p
		return changed
	})
}

// Status is safe for concurrent use.
func (c *Cluster) Status() Status {
	s := Status{Name: c.cfg.Name}
	c.file.status(&s)
	c.out.status(&s)
	c.conn.status(&s)
	s.Events, s.EventsError = c.events.state()
	return s
}

// complete returns an error unless the known Services are all Services of the cluster, so
// that one which is missing is deleted.
func (c *Cluster) complete() error {
	c.conn.mu.Lock()
	watching, problem := c.conn.watching(), c.conn.problem()
	c.conn.mu.Unlock()
	switch {
	case watching:
		return c.out.complete()
	case problem != "":
		return errors.New(problem)
	}
	return errNotRead
}

// connected reports whether all watches are open.
func (c *Cluster) connected() bool {
	c.conn.mu.Lock()
	defer c.conn.mu.Unlock()
	return c.conn.connected
}

// Report writes Events for the Notes about this cluster's Services: once for each, and
// again when its text changes. It returns at once.
func (c *Cluster) Report(notes []lb.Note) {
	c.mu.Lock()
	c.notes = slices.Clone(notes)
	c.mu.Unlock()
	signal(c.noted)
}

// followNotes queues Events after a Report, and after the API server has reported all Services, until
// ctx ends. It waits for translations.
func (c *Cluster) followNotes(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-c.noted:
			c.queueEvents()
		}
	}
}

// queueEvents queues the Notes about Services that the API server has reported. The others
// follow when it has.
func (c *Cluster) queueEvents() {
	if !c.cfg.Events {
		return
	}
	c.mu.Lock()
	notes := c.notes // Report replaces it
	c.mu.Unlock()
	keys := make([]key, len(notes))
	for i, n := range notes {
		keys[i] = key{n.Service.Namespace, n.Service.Name}
	}
	uids := c.store.uids(keys)
	var about []subject
	for i, n := range notes {
		if uid, ok := uids[keys[i]]; ok && n.Service.Source == c.cfg.Name && !byProvider(n.Reason) {
			about = append(about, subject{key: keys[i], uid: uid, reason: n.Reason, text: forTenant(n.Text, n.Service)})
		}
	}
	// A Service has one Event in a while, and may have many annotations: what is not served comes first.
	slices.SortStableFunc(about, func(a, b subject) int { return cmp.Compare(turn(a.reason), turn(b.reason)) })
	c.events.set(about)
}

// turn is the place of a reason among the Events about a Service: the lowest is the first.
func turn(r lb.Reason) int {
	if r == lb.AnnotationRefused {
		return 1
	}
	return 0
}
