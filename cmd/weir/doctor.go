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
	"weir/cmd/weir/internal/doctor/gather"
)

// talksAfter is the time after which doctor reports that it is working.
const talksAfter = 1500 * time.Millisecond

func doctorCommand(e env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "doctor [CHECK]...",
		Short: "find the problems of this box, and their remedies",
		Long: `Check the kernel, its modules and parameters, conntrack, firewall, sockets, links,
routes, the clock and the unit. Ask backends, routers, members and API servers
for an answer. Report each problem with its reason and the command that repairs it.
Nothing is changed; the command works without a daemon and with an invalid
configuration. Run it as root: checks without permission are listed with --all. It
takes a few seconds, ten at most. CHECK is the first word of a finding, such as
rp-filter: then only these checks are reported.

doctor.md of the documentation has a row for each check.

Exit status: 0 no problem, 1 warnings or errors.`,
		ValidArgs: checkIDs(),
	}
	socket, format, file := socketFlag(cmd), outputFlag(cmd), configFlag(cmd)
	all := cmd.Flags().Bool("all", false, "show passed and skipped checks too")
	cmd.RunE = func(cmd *cobra.Command, only []string) error {
		for _, id := range only {
			if !slices.Contains(checkIDs(), id) {
				return exitError{exitInvalid, fmt.Errorf("there is no check %q: weir doctor --all lists them", id)}
			}
		}
		quiet := e.talk(talksAfter, "checking, ten seconds at most ...")
		report := doctor.Judge(gather.Gather(cmd.Context(), gather.Options{
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
		if !report.OK() {
			return exitError{code: 1}
		}
		return nil
	}
	return cmd
}

// talk prints a text on a terminal after a time, unless quiet is called before.
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

// checkIDs returns the names of the checks.
func checkIDs() []string {
	var out []string
	for _, c := range doctor.Checks() {
		out = append(out, c.ID)
	}
	return out
}
