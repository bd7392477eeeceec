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

	"weir/cmd/weir/internal/drain"
	"weir/cmd/weir/internal/status"
)

// exitTimeOver is the exit status of weir drain --wait when connections are left.
const exitTimeOver = 4

// drainWait is --wait without a time.
const drainWait = 5 * time.Minute

func drainCommand(e env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "drain [--all] [VIP...]",
		Short: "steer new clients to other boxes: withdraw routes, move ownership, count connections down",
		Long: `Drain VIPs, or with --all the whole box, without failed connections. Routes first
carry the community GRACEFUL_SHUTDOWN (RFC 8326) and a local preference of 0, so that
routers prefer other boxes; after bgp.drain_delay they are withdrawn. In a fleet
another member becomes the owner immediately. The box still serves its connections
and the clients that arrive. Draining a drained VIP changes nothing.

In a fleet, a VIP that no other member can serve is retained. It stays announced as the
last choice, until another member can serve it. With --force it is withdrawn.

A drain is stored in daemon.state_dir and survives restarts, until weir undrain. weir
status reports it and is degraded meanwhile. Without arguments: the drained VIPs, their
present owners, and the number of connections left.

With --wait the command ends when the routes are withdrawn and no connection is left,
or after that time: --wait without a time is --wait=5m. A connection that both sides
have closed does not count; a UDP flow counts until the kernel removes it. A terminal
shows the progress.

Exit status: 0 done (without --wait: started), 1 refused, 3 not running, 4 connections
left after the time of --wait (the drain continues).`,
	}
	socket, format, file := socketFlag(cmd), outputFlag(cmd), configFlag(cmd)
	all := cmd.Flags().Bool("all", false, "the whole box: all VIPs, and those that come later")
	force := cmd.Flags().Bool("force", false, "withdraw even what no other member of the fleet can serve")
	wait := cmd.Flags().Duration("wait", 0, "wait until no connection is left, at most this long")
	cmd.Flags().Lookup("wait").NoOptDefVal = drainWait.String()
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if cmd.Flags().Changed("wait") {
			*wait, args = waitOf(*wait, args)
		}
		method := "POST"
		if !*all && len(args) == 0 {
			if method = "GET"; *force {
				return exitError{exitInvalid, errors.New("--force needs VIPs or --all: weir drain lists the drained VIPs")}
			}
		}
		asked := question{socket: *socket, file: *file, all: *all, force: *force, vips: args}
		doc, err := asked.put(cmd.Context(), method, "/drain")
		if err != nil {
			return err
		}
		if *wait > 0 {
			doc, err = awaitDrain(cmd.Context(), *wait, concerns(*all, args), e.printDrain(), func(ctx context.Context) (status.Drained, error) {
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

// waitOf returns the time of --wait 30s: the flag library takes the value of an optional
// argument only after "=". No VIP is a time.
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
		Short: "end a drain",
		Long: `End the drain of the given VIPs, or with --all of the whole box. Their routes are
advertised immediately, if their Services have backends. A single VIP stays drained
while the whole box is drained.

Exit status: 0 done, 1 refused, 3 not running.`,
	}
	socket, format, file := socketFlag(cmd), outputFlag(cmd), configFlag(cmd)
	all := cmd.Flags().Bool("all", false, "everything that is drained")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if !*all && len(args) == 0 {
			return exitError{exitInvalid, errors.New("name the VIPs, or --all: weir drain lists the drained VIPs")}
		}
		doc, err := question{socket: *socket, file: *file, all: *all, vips: args}.put(cmd.Context(), "POST", "/undrain")
		if err != nil {
			return err
		}
		return e.write(doc, *format)
	}
	return cmd
}

// question is a request to the daemon about drains.
type question struct {
	socket, file string
	all, force   bool
	vips         []string // with all none, which is the whole box
}

func (q question) put(ctx context.Context, method, path string) (doc status.Drained, err error) {
	if q.all && len(q.vips) > 0 {
		return doc, exitError{exitInvalid, errors.New("--all is every VIP: name none")}
	}
	if _, err := drain.ParseVIPs(q.vips); err != nil {
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

// concerns returns a function that selects the drains of a request.
func concerns(all bool, vips []string) func(status.Drained) status.Drained {
	named, _ := drain.ParseVIPs(vips)
	return func(d status.Drained) status.Drained {
		if all || len(named) == 0 {
			return d
		}
		out := status.Drained{VIPs: []status.DrainedVIP{}, Error: d.Error}
		for _, v := range d.VIPs {
			for _, a := range named {
				if v.Address == a.String() {
					out.VIPs = append(out.VIPs, v)
					if v.Retained {
						out.Retained++
					}
				}
			}
		}
		return out
	}
}

// drainEvery is the interval of requests while --wait waits.
const drainEvery = 500 * time.Millisecond

var errTimeOver = errors.New("the time is over with connections left; the drain continues")

// printDrain returns a function that shows the progress of a drain: on a terminal in one
// changing line, elsewhere nowhere.
func (e env) printDrain() func(status.Drained) {
	if !isTerminal(e.stderr) {
		return func(status.Drained) {}
	}
	shown := false
	return func(d status.Drained) {
		line := d.Progress(e.now())
		switch {
		case line != "":
			fmt.Fprintf(e.stderr, "\r\x1b[K%s", line) // back to the beginning, and clear the line
		case shown:
			fmt.Fprint(e.stderr, "\r\x1b[K")
		}
		shown = line != ""
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

// awaitDrain waits until all routes are withdrawn and no connection is left, or returns
// errTimeOver.
func awaitDrain(ctx context.Context, most time.Duration, part func(status.Drained) status.Drained,
	report func(status.Drained), ask func(context.Context) (status.Drained, error)) (doc status.Drained, err error) {
	defer func() { report(status.Drained{}) }()
	over := time.After(most)
	for {
		if doc, err = ask(ctx); err != nil {
			return doc, err
		}
		switch doc = part(doc); {
		case doc.All == nil && len(doc.VIPs) == 0:
			return doc, errors.New("the drain was ended by weir undrain")
		case doc.Done():
			return doc, nil
		}
		report(doc)
		select {
		case <-ctx.Done():
			return doc, fmt.Errorf("interrupted; the drain continues: %w", ctx.Err())
		case <-over:
			return doc, errTimeOver
		case <-time.After(min(drainEvery, most)):
		}
	}
}
