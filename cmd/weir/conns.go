package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strconv"

	"github.com/spf13/cobra"

	"weir/cmd/weir/internal/query"
	"weir/cmd/weir/internal/status"
)

func connsCommand(e env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "conns [ADDRESS[:PORT]]",
		Short: "show connections, as ipvsadm -Lnc does",
		Long: `Show entries of the kernel's IPVS connection table, as ipvsadm -Lnc does. With
an address, or address and port, only those that have it as client, virtual
server or backend. Entries of state NONE with client port 0 are affinity.

Exit status: 0 shown, 1 failed, 2 invalid address.`,
		Args: cobra.MaximumNArgs(1),
	}
	socket, format, file := socketFlag(cmd), outputFlag(cmd), configFlag(cmd)
	limit := cmd.Flags().Int("limit", 1000, "show at most this many")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		match := ""
		if len(args) > 0 {
			match = args[0]
		}
		if err := query.ValidMatch(match); err != nil {
			return exitError{exitInvalid, err}
		}
		if *limit < 1 {
			return exitError{exitInvalid, fmt.Errorf("--limit %d: at least 1", *limit)}
		}
		query := url.Values{"match": {match}, "limit": {strconv.Itoa(*limit)}}
		var doc status.Conns
		err := ask(cmd.Context(), *socket, *file, "GET", "/conns?"+query.Encode(), &doc)
		if errors.Is(err, errNotRunning) {
			fmt.Fprintf(e.stderr, "weir: %v: the connections are read from the kernel\n", err)
			doc, err = kernelConns(cmd.Context(), *file, match, *limit)
		}
		if err != nil {
			return err
		}
		return e.write(doc, *format)
	}
	return cmd
}

// kernelConns reads the kernel without the daemon.
func kernelConns(ctx context.Context, file, match string, limit int) (status.Conns, error) {
	kernel, err := openKernel(ctx, file)
	if err != nil {
		return status.Conns{}, err
	}
	defer kernel.Close()
	return query.Conns(ctx, kernel.Kernel, match, limit)
}
