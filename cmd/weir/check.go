package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"weir/cmd/weir/internal/config"
	"weir/cmd/weir/internal/daemon"
	"weir/cmd/weir/internal/status"
)

func checkCommand(e env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "check",
		Short: "check a configuration and say everything that is wrong with it",
		Long: `Check a configuration file and what it includes, and say everything that is
wrong, one line each. Touches nothing and needs no privileges.

The keys of [cluster] and the passwords of peers must be readable, as they must be
for the daemon; they are printed nowhere. Of a credential that is not there, and of a
variable for node_name that is not set, it only warns: a drop-in of weir's unit may give
the daemon what nobody else has. weir run ends without them.

Asks no API server: of a cluster it looks whether the kubeconfig is there and
leads to one, and only warns, since the daemon waits for one that does.

With --configured it asks less: whether there is anything to serve, as systemd does
before it starts weir. A box that has just been installed has nothing. A file with
errors counts as one that has: weir run says what is wrong with it.

Exit status: 0 valid, 1 valid with warnings, or with --configured nothing to serve,
2 invalid or unreadable.`,
		Args: cobra.NoArgs,
	}
	file := configFlag(cmd)
	configured := cmd.Flags().Bool("configured", false, "ask only whether there is anything to serve")
	cmd.RunE = func(*cobra.Command, []string) error {
		if *configured {
			begin, err := daemon.Begin(*file)
			return checkConfigured(*file, begin.Config, err)
		}
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

// checkConfigured tells whether weir should be started with what loading the
// configuration gave.
func checkConfigured(file string, cfg *config.Config, err error) error {
	switch {
	case errors.Is(err, fs.ErrNotExist) && !existing(file):
		return exitError{1, fmt.Errorf("there is no %s yet, and so nothing to serve", file)}
	case err == nil && !cfg.Configured():
		return exitError{1, fmt.Errorf("nothing to serve yet: %s has no [[service]], no [[kubernetes]] and no [cluster]", file)}
	}
	return nil // what else is wrong the start says
}

// existing is for errors that may be of a file that another one includes.
func existing(file string) bool {
	_, err := os.Stat(file)
	return err == nil
}

// contents counts what a configuration serves, from where, and for whom.
func contents(cfg *config.Config) string {
	text := status.Count(len(cfg.Services), "service")
	peers := 0
	if cfg.BGP != nil {
		peers = len(cfg.BGP.Speaker.Peers)
	}
	for _, x := range []struct {
		what string
		n    int
	}{{"cluster", len(cfg.Clusters)}, {"pool", len(cfg.Addresses.IPAM.Pools)}, {"BGP peer", peers}} {
		if x.n > 0 {
			text += ", " + status.Count(x.n, x.what)
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
