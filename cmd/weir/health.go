package main

import (
	"github.com/spf13/cobra"

	"weir/cmd/weir/internal/status"
)

func healthCommand(e env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "health",
		Short: "show the health of each backend, and the services without a check",
		Long: `Show each backend with a check. The columns are its health and since when, the time and
duration of the last check, and the error if the backend is down. Backends that are down come first.
"quorum lost" means that too few backends of the port are up: then when_down of the
service applies.

The services without a check follow. -o json has the numbers of checks and failures.

Exit status: 0 no backend is down, 1 some are, 3 not running.`,
		Example: `  weir health
  weir health --watch
  weir health -o json | jq '.backends[] | select(.state == "down")'`,
		Args: cobra.NoArgs,
	}
	cmd.RunE = showJudged[status.Health](e, cmd, "/health")
	return cmd
}
