package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"time"

	"github.com/spf13/cobra"

	"weir/cmd/weir/internal/daemon"
	"weir/cmd/weir/internal/status"
)

// exitTimeOver is that of weir drain --wait when connections are left.
const exitTimeOver = 4

func drainCommand(e env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "drain [--all] [VIP...]",
		Short: "lead new clients elsewhere: ask routers to prefer others, then withdraw the routes",
		Long: `Take VIPs, or with --all the whole box, from the sight of routers without failing
anybody: first their routes bear the community GRACEFUL_SHUTDOWN (RFC 8326) and a
local preference of 0, so that routers that have another way take it; after
bgp.drain_delay the routes are withdrawn. The box serves on whoever comes, and the
connections that it has. Draining what is drained already changes nothing.

A drain is kept in daemon.state_dir: it survives restarts, until weir undrain. What
is drained is told by weir status, which is degraded meanwhile. Without arguments:
what is drained, and how many connections are left.

With --wait it ends when the routes are withdrawn and no connection is left: one
that both sides have closed does not count, a UDP flow counts until the kernel
forgets it.

Exit status: 0 done (without --wait: begun), 1 refused, 3 not running, 4 the time of
--wait is over and something is left; the drain goes on.`,
	}
	socket, format, file := socketFlag(cmd), outputFlag(cmd), configFlag(cmd)
	all := cmd.Flags().Bool("all", false, "the whole box: all VIPs, and those that come later")
	wait := cmd.Flags().Duration("wait", 0, "wait until nothing is left, but at most this long")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		method := "POST"
		if !*all && len(args) == 0 {
			method = "GET"
		}
		doc, err := askDrain(cmd.Context(), *socket, *file, method, "/drain", *all, args)
		if err != nil {
			return err
		}
		if *wait > 0 {
			ask := func(ctx context.Context) (status.Drained, error) {
				return askDrain(ctx, *socket, *file, "GET", "/drain", false, nil)
			}
			doc, err = awaitDrain(cmd.Context(), *wait, concerns(*all, args), ask)
			if err != nil && !errors.Is(err, errTimeOver) {
				return err
			}
		}
		if err := e.write(doc, *format); err != nil {
			return err
		}
		if err != nil {
			return exitError{exitTimeOver, err}
		}
		return nil
	}
	return cmd
}

func undrainCommand(e env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "undrain [--all] [VIP...]",
		Short: "end a drain: announce again",
		Long: `Announce again what weir drain has taken from the sight of routers: the given
VIPs, or with --all everything. Routes return at once, as far as their Services have
backends. A single VIP can't return while the whole box is drained.

Exit status: 0 done, 1 refused, 3 not running.`,
	}
	socket, format, file := socketFlag(cmd), outputFlag(cmd), configFlag(cmd)
	all := cmd.Flags().Bool("all", false, "everything that is drained")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if !*all && len(args) == 0 {
			return exitError{exitInvalid, errors.New("name the VIPs, or --all: weir drain tells what is drained")}
		}
		doc, err := askDrain(cmd.Context(), *socket, *file, "POST", "/undrain", *all, args)
		if err != nil {
			return err
		}
		return e.write(doc, *format)
	}
	return cmd
}

// askDrain asks about VIPs; with all about none, which is the whole box.
func askDrain(ctx context.Context, socket, file, method, path string, all bool, vips []string) (doc status.Drained, err error) {
	if all && len(vips) > 0 {
		return doc, exitError{exitInvalid, errors.New("--all is every VIP: name none")}
	}
	if _, err := daemon.ParseVIPs(vips); err != nil {
		return doc, exitError{exitInvalid, err}
	}
	switch {
	case len(vips) > 0:
		path += "?" + url.Values{"vip": vips}.Encode()
	case all:
		path += "?all=true"
	}
	if err := ask(ctx, socket, file, method, path, &doc); err != nil {
		return doc, notRunning(err)
	}
	return doc, nil
}

// concerns tells which part of what is drained somebody waits for.
func concerns(all bool, vips []string) func(status.Drained) status.Drained {
	named, _ := daemon.ParseVIPs(vips)
	return func(d status.Drained) status.Drained {
		if all || len(named) == 0 {
			return d
		}
		out := status.Drained{VIPs: []status.DrainedVIP{}, Error: d.Error}
		for _, v := range d.VIPs {
			for _, a := range named {
				if v.Address == a.String() {
					out.VIPs = append(out.VIPs, v)
				}
			}
		}
		return out
	}
}

// drainEvery is how often weir drain --wait looks.
const drainEvery = 500 * time.Millisecond

var errTimeOver = errors.New("the time is over and something is left; the drain goes on")

// awaitDrain looks until everything is withdrawn and no connection is left, or the
// time is over; then the error is errTimeOver.
func awaitDrain(ctx context.Context, most time.Duration, part func(status.Drained) status.Drained,
	ask func(context.Context) (status.Drained, error)) (status.Drained, error) {
	over := time.After(most)
	for {
		doc, err := ask(ctx)
		if err != nil {
			return doc, err
		}
		switch doc = part(doc); {
		case doc.All == nil && len(doc.VIPs) == 0:
			return doc, errors.New("somebody has ended the drain: weir undrain")
		case doc.Done():
			return doc, nil
		}
		select {
		case <-ctx.Done():
			return doc, fmt.Errorf("interrupted; the drain goes on: %w", ctx.Err())
		case <-over:
			return doc, errTimeOver
		case <-time.After(min(drainEvery, most)):
		}
	}
}
