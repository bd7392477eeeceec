package main

import (
	"context"
	"errors"
	"fmt"

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

Exit status: 0 ok, 1 degraded, starting or failed, 3 not running.`,
		Args: cobra.NoArgs,
	}
	socket, format, file := socketFlag(cmd), outputFlag(cmd), configFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		var doc status.Status
		err := ask(cmd.Context(), *socket, *file, "GET", "/status", &doc)
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
	if counts["virtual_server"] == 0 {
		return "the kernel holds nothing of weir's: no traffic is balanced; start it with: systemctl start weir"
	}
	return fmt.Sprintf("the kernel still holds %d virtual servers with %d real servers and goes on forwarding to them,"+
		" without health checks; start weir with: systemctl start weir", counts["virtual_server"], counts["real_server"])
}
