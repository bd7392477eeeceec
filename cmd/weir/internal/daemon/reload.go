package daemon

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"weir/cmd/weir/internal/config"
	"weir/cmd/weir/internal/config/load"
	"weir/cmd/weir/internal/rollback"
	"weir/cmd/weir/internal/status"
	"weir/cmd/weir/internal/supervise"
	"weir/lb"
)

// inForce is the configuration in force as its files, and its trial. The loop owns it; only reloads changes the trial.
type inForce struct {
	file   string
	copy   *load.Copy
	trial  rollback.Trial
	next   *rollback.Candidate // that of a reload under way
	loaded time.Time
	err    error // of the last reload
}

// status returns the status of the configuration.
func (f *inForce) status() status.Config {
	out := status.Config{File: f.file, Loaded: f.loaded, Error: status.ErrorText(f.err)}
	f.trial.Status(&out)
	return out
}

// reloads load configurations: for good, or on trial.
type reloads struct {
	*telemetry
	calls   supervise.Calls
	wanted  chan request
	inForce *inForce
	target  *target
	passes  *passes
	// apply brings a configuration into force.
	apply func(context.Context, *config.Config) error
}

// effective returns the configuration in force, with all defaults.
func (r *reloads) effective(ctx context.Context) (*load.Effective, error) {
	var in *load.Copy
	if err := r.calls.Ask(ctx, func() { in = r.inForce.copy }); err != nil {
		return nil, err
	}
	return in.Effective()
}

// errStopped is the result of a request that the end of weir interrupts.
var errStopped = errors.New("weir stops")

// run processes signals, requests of the API and the end of a trial, one after the other.
func (r *reloads) run(ctx context.Context, signals <-chan os.Signal) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		timer.Reset(r.inForce.trial.Left(time.Now())) // only this goroutine changes the trial
		select {
		case <-ctx.Done():
			return nil
		case <-signals:
			_ = r.reload(ctx, 0) // logged, published and counted
		case w := <-r.wanted:
			w.done <- w.do(ctx)
		case <-timer.C:
			if r.inForce.trial.On() {
				_ = r.goBack(ctx, r.inForce.trial.NotConfirmed())
			}
		}
	}
}

// request is a function for run, with its result.
type request struct {
	do   func(context.Context) error
	done chan error
}

