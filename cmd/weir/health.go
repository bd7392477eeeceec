package main

import (
	"github.com/spf13/cobra"

	"weir/cmd/weir/internal/status"
)

func healthCommand(e env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "health",
		Short: "show what the checks say of each backend, and what has no check",
		Long: `Show each backend that is checked: the verdict and since when it holds, when the last
check ended and how long it took, and what it met if the backend is down. What is down
comes first. "quorum lost" means that too few backends of the port are up: when_down of
the service says what its clients meet then.

Below are the services without a check. -o json has counts of checks and failures.

Exit status: 0 no backend is down, 1 some are, 3 not running.`,
		Example: `  weir health
  weir health --watch
  weir health -o json | jq '.backends[] | select(.verdict == "down")'`,
		Args: cobra.NoArgs,
	}
	cmd.RunE = showJudged[status.Health](e, cmd, "/health")
	return cmd
}
