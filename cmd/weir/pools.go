package main

import (
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"weir/cmd/weir/internal/status"
)

func poolsCommand(e env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "pools [POOL]",
		Short: "show the pools of addresses and their use, or the addresses of one",
		Long: `Show the pools of LoadBalancer addresses, how much of each is used, and which
Services wait for an address and why. Held addresses are those of Services that are
gone: each is kept for its Service for addresses.release_after. Taken ones belong to
somebody else: another controller, a static service, or nobody may have them.
Stranded are Services whose address no pool would give them today; they keep it.

With the name of a pool: its addresses that are not free. -o json has everything.`,
		Args: cobra.MaximumNArgs(1),
	}
	socket, format, file := socketFlag(cmd), outputFlag(cmd), configFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		var doc status.Pools
		if err := ask(cmd.Context(), *socket, *file, "GET", "/pools", &doc); err != nil {
			return notRunning(err)
		}
		if len(args) == 0 {
			return e.write(doc, *format)
		}
		if !slices.ContainsFunc(doc.Pools, func(p status.Pool) bool { return p.Name == args[0] }) {
			return exitError{exitInvalid, fmt.Errorf("there is no pool %q: see weir pools", args[0])}
		}
		return e.write(doc.Of(args[0]), *format)
	}
	return cmd
}
