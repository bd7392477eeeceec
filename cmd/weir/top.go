package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"weir/cmd/weir/internal/status"
)

func topCommand(e env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "top",
		Short: "show live rates of frontends and backends, the busiest first",
		Long: `Show what goes through each frontend and each of its backends per second, on average
since the last reading, in the columns of ipvsadm -Ln --rate: connections (CPS), packets
and bytes in both directions as clients see them (PPS, BPS), and active connections. The
first line has all of them together. k, M, G are thousands, millions, and so on.

On a terminal it goes on until Ctrl-C. Elsewhere it prints one reading, or as many as -n
says: the rates of the interval after it began.`,
		Example: `  weir top
  weir top --sort bytes --watch=5s
  weir top -n 1 -o json`,
		Args: cobra.NoArgs,
	}
	socket, format, file := socketFlag(cmd), outputFlag(cmd), configFlag(cmd)
	every := watchFlag(cmd)
	cmd.Flag("watch").Usage = "the `time` between two readings: --watch=10s"
	sort := cmd.Flags().String("sort", status.Orders()[0], "by what: "+strings.Join(status.Orders(), ", "))
	_ = cmd.RegisterFlagCompletionFunc("sort", cobra.FixedCompletions(status.Orders(), cobra.ShellCompDirectiveNoFileComp))
	times := cmd.Flags().IntP("number", "n", 0, "end after so many readings (default: 1, or none on a terminal)")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if *times < 0 {
			return exitError{exitInvalid, fmt.Errorf("--number %d: at least 1", *times)}
		}
		if !(&status.Rates{}).Sort(*sort) {
			return exitError{exitInvalid, fmt.Errorf("--sort %q is none of %s", *sort, strings.Join(status.Orders(), ", "))}
		}
		n := *times
		if n == 0 && e.screen == nil && !cmd.Flags().Changed("watch") {
			n = 1
		}
		inner, out := e.outlet()
		t := top{atOnce: e.screen != nil && n == 0, ask: func(doc *status.Traffic) error {
			return ask(cmd.Context(), *socket, *file, "GET", "/traffic", doc)
		}}
		return e.watchTimes(cmd, out, *every, n, func() error {
			rates, err := t.read(cmd.Context(), time.Duration(*every))
			if err != nil {
				return notRunning(err)
			}
			rates.Sort(*sort)
			return inner.write(rates, *format)
		})
	}
	return cmd
}

// top remembers the last reading, and what came of it.
type top struct {
	ask    func(*status.Traffic) error
	atOnce bool // the first reading is shown as it is, without rates
	before status.Traffic
	rates  status.Rates
}

// read gives the rates since the last reading; the first time it waits for an interval,
// unless somebody looks on.
func (t *top) read(ctx context.Context, every time.Duration) (status.Rates, error) {
	if t.before.Time.IsZero() && !t.atOnce {
		if err := t.ask(&t.before); err != nil {
			return status.Rates{}, err
		}
		// Who asks again within a second gets the same reading.
		if !sleep(ctx, max(every, time.Second+shortestInterval)) {
			return status.Rates{}, ctx.Err()
		}
	}
	var now status.Traffic
	if err := t.ask(&now); err != nil {
		t.before = status.Traffic{} // counters of another run
		return status.Rates{}, err
	}
	if t.rates.Time.IsZero() || t.before.Time.IsZero() || now.Time.After(t.before.Time) {
		t.rates = now.Since(t.before)
		t.before = now
	}
	return t.rates, nil
}
