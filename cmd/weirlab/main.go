// Command weirlab puts a whole site on one machine: weir boxes, each with a kernel of its own, and
// clients, backends and routers around them, on private networks. It shows what is missing, installs
// it, and brings a site up to look around in. Package lab does the work; tests use that.
package main

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"
)

func main() {
	root := &cobra.Command{
		Use:           "weirlab",
		Short:         "a whole weir site on one machine, kernels included",
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.AddCommand(checkCommand(), installCommand(), upCommand(), demoCommand(), benchCommand(), drillCommand(), testCommand(), conformanceCommand(), soakCommand(), proveCommand())
	if err := root.Execute(); err != nil {
		fmt.Fprintln(os.Stderr, "weirlab:", err)
		os.Exit(1)
	}
}
