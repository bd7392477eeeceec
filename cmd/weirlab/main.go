// Command weirlab runs a whole site on one machine: weir boxes, each with its own kernel, and
// clients, backends and routers on private networks. It never changes the network of this machine.
// It lists and installs missing requirements, starts a site for inspection, and runs the tests,
// which use package lab.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
)

func main() {
	root := &cobra.Command{
		Use:           "weirlab",
		Short:         "a whole weir site on one machine, kernels included",
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.AddCommand(checkCommand(), installCommand(), upCommand(), demoCommand(), benchCommand(), compareCommand(), drillCommand(), testCommand(), conformanceCommand(), soakCommand(), proveCommand())
	// An interrupted command ends its programs and removes what it has not finished.
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	err := root.ExecuteContext(ctx)
	interrupted := ctx.Err() != nil
	stop()
	if interrupted && err != nil {
		fmt.Fprintln(os.Stderr, "weirlab: interrupted; unfinished builds are removed")
		os.Exit(130) // as a shell reports SIGINT
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "weirlab:", err)
		os.Exit(1)
	}
}
