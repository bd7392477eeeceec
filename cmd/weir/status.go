package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"weir/cmd/weir/internal/config"
	"weir/cmd/weir/internal/daemon"
	"weir/cmd/weir/internal/status"
	"weir/lb"
)

func statusCommand(e env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "status",
		Short: "show whether all is well, on one screen",
		Long: `Show whether all is well, on one screen; the first line says it. Notes are what
could not be done for a service, by reason; notes.md, among the documentation, has what to do about each.

With --wait it says so as soon as weir is ok, or after that time.

Exit status: 0 ok, 1 degraded, starting or failed, 3 not running.`,
		Example: `  weir status
  weir status --watch
  weir status --wait=2m && echo well`,
		Args: cobra.NoArgs,
	}
	socket, format, file := socketFlag(cmd), outputFlag(cmd), configFlag(cmd)
	wait := cmd.Flags().Duration("wait", 0, "wait until all is well, at most for this `time`: --wait=5m")
	cmd.Flag("wait").NoOptDefVal = "1m"
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		doc, err := awaitStatus(cmd.Context(), *wait, func(doc *status.Status) error {
			return ask(cmd.Context(), *socket, *file, "GET", "/status", doc)
		})
		if errors.Is(err, errNotRunning) {
			left := leftBehind(cmd.Context(), *file)
			if *format == "table" {
				return exitError{exitNotRunning, fmt.Errorf("%w\n%s", err, left)}
			}
			if err := e.write(status.Absent{State: status.NotRunning, Why: []string{err.Error(), left}}, *format); err != nil {
				return err
			}
			return exitError{code: exitNotRunning}
		}
		if err != nil {
			return err
		}
		if err := e.write(doc, *format); err != nil {
			return err
		}
		if doc.State != status.OK {
			return exitError{code: 1}
		}
		return nil
	}
	return cmd
}

// waitEvery is how often a status is looked at that is waited for.
const waitEvery = 500 * time.Millisecond

// awaitStatus asks for the status until it is ok, but no longer than it is to wait. A
// daemon that does not answer is waited for too: it may be starting.
func awaitStatus(ctx context.Context, wait time.Duration, ask func(*status.Status) error) (status.Status, error) {
	until := time.Now().Add(wait)
	for {
		var doc status.Status
		err := ask(&doc)
		if err == nil && doc.State == status.OK || err != nil && !errors.Is(err, errNotRunning) || !time.Now().Before(until) {
			return doc, err
		}
		if !sleep(ctx, min(waitEvery, time.Until(until))) {
			return doc, cmp.Or(err, ctx.Err())
		}
	}
}

// leftBehind says what the kernel still does without a daemon.
func leftBehind(ctx context.Context, file string) string {
	kernel, err := openKernel(ctx, file)
	if err != nil {
		return "what the kernel still holds can't be read: " + err.Error()
	}
	defer kernel.Close()
	rec := lb.NewReconciler(kernel, daemon.LBOptions(kernel.cfg, kernel.mode), config.Source)
	if err := rec.Adopt(ctx); err != nil {
		return "what the kernel still holds can't be read: " + err.Error()
	}
	counts := daemon.Count(rec.Have(), daemon.Base(kernel.cfg, kernel.mode))
	left := "the kernel holds nothing of weir's: no traffic is balanced"
	if counts["virtual_server"] > 0 {
		left = fmt.Sprintf("the kernel still holds %d virtual servers with %d real servers and goes on forwarding to them,"+
			" without health checks", counts["virtual_server"], counts["real_server"])
	}
	return left + "; " + howToStart(kernel.cfg, file)
}

// howToStart says what has to come first, too: with nothing to serve systemd skips the
// unit, and whoever has typed that is told nothing.
func howToStart(cfg *config.Config, file string) string {
	const start = "start it with: systemctl start weir"
	if cfg.Configured() {
		return start
	}
	return fmt.Sprintf("there is nothing to serve yet: write a [[service]], a [[kubernetes]] or a [cluster] in %s, then %s", file, start)
}
