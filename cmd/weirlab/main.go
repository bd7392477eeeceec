// Command weirlab puts a whole site on one machine: weir boxes, each with a kernel of its own, and
// clients, backends and routers around them, on private networks. It shows what is missing, installs
// it, and brings a site up to look around in. Package lab does the work; tests use that.
package main

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"weir/cmd/weirlab/internal/inside"
)

func main() {
	root := &cobra.Command{
		Use:           "weirlab",
		Short:         "a whole weir site on one machine, kernels included",
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.AddCommand(checkCommand(), installCommand())
	root.AddCommand(insideCommands()...)
	if err := root.Execute(); err != nil {
		fmt.Fprintln(os.Stderr, "weirlab:", err)
		os.Exit(1)
	}
}

// insideCommands are what the lab runs within itself; they are of no use by hand.
func insideCommands() []*cobra.Command {
	return []*cobra.Command{
		{
			Use: "keeper FOLDER", Hidden: true, Args: cobra.ExactArgs(1),
			RunE: func(_ *cobra.Command, args []string) error { return inside.Keeper(args[0]) },
		},
		{
			Use: "machine", Hidden: true, Args: cobra.NoArgs,
			RunE: func(*cobra.Command, []string) error { return inside.Machine() },
		},
		{
			Use: "agent", Hidden: true, Args: cobra.NoArgs,
			RunE: func(*cobra.Command, []string) error { return inside.Agent() },
		},
	}
}
