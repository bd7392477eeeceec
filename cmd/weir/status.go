package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"weir/cmd/weir/internal/config"
	"weir/cmd/weir/internal/kernelmode"
	"weir/cmd/weir/internal/query"
	"weir/cmd/weir/internal/status"
	"weir/lb"
)

func statusCommand(e env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "status",
		Short: "show the state of the box",
		Long: `Show the state of the box. The first line has the state and the problems. Notes are
requests of services that weir could not fulfil, by reason; notes.md of the documentation
has the remedies. On a terminal the output fits the window, elsewhere it is complete.

With --wait the command waits until weir is ok, at most for that time.

Exit status: 0 ok, 1 degraded, starting or failed, 3 not running.`,
		Example: `  weir status
  weir status --watch
  weir status --wait=2m && echo ok`,
		Args: cobra.NoArgs,
	}
	socket, format, file := socketFlag(cmd), outputFlag(cmd), configFlag(cmd)
	wait := cmd.Flags().Duration("wait", 0, "wait until weir is ok, at most for this `time`: --wait=5m")
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
			if err := e.write(status.Absent{State: status.NotRunning, Problems: []status.Problem{
				{Code: status.ProblemNotRunning, Text: err.Error()}, {Code: status.ProblemNotRunning, Text: left},
			}}, *format); err != nil {
				return err
			}
			return exitError{code: exitNotRunning}
		}
		if err != nil {
			return err
		}
		if err := e.write(e.fitted(cmd, doc), *format); err != nil {
			return err
		}
		if doc.State != status.OK {
			return exitError{code: 1}
		}
		return nil
	}
	return cmd
}

// fitted returns a status that fits the terminal, if there is one.
func (e env) fitted(cmd *cobra.Command, doc status.Status) status.Tabler {
	if e.screen == nil {
		return doc
	}
	size := e.screen()
	lines := size.height - 1 // the last line is the cursor's
	if cmd.Flags().Changed("watch") {
		lines -= 2 // its title
	}
	return status.OnScreen{Status: doc, Screen: status.Screen{Width: size.width, Lines: max(1, lines)}}
}

// waitEvery is the interval of requests while --wait waits.
const waitEvery = 500 * time.Millisecond

// awaitStatus requests the status until it is ok or the time is over. It also waits for a
// daemon that does not answer: it may be starting.
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

// leftBehind describes the objects of weir in the kernel while no daemon runs.
func leftBehind(ctx context.Context, file string) string {
	kernel, err := openKernel(ctx, file)
	if err != nil {
		return "can't read the kernel: " + err.Error()
	}
	defer kernel.Close()
	rec := lb.NewReconciler(kernel, kernelmode.LBOptions(kernel.cfg, kernel.mode, kernelmode.Node{}), config.Source)
	if err := rec.Adopt(ctx); err != nil {
		return "can't read the kernel: " + err.Error()
	}
	counts := query.NewTally(rec.Have()).Without(kernelmode.Base(kernel.cfg, kernel.mode), rec.Have())
	left := "the kernel has no objects of weir: no traffic is balanced"
	if counts["virtual_server"] > 0 {
		left = fmt.Sprintf("the kernel has %d virtual servers with %d real servers and keeps forwarding to them,"+
			" without health checks", counts["virtual_server"], counts["real_server"])
	}
	return left + "; " + howToStart(kernel.cfg, file)
}

// howToStart returns the commands that start weir. With nothing to serve systemd skips
// the unit silently.
func howToStart(cfg *config.Config, file string) string {
	const start = "start it with: systemctl start weir"
	if cfg.Configured() {
		return start
	}
	return fmt.Sprintf("there is nothing to serve yet: write a [[service]], a [[kubernetes]] or a [fleet] in %s, then %s", file, start)
}
