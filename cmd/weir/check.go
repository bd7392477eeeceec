package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"weir/cmd/weir/internal/config"
	"weir/cmd/weir/internal/config/load"
	"weir/cmd/weir/internal/config/source"
	"weir/cmd/weir/internal/rollback"
	"weir/cmd/weir/internal/status/text"
)

func checkCommand(e env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "check [FILE]",
		Short: "check a configuration and report every error and warning",
		Long: `Check a configuration file and the files that it includes, and report every error
and warning, one on each line as FILE:LINE: TEXT. FILE is the same as --config FILE.
Nothing is changed, and no privileges are needed.

The keys of [fleet] and the passwords of peers must be readable; they are printed
nowhere. A missing credential is a warning only, and so is an unset variable of
node_name: a drop-in of weir's unit may provide it. weir run fails without it.

No API server is contacted. A missing or invalid kubeconfig is a warning, because
the daemon waits for it.

With --configured only one thing is checked, as systemd does before it starts weir:
whether there is anything to serve. There is nothing on a newly installed box. A file
with errors counts as configured: weir run reports them.

Exit status: 0 valid, 1 warnings with --strict or nothing to serve with --configured, 2
invalid or unreadable.`,
		Args: cobra.MaximumNArgs(1),
	}
	flag := configFlag(cmd)
	configured := cmd.Flags().Bool("configured", false, "check only whether there is anything to serve")
	strict := cmd.Flags().Bool("strict", false, "exit with 1 if there are warnings")
	cmd.RunE = func(_ *cobra.Command, args []string) error {
		file, err := fileArg(cmd, *flag, args)
		if err != nil {
			return err
		}
		if *configured {
			begin, err := rollback.Begin(cmd.Context(), file)
			return checkConfigured(file, begin.Config, err)
		}
		cfg, err := load.File(file)
		if err != nil {
			return exitError{exitInvalid, err} // an unreadable file too: 1 means that weir can run
		}
		for _, w := range source.Lines(cfg.Warnings) {
			fmt.Fprintln(e.stderr, w)
		}
		fmt.Fprintf(e.stdout, "%s: valid, %s\n", file, contents(cfg))
		if worst, any := source.Worst(cfg.Warnings); *strict && any && worst >= source.Warning {
			return exitError{code: 1}
		}
		return nil
	}
	return cmd
}

// checkConfigured returns an error if weir must not be started with the result of
// loading the configuration.
func checkConfigured(file string, cfg *config.Config, err error) error {
	switch {
	case errors.Is(err, fs.ErrNotExist) && !existing(file):
		return exitError{1, fmt.Errorf("there is no %s yet, and so nothing to serve", file)}
	case err == nil && !cfg.Configured():
		return exitError{1, fmt.Errorf("nothing to serve yet: %s has no [[service]], no [[kubernetes]] and no [fleet]", file)}
	}
	return nil // the start reports other errors
}

// existing reports whether a file exists: the error may be that of an included file.
func existing(file string) bool {
	_, err := os.Stat(file)
	return err == nil
}

// contents returns the numbers of services, clusters, pools and peers of a configuration.
func contents(cfg *config.Config) string {
	line := text.Count(len(cfg.Services), "service")
	peers := 0
	if cfg.BGP != nil {
		peers = len(cfg.BGP.Speaker.Peers)
	}
	for _, x := range []struct {
		noun string
		n    int
	}{{"cluster", len(cfg.Clusters)}, {"pool", len(cfg.Addresses.IPAM.Pools)}, {"BGP peer", peers}} {
		if x.n > 0 {
			line += ", " + text.Count(x.n, x.noun)
		}
	}
	if f := cfg.Fleet; f != nil {
		line += fmt.Sprintf(", member %s of fleet %s", f.Gossip.Name, f.Gossip.Fleet)
	}
	if cfg.L2 != nil {
		line += ", ARP and NDP on " + strings.Join(cfg.L2.Everywhere(), ", ")
	}
	return line
}

// invalid gives the errors of a configuration their exit code, and leaves others as they are.
func invalid(err error) error {
	if _, ok := errors.AsType[*source.Errors](err); ok {
		return exitError{exitInvalid, err}
	}
	return err
}
