package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"weir/bgp"
	"weir/cmd/weir/internal/config"
	"weir/k8ssync"
	"weir/lb"
	"weir/lb/health"
	"weir/lb/linux"
)

// Options are what weir run was called with.
type Options struct {
	ConfigFile string
	Version    string
	Log        *slog.Logger
	// Level is that of Log; the configuration sets it.
	Level *slog.LevelVar
	// Reload makes the daemon load its configuration again.
	Reload <-chan os.Signal
	// Again says, while the daemon drains before it ends, that it is enough.
	Again <-chan os.Signal
}

// Run runs the daemon until ctx ends and what daemon.on_stop wants then is done, at first
// with what Begin gave for opts.ConfigFile. It returns an error when it can't begin: a kernel without
// IPVS, a socket in use. What goes wrong later is for the log, the status and
// the metrics.
func Run(ctx context.Context, begin Beginning, opts Options) error {
	cfg := begin.Config
	opts.Level.Set(cfg.Daemon.LogLevel)
	lately := newRecent()
	opts.Log = lately.keep(opts.Log)
	for _, w := range cfg.Warnings {
		opts.Log.Warn("configuration", "problem", w.String())
	}
	owner, err := Own()
	if err != nil {
		return err
	}
	defer owner.Close() //nolint:errcheck // the process ends
	kernel, mode, err := OpenKernel(ctx, cfg, opts.Log)
	if err != nil {
		return err
	}
	defer kernel.Close()
	if err := RefuseKubeProxy(ctx, kernel); err != nil {
		return err
	}
	api, err := listenAPI(cfg.Daemon.Socket)
	if err != nil {
		return err
	}
	web, err := listenWeb(cfg.Daemon.Listen)
	if err != nil {
		return errors.Join(err, api.Close())
	}
	b := newBox(opts, cfg, kernel, mode)
	b.begin(begin)
	b.recent = lately
	if err := setTimeouts(ctx, kernel, mode, timeouts(cfg), opts.Log); err != nil {
		return errors.Join(err, api.Close()) // web ends with the process
	}
	life, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	tasks, life := errgroup.WithContext(life)
	tasks.Go(func() error { defer end(); b.awaitEnd(ctx, life); return nil })
	tasks.Go(func() error { return b.checks.Run(life) })
	tasks.Go(func() error { return kernel.Watch(life, b.events.add) })
	tasks.Go(func() error { return serve(life, api, &http.Server{Handler: b.apiHandler()}) })
	if web != nil {
		tasks.Go(func() error { return serve(life, web, newWebServer(b.webHandler())) })
	}
	tasks.Go(func() error { return b.reloads(life, opts.Reload) })
	tasks.Go(func() error { return provide(life, b.toGive, b.provider, b.log) })
	tasks.Go(func() error { return b.loop(life) })
	err = tasks.Wait()
	b.clusters.stop()
	b.fleet.stop()
	b.probes.closeAll()
	b.stop()
	return err
}

// KernelConfig is the part of a configuration that lb/linux is made with.
func KernelConfig(cfg *config.Config, m Mode, log *slog.Logger) linux.Config {
	k := cfg.Kernel
	out := linux.Config{
		Mode: m.Use, Prefix: k.NamePrefix, Device: k.Device, Mark: k.Mark(),
		MasqueradeAll: k.MasqueradeAll, ClusterCIDRs: k.ClusterCIDRs, Ping: k.Ping,
		Iptables: linux.Backend(k.IPTables), Families: k.Families, Logger: log,
		Sources: k.MasqueradeSource, SloppyTCP: k.SloppyTCP, Sync: cfg.Sync() != nil,
	}
	switch k.DetectLocal {
	case config.BridgeInterface:
		out.LocalInterfaces = []string{k.BridgeInterface}
	case config.InterfacePrefix:
		out.LocalInterfaces = []string{k.InterfacePrefix + "+"}
	}
	for _, s := range Base(cfg, m).Sysctls {
		out.Sysctls = append(out.Sysctls, s.Name)
	}
	return out
}

// timeouts are IPVS's, as a configuration wants them; 0 leaves what the kernel has.
func timeouts(cfg *config.Config) linux.Timeouts {
	seconds := func(d time.Duration) uint32 { return uint32(d / time.Second) }
	return linux.Timeouts{
		TCP: seconds(cfg.Kernel.TCPTimeout), TCPFin: seconds(cfg.Kernel.TCPFinTimeout), UDP: seconds(cfg.Kernel.UDPTimeout),
	}
}

// LBOptions is the part of a configuration that an lb.Reconciler is made with.
func LBOptions(cfg *config.Config, m Mode) lb.Options {
	return lb.Options{
		Base:         Base(cfg, m),
		Exclude:      cfg.Kernel.ExcludeCIDRs,
		Pools:        cfg.Kernel.Pools,
		NodePortNets: cfg.Kernel.NodePortNets,
		Drain:        cfg.Defaults.Drain,
		Guards:       guards(cfg),
	}
}

// Sources are those of a configuration's Services: its files, and its clusters.
func Sources(cfg *config.Config) []string {
	out := []string{config.Source}
	for _, c := range cfg.Clusters {
		out = append(out, c.Name)
	}
	return out
}

