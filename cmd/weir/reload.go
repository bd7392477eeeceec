package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"weir/cmd/weir/internal/status"
)

func reloadCommand(e env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "reload",
		Short: "have the daemon load its configuration again",
		Long: `Have the daemon load its configuration again. An invalid one changes nothing and
is reported here, in weir status and in the metrics; a valid one touches only
what differs. The command ends when it is in force, which is after the first
checks of backends that are new: until then everything goes on as before.`,
		Args: cobra.NoArgs,
	}
	socket := socketFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		var doc status.Status
		err := ask(cmd.Context(), *socket, defaultConfig, "POST", "/reload", &doc)
		if errors.Is(err, errNotRunning) {
			return exitError{exitNotRunning, err}
		}
		if err != nil {
			return fmt.Errorf("not reloaded, the old configuration stays in force:\n%w", err)
		}
		fmt.Fprintf(e.stdout, "loaded %s: %s\n", doc.Config.File, doc.Line())
		return nil
	}
	return cmd
}
