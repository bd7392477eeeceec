package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"weir/cmd/weir/internal/config"
)

func checkCommand(e env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "check",
		Short: "check a configuration and say everything that is wrong with it",
		Long: `Check a configuration file and what it includes, and say everything that is
wrong, one line each. Touches nothing and needs no privileges.

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
		fmt.Fprintf(e.stdout, "%s: valid, %d services\n", *file, len(cfg.Services))
		if worst, any := config.Worst(cfg.Warnings); any && worst >= config.Warning {
			return exitError{code: 1}
		}
		return nil
	}
	return cmd
}

// invalid gives errors of a configuration, and no others, the exit code for it.
func invalid(err error) error {
	var problems *config.Errors
	if errors.As(err, &problems) {
		return exitError{exitInvalid, err}
	}
	return err
}
