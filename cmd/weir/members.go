package main

import (
	"github.com/spf13/cobra"

	"weir/cmd/weir/internal/status"
)

func membersCommand(e env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "members",
		Short: "show the boxes of the fleet, how each one is, and why",
		Long: `Show the boxes of the fleet, as this one (marked *) sees them, each in a word:

  serving    it is fit, and serves
  standby    it is fit, and others own all VIPs
  fresh      it is fit, but not for long enough to take VIPs over (cluster.take_back)
  unfit      it says itself that it should serve nobody
  draining   an operator takes it out; drained: nothing is left on it
  suspect    it has not answered this box for too long, and may be dead
  away       its daemon is gone, and its kernel forwards on
  dead       it answers nobody
  left       it has said good-bye

Serves counts the VIPs that it can serve, Owns those that it says it owns. Members
with the same digest want the same of their kernels. Below is what needs a look: who
can't be joined, what members differ in, messages that no key decrypts. -o json has
more.

Exit status: 0 all are well, 1 some are not, or this box takes no part, 3 not running.`,
		Args: cobra.NoArgs,
	}
	cmd.RunE = showJudged[status.Members](e, cmd, "/members")
	return cmd
}
