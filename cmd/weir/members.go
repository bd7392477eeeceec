package main

import (
	"github.com/spf13/cobra"

	"weir/cmd/weir/internal/status"
)

func membersCommand(e env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "members",
		Short: "show the members of the fleet, their states and the reasons",
		Long: `Show the members of the fleet as this box (marked *) sees them, each with its state:

  serving      fit, and serves
  standby      fit, and other members own all VIPs
  fresh        fit, but not long enough to take over VIPs (fleet.preempt_delay)
  unfit        reports itself unable to serve
  draining     an operator drains it; drained: nothing is left on it
  suspect      has not answered this box for too long, and may be dead
  daemon-down  its daemon is down, and its kernel keeps forwarding
  dead         does not answer
  left         has left the fleet

Serves counts the VIPs that it can serve, Owns those that it owns. Members with the
same digest have the same objects in their kernels. Problems follow: members that can't
be joined, differences, messages that no key decrypts. -o json has more.

Exit status: 0 no problems, 1 problems, 3 not running.`,
		Args: cobra.NoArgs,
	}
	cmd.RunE = showJudged[status.Members](e, cmd, "/members")
	return cmd
}
