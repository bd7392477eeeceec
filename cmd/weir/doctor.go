package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"weir/cmd/weir/internal/doctor"
)

// talksAfter is how long doctor may be silent.
const talksAfter = 1500 * time.Millisecond

func doctorCommand(e env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "doctor [CHECK]...",
		Short: "say what is wrong with this box, and how to mend it",
		Long: `Look at the kernel, its modules and parameters, conntrack, firewall, sockets, links,
routes, the clock, the unit, and whether backends, routers, members and API servers
answer; say what is wrong, why it matters, and the command that mends it. Changes
nothing, and works without a running daemon and with an invalid configuration. Run it
as root: what may not be looked at is listed with --all, and not guessed. It takes a
few seconds, ten at most. CHECK is what findings begin with, such as rp-filter: only
these are judged then.

doctor.md, among the documentation, has a row for each check.

Exit status: 0 nothing to mend, 1 warnings or errors, 2 invalid command line.`,
		ValidArgs: checkIDs(),
	}
	socket, format, file := socketFlag(cmd), outputFlag(cmd), configFlag(cmd)
	all := cmd.Flags().Bool("all", false, "show what is fine and what could not be looked at, too")
	cmd.RunE = func(cmd *cobra.Command, only []string) error {
		for _, id := range only {
			if !slices.Contains(checkIDs(), id) {
				return exitError{exitInvalid, fmt.Errorf("there is no check %q: weir doctor --all lists them", id)}
			}
		}
		quiet := e.talk(talksAfter, "looking, ten seconds at most ...")
		report := doctor.Judge(doctor.Gather(cmd.Context(), doctor.Options{
			ConfigFile: *file, NotRunning: errNotRunning, Now: e.now, Version: version(),
			Ask: func(ctx context.Context, path string, doc any) error {
				return ask(ctx, *socket, *file, "GET", path, doc)
			},
		}), only...)
		quiet()
		if err := cmd.Context().Err(); err != nil {
			return errors.New("interrupted")
		}
		report.All = *all
		if err := e.write(report, *format); err != nil {
			return err
		}
		if !report.Well() {
			return exitError{code: 1}
		}
		return nil
	}
	return cmd
}

// talk tells people who wait at a terminal for longer than after what they wait for,
// until quiet is called.
func (e env) talk(after time.Duration, text string) (quiet func()) {
	if e.screen == nil {
		return func() {}
	}
	over := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		select {
		case <-over:
		case <-time.After(after):
			fmt.Fprintln(e.stderr, "weir:", text)
		}
	})
	return func() { close(over); wg.Wait() }
}

// checkIDs are what the checks are called.
func checkIDs() []string {
	var out []string
	for _, c := range doctor.Checks() {
		out = append(out, c.ID)
	}
	return out
}