// box is a running daemon.
type box struct {
	opts    Options
	log     *slog.Logger
	kernel  *linux.Kernel
	mode    Mode
	checks  *health.Checker
	probes  *healthPorts
	events  events
	calls   chan func() // run by the loop
	wanted  chan wish   // what reloads is asked to do
	metrics *metrics
	recent  *recent
	started time.Time

	// What follows belongs to the loop.
	cfg       *config.Config
	next      *candidate   // that of a reload under way
	copy      *config.Copy // of cfg
	trial     trial        // changed by reloads alone
	loaded    time.Time
	rec       *lb.Reconciler
	watchdog  *watchdog
	clusters  *clusters
	announcer *announcer // nil without [bgp]
	fleet     *fleet
	drainer   drainer
	farewell  farewell // once weir is told to end
	provider  provider
	provided  provided
	identity  string                      // of the provider
	lent      map[string]*k8ssync.Cluster // to the provider
	toGive    chan struct{}               // closed when there are addresses to give
	pooled    bool                        // it is
	node      node                        // what the own Node says
	other     other
	cant      unsupported
	triggers  []trigger // changes of clusters that the kernel does not hold yet
	causes    causes    // of the next pass
	holds     []lb.Hold // as of the last pass
	noted     noted     // likewise
	released  string    // the source that somebody has just released
	ready     bool
	audits    schedule
	lastPass  time.Time
	reloadErr error // why the last reload was refused
	waiting   int   // deletions that wait for a source
	held      tally // what the kernel holds
	changed   bool  // what is held must be looked through again
	moved     bool  // so must whose the frontends are
	again     bool  // the last pass has found work for another one
	drift     uint64
	// unreachable are the prefixes that the kernel refuses what nobody serves of.
	unreachable []netip.Prefix
	stirred     time.Time // when that began which the next pass is about; zero if nothing

	published atomic.Pointer[view]
	told      atomic.Pointer[told]
	glanced   atomic.Pointer[glance]
	owned     atomic.Pointer[Owners]
	counted   *lastTraffic
}

func newBox(opts Options, cfg *config.Config, kernel *linux.Kernel, mode Mode) *box {
	w := newWatchdog()
	b := &box{
		opts: opts, log: opts.Log, kernel: kernel, mode: mode, cfg: cfg,
		calls:   make(chan func()),
		wanted:  make(chan wish),
		events:  events{signal: make(chan struct{}, 1)},
		started: time.Now(), loaded: time.Now(),
		watchdog: w,
		rec:      lb.NewReconciler(paced{kernel, w}, lbOptions(cfg, mode, node{}), Sources(cfg)...),
		checks:   health.New(health.Options{Logger: opts.Log}),
		clusters: newClusters(opts.Log),
		cant:     unsupported{},
		counted:  newLastTraffic(),
	}
	b.probes = newHealthPorts(opts.Log, b.isHealthy)
	b.owned.Store(&Owners{})
	b.told.Store(&told{})
	b.drainer = newDrainer(cfg.Daemon.StateDir, opts.Log)
	b.announcer = newRoutes(cfg, opts.Log, time.Now())
	b.fleet = newFleet(opts.Log, opts.Version, filepath.Dir(cfg.Daemon.Socket), time.Now())
	b.fleet.orders = kernel.Orders
	b.identity, b.toGive = identity(), make(chan struct{})
	b.provider = k8ssync.NewProvider(b.providerConfig(cfg), opts.Log)
	b.pool(cfg)
	b.rec.Configure(b.lbOptions(cfg, node{}))
	b.metrics = newMetrics(b)
	b.fleet.answer.took = func(d time.Duration) { b.metrics.takeovers.Observe(d.Seconds()) }
	if b.announcer != nil {
		b.announcer.measure = b.measureAnnouncing
		b.fleet.signs.heard = b.announcer.speaker.Heard
	}
	b.publish()
	return b
}

// stop leaves the kernel as it is, unless told otherwise. Routers keep the routes, or
// have none before the kernel serves nobody.
func (b *box) stop() {
	if b.announcer != nil {
		gone := b.farewell.drains && b.drainer.all() == bgp.Drained // no router has a route any more
		b.announcer.close(b.farewell.cleansUp || gone)
	}
	if !b.farewell.cleansUp {
		b.log.Info("stopped", "kernel", "left as it is")
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), cleanupTimeout)
	defer cancel()
	rep, err := b.rec.Cleanup(ctx, time.Now())
	b.log.Info("stopped", "kernel", "cleaned up", "ops", len(rep.Ops), "error", errors.Join(append(rep.Errors, err)...))
}

// cleanupTimeout stays under systemd's default TimeoutStopSec of 90 s.
const cleanupTimeout = time.Minute

// do has the loop run f, and waits for it.
func (b *box) do(ctx context.Context, f func()) error {
	done := make(chan struct{})
	select {
	case b.calls <- func() { defer close(done); f() }:
	case <-ctx.Done():
		return fmt.Errorf("weir is busy: %w", ctx.Err())
	}
	<-done
	return nil
}

// events are what the kernel watch saw and the loop has not looked at yet. Only
// what is lost grows, and that is bounded by what weir holds.
type events struct {
	signal chan struct{}
	mu     sync.Mutex
	lost   map[lb.Object]struct{}
	host   bool
	what   string
}

func (e *events) add(ev lb.Event) {
	e.mu.Lock()
	if e.lost == nil {
		e.lost = map[lb.Object]struct{}{}
	}
	for _, id := range ev.Lost {
		e.lost[id] = struct{}{}
	}
	e.host = e.host || ev.Host
	e.what = ev.What
	e.mu.Unlock()
	select {
	case e.signal <- struct{}{}:
	default:
	}
}

// take gives all events as one.
func (e *events) take() lb.Event {
	e.mu.Lock()
	defer e.mu.Unlock()
	ev := lb.Event{Host: e.host, What: e.what}
	for id := range e.lost {
		ev.Lost = append(ev.Lost, id)
	}
	e.lost, e.host, e.what = nil, false, ""
	return ev
}
