package daemon

import (
	"context"
	"fmt"
	"log/slog"
	"reflect"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"weir/k8ssync"
	"weir/lb"
)

// kubernetes follows one cluster: a k8ssync.Cluster, or a test's.
type kubernetes interface {
	Run(ctx context.Context) error
	// Changed has something when Take has, or Status says something else that
	// matters to the kernel; Take gives what is new since the last time, the first
	// time all there is.
	Changed() <-chan struct{}
	Take() (lb.Update, bool)
	Status() k8ssync.Status
	// Judged tells that what was taken has been judged, and whether something of
	// it is held.
	Judged(held bool)
	// Refuse replaces the addresses that no VIP may have.
	Refuse(r k8ssync.Refused)
	// Provide replaces the addresses that weir gives to the cluster's Services.
	Provide(p k8ssync.Provided)
	// Report tells all Notes about the cluster's Services; it returns at once.
	Report(notes []lb.Note)
}

// clusters are those that the daemon follows, each in a goroutine of its own:
// one that is slow, away or full of nonsense delays and harms no other, and one
// that panics is followed anew, by itself.
//
// The loop owns it. What others read of it, they read from the view.
type clusters struct {
	follow func(k8ssync.Config, *slog.Logger) kubernetes
	log    *slog.Logger
	signal chan struct{} // some cluster has something
	wait   sync.WaitGroup
	all    map[string]*followed
}

func newClusters(log *slog.Logger) *clusters {
	return &clusters{
		follow: func(c k8ssync.Config, log *slog.Logger) kubernetes { return k8ssync.New(c, log) },
		log:    log,
		signal: make(chan struct{}, 1),
		all:    map[string]*followed{},
	}
}

// followed is one cluster and the goroutine that follows it.
type followed struct {
	stop   context.CancelFunc
	done   chan struct{} // closed when its goroutine has ended
	told   []lb.Note     // by Report
	toldTo kubernetes
	// reloaded tells that the operator has changed the block, and the cluster has
	// said nothing since.
	reloaded bool

	mu      sync.Mutex
	cfg     k8ssync.Config // only the loop changes it
	current kubernetes
	trouble string // why it is being followed anew
	panics  uint64
}

// set makes the clusters those of a configuration. Those that are as before go
// on; one that differs begins anew, with its Services as they are until it has
// read the cluster again.
func (c *clusters) set(ctx context.Context, wanted []k8ssync.Config) {
	for name, f := range c.all {
		if !slices.ContainsFunc(wanted, func(w k8ssync.Config) bool { return w.Name == name }) {
			f.stop()
			delete(c.all, name)
			c.log.Info("a cluster is followed no longer", "cluster", name)
		}
	}
	for _, w := range wanted {
		old := c.all[w.Name]
		if old != nil && old.goesOn(w) {
			continue
		}
		c.all[w.Name] = c.begin(ctx, w, old)
	}
}

// goesOn tells whether a cluster goes on with a configuration: it differs at most
// in what may change at any time.
func (f *followed) goesOn(wanted k8ssync.Config) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	was, will := f.cfg, wanted
	was.Refused, will.Refused = k8ssync.Refused{}, k8ssync.Refused{}
	was.Provided, will.Provided = k8ssync.Provided{}, k8ssync.Provided{}
	if !reflect.DeepEqual(was, will) {
		return false
	}
	f.cfg = wanted
	f.current.Refuse(wanted.Refused)
	f.current.Provide(wanted.Provided)
	return true
}

// begin follows a cluster, after old has ended: both would write one file.
func (c *clusters) begin(ctx context.Context, cfg k8ssync.Config, old *followed) *followed {
	ctx, stop := context.WithCancel(ctx)
	f := &followed{cfg: cfg, stop: stop, done: make(chan struct{})}
	f.current = c.follow(cfg, c.log)
	if old != nil {
		f.panics, f.reloaded = old.panics, true
		old.stop()
	}
	c.wait.Go(func() {
		defer close(f.done)
		if old != nil {
			<-old.done
		}
		f.run(ctx, c, c.log.With("cluster", cfg.Name))
	})
	return f
}