// askFor runs a function in run, and waits for it.
func (r *reloads) askFor(ctx context.Context, do func(context.Context) error) error {
	w := request{do, make(chan error, 1)}
	select {
	case r.wanted <- w:
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

// reload loads the configuration: for good, or on trial for the time within. An invalid one changes nothing.
// New backends get their first results before the configuration comes into force. Otherwise a Service with only new
// backends would serve no client. The loop runs meanwhile.
func (r *reloads) reload(ctx context.Context, within time.Duration) error {
	supervise.NotifyReloading()
	supervise.AllowGarbage()
	cfg, copied, invalid := load.Open(ctx, r.inForce.file) // not in the loop: it waits for writers, and parses for long
	next := &rollback.Candidate{Config: cfg, Copy: copied, Within: within}
	err := errStopped
	_ = r.calls.Do(ctx, func() { err = r.prepare(next, invalid) })
	if err == nil {
		r.target.awaitChecks(ctx)
		err = errStopped
		_ = r.calls.Do(ctx, func() { err = r.enforce(ctx) })
	}
	return err
}

// prepare begins with the checks of a configuration that was read. It refuses one that is invalid, or needs a restart.
func (r *reloads) prepare(next *rollback.Candidate, invalid error) (err error) {
	defer func() {
		if err != nil {
			r.reloaded(err)
		}
	}()
	if invalid != nil {
		return status.Refusal(invalid)
	}
	if err := config.RefuseRestart(r.target.cfg, next.Config); err != nil {
		return status.Refusal(err)
	}
	if (next.Within > 0 || r.inForce.trial.On()) && next.Config.Daemon.StateDir != r.target.cfg.Daemon.StateDir {
		return status.Refusal(errors.New("daemon.state_dir can't change on trial: it stores the configuration for the rollback"))
	}
	r.inForce.next = next
	r.target.checks.Set(next.Config.ChecksWith(r.target.rec.Have()))
	return nil
}

// enforce brings the prepared configuration into force. The configuration to return to is on the disk before.
func (r *reloads) enforce(ctx context.Context) (err error) {
	c := r.inForce.next
	r.inForce.next = nil
	defer func() {
		if err != nil {
			r.target.checks.Set(r.target.cfg.ChecksWith(r.target.rec.Have()))
		}
		r.reloaded(err)
	}()
	to, err := r.inForce.trial.Load(*c, r.inForce.copy, r.inForce.loaded, time.Now())
	if err != nil {
		return status.Refusal(err)
	}
	dir := r.target.cfg.Daemon.StateDir
	if to.On() {
		if err := to.Save(dir); err != nil {
			return fmt.Errorf("not tried: the configuration to return to can't be saved: %w", err)
		}
	}
	if err := r.apply(ctx, c.Config); err != nil {
		if to.On() {
			err = errors.Join(err, r.inForce.trial.Save(dir))
		}
		return err
	}
	had := r.inForce.trial
	r.inForce.trial, r.inForce.copy = to, c.Copy
	if to.On() {
		r.log.Warn("configuration tried", "until", to.Ends.Format(time.TimeOnly), "confirm_with", "weir confirm")
	} else if had.RolledBack() {
		if err := to.Save(dir); err != nil {
			r.log.Error("trial file not removed", "error", err)
		}
	}
	return nil
}

// reloaded publishes the result of a reload.
func (r *reloads) reloaded(err error) {
	r.inForce.err = err
	if err != nil {
		r.log.Error("configuration refused; the old one stays in force", "error", err)
	}
	r.showReload()
}

// showReload publishes the box after a reload.
func (r *reloads) showReload() {
	r.passes.publish()
	state := "STATUS=" + r.passes.published.status().Line()
	if r.passes.progress.ready { // a start waits for the first pass
		state = "READY=1\n" + state
	}
	supervise.Notify(state)
	supervise.FreeMemory()
}

// health returns the health of the Services in force.
func (r *reloads) health() (health map[lb.ServiceID]lb.Health, all bool) {
	if r.inForce.next == nil {
		return r.target.checks.Turned()
	}
	return config.HealthDuring(r.target.cfg, r.inForce.next.Config, r.target.rec.Facts().Health, r.target.checks.Health()), true
}

// goBack ends a trial: the old configuration comes into force again.
func (r *reloads) goBack(ctx context.Context, reason string) error {
	err := errStopped
	_ = r.calls.Do(ctx, func() {
		if err = errNoTrial; !r.inForce.trial.On() {
			return
		}
		err = nil
		supervise.NotifyReloading()
		r.inForce.next = &rollback.Candidate{Config: r.inForce.trial.Config(), Copy: r.inForce.trial.Old}
		r.target.checks.Set(r.inForce.trial.Config().ChecksWith(r.target.rec.Have()))
	})
	if err == nil {
		r.target.awaitChecks(ctx)
		err = errStopped
		_ = r.calls.Do(ctx, func() { err = r.restore(ctx, reason) })
	}
	return err
}

// restore brings the old configuration into force that has been prepared.
func (r *reloads) restore(ctx context.Context, reason string) error {
	r.inForce.next = nil
	defer r.showReload()
	if err := r.apply(ctx, r.inForce.trial.Config()); err != nil {
		r.target.checks.Set(r.target.cfg.ChecksWith(r.target.rec.Have()))
		r.inForce.trial = r.inForce.trial.Failed(time.Now())
		r.log.Error("rollback failed; retrying", "error", err)
		return err
	}
	r.inForce.trial = r.inForce.trial.Return(time.Now(), reason)
	r.inForce.copy, r.inForce.loaded, r.inForce.err = r.inForce.trial.Old, r.inForce.trial.Loaded, nil
	r.log.Warn("configuration rolled back", "reason", reason, "to_try_the_file_again", "weir reload")
	if err := r.inForce.trial.Save(r.target.cfg.Daemon.StateDir); err != nil {
		r.log.Error("reason of the rollback not saved", "error", err) // a start returns to it nevertheless
	}
	return nil
}

// errNoTrial refuses the end of a trial that does not exist.
var errNoTrial = status.Refusal(errors.New("no configuration is on trial"))

// begin takes the configuration that the daemon starts with.
func (r *reloads) begin(x rollback.Beginning) {
	r.inForce.copy, r.inForce.trial = x.Copy, x.Trial
	if x.Old {
		r.inForce.loaded = x.Trial.Loaded
	}
	x.Report(r.log)
	r.passes.publish()
}

// confirm ends a trial: what is in force stays so.
func (r *reloads) confirm(ctx context.Context) error {
	err := errStopped
	_ = r.calls.Do(ctx, func() {
		if err = errNoTrial; !r.inForce.trial.On() {
			return
		}
		if err = (rollback.Trial{}).Save(r.target.cfg.Daemon.StateDir); err != nil {
			err = fmt.Errorf("not confirmed: a restart would return to the old configuration: %w", err)
			return
		}
		r.inForce.trial = rollback.Trial{}
		r.log.Info("configuration confirmed", "file", r.inForce.file)
		r.showReload()
	})
	return err
}
