package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"time"

	"github.com/spf13/cobra"

	"weir/cmd/weir/internal/config/load"
	"weir/cmd/weir/internal/status"
	"weir/cmd/weir/internal/status/text"
)

// The limits of the duration of a trial.
const (
	leastTrial = time.Second
	mostTrial  = 24 * time.Hour
)

func reloadCommand(e env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "reload [FILE]",
		Short: "make the daemon reload its configuration",
		Long: `Make the daemon reload its configuration. An invalid configuration changes nothing
and is reported here, in weir status and in the metrics. A valid one changes only
the differences. The command ends when the configuration is in force, after the first
checks of new backends; until then the old one is served.

FILE is optional and must be the file that the daemon was started with: weir check FILE
and weir plan FILE accept any other.

With --confirm TIME the new configuration is on trial. Without weir confirm within
TIME, the old configuration returns into force, with all its files. The same
happens when the daemon ends during the trial. weir reload --back rolls back immediately.
Another reload during a trial joins the trial; with --confirm it extends it. It never
confirms. Keys that need a restart, and daemon.state_dir, can't be on trial.

The previous configuration is stored in daemon.state_dir, readable by the daemon
only. The file itself is never changed. After a rollback it is not in force: weir
status reports that, and weir config show --running shows the one in force. Restarts
keep it, until weir reload retries the file or the file changes.

Exit status: 0 loaded, 1 refused, 2 another file than the daemon's, 3 not running.`,
		Args: cobra.MaximumNArgs(1),
	}
	socket := socketFlag(cmd)
	within := cmd.Flags().Duration("confirm", 0, "roll back to the old configuration after `TIME` (5m) unless confirmed")
	back := cmd.Flags().Bool("back", false, "end a trial: roll back to the old configuration now")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		ctx := cmd.Context()
		if len(args) > 0 {
			if err := isConfigured(ctx, *socket, args[0]); err != nil {
				return err
			}
		}
		switch {
		case *back && cmd.Flags().Changed("confirm"):
			return exitError{exitInvalid, errors.New("--confirm begins a trial and --back ends it: use one of them")}
		case *back:
			return e.goBack(ctx, *socket)
		case !cmd.Flags().Changed("confirm"):
			return e.loads(ctx, *socket)
		case *within < leastTrial || *within > mostTrial:
			return exitError{exitInvalid, fmt.Errorf("--confirm %s: must be between %s and %s", *within, leastTrial, mostTrial)}
		}
		return e.tries(ctx, *socket, *within)
	}
	return cmd
}

// isConfigured returns an error if a file is not the one that the daemon loads.
func isConfigured(ctx context.Context, socket, file string) error {
	var doc status.Status
	if err := ask(ctx, socket, defaultConfig, "GET", "/status", &doc); err != nil {
		return notRunning(err)
	}
	given, err := os.Stat(file)
	if err != nil {
		return exitError{exitInvalid, err}
	}
	if loaded, err := os.Stat(doc.Config.File); err != nil || !os.SameFile(given, loaded) {
		return exitError{exitInvalid, fmt.Errorf("the daemon loads %s, not %s: change that file, or restart the daemon with weir run -c %s", doc.Config.File, file, file)}
	}
	return nil
}

// reload makes the daemon load the configuration, and prints the result.
func (e env) reload(ctx context.Context, socket, path string) (status.Status, error) {
	var doc status.Status
	err := ask(ctx, socket, defaultConfig, "POST", path, &doc)
	switch {
	case errors.Is(err, errNotRunning):
		return doc, notRunning(err)
	case errors.Is(err, errEnded):
		return doc, err
	case err != nil:
		return doc, fmt.Errorf("not reloaded, the old configuration stays in force:\n%w", err)
	}
	fmt.Fprintf(e.stdout, "loaded %s: %s\n", doc.Config.File, text.Plain(doc.Summary()))
	return doc, nil
}

// loads is a reload, which confirms nothing.
func (e env) loads(ctx context.Context, socket string) error {
	doc, err := e.reload(ctx, socket, "/reload")
	if t := doc.Config.Trial; err == nil && t != nil {
		fmt.Fprintln(e.stdout, t.Text(e.now()))
	}
	return err
}

// tries is a reload on trial; it prints the keys that differ.
func (e env) tries(ctx context.Context, socket string, within time.Duration) error {
	var before, after load.Effective
	if err := ask(ctx, socket, defaultConfig, "GET", "/config", &before); err != nil {
		return notRunning(err)
	}
	doc, err := e.reload(ctx, socket, "/reload?"+url.Values{"confirm": {within.String()}}.Encode())
	if err != nil {
		return err
	}
	if err := ask(ctx, socket, defaultConfig, "GET", "/config", &after); err != nil {
		return err
	}
	if keys := before.Differences(&after); len(keys) > 0 {
		fmt.Fprintf(e.stdout, "added, changed or removed: %s\n", text.Names(keys))
	}
	if t := doc.Config.Trial; t != nil {
		fmt.Fprintln(e.stdout, t.Text(e.now()))
	}
	return nil
}

func (e env) goBack(ctx context.Context, socket string) error {
	var doc status.Status
	if err := ask(ctx, socket, defaultConfig, "POST", "/back", &doc); err != nil {
		return notRunning(err)
	}
	fmt.Fprintf(e.stdout, "the old configuration is in force again: %s\n", text.Plain(doc.Summary()))
	return nil
}

func confirmCommand(e env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "confirm",
		Short: "keep the configuration that weir reload --confirm has loaded",
		Long: `Keep the configuration that weir reload --confirm has loaded, and end its trial.

Exit status: 0 confirmed, 1 none is on trial, 3 not running.`,
		Args: cobra.NoArgs,
	}
	socket := socketFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		var doc status.Status
		if err := ask(cmd.Context(), *socket, defaultConfig, "POST", "/confirm", &doc); err != nil {
			return notRunning(err)
		}
		fmt.Fprintf(e.stdout, "confirmed %s: %s\n", doc.Config.File, text.Plain(doc.Summary()))
		return nil
	}
	return cmd
}
