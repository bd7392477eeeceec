package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"weir/cmd/weir/internal/daemon"
	"weir/cmd/weir/internal/status"
)

// exitTimeOver is that of weir drain --wait when connections are left.
const exitTimeOver = 4

// drainWait is --wait without a time.
const drainWait = 5 * time.Minute

func drainCommand(e env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "drain [--all] [VIP...]",
		Short: "lead new clients to other boxes: routes go, ownership moves, connections are counted down",
		Long: `Take VIPs, or with --all the whole box, out of the way of clients without failing
anybody. Routes first bear the community GRACEFUL_SHUTDOWN (RFC 8326) and a local
preference of 0, so that routers that have another way take it; after
bgp.drain_delay they are withdrawn. In a fleet another member becomes the owner at
once. The box serves on whoever comes, and the connections that it has. Draining
what is drained already changes nothing.

In a fleet, a VIP that no other member can serve stays announced, as the last choice,
until one can: "kept". With --force it is withdrawn nevertheless.

A drain is kept in daemon.state_dir: it survives restarts, until weir undrain. What
is drained is told by weir status, which is degraded meanwhile. Without arguments:
what is drained, which member has it now, and how many connections are left.

With --wait it ends when the routes are withdrawn and no connection is left, or
after that time: --wait alone is --wait=5m. A connection that both sides have closed
does not count, a UDP flow counts until the kernel forgets it. On a terminal it says
meanwhile what is left.

Exit status: 0 done (without --wait: begun), 1 refused, 3 not running, 4 the time of
--wait is over and something is left; the drain goes on.`,
	}
	socket, format, file := socketFlag(cmd), outputFlag(cmd), configFlag(cmd)
	all := cmd.Flags().Bool("all", false, "the whole box: all VIPs, and those that come later")
	force := cmd.Flags().Bool("force", false, "withdraw even what no other member of the fleet can serve")
	wait := cmd.Flags().Duration("wait", 0, "wait until nothing is left, but at most this long")
	cmd.Flags().Lookup("wait").NoOptDefVal = drainWait.String()
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if cmd.Flags().Changed("wait") {
			*wait, args = waitOf(*wait, args)
		}
		method := "POST"
		if !*all && len(args) == 0 {
			if method = "GET"; *force {
				return exitError{exitInvalid, errors.New("--force is for the VIPs that are named, or --all: weir drain tells what is drained")}
			}
		}
		asked := question{socket: *socket, file: *file, all: *all, force: *force, vips: args}
		doc, err := asked.put(cmd.Context(), method, "/drain")
		if err != nil {
			return err
		}
		if *wait > 0 {
			doc, err = awaitDrain(cmd.Context(), *wait, concerns(*all, args), e.tellDrain(), func(ctx context.Context) (status.Drained, error) {
				return question{socket: *socket, file: *file}.put(ctx, "GET", "/drain")
			})
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

// waitOf is for who writes --wait 30s: of a flag that may stand alone the flag library
// takes a value only after "=", and no VIP is a time.
func waitOf(wait time.Duration, args []string) (time.Duration, []string) {
	for i, a := range args {
		if d, err := time.ParseDuration(a); err == nil && wait == drainWait {
			return d, slices.Delete(slices.Clone(args), i, i+1)
		}
	}
	return wait, args
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
		doc, err := question{socket: *socket, file: *file, all: *all, vips: args}.put(cmd.Context(), "POST", "/undrain")
		if err != nil {
			return err
		}
		return e.write(doc, *format)
	}
	return cmd
}

// question is what the daemon is asked about drains.
type question struct {
	socket, file string
	all, force   bool
	vips         []string // with all none, which is the whole box
}

func (q question) put(ctx context.Context, method, path string) (doc status.Drained, err error) {
	if q.all && len(q.vips) > 0 {
		return doc, exitError{exitInvalid, errors.New("--all is every VIP: name none")}
	}
	if _, err := daemon.ParseVIPs(q.vips); err != nil {
		return doc, exitError{exitInvalid, err}
	}
	form := url.Values{}
	switch {
	case len(q.vips) > 0:
		form["vip"] = q.vips
	case q.all:
		form.Set("all", "true")
	}
	if q.force {
		form.Set("force", "true")
	}
	if len(form) > 0 {
		path += "?" + form.Encode()
	}
	if err := ask(ctx, q.socket, q.file, method, path, &doc); err != nil {
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
					if v.Kept {
						out.Kept++
					}
				}
			}
		}
		return out
	}
}

// drainEvery is how often weir drain --wait looks.
const drainEvery = 500 * time.Millisecond

var errTimeOver = errors.New("the time is over and something is left; the drain goes on")

// tellDrain gives what says how a drain goes on: on a terminal in one line that changes,
// elsewhere nothing.
func (e env) tellDrain() func(status.Drained) {
	if !isTerminal(e.stderr) {
		return func(status.Drained) {}
	}
	said := false
	return func(d status.Drained) {
		line := d.Progress(e.now())
		switch {
		case line != "":
			fmt.Fprintf(e.stderr, "\r\x1b[K%s", line) // back to the beginning, and clear the line
		case said:
			fmt.Fprint(e.stderr, "\r\x1b[K")
		}
		said = line != ""
	}
}

func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	return err == nil
}

// awaitDrain looks until everything is withdrawn and no connection is left, or the
// time is over; then the error is errTimeOver.
func awaitDrain(ctx context.Context, most time.Duration, part func(status.Drained) status.Drained,
	tell func(status.Drained), ask func(context.Context) (status.Drained, error)) (doc status.Drained, err error) {
	defer func() { tell(status.Drained{}) }()
	over := time.After(most)
	for {
		if doc, err = ask(ctx); err != nil {
			return doc, err
		}
		switch doc = part(doc); {
		case doc.All == nil && len(doc.VIPs) == 0:
			return doc, errors.New("somebody has ended the drain: weir undrain")
		case doc.Done():
			return doc, nil
		}
		tell(doc)
		select {
		case <-ctx.Done():
			return doc, fmt.Errorf("interrupted; the drain goes on: %w", ctx.Err())
		case <-over:
			return doc, errTimeOver
		case <-time.After(min(drainEvery, most)):
		}
	}
}
