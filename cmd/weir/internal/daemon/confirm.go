package daemon

import (
	"context"
	"fmt"

	"weir/cmd/weir/internal/rollback"
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
