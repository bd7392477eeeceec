package daemon

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"reflect"
	"slices"
	"strings"
	"time"

	"weir/cmd/weir/internal/config"
	"weir/lb"
	"weir/lb/health"
)

// errStopped is for those who wait for what will not be done any more.
var errStopped = errors.New("weir stops")

// reloads reloads whenever a signal or the API says so, and goes back when a trial is
// over: one after the other.
func (b *box) reloads(ctx context.Context, signals <-chan os.Signal) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		timer.Reset(b.trial.left(time.Now())) // nobody else changes the trial
		select {
		case <-ctx.Done():
			return nil
		case <-signals:
			_ = b.reload(ctx, 0) // logged, published and counted
		case w := <-b.wanted:
			w.done <- w.do(ctx)
		case <-timer.C:
			if b.trial.on() {
				_ = b.goBack(ctx, b.trial.unconfirmed())
			}
		}
	}
}

// wish is what somebody wants reloads to do, and waits for.
type wish struct {
	do   func(context.Context) error
	done chan error
}

// askFor has reloads do something, and waits until it is done.
func (b *box) askFor(ctx context.Context, do func(context.Context) error) error {
	w := wish{do, make(chan error, 1)}
	select {
	case b.wanted <- w:
	case <-ctx.Done():
		return fmt.Errorf("weir is busy: %w", ctx.Err())
	}
	select {
	case err := <-w.done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// reload loads the configuration again: for good, or on trial for so long. An invalid one
// changes nothing.
//
// Between reading it and bringing it into force is the time in which backends
// that nobody has asked yet get their first verdicts: until then everything goes
// on as before, or clients of a Service whose backends are all new ones would
// find nobody. The loop works on meanwhile.
func (b *box) reload(ctx context.Context, within time.Duration) error {
	settle(ctx, b.opts.ConfigFile)
	err := errStopped
	_ = b.do(ctx, func() { err = b.prepare(within) })
	if err == nil {
		b.awaitVerdicts(ctx)
		err = errStopped
		_ = b.do(ctx, func() { err = b.enforce(ctx) })
	}
	return err
}

// prepare reads the configuration and begins with its checks.
func (b *box) prepare(within time.Duration) (err error) {
	notifyReloading()
	defer func() {
		if err != nil {
			b.reloaded(err)
		}
	}()
	cfg, copied, err := config.Open(b.opts.ConfigFile)
	if err != nil {
		return err
	}
	if err := restartNeeded(b.cfg, cfg); err != nil {
		return err
	}
	if (within > 0 || b.trial.on()) && cfg.Daemon.StateDir != b.cfg.Daemon.StateDir {
		return errors.New("daemon.state_dir can't change on trial: what is returned to is kept there")
	}
	b.next = &candidate{cfg, copied, within}
	b.checks.Set(checks(cfg, b.rec.Have()))
	return nil
}

// enforce brings the configuration that has been prepared into force. What is to be
// returned to is on the disk before.
func (b *box) enforce(ctx context.Context) (err error) {
	c := b.next
	b.next = nil
	defer func() {
		if err != nil {
			b.checks.Set(checks(b.cfg, b.rec.Have()))
		}
		b.reloaded(err)
	}()
	to, err := b.trial.load(*c, b.copy, b.loaded, time.Now())
	if err != nil {
		return err
	}
	dir := b.cfg.Daemon.StateDir
	if to.on() {
		if err := to.save(dir); err != nil {
			return fmt.Errorf("it is not tried, as what is in force can't be kept for a return: %w", err)
		}
	}
	if err := b.bring(ctx, c.cfg); err != nil {
		if to.on() {
			err = errors.Join(err, b.trial.save(dir))
		}
		return err
	}
	had := b.trial
	b.trial, b.copy = to, c.copy
	if to.on() {
		b.log.Warn("on trial", "until", to.Ends.Format(time.TimeOnly), "confirm_with", "weir confirm")
	} else if had.wentBack() {
		if err := to.save(dir); err != nil {
			b.log.Error("a restart would bring the old configuration back: its copy can't be removed", "error", err)
		}
	}
	return nil
}

// bring brings a configuration into force.
func (b *box) bring(ctx context.Context, cfg *config.Config) error {
	if t := timeouts(cfg); t != timeouts(b.cfg) {
		if err := setTimeouts(ctx, b.kernel, b.mode, t, b.log); err != nil {
			return err
		}
	}
	if err := b.configure(cfg, b.node); err != nil {
		return err
	}
	had := b.cfg.Fleet
	b.cfg, b.loaded, b.changed, b.moved = cfg, time.Now(), true, true
	b.opts.Level.Set(cfg.Daemon.LogLevel)
	b.drainer.move(cfg.Daemon.StateDir)
	if b.announcer != nil && cfg.BGP != nil { // that there is a [bgp] can't change
		b.announcer.configure(ctx, cfg.BGP, time.Now())
	}
	b.setFleet(had, time.Now())
	b.rec.Follow(Sources(cfg)...)
	b.provider.Configure(b.providerConfig(cfg))
	b.pool(cfg)
	b.clusters.set(ctx, b.followedOf(cfg))
	b.lend()
	b.rec.SetHealth(b.checks.Health())
	b.update(lb.Update{Source: config.Source, Put: cfg.Services, Synced: true})
	b.causes.add("the configuration")
	b.log.Info("configuration loaded", "file", b.opts.ConfigFile, "services", len(cfg.Services))
	b.audits.hasten(time.Now(), cfg.Kernel.SyncPeriod)
	b.pass(ctx, b.rec.Sync)
	return nil
}

// reloaded tells everybody how a reload ended.
func (b *box) reloaded(err error) {
	b.metrics.reloaded(err)
	b.reloadErr = err
	if err != nil {
		b.log.Error("configuration refused; the old one stays in force", "error", err)
	}
	b.tell()
}

// tell shows the box as it is after a reload.
func (b *box) tell() {
	b.publish()
	notify("READY=1\nSTATUS=" + b.status().Line())
}

func notifyReloading() {
	notify(fmt.Sprintf("RELOADING=1\nMONOTONIC_USEC=%d", monotonicMicros()))
}

// health is what the checks say of the Services as they are in force.
func (b *box) health() map[lb.ServiceID]lb.Health {
	if b.next == nil {
		return b.checks.Health()
	}
	return during(b.cfg, b.next.cfg, b.rec.Facts().Health, b.checks.Health())
}

// during is the health of Services while a reload waits: the checks are those of
// the new configuration already, and so say nothing of backends that it does not
// have. Services whose backends change keep the health that they had.
func during(running, next *config.Config, had, now map[lb.ServiceID]lb.Health) map[lb.ServiceID]lb.Health {
	ports := map[lb.ServiceID][]lb.Port{}
	for _, g := range next.Checks {
		ports[g.Service] = g.Ports
	}
	out := map[lb.ServiceID]lb.Health{}
	for _, g := range running.Checks {
		out[g.Service] = had[g.Service]
		if reflect.DeepEqual(g.Ports, ports[g.Service]) {
			out[g.Service] = now[g.Service]
		}
	}
	return out
}

// checks gives the checks of a configuration, with what a kernel that holds have
// says of who serves already.
func checks(cfg *config.Config, have lb.Snapshot) []health.Group {
	vips := map[lb.ServiceID][]lb.VIP{}
	for _, svc := range cfg.Services {
		vips[svc.ID] = svc.VIPs
	}
	out := slices.Clone(cfg.Checks)
	for i := range out {
		on := vips[out[i].Service]
		out[i].Serves = func(port lb.PortKey, backend netip.AddrPort) bool {
			return slices.ContainsFunc(on, func(vip lb.VIP) bool {
				f := lb.Frontend{Addr: vip.Addr, Port: port.Port, Proto: port.Proto}
				rs, ok := have[lb.RealServer{Frontend: f, Addr: backend}.ID()].(lb.RealServer)
				return ok && rs.Weight > 0
			})
		}
	}
	return out
}

// named are the keys by which weir knows in the kernel what is its own.
var named = []string{"kernel.name_prefix", "kernel.device", "kernel.families", "kernel.iptables"}

// restartNeeded refuses a configuration that differs in what a running daemon
// can't change.
func restartNeeded(running, wanted *config.Config) error {
	keys := config.RestartNeeded(running, wanted)
	if len(keys) == 0 {
		return nil
	}
	do := "systemctl restart weir, which loses no connection"
	if slices.ContainsFunc(keys, func(k string) bool { return slices.Contains(named, k) }) {
		do = "a restart would leave behind what bears the old ones. Put the old file back, stop weir, run weir cleanup, " +
			"which ends connections, and start weir with the new file"
	}
	return fmt.Errorf("%s can't change while weir runs: %s", strings.Join(keys, ", "), do)
}
