package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"weir/cmd/weir/internal/config"
)

func checkCommand(e env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "check",
		Short: "check a configuration and say everything that is wrong with it",
		Long: `Check a configuration file and what it includes, and say everything that is
wrong, one line each. Touches nothing and needs no privileges.

The keys of [cluster] must be readable, as they must be for the daemon; they are
printed nowhere.

Asks no API server: of a cluster it looks whether the kubeconfig is there and
leads to one, and only warns, since the daemon waits for one that does. Variables
of the environment that node_name takes must be set: NODE_NAME=node1 weir check.

Exit status: 0 valid, 1 valid with warnings, 2 invalid or unreadable.`,
		Args: cobra.NoArgs,
	}
	file := configFlag(cmd)
	cmd.RunE = func(*cobra.Command, []string) error {
		cfg, err := config.Load(*file)
		if err != nil {
			return exitError{exitInvalid, err} // a file that can't be read, too: 1 means that it can be run
		}
		for _, w := range cfg.Warnings {
			fmt.Fprintln(e.stderr, w)
		}
		fmt.Fprintf(e.stdout, "%s: valid, %s\n", *file, contents(cfg))
		if worst, any := config.Worst(cfg.Warnings); any && worst >= config.Warning {
			return exitError{code: 1}
		}
		return nil
	}
	return cmd
}

// contents counts what a configuration serves, from where, and for whom.
func contents(cfg *config.Config) string {
	text := fmt.Sprintf("%d services", len(cfg.Services))
	peers := 0
	if cfg.BGP != nil {
		peers = len(cfg.BGP.Speaker.Peers)
	}
	for _, x := range []struct {
		what string
		n    int
	}{{"cluster", len(cfg.Clusters)}, {"pool", len(cfg.Addresses.IPAM.Pools)}, {"BGP peer", peers}} {
		switch x.n {
		case 0:
		case 1:
			text += ", 1 " + x.what
		default:
			text += fmt.Sprintf(", %d %ss", x.n, x.what)
		}
	}
	if f := cfg.Fleet; f != nil {
		text += fmt.Sprintf(", member %s of fleet %s", f.Gossip.Name, f.Gossip.Fleet)
	}
	if cfg.L2 != nil {
		text += ", ARP and NDP on " + strings.Join(cfg.L2.Everywhere(), ", ")
	}
	return text
}

// invalid gives errors of a configuration, and no others, the exit code for it.
func invalid(err error) error {
	var problems *config.Errors
	if errors.As(err, &problems) {
		return exitError{exitInvalid, err}
	}
	return err
}
