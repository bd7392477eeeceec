package main

import (
	"fmt"
	"net/url"

	"github.com/spf13/cobra"

	"weir/cmd/weir/internal/status"
	"weir/cmd/weir/internal/status/text"
)

func guardCommand(e env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "guard",
		Short: "show the guarded clusters, after a mass deletion",
		Long: `Show the clusters that deleted more of their services at once than guard_threshold
allows. The deleted objects are served until the cluster restores them, until
guard_timeout is over, or until weir guard release.

Exit status: 0 shown, 3 not running.`,
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
		Short: "accept the deletions of a guarded cluster",
		Long: `Accept the deletions of a guarded cluster: the deleted objects are no longer served.
They are removed when the command ends.

Exit status: 0 released, 1 not guarded, 3 not running.`,
		Args: cobra.ExactArgs(1),
	}
	release.RunE = func(cmd *cobra.Command, args []string) error {
		var doc status.GuardedSource
		path := "/guard/release?" + url.Values{"source": {args[0]}}.Encode()
		if err := ask(cmd.Context(), *socket, *file, "POST", path, &doc); err != nil {
			return notRunning(err)
		}
		fmt.Fprintf(e.stdout, "released %s: %s with %s and %s removed\n", doc.Source,
			text.Count(doc.Services, "service"), text.Count(doc.Frontends, "frontend"), text.Count(doc.Backends, "backend"))
		return nil
	}
	cmd.AddGroup(&cobra.Group{ID: groupChange, Title: "Commands that change:"})
	add(cmd, groupChange, release)
	return cmd
}
