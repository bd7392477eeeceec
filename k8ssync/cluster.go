package k8ssync

import (
	"context"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"weir/lb"
)

// Cluster follows one cluster. Make one with New. All methods may be called at any
// time, before, while and after Run runs, and none but Run waits for the network.
type Cluster struct {
	cfg     Config
	log     *slog.Logger
	timing  timing
	limit   amount
	feeds   []*feed
	changes chan struct{} // for whoever calls Take
	wake    chan struct{} // objects have changed
	unsaved chan struct{} // the last-known-good file is out of date
	told    *teller

	// in guards what the API server says. It is never taken while mu is held.
	in   sync.Mutex
	live *objects
	// turn counts how often changes of objects were taken, to be said.
	turn uint64
	// refused is Config.Refused, as of now; afresh tells that it has changed since
	// objects were translated.
	refused  Refused
	provided Provided // Config.Provided, likewise
	afresh   bool
	// tap is where a Provider hears of Services; nil is nowhere.
	tap atomic.Pointer[tap]
	// started is the wall clock's, to compare with that of objects.
	started time.Time

	// What follows belongs to the goroutine that translates.
	env   *env
	saved *objects // from the last-known-good file; nil once it does not matter
	late  bool     // the API server has had its time to answer
	from  *objects // what out was translated from
	real  real

	shot *shot // not written yet; it belongs to the goroutine that saves

	mu        sync.Mutex
	out       map[key]lb.Service // what is said; only the goroutine that translates writes it
	known     *lb.Update         // what the file says of the past, not taken yet
	pending   map[key]struct{}   // of out, or gone from it, and not taken yet
	whole     bool               // everything is pending
	triggered map[lb.ServiceID]time.Time
	notes     []lb.Note
	// The turns up to which changes have been said, taken and judged, and whether
	// something is held.
	said, taken, judged uint64
	held                bool
	status              Status
	// What is wrong at the moment, beside what is wrong with the feeds.
	credentials, meaning, stranger, excess error
	server                                 string
	// current is what is talked with; nil is nothing.
	current *lent
}

// timing is how patient a Cluster is. Tests are less so.
type timing struct {
	// poll is how often files with credentials are looked at.
	poll time.Duration
	// grace is how long the API server has, before the last-known-good file is
	// served instead. If it answers at once with an error, that is earlier.
	grace time.Duration
	// settle is how long the file waits after a change, saves how far apart it is
	// written, and refresh how old it becomes if nothing changes.
	settle, saves, refresh time.Duration
	// backoff is how long a broken feed waits at most, before jitter.
	backoff time.Duration
	silence silence
}

var patient = timing{
	poll: 5 * time.Second, grace: 2 * time.Second,
	settle: 5 * time.Second, saves: 30 * time.Second, refresh: time.Hour,
	backoff: 15 * time.Second,
	silence: usualSilence,
}

// hurry divides what a Cluster waits for, where the linker of a test has set it
// (-X weir/k8ssync.hurry=5): a test of the whole program has no other way to be
// impatient. What is released has none.
var hurry string

// faster divides timings by what hurry says. The grace of an API server stays: it
// is a limit for a slow machine, not a wait.
func (t timing) faster(hurry string) timing {
	n, err := strconv.Atoi(hurry)
	if err != nil || n < 2 {
		return t
	}
	for _, d := range []*time.Duration{
		&t.poll, &t.settle, &t.saves, &t.backoff, &t.silence.dial, &t.silence.idle, &t.silence.ping,
	} {
		*d /= time.Duration(n)
	}
	return t
}

// Changes are said at once after a pause, and at most every calm under a storm;
// when saying them takes long, weir rests restsFor times as long, up to weary, so
// that a storm in one cluster leaves time for the others.
const (
	calm     = 50 * time.Millisecond
	weary    = 250 * time.Millisecond
	restsFor = 4
)

// New makes a Cluster. It reads nothing yet; what can't be read later is for
// Status to say, while Run tries for ever.
func New(cfg Config, log *slog.Logger) *Cluster {
	c := &Cluster{
		cfg: cfg, log: log.With("cluster", cfg.Name), timing: patient.faster(hurry), limit: most,
		changes: make(chan struct{}, 1), wake: make(chan struct{}, 1), unsaved: make(chan struct{}, 1),
		told: newTeller(cfg), live: newObjects(most),
		real: real{most: maxClusterReal}, refused: cfg.Refused, provided: cfg.Provided, pending: map[key]struct{}{}, triggered: map[lb.ServiceID]time.Time{},
	}
	c.status = Status{Name: cfg.Name, Since: time.Now()}
	for _, r := range cfg.resources() {
		for _, ns := range cfg.scopes(r) {
			c.feeds = append(c.feeds, &feed{resource: r, cluster: c, namespace: ns, versions: map[key]uint64{}})
		}
	}
	return c
}

// scopes are the namespaces in which a resource is followed, each by itself; ""
// is all of them.
func (c Config) scopes(r resource) []string {
	if len(c.Namespaces) == 0 || r.name == "nodes" {
		return []string{""}
	}
	return c.Namespaces
}

// follows tells whether a namespace is followed.
func (c Config) follows(namespace string) bool {
	return len(c.Namespaces) == 0 || slices.Contains(c.Namespaces, namespace)
}

