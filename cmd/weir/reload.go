package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"time"

	"github.com/spf13/cobra"

	"weir/cmd/weir/internal/config"
	"weir/cmd/weir/internal/status"
)

// The least and the most that a trial may last.
const (
	leastTrial = time.Second
	mostTrial  = 24 * time.Hour
)

func reloadCommand(e env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "reload",
		Short: "have the daemon load its configuration again",
		Long: `Have the daemon load its configuration again. An invalid one changes nothing and
is reported here, in weir status and in the metrics; a valid one touches only
what differs. The command ends when it is in force, which is after the first
checks of backends that are new: until then everything goes on as before.

With --confirm TIME it is on trial: unless weir confirm comes within TIME, the old
configuration comes into force again by itself, with all files that it was read
from; so it does if the daemon ends meanwhile, at its next start. weir reload --back
returns at once. A reload of more during a trial is on trial with the rest, for as
long as that has left, or, with --confirm, for TIME from then on; it confirms
nothing. Keys that need a restart, and daemon.state_dir, can't be tried.

What is returned to is kept in daemon.state_dir, readable by the daemon alone. The
file is left as it is, so after a return it is not what is in force: weir status
says so, weir config show --running shows what is, and starts keep to that, until
weir reload tries the file again, or a start finds it changed.

Exit status: 0 loaded, 1 refused, 2 no such time, 3 not running.`,
		Args: cobra.NoArgs,
	}
	socket := socketFlag(cmd)
	within := cmd.Flags().Duration("confirm", 0, "return to the old configuration after `TIME` (5m) unless confirmed")
	back := cmd.Flags().Bool("back", false, "end a trial: return to the old configuration now")
	cmd.MarkFlagsMutuallyExclusive("confirm", "back")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		ctx := cmd.Context()
		switch {
		case *back:
			return e.goBack(ctx, *socket)
		case !cmd.Flags().Changed("confirm"):
			return e.loads(ctx, *socket)
		case *within < leastTrial || *within > mostTrial:
			return exitError{exitInvalid, fmt.Errorf("--confirm %s: it goes from %s to %s", *within, leastTrial, mostTrial)}
		}
		return e.tries(ctx, *socket, *within)
	}
	return cmd
}

// reload asks for the configuration to be loaded, and says what came of it.
func (e env) reload(ctx context.Context, socket, path string) (status.Status, error) {
	var doc status.Status
	err := ask(ctx, socket, defaultConfig, "POST", path, &doc)
	switch {
	case errors.Is(err, errNotRunning):
		return doc, notRunning(err)
	case err != nil:
		return doc, fmt.Errorf("not reloaded, the old configuration stays in force:\n%w", err)
	}
	fmt.Fprintf(e.stdout, "loaded %s: %s\n", doc.Config.File, status.Plain(doc.Verdict()))
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

// tries is a reload on trial, and says what differs.
func (e env) tries(ctx context.Context, socket string, within time.Duration) error {
	var before, after config.Effective
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
		fmt.Fprintf(e.stdout, "new, changed or gone: %s\n", names(keys))
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
	fmt.Fprintf(e.stdout, "the old configuration is in force again: %s\n", status.Plain(doc.Verdict()))
	return nil
}

func confirmCommand(e env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "confirm",
		Short: "keep the configuration that weir reload --confirm has loaded",
		Long: `Keep the configuration that is in force since weir reload --confirm: it does not
return to the old one any more.

Exit status: 0 confirmed, 1 none is on trial, 3 not running.`,
		Args: cobra.NoArgs,
	}
	socket := socketFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		var doc status.Status
		if err := ask(cmd.Context(), *socket, defaultConfig, "POST", "/confirm", &doc); err != nil {
			return notRunning(err)
		}
		fmt.Fprintf(e.stdout, "confirmed %s: %s\n", doc.Config.File, status.Plain(doc.Verdict()))
		return nil
	}
	return cmd
}
