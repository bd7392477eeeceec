package main

import (
	"errors"
	"fmt"
	"net/url"

	"github.com/spf13/cobra"

	"weir/cmd/weir/internal/status"
)

func guardCommand(e env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "guard",
		Short: "show which clusters took away much at once, and what is held of them",
		Long: `Show which clusters took away more of their services at once than guard_share
allows, and what is held of them: it is served on until the cluster brings it
back, until guard_hold is over, or until somebody releases it.`,
		Args: cobra.NoArgs,
	}
	socket := cmd.PersistentFlags().String("socket", "", socketUsage)
	file := cmd.PersistentFlags().StringP("config", "c", defaultConfig, configUsage)
	format := outputFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		var doc status.Guard
		if err := ask(cmd.Context(), *socket, *file, "GET", "/guard", &doc); err != nil {
			return notRunning(err)
		}
		return e.write(doc, *format)
	}
	release := &cobra.Command{
		Use:   "release CLUSTER",
		Short: "believe a cluster: what is held of it goes",
		Long: `Believe a cluster that took away much at once: what is held of it is no longer served.
It is done when the command ends.`,
		Args: cobra.ExactArgs(1),
	}
	release.RunE = func(cmd *cobra.Command, args []string) error {
		var doc status.Hold
		path := "/guard/release?" + url.Values{"source": {args[0]}}.Encode()
		if err := ask(cmd.Context(), *socket, *file, "POST", path, &doc); err != nil {
			return notRunning(err)
		}
		fmt.Fprintf(e.stdout, "released %s: %s with %s and %s go\n", doc.Source,
			status.Count(doc.Services, "service"), status.Count(doc.Frontends, "frontend"), status.Count(doc.Backends, "backend"))
		return nil
	}
	cmd.AddGroup(&cobra.Group{ID: groupChange, Title: "Verbs that change:"})
	add(cmd, groupChange, release)
	return cmd
}

// notRunning gives the error for a daemon that does not answer its exit status.
func notRunning(err error) error {
	if errors.Is(err, errNotRunning) {
		return exitError{exitNotRunning, err}
	}
	return err
}
