package daemon

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sync/errgroup"

	"weir/bgp/advertise"
	"weir/cmd/weir/internal/addresses"
	"weir/cmd/weir/internal/api"
	"weir/cmd/weir/internal/config"
	"weir/cmd/weir/internal/drain"
	"weir/cmd/weir/internal/eventlog"
	"weir/cmd/weir/internal/kernelmode"
	"weir/cmd/weir/internal/kube"
	"weir/cmd/weir/internal/membership"
	"weir/cmd/weir/internal/metrics"
	"weir/cmd/weir/internal/rollback"
	"weir/cmd/weir/internal/supervise"
	"weir/lb"
	"weir/lb/health"
	"weir/lb/linux"
)

// Options are the arguments of weir run.
type Options struct {
	ConfigFile string
	Version    string
	Log        *slog.Logger
	// Level is that of Log; the configuration sets it.
	Level *slog.LevelVar
	// Reload makes the daemon reload its configuration.
	Reload <-chan os.Signal
	// Again ends the drain before a stop.
	Again <-chan os.Signal
}

// Run runs the daemon until ctx ends and the work of daemon.on_stop is done. It returns an error if the daemon can't
// start: a kernel without IPVS, a socket in use. Later errors are in the log, the status and the metrics.
func Run(ctx context.Context, begin rollback.Beginning, opts Options) error {
	cfg := begin.Config
	cfg.Services = lb.Compact(cfg.Services)
	opts.Level.Set(cfg.Daemon.LogLevel)
	lately := eventlog.New()
	opts.Log = lately.Wrap(opts.Log)
	begin.Warn(opts.Log)
	if err := os.MkdirAll(cfg.Daemon.StateDir, 0o755); err != nil { // systemd makes it, a start by hand has none
		opts.Log.Warn("daemon.state_dir not made", "error", err)
	}
	owner, err := kernelmode.Lock(kernelmode.LockFolder)
	if err != nil {
		return err
	}
	defer owner.Close() //nolint:errcheck // the process ends
	kernel, mode, err := kernelmode.Open(ctx, cfg, opts.Log)
	if err != nil {
		return err
	}
	defer kernel.Close()
	if err := kernelmode.RefuseKubeProxy(ctx, kernel); err != nil {
		return err
	}
	socket, err := api.ListenSocket(cfg.Daemon.Socket)
	if err != nil {
		return err
	}
	sites, err := api.ListenWeb(cfg.Daemon)
	if err != nil {
		return errors.Join(err, socket.Close())
	}
	b := newBox(opts, cfg, kernel, mode)
	b.reloads.begin(begin)
	b.answers.recent = lately
	if err := kernelmode.SetTimeouts(ctx, kernel, mode, kernelmode.Timeouts(cfg), opts.Log); err != nil {
		return errors.Join(err, socket.Close(), api.Close(sites))
	}
	life, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	tasks, life := errgroup.WithContext(life)
	tasks.Go(func() error { defer end(); b.awaitEnd(ctx, life); return nil })
	tasks.Go(func() error { return b.target.checks.Run(life) })
	tasks.Go(func() error { return kernel.Watch(life, b.events.Add) })
	tasks.Go(func() error { return api.Serve(life, socket, b.commands.handler(), 0) })
	for _, site := range sites {
		tasks.Go(func() error { return b.answers.web().Serve(life, site) })
	}
	tasks.Go(func() error { return b.reloads.run(life, opts.Reload) })
	tasks.Go(func() error { return b.sources.pools.Run(life) })
	tasks.Go(func() error { return b.passes.counter.Run(life) })
	tasks.Go(func() error { return b.passes.auditor.Run(life) })
	tasks.Go(func() error { return b.loop(life) })
	err = tasks.Wait()
	b.sources.clusters.Stop()
	b.steering.fleet.Stop()
	b.sources.probes.Close()
	b.stop()
	return err
}

// box is a running daemon: its parts, and the loop that calls them.
type box struct {
	*telemetry
	opts      Options
	calls     calls
	watchdog  *supervise.Watchdog
	events    *kernelmode.Events
	target    *target
	steering  *steering
	sources   *sources
	inForce   *inForce
	passes    *passes
	reloads   *reloads
	answers   *answers
	commands  *commands
	shutdown  shutdown // set when weir stops
	published *published
}