const (
	// panicPause is how long a cluster rests after a panic, at first; each one
	// that follows soon doubles it.
	panicPause    = time.Second
	panicPauseMax = 5 * time.Minute
)

// run follows the cluster until ctx ends, again and again if need be.
func (f *followed) run(ctx context.Context, c *clusters, log *slog.Logger) {
	pause := panicPause
	for {
		begin := time.Now()
		err := f.once(ctx, c, log)
		if ctx.Err() != nil {
			return
		}
		if time.Since(begin) > panicPauseMax {
			pause = panicPause
		}
		log.Error("following the cluster has failed; what it said last stands, and it is followed anew", "error", err, "in", pause)
		f.failed(err)
		c.wake()
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
		pause = min(2*pause, panicPauseMax)
		f.renew(c)
	}
}

// once runs the cluster as it is now, and turns its panic into an error.
func (f *followed) once(ctx context.Context, c *clusters, log *slog.Logger) (err error) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	now := f.now()
	go func() {
		for {
			select {
			case <-ctx.Done():
				return
			case <-now.Changed():
				c.wake()
			}
		}
	}()
	defer func() {
		if p := recover(); p != nil {
			log.Error("panic", "value", fmt.Sprint(p), "stack", string(debug.Stack()))
			f.panicked()
			err = fmt.Errorf("panic: %v", p)
		}
	}()
	if err := now.Run(ctx); err != nil {
		return err
	}
	return fmt.Errorf("it ended by itself")
}

func (c *clusters) wake() {
	select {
	case c.signal <- struct{}{}:
	default:
	}
}

func (f *followed) now() kubernetes {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.current
}

func (f *followed) renew(c *clusters) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.current, f.trouble = c.follow(f.cfg, c.log), ""
}

func (f *followed) failed(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.trouble = err.Error()
}

func (f *followed) panicked() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.panics++
}

// status is what the cluster says of itself, or why it can't.
func (f *followed) status() (k8ssync.Status, uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	s := f.current.Status()
	if f.trouble != "" {
		s.Connected, s.Error = false, f.trouble
	}
	return s, f.panics
}

// names gives the clusters, sorted.
func (c *clusters) names() []string {
	out := make([]string, 0, len(c.all))
	for name := range c.all {
		out = append(out, name)
	}
	slices.Sort(out)
	return out
}

// take gives what the clusters have to say.
func (c *clusters) take() []lb.Update {
	var out []lb.Update
	for _, name := range c.names() {
		f := c.all[name].now()
		for u, some := f.Take(); some; u, some = f.Take() {
			u.Source = name
			out = append(out, u)
		}
	}
	return out
}

// takeReloaded tells whether what a cluster says now is the first since the
// operator changed its block: what it takes away is what the operator asked for,
// and no guard's business. With a last-known-good file it is that, read with the
// new block; what the cluster itself has lost meanwhile comes after it.
func (c *clusters) takeReloaded(name string) bool {
	f := c.all[name]
	was := f.reloaded
	f.reloaded = false
	return was
}

// judged tells the clusters that what they said has been judged, and whose is held.
func (c *clusters) judged(held []lb.Hold) {
	for name, f := range c.all {
		f.now().Judged(slices.ContainsFunc(held, func(h lb.Hold) bool { return h.Source == name }))
	}
}

// report tells each cluster the Notes about its Services, if they are others than
// the last time.
func (c *clusters) report(notes []lb.Note) {
	of := map[string][]lb.Note{}
	for _, n := range notes {
		if c.all[n.Service.Source] != nil {
			of[n.Service.Source] = append(of[n.Service.Source], n)
		}
	}
	for name, f := range c.all {
		now := f.now()
		if now != f.toldTo {
			f.told, f.toldTo = nil, now
		}
		if !slices.Equal(of[name], f.told) {
			f.told = of[name]
			now.Report(f.told)
		}
	}
}

// stop ends all of them and waits.
func (c *clusters) stop() {
	for _, f := range c.all {
		f.stop()
	}
	c.wait.Wait()
}
