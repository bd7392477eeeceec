package supervise

import (
	"context"
	"log/slog"

	"weir/lb"
)

// Auditor reads the kernel for audits in a goroutine of its own: with ten thousand services that takes seconds, in which
// the loop applies changes. One audit is in progress at most, and its result is a message to the loop.
type Auditor struct {
	// Done are the audits that were read.
	Done chan *lb.Audit

	log    *slog.Logger
	kernel lb.Kernel
	asked  chan *lb.Audit // size 1: the loop never waits
}

// NewAuditor returns an Auditor of a kernel that may be read while the loop changes it.
func NewAuditor(log *slog.Logger, kernel lb.Kernel) *Auditor {
	return &Auditor{log: log, kernel: kernel, asked: make(chan *lb.Audit, 1), Done: make(chan *lb.Audit)}
}

// Ask requests that an audit is read. The loop must not call it again before it has received that audit from Done.
func (a *Auditor) Ask(audit *lb.Audit) { a.asked <- audit }

// Run reads until ctx ends, which ends a reading in progress.
func (a *Auditor) Run(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case audit := <-a.asked:
			// A panic must not harm the box that serves. The audit has the error then that it was not read.
			err := Recover(ctx, func(ctx context.Context) error { audit.Read(ctx, a.kernel); return nil })
			if ctx.Err() != nil {
				return nil //nolint:nilerr // it is stopped
			}
			if err != nil {
				a.log.Error("audit failed", "error", err)
			}
			select {
			case <-ctx.Done():
			case a.Done <- audit:
			}
		}
	}
}