// assemble returns a box with its parts linked to each other. It lacks the Reconciler, and all that uses the network.
func assemble(opts Options, cfg *config.Config, kernel *linux.Kernel, mode kernelmode.Mode) *box {
	shared, now := &telemetry{log: opts.Log}, time.Now()
	b := &box{telemetry: shared, opts: opts, calls: make(chan func()), events: kernelmode.NewEvents(), watchdog: supervise.NewWatchdog()}
	b.inForce = &inForce{file: opts.ConfigFile, loaded: now}
	b.target = &target{telemetry: shared, kernel: kernel, mode: mode, cfg: cfg, watchdog: b.watchdog}
	done := &progress{started: now}
	b.steering = &steering{telemetry: shared, target: b.target, progress: done}
	b.target.withdraw = b.steering.withdraw
	b.published = &published{target: b.target, steering: b.steering, watchdog: b.watchdog}
	b.sources = &sources{telemetry: shared, target: b.target, steering: b.steering, latency: kube.Latency{Since: now}}
	b.passes = &passes{
		telemetry: shared, version: opts.Version, kernelEvents: b.events, target: b.target, progress: done, steering: b.steering,
		sources: b.sources, inForce: b.inForce, published: b.published, unsupported: kernelmode.Unsupported{},
		counter: supervise.NewDrainCounter(opts.Log, kernel, func(d time.Duration) { b.metrics.CountedDrains(d) }),
		auditor: supervise.NewAuditor(opts.Log, kernel),
	}
	b.reloads = &reloads{
		telemetry: shared, calls: b.calls, wanted: make(chan request), inForce: b.inForce, target: b.target, passes: b.passes, apply: b.apply,
	}
	b.answers = newAnswers(b)
	b.commands = &commands{
		telemetry: shared, calls: b.calls, target: b.target, steering: b.steering, sources: b.sources, passes: b.passes,
		answers: b.answers, reloads: b.reloads,
	}
	b.metrics = metrics.New(b.answers.sample)
	b.metrics.PerBackend(cfg.Daemon.MetricsBackends)
	return b
}

// newBox returns a box that has published its first view.
func newBox(opts Options, cfg *config.Config, kernel *linux.Kernel, mode kernelmode.Mode) *box {
	b := assemble(opts, cfg, kernel, mode)
	b.target.checks = health.New(health.Options{Logger: opts.Log})
	b.target.rec = lb.NewReconciler(b.watchdog.Paced(kernel), b.target.options(cfg, kernelmode.Node{}), kernelmode.Sources(cfg)...)
	b.sources.clusters = kube.New(opts.Log)
	b.sources.probes = kube.NewHealthPorts(opts.Log, b.published.isHealthy)
	b.sources.pools = addresses.New(cfg.Addresses, opts.Log, addresses.Provider)
	b.steering.drains = drain.New(cfg.Daemon.StateDir, opts.Log)
	b.steering.announcer = b.steering.newAnnouncer(cfg, b.calls.do, time.Now())
	member := membership.Options{
		Log: opts.Log, Version: opts.Version, Folder: filepath.Dir(cfg.Daemon.Socket), StateDir: cfg.Daemon.StateDir, Orders: kernel.Orders,
		Took: func(d time.Duration) { b.metrics.TookOver(d) },
	}
	if b.steering.announcer != nil {
		member.SessionUp = b.steering.announcer.SessionUp
	}
	b.steering.fleet = membership.New(member, time.Now())
	b.passes.publish()
	return b
}

// stop leaves the kernel unchanged, except with daemon.on_stop = "cleanup". Routers keep the routes, or lose them before the
// kernel ceases to serve.
func (b *box) stop() {
	if b.steering.announcer != nil {
		gone := b.shutdown.drains && b.steering.drains.All() == advertise.Drained // no router has a route any more
		b.steering.announcer.Close(b.shutdown.cleansUp || gone)
	}
	if !b.shutdown.cleansUp {
		b.log.Info("stopped", "kernel", "left as it is")
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), cleanupTimeout)
	defer cancel()
	rep, err := b.target.rec.Cleanup(ctx, time.Now())
	b.log.Info("stopped", "kernel", "cleaned up", "ops", len(rep.Ops), "error", errors.Join(append(rep.Errors, err)...))
}

// cleanupTimeout stays under systemd's default TimeoutStopSec of 90 s.
const cleanupTimeout = time.Minute
