package daemon

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"weir/cmd/weir/internal/addresses"
	"weir/cmd/weir/internal/config"
	"weir/cmd/weir/internal/drain"
	"weir/cmd/weir/internal/kernelmode"
	"weir/cmd/weir/internal/kube"
	"weir/cmd/weir/internal/membership"
	"weir/cmd/weir/internal/metrics"
	"weir/cmd/weir/internal/program"
	"weir/cmd/weir/internal/query"
	"weir/cmd/weir/internal/status"
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

// box is a running daemon: its parts, and the loop that calls them.
type box struct {
	*telemetry
	opts      Options
	calls     supervise.Calls
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
	b := &box{telemetry: shared, opts: opts, calls: make(supervise.Calls), events: kernelmode.NewEvents(), watchdog: supervise.NewWatchdog(), inForce: &inForce{file: opts.ConfigFile, loaded: now}}
	b.target = &target{telemetry: shared, kernel: kernel, mode: mode, cfg: cfg, vips: linux.NewVIPDialer(cfg.Kernel.Mark()), watchdog: b.watchdog}
	done := &progress{started: now}
	b.steering = &steering{telemetry: shared, target: b.target, progress: done}
	b.target.withdraw = b.steering.withdraw
	b.published = &published{target: b.target, steering: b.steering, watchdog: b.watchdog}
	b.sources = &sources{telemetry: shared, target: b.target, steering: b.steering, latency: kube.Latency{Since: now}}
	b.passes = &passes{
		telemetry: shared, version: opts.Version, kernelEvents: b.events, target: b.target, progress: done, steering: b.steering,
		sources: b.sources, inForce: b.inForce, published: b.published,
		counter: supervise.NewDrainCounter(opts.Log, kernel, func(d time.Duration) { b.metrics.CountedDrains(d) }),
		auditor: supervise.NewAuditor(opts.Log, kernel),
	}
	b.reloads = &reloads{telemetry: shared, calls: b.calls, wanted: make(chan request), inForce: b.inForce, target: b.target, passes: b.passes, apply: b.apply}
	b.answers = newAnswers(b)
	b.commands = &commands{
		telemetry: shared, calls: b.calls, target: b.target, steering: b.steering, sources: b.sources, passes: b.passes, answers: b.answers, reloads: b.reloads,
	}
	b.metrics = metrics.New(b.answers.sample)
	b.metrics.PerBackend(cfg.Daemon.MetricsBackends)
	return b
}

// newBox returns a box that has published its first view.
func newBox(opts Options, cfg *config.Config, kernel *linux.Kernel, mode kernelmode.Mode) *box {
	b := assemble(opts, cfg, kernel, mode)
	b.target.checks = health.New(health.Options{Logger: opts.Log, VIPs: b.target.vips, Run: program.Client{Socket: program.Socket}.Check})
	b.target.rec = lb.NewReconciler(b.watchdog.Paced(kernel), b.target.options(cfg, kernelmode.Node{}), kernelmode.Sources(cfg)...)
	b.sources.clusters = kube.New(opts.Log)
	b.sources.probes = kube.NewHealthPorts(opts.Log, b.published.isHealthy)
	b.sources.pools = addresses.New(cfg.Addresses, opts.Log, addresses.Provider)
	b.steering.drains = drain.New(cfg.Daemon.StateDir, opts.Log)
	b.steering.announcer = b.steering.newAnnouncer(cfg, b.calls.Do, time.Now())
	member := membership.Options{
		Log: opts.Log, Version: opts.Version, Folder: filepath.Dir(cfg.Daemon.Socket), StateDir: cfg.Daemon.StateDir, Orders: kernel.Orders,
		Took: func(d time.Duration) { b.metrics.TookOver(d) }, WithoutIPVS: !mode.IPVS(),
	}
	if b.steering.announcer != nil {
		member.SessionUp = b.steering.announcer.SessionUp
	}
	b.steering.fleet = membership.New(member, time.Now())
	b.passes.publish()
	return b
}

func newAnswers(b *box) *answers {
	a := &answers{telemetry: b.telemetry, calls: b.calls, target: b.target, steering: b.steering, sources: b.sources, published: b.published}
	a.owned.Store(&query.Owners{})
	a.counters = query.NewCounters(func(ctx context.Context, each func(status.Frontend)) error {
		return query.EachService(ctx, a.target.kernel, a.owners(ctx), each)
	})
	return a
}
