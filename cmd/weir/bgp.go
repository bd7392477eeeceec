package main

import (
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"weir/bgp/routerconfig"
	"weir/cmd/weir/internal/config"
	"weir/cmd/weir/internal/config/load"
	"weir/cmd/weir/internal/status/routing"
)

func bgpCommand(e env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "bgp",
		Short: "show the BGP sessions and routes",
		Long: `Show the sessions with routers, the advertised and the withheld routes, or print the
configuration for the routers.`,
		Args: cobra.NoArgs,
	}
	cmd.AddCommand(reads(e, bgpNeighborsCommand), reads(e, bgpRoutesCommand), bgpRouterConfigCommand(e))
	return cmd
}

func bgpNeighborsCommand(e env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "neighbors",
		Short: "show the sessions with routers, as show bgp summary does",
		Long: `Show the session with each router in the columns of "show bgp summary" and "gobgp
neighbor", with the reason if it is down. Received counts prefixes that the router
sends; weir uses none of them, and the session ends above the limit after the slash.
Advertised counts the prefixes that the router has from weir. A peer with a range has
a line of its own, and one for each router that connected from it.

-o json has more: both ends, families, timers, notifications, messages, graceful
restart.

Exit status: 0 all sessions are up, 1 some are not, 3 not running.`,
		Args: cobra.NoArgs,
	}
	cmd.RunE = showJudged[routing.Neighbors](e, cmd, "/bgp/neighbors")
	return cmd
}

func bgpRoutesCommand(e env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "routes",
		Short: "show the advertised routes, and the withheld ones with their reasons",
		Long: `Show each announced prefix with its attributes and routers, in the columns of "show
bgp"; a router in brackets has no session now. A prefix with different attributes for
different routers has one line for each. The withheld VIPs follow, each with the
reason:

  no-backend       no port has a backend that takes new connections from outside
  not-programmed   its objects are not in the kernel yet, or were refused
  not-served       no Service has a frontend there
  drained          weir drain
  reannounce-delay it had no backend, and has had some for less than bgp.reannounce_delay
  no-rule          no [[bgp.advertise]] is for it
  refused-by-rule  a rule has announce = false
  family           no session carries its family
  no-peer          there is no [[bgp.peer]]

With --peer only the routes of this router are shown.

Exit status: 0 shown, 3 not running.`,
		Args: cobra.NoArgs,
	}
	socket, format, file := socketFlag(cmd), outputFlag(cmd), configFlag(cmd)
	peer := cmd.Flags().String("peer", "", "only this `peer`, by its name")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		var doc routing.Routes
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
		Short: "print the configuration for the routers",
		Long: `Print the configuration for a router: the session, its timers, and filters that accept
only the prefixes that weir may announce. It depends on the configuration file only;
no daemon is needed. Passwords are replaced by a placeholder.

The output for one router is a complete configuration to start from, or a part to
merge into an existing one. Without --peer it is printed for each peer in turn.

Exit status: 0 printed, 2 no such peer or vendor.`,
		Args: cobra.NoArgs,
	}
	file := configFlag(cmd)
	vendor := cmd.Flags().String("vendor", "", "the `kind` of router: "+strings.Join(routerconfig.Vendors(), ", "))
	peer := cmd.Flags().String("peer", "", "only this `peer`, by its name")
	_ = cmd.RegisterFlagCompletionFunc("vendor", cobra.FixedCompletions(routerconfig.Vendors(), cobra.ShellCompDirectiveNoFileComp))
	cmd.RunE = func(*cobra.Command, []string) error {
		if !slices.Contains(routerconfig.Vendors(), *vendor) {
			return exitError{exitInvalid, fmt.Errorf("--vendor %q is not a kind of router; use one of %s", *vendor, strings.Join(routerconfig.Vendors(), ", "))}
		}
		cfg, err := load.File(*file)
		if err != nil {
			return invalid(err)
		}
		return e.printRouterConfig(cfg, *vendor, *peer)
	}
	return cmd
}

// printRouterConfig prints the configuration for one router; without a name for all.
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
		text, err := routerconfig.Text(cfg.BGP.RouterSide(vendor, name))
		if err != nil {
			return exitError{exitInvalid, fmt.Errorf("peer %s: %w", name, err)}
		}
		fmt.Fprint(e.stdout, text)
	}
	return nil
}
