package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"weir/cmd/weir/internal/status"
)

func eventsCommand(e env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "events",
		Short: "show what weir did lately, and why",
		Long: `Show what weir did lately, and why: backends that went up or down, what was changed in
the kernel and because of what, sessions with routers, routes, owners of VIPs, addresses
given, drains, configurations loaded or refused, and what others changed that weir put
right. These are the records of its log from level info up. A level of warn is for
somebody to look at; error means that weir did not do its job.

The daemon keeps the last thousand, from its start on: what came before is in the
journal (journalctl -u weir).`,
		Example: `  weir events
  weir events --follow
  weir events -n 0 -o json | jq '.events[] | select(.level != "info")'`,
		Args: cobra.NoArgs,
	}
	socket, format, file := socketFlag(cmd), outputFlag(cmd), configFlag(cmd)
	number := cmd.Flags().IntP("number", "n", 50, "show the last so many; 0 is all")
	follow := cmd.Flags().BoolP("follow", "f", false, "go on with what happens, until Ctrl-C")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if *number < 0 {
			return exitError{exitInvalid, fmt.Errorf("--number %d: 0 or more", *number)}
		}
		get := func(ctx context.Context, after uint64, wait time.Duration) (doc status.Events, err error) {
			query := url.Values{"after": {strconv.FormatUint(after, 10)}, "wait": {strconv.FormatFloat(wait.Seconds(), 'f', -1, 64)}}
			return doc, ask(ctx, *socket, *file, "GET", "/events?"+query.Encode(), &doc)
		}
		doc, err := get(cmd.Context(), 0, 0)
		if err != nil {
			return notRunning(err)
		}
		if *number > 0 {
			doc = doc.Newest(*number)
		}
		if !*follow {
			return e.write(doc, *format)
		}
		if *format == "yaml" {
			return exitError{exitInvalid, errors.New("--follow prints a table, or with -o json a line for each event")}
		}
		return e.follow(cmd.Context(), doc, *format, get)
	}
	return cmd
}

const (
	// followWait is how long the daemon is asked to wait for something to happen,
	// followRetry how soon one that does not answer is asked again.
	followWait  = 30 * time.Second
	followRetry = time.Second
)

// follow prints events as they happen, until ctx ends. A restart of the daemon does not
// end it.
func (e env) follow(ctx context.Context, doc status.Events, format string, get func(context.Context, uint64, time.Duration) (status.Events, error)) error {
	silent := false // it has been said that nobody answers
	for {
		if err := e.writeEvents(doc, format); err != nil {
			return err
		}
		next, err := get(ctx, doc.Last, followWait)
		switch {
		case err != nil:
			if !silent && ctx.Err() == nil {
				fmt.Fprintf(e.stderr, "weir: %v: trying again\n", err)
			}
			silent = true
			doc.Events = nil
			if !sleep(ctx, followRetry) {
				return nil
			}
			continue
		case next.Last < doc.Last: // weir has started anew
			next, err = get(ctx, 0, 0)
			if err != nil {
				next = status.Events{}
			}
		}
		doc, silent = next, false
	}
}

// writeEvents writes each event on a line.
func (e env) writeEvents(doc status.Events, format string) error {
	for _, x := range doc.Events {
		if format != "json" {
			fmt.Fprintln(e.stdout, status.Plain(x.Line()))
			continue
		}
		if err := json.NewEncoder(e.stdout).Encode(x); err != nil {
			return err
		}
	}
	return nil
}
