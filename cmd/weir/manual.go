package main

import (
	"errors"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"weir/cmd/weir/internal/config/load"
	"weir/cmd/weir/internal/manual"
)

// manualCommand is for package builds, and so hidden, as completion is.
func manualCommand(e env) *cobra.Command {
	return &cobra.Command{
		Use:    "manual DIR",
		Short:  "write the manual pages into a folder",
		Hidden: true,
		Args:   cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			date, err := time.Parse(time.RFC3339, buildDate)
			if err != nil {
				date = e.now() // an ordinary build
			}
			edition := manual.Edition{Version: version(), Date: date}
			pages := append(manual.Commands(cmd.Root(), edition), manual.Config(load.Schema().Keys(), edition))
			errs := []error{os.MkdirAll(args[0], 0o755)}
			for _, p := range pages {
				errs = append(errs, os.WriteFile(filepath.Join(args[0], p.File), []byte(p.Text), 0o644))
			}
			return errors.Join(errs...)
		},
	}
}
