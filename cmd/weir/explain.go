package main

import (
	"net/url"

	"github.com/spf13/cobra"

	"weir/cmd/weir/internal/query"
	"weir/cmd/weir/internal/status/explain"
)

func explainCommand(e env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "explain ADDRESS[:PORT]",
		Short: "show the path of a client's packet, step by step, with reasons",
		Long: `Show the path of a new connection to an address and port. The steps are its Service,
the reason why the address is on this box, the sets and rules, and the virtual server.
Then come its backends, the reasons why others are out, and the source address that
the backend sees. For an address that is not served it shows the reason and the
nearest address.

In a fleet it also shows the owner of the address, and whether established connections
survive the loss of this box, with reasons.

Without a port it lists the ports that are served at the address. fwmark:7 is a packet
with firewall mark 7, for services with the key fwmark. It is IPv6 if --from is.

Exit status: 0 shown, 2 invalid address, 3 not running.`,
		Args: cobra.ExactArgs(1),
	}
	socket, format, file := socketFlag(cmd), outputFlag(cmd), configFlag(cmd)
	proto := cmd.Flags().String("proto", "tcp", "`protocol`: tcp, udp or sctp")
	from := cmd.Flags().String("from", "", "the client's `address` (default: a client outside)")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if _, err := query.ParseQuestion(args[0], *proto, *from); err != nil {
			return exitError{exitInvalid, err}
		}
		query := url.Values{"vip": {args[0]}, "proto": {*proto}, "from": {*from}}
		var doc explain.Answer
		if err := ask(cmd.Context(), *socket, *file, "GET", "/explain?"+query.Encode(), &doc); err != nil {
			return notRunning(err)
		}
		return e.write(doc, *format)
	}
	return cmd
}
