package main

import (
	"context"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"weir/cmd/weir/internal/config"
	"weir/cmd/weir/internal/daemon"
	"weir/cmd/weir/internal/rollback"
	"weir/cmd/weir/internal/supervise"
)

func runCommand(e env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "run",
		Short: "run the daemon in the foreground",
		Long: `Run the daemon in the foreground, until SIGTERM or SIGINT. SIGHUP reloads the
configuration. After the end the kernel keeps forwarding, unless daemon.on_stop
is set otherwise; the next start adopts everything. When systemd stops the unit, the
daemon first steers clients to other boxes as set by daemon.on_stop; a second signal
ends that.

Exit status: 0 ended by a signal, 1 failed, 78 invalid configuration.`,
		Args: cobra.NoArgs,
	}
	file := configFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		supervise.LimitMemory()
		hup := make(chan os.Signal, 1)
		signal.Notify(hup, syscall.SIGHUP)
		defer signal.Stop(hup)
		begin, err := rollback.Begin(cmd.Context(), *file)
		if err != nil {
			return exitError{exitUnconfigured, err}
		}
		again := make(chan os.Signal, 1)
		defer signal.Stop(again)
		defer context.AfterFunc(cmd.Context(), func() { signal.Notify(again, syscall.SIGTERM, syscall.SIGINT) })()
		level := new(slog.LevelVar)
		log := newLogger(e.stderr, begin.Config.Daemon.LogFormat, level)
		supervise.WarnStopSignal(log)
		return daemon.Run(cmd.Context(), begin, daemon.Options{
			ConfigFile: *file, Version: version(), Reload: hup, Again: again,
			Log: log, Level: level,
		})
	}
	return cmd
}

// newLogger writes without timestamps under journald, which has its own.
func newLogger(w io.Writer, format config.LogFormat, level slog.Leveler) *slog.Logger {
	opts := &slog.HandlerOptions{Level: level}
	if _, journal := os.LookupEnv("JOURNAL_STREAM"); journal {
		opts.ReplaceAttr = func(groups []string, a slog.Attr) slog.Attr {
			if len(groups) == 0 && a.Key == slog.TimeKey {
				return slog.Attr{}
			}
			return a
		}
	}
	if format == config.LogJSON {
		return slog.New(slog.NewJSONHandler(w, opts))
	}
	return slog.New(slog.NewTextHandler(w, opts))
}
