package daemon

import (
	"context"
	"errors"
	"fmt"
	"time"

	"weir/cmd/weir/internal/rollback"
	"weir/cmd/weir/internal/status"
	"weir/cmd/weir/internal/supervise"
)

// begin takes the configuration that the daemon starts with.
func (r *reloads) begin(x rollback.Beginning) {
	r.inForce.copy, r.inForce.trial = x.Copy, x.Trial
	if x.Old {
		r.inForce.loaded = x.Trial.Loaded
	}
	x.Report(r.log)
	r.passes.publish()
}

// errNoTrial refuses the end of a trial that does not exist.
var errNoTrial = status.Refusal(errors.New("no configuration is on trial"))

// confirm ends a trial: what is in force stays so.
func (r *reloads) confirm(ctx context.Context) error {
	err := errStopped
	_ = r.calls.do(ctx, func() {
		if err = errNoTrial; !r.inForce.trial.On() {
			return
		}
		if err = (rollback.Trial{}).Save(r.target.cfg.Daemon.StateDir); err != nil {
			err = fmt.Errorf("not confirmed: a restart would return to the old configuration: %w", err)
			return
		}
		r.inForce.trial = rollback.Trial{}
		r.log.Info("confirmed", "file", r.inForce.file)
		r.showReload()
	})
	return err
}

// goBack ends a trial: the old configuration comes into force again.
func (r *reloads) goBack(ctx context.Context, reason string) error {
	err := errStopped
	_ = r.calls.do(ctx, func() {
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
		_ = r.calls.do(ctx, func() { err = r.restore(ctx, reason) })
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
