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
	"weir/cmd/weir/internal/status/text"
)

func eventsCommand(e env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "events",
		Short: "show the recent events, with their reasons",
		Long: `Show the recent events with their reasons. Examples are a backend down, a session
lost, an address assigned, a configuration refused, or a foreign change repaired.
They are the log records from level info up. warn needs attention; error means that
weir failed.

The daemon keeps the last thousand since its start. Older ones are in the journal
(journalctl -u weir).

Exit status: 0 shown, 3 not running.`,
		Example: `  weir events
  weir events --follow
  weir events -n 0 -o json | jq '.events[] | select(.level != "info")'`,
		Args: cobra.NoArgs,
	}
	socket, format, file := socketFlag(cmd), outputFlag(cmd), configFlag(cmd)
	number := cmd.Flags().IntP("number", "n", 50, "show this many of the newest; 0 is all")
	follow := cmd.Flags().BoolP("follow", "f", false, "print new events until Ctrl-C")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if *follow && cmd.Flags().Changed("watch") {
			return exitError{exitInvalid, errors.New("--follow and --watch: use one of them")}
		}
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
	// followWait is the time that the daemon waits for an event; followRetry is the
	// interval of requests to a daemon that does not answer.
	followWait  = 30 * time.Second
	followRetry = time.Second
)

// follow prints events as they happen, until ctx ends. It survives a restart of the
// daemon.
func (e env) follow(ctx context.Context, doc status.Events, format string, get func(context.Context, uint64, time.Duration) (status.Events, error)) error {
	silent := false // the error has been printed
	for {
		if err := e.writeEvents(doc, format); err != nil {
			return err
		}
		next, err := get(ctx, doc.Last, followWait)
		switch {
		case err != nil:
			if !silent && ctx.Err() == nil {
				fmt.Fprintf(e.stderr, "weir: %v: retrying\n", err)
			}
			silent = true
			doc.Events = nil
			if !sleep(ctx, followRetry) {
				return nil
			}
			continue
		case !next.Began.Equal(doc.Began) || next.Last < doc.Last: // weir has restarted; an earlier version has no Began
			next, err = get(ctx, 0, 0)
			if err != nil {
				next = status.Events{}
			}
		}
		if doc.Last > 0 && next.Expired > 0 { // --follow of all events begins with what is left
			fmt.Fprintf(e.stderr, "weir: %d events before these have expired: journalctl -u weir\n", next.Expired)
		}
		doc, silent = next, false
	}
}

// writeEvents writes each event on a line.
func (e env) writeEvents(doc status.Events, format string) error {
	for _, x := range doc.Events {
		if format != "json" {
			fmt.Fprintln(e.stdout, text.Plain(x.Line()))
			continue
		}
		if err := json.NewEncoder(e.stdout).Encode(x); err != nil {
			return err
		}
	}
	return nil
}
