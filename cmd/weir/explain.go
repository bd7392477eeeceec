package main

import (
	"net/url"

	"github.com/spf13/cobra"

	"weir/cmd/weir/internal/daemon"
	"weir/cmd/weir/internal/status"
)

func explainCommand(e env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "explain ADDRESS[:PORT]",
		Short: "tell what a client of an address and port meets, step by step, and why",
		Long: `Tell what becomes of a new connection to an address and port: whose it is, why
the address is on this box, which sets and rules the packet meets, which virtual
server, which backends and why others are out, and whose address the backend
sees. Of an address that is not served it tells why, and what is nearest.

In a fleet also who owns the address and why, and whether established connections
outlive this box, and why not.

With an address alone it lists the ports that are served there.`,
		Args: cobra.ExactArgs(1),
	}
	socket, format, file := socketFlag(cmd), outputFlag(cmd), configFlag(cmd)
	proto := cmd.Flags().String("proto", "tcp", "`protocol`: tcp, udp or sctp")
	from := cmd.Flags().String("from", "", "the client's `address` (default: somebody outside)")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if _, err := daemon.ParseQuestion(args[0], *proto, *from); err != nil {
			return exitError{exitInvalid, err}
		}
		query := url.Values{"vip": {args[0]}, "proto": {*proto}, "from": {*from}}
		var doc status.Explanation
		if err := ask(cmd.Context(), *socket, *file, "GET", "/explain?"+query.Encode(), &doc); err != nil {
			return notRunning(err)
		}
		return e.write(doc, *format)
	}
	return cmd
}
