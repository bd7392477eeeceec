package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"weir/cmd/weir/internal/query"
	"weir/cmd/weir/internal/status"
)

func servicesCommand(e env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "services",
		Short: "show virtual and real servers, as ipvsadm -Ln does, with their services and health",
		Long: `Show virtual and real servers as ipvsadm -Ln does, with the Service each
belongs to, health and drains. Foreign virtual servers have no Service. Without a
daemon the kernel is read.

Exit status: 0 shown, 1 failed.`,
		Args: cobra.NoArgs,
	}
	socket, format, file := socketFlag(cmd), outputFlag(cmd), configFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		var doc status.Services
		err := ask(cmd.Context(), *socket, *file, "GET", "/services", &doc)
		if errors.Is(err, errNotRunning) {
			fmt.Fprintf(e.stderr, "weir: %v: the virtual servers are read from the kernel\n", err)
			doc, err = kernelServices(cmd.Context(), *file)
		}
		if err != nil {
			return err
		}
		return e.write(doc, *format)
	}
	return cmd
}

// kernelServices reads the kernel without the daemon.
func kernelServices(ctx context.Context, file string) (status.Services, error) {
	kernel, err := openKernel(ctx, file)
	if err != nil {
		return status.Services{}, err
	}
	defer kernel.Close()
	return query.Services(ctx, kernel.Kernel, nil)
}
