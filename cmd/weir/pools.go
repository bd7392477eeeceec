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
Services wait for an address and why. Retained addresses belong to deleted Services, for
addresses.retention. Foreign ones belong to another controller or a static service, or
are excluded. Services outside a pool have an address that no pool would assign today;
they retain it.

With the name of a pool: its addresses that are not free. -o json has everything.

Exit status: 0 shown, 2 no such pool, 3 not running.`,
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