// Changed gets a value when Take has something, or Status says something else that
// matters to the kernel (NodePodCIDRs, NodeAddrs).
func (c *Cluster) Changed() <-chan struct{} { return c.changes }

// Take gives all that is new since the last Take, as one Update; false is nothing.
// The first one is Synced, and so is the one that replaces what came from the
// last-known-good file. However late it is taken, it holds each Service once, so
// that a slow reader costs no memory.
//
// If the API server answers before the file is served, what the file says is given
// first nevertheless, as an Update of its own with the API server's right behind it:
// a guard measures by it what is gone (lb.GuardOptions). Call until it gives false.
func (c *Cluster) Take() (lb.Update, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if known := c.known; known != nil {
		c.known = nil
		return *known, true
	}
	if !c.whole && len(c.pending) == 0 {
		return lb.Update{}, false
	}
	u := lb.Update{Source: c.cfg.Name, Synced: c.whole}
	keys := maps.Keys(c.pending)
	if c.whole {
		keys = maps.Keys(c.out)
	}
	for _, k := range slices.SortedFunc(keys, key.compare) {
		if s, ok := c.out[k]; ok {
			u.Put = append(u.Put, s)
		} else {
			u.Delete = append(u.Delete, serviceID(&c.cfg, k))
		}
	}
	if len(c.triggered) > 0 {
		u.Triggered = c.triggered
	}
	c.whole, c.pending, c.triggered = false, map[key]struct{}{}, map[lb.ServiceID]time.Time{}
	c.taken = c.said
	return u, true
}

// Judged tells that a guard has judged all that was taken, and whether it holds
// something of it. The last-known-good file waits for that: it is what the guard
// measures by after a restart, and so never has what has not been let through.
func (c *Cluster) Judged(held bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.judged != c.taken || c.held != held {
		c.judged, c.held = c.taken, held
		c.ring()
	}
}

// Run follows the cluster until ctx ends. Whatever is wrong with the cluster is
// for Status to say.
func (c *Cluster) Run(ctx context.Context) error {
	quietKlog()
	c.in.Lock()
	c.started = time.Now().Round(0)
	c.in.Unlock()
	var tasks sync.WaitGroup
	tasks.Go(func() { c.follow(ctx) })
	tasks.Go(func() { c.told.run(ctx) })
	left := false
	tasks.Go(func() { left = c.save(ctx) })
	c.translate(ctx)
	tasks.Wait()
	c.saveLast(left)
	return nil
}

// Status is how well weir knows a cluster.
type Status struct {
	Name string
	// Connected tells that watches are open, since when Since says; otherwise
	// Since is when they broke.
	Connected bool
	Since     time.Time
	// Error is what is wrong: why it is not connected, or objects are missing, or
	// new credentials can't be used.
	Error string
	// Heard is when the API server last said something; of a box that serves from
	// its last-known-good file, when that was written. It says nothing for up to
	// three minutes if nothing changes.
	Heard time.Time
	// Stale tells that what is served comes from the last-known-good file.
	Stale bool
	// Synced tells that the cluster has been read whole, from either.
	Synced bool
	// Objects are counts of what is followed, by kind: services, endpointslices,
	// nodes.
	Objects map[string]int
	// Endpoints is how many endpoints there are.
	Endpoints int
	// Relists counts how often a whole list was read.
	Relists uint64
	// NodePodCIDRs are those of the box's own Node, NodeAddrs its primary
	// addresses: the first of each family, internal ones before external ones.
	NodePodCIDRs []netip.Prefix
	NodeAddrs    []netip.Addr
	// NodeLeaving tells that the box's own Node is being deleted, or about to be by
	// the cluster autoscaler.
	NodeLeaving bool
	// SnapshotError is why the last-known-good file can't be read or written.
	SnapshotError string
	// Events counts Events written; EventsError is why they can't be.
	Events      uint64
	EventsError string
}

// Status is safe for concurrent use.
func (c *Cluster) Status() Status {
	c.mu.Lock()
	s := c.status
	s.Error = c.wrong()
	s.Objects = maps.Clone(s.Objects)
	c.mu.Unlock()
	s.Events, s.EventsError = c.told.state()
	return s
}

// Report writes Events for the Notes about this cluster's Services: once for each,
// and again when it says something else. It returns at once.
func (c *Cluster) Report(notes []lb.Note) {
	c.mu.Lock()
	c.notes = slices.Clone(notes)
	c.mu.Unlock()
	c.tell()
}

// tell has the Notes written that are about Services which the API server has told
// of; the others' turn comes when it has.
func (c *Cluster) tell() {
	if !c.cfg.Events {
		return
	}
	c.mu.Lock()
	notes := c.notes
	c.mu.Unlock()
	var about []subject
	c.in.Lock()
	for _, n := range notes {
		k := key{n.Service.Namespace, n.Service.Name}
		if s := c.live.services[k]; s != nil && n.Service.Source == c.cfg.Name && !providers(n.Reason) {
			about = append(about, subject{key: k, uid: s.UID, reason: n.Reason, text: n.Text})
		}
	}
	c.in.Unlock()
	c.told.set(about)
}
