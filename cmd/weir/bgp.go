package main

import (
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"weir/bgp"
	"weir/cmd/weir/internal/config"
	"weir/cmd/weir/internal/status"
)

func bgpCommand(e env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "bgp",
		Short: "the routers, and what they are told",
		Long: `Show the sessions with routers, what routers are told of the VIPs and what is withheld
from them, or print their side of the sessions.`,
		Args: cobra.NoArgs,
	}
	cmd.AddCommand(reads(e, bgpNeighborsCommand), reads(e, bgpRoutesCommand), bgpRouterConfigCommand(e))
	return cmd
}

func bgpNeighborsCommand(e env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "neighbors",
		Short: "show the sessions with routers, as show bgp summary does, and why one is down",
		Long: `Show the session with each router in the columns of "show bgp summary" and "gobgp
neighbor". Received counts prefixes that the router sends; weir uses none of them,
and more than the limit behind the stroke end the session. Advertised counts what
the router has from weir. A peer with a range has a line of its own, and one for
each router that came from it.

-o json has more: both ends, families, timers, notifications, messages, graceful
restart.

Exit status: 0 all sessions are up, 1 some are not, 3 not running.`,
		Args: cobra.NoArgs,
	}
	socket, format, file := socketFlag(cmd), outputFlag(cmd), configFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		var doc status.Neighbors
		if err := ask(cmd.Context(), *socket, *file, "GET", "/bgp/neighbors", &doc); err != nil {
			return notRunning(err)
		}
		if err := e.write(doc, *format); err != nil {
			return err
		}
		if !doc.Up() {
			return exitError{code: 1}
		}
		return nil
	}
	return cmd
}

func bgpRoutesCommand(e env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "routes",
		Short: "show what routers are told, and what is withheld from them, and why",
		Long: `Show each prefix that is announced, how, and to whom, in the columns of "show bgp";
a router in brackets has no session now. What is told differently to different
routers is there once for each way. Below are the VIPs that are withheld, each with
the reason:

  no-backend       no port has a backend that takes new connections from outside
  not-programmed   the kernel does not hold all of it yet, or would not take it
  not-served       no Service has a frontend there
  drained          weir drain
  held-down        it had no backend, and has had some for less than bgp.hold_down
  no-rule          no [[bgp.advertise]] is for it
  refused-by-rule  a rule says announce = false
  family           no session carries its family
  no-peer          there is no [[bgp.peer]]

With --peer: what this router is told, and what is withheld from it.`,
		Args: cobra.NoArgs,
	}
	socket, format, file := socketFlag(cmd), outputFlag(cmd), configFlag(cmd)
	peer := cmd.Flags().String("peer", "", "only this `peer`, by its name")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		var doc status.Routes
		query := url.Values{"peer": {*peer}}
		if err := ask(cmd.Context(), *socket, *file, "GET", "/bgp/routes?"+query.Encode(), &doc); err != nil {
			return notRunning(err)
		}
		return e.write(doc, *format)
	}
	return cmd
}

func bgpRouterConfigCommand(e env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "router-config",
		Short: "print the routers' side of the sessions",
		Long: `Print what a router's operator puts into the router: the session, its timers, and
filters that accept what weir may ever announce and nothing else. It is made of the
configuration file alone: no daemon need run. Passwords are not printed, but where
they are to be put in.

What is for one router is a whole configuration to start from, or a part to put into
one that is there. Without --peer it is printed for each peer, one after the other.`,
		Args: cobra.NoArgs,
	}
	file := configFlag(cmd)
	vendor := cmd.Flags().String("vendor", "", "the `kind` of router: "+strings.Join(bgp.Vendors(), ", "))
	peer := cmd.Flags().String("peer", "", "only this `peer`, by its name")
	_ = cmd.MarkFlagRequired("vendor")
	_ = cmd.RegisterFlagCompletionFunc("vendor", cobra.FixedCompletions(bgp.Vendors(), cobra.ShellCompDirectiveNoFileComp))
	cmd.RunE = func(*cobra.Command, []string) error {
		if !slices.Contains(bgp.Vendors(), *vendor) {
			return exitError{exitInvalid, fmt.Errorf("--vendor %q is none of %s", *vendor, strings.Join(bgp.Vendors(), ", "))}
		}
		cfg, err := config.Load(*file)
		if err != nil {
			return invalid(err)
		}
		return e.printRouterConfig(cfg, *vendor, *peer)
	}
	return cmd
}

// printRouterConfig prints the router's side for one peer; without a name for all.
func (e env) printRouterConfig(cfg *config.Config, vendor, peer string) error {
	if cfg.BGP == nil || len(cfg.BGP.Speaker.Peers) == 0 {
		return exitError{exitInvalid, errors.New("the configuration has no [[bgp.peer]]")}
	}
	names := []string{}
	for _, p := range cfg.BGP.Speaker.Peers {
		if peer == "" || p.Name == peer {
			names = append(names, p.Name)
		}
	}
	if len(names) == 0 {
		return exitError{exitInvalid, fmt.Errorf("there is no peer %q in the configuration", peer)}
	}
	for _, name := range names {
		text, err := bgp.RouterConfig(cfg.BGP.RouterSide(vendor, name))
		if err != nil {
			return exitError{exitInvalid, fmt.Errorf("peer %s: %w", name, err)}
		}
		fmt.Fprint(e.stdout, text)
	}
	return nil
}
