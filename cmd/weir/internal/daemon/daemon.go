package daemon

import (
	"context"
	"errors"
	"os"
	"time"

	"golang.org/x/sync/errgroup"

	"weir/bgp/advertise"
	"weir/cmd/weir/internal/api"
	"weir/cmd/weir/internal/eventlog"
	"weir/cmd/weir/internal/hooks"
	"weir/cmd/weir/internal/kernelmode"
	"weir/cmd/weir/internal/rollback"
	"weir/cmd/weir/internal/supervise"
	"weir/lb"
)

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
	b.hooks = hooks.New(opts.Log, cfg.Hooks, b.metrics.Hooked)
	kernelmode.WarnTunnels(cfg, mode, opts.Log)
	if err := b.target.timeouts.Set(ctx, kernel, mode, cfg, opts.Log); err != nil {
		return errors.Join(err, socket.Close(), api.Close(sites))
	}
	defer b.hooks.Start(ctx, lately, b.published.status)() // it gets the last events, of b.stop
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
	tasks.Go(func() error { return b.loop(life, ctx) })
	err = tasks.Wait()
	b.sources.clusters.Stop()
	b.steering.fleet.Stop()
	b.sources.probes.Close()
	b.stop()
	return err
}

// stop leaves the kernel unchanged, except with daemon.on_stop = "cleanup". Routers keep the routes, or lose them before the
// kernel ceases to serve.
func (b *box) stop() {
	if b.shutdown.cleansUp {
		supervise.ExtendTimeout(cleanupTimeout + extension)
	}
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

// cleanupTimeout needs an extension: a drain may have used up TimeoutStopSec.
const cleanupTimeout = time.Minute
