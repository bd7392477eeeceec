package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"weir/cmd/weir/internal/status/traffic"
)

func topCommand(e env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "top",
		Short: "show live rates of frontends and backends, the busiest first",
		Long: `Show the traffic of each frontend and of its backends per second, on average since the
last reading, in the columns of ipvsadm -Ln --rate. These are connections (CPS), packets
and bytes in both directions as clients see them (PPS, BPS), and active connections. The
first line has all of them together. k, M, G are thousands, millions, and so on.

On a terminal it continues until Ctrl-C. Elsewhere it prints one reading, or the number
given by -n: the rates of the first interval.

Exit status: 0 shown, 3 not running.`,
		Example: `  weir top
  weir top --sort bytes --watch=5s
  weir top -n 1 -o json`,
		Args: cobra.NoArgs,
	}
	socket, format, file := socketFlag(cmd), outputFlag(cmd), configFlag(cmd)
	every := watchFlag(cmd)
	cmd.Flag("watch").Usage = "the `time` between two readings: --watch=10s"
	sort := cmd.Flags().String("sort", traffic.Orders()[0], "sort by: "+strings.Join(traffic.Orders(), ", "))
	_ = cmd.RegisterFlagCompletionFunc("sort", cobra.FixedCompletions(traffic.Orders(), cobra.ShellCompDirectiveNoFileComp))
	times := cmd.Flags().IntP("number", "n", 0, "end after this many readings (default: 1, or no limit on a terminal)")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if *times < 0 {
			return exitError{exitInvalid, fmt.Errorf("--number %d: at least 1", *times)}
		}
		if !(&traffic.Rates{}).Sort(*sort) {
			return exitError{exitInvalid, fmt.Errorf("--sort %q: unknown order; use one of %s", *sort, strings.Join(traffic.Orders(), ", "))}
		}
		n := *times
		if n == 0 && e.screen == nil && !cmd.Flags().Changed("watch") {
			n = 1
		}
		inner, out := e.outlet()
		t := top{atOnce: e.screen != nil && n == 0, ask: func(doc *traffic.Totals) error {
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

// top is the last reading and its rates.
type top struct {
	ask    func(*traffic.Totals) error
	atOnce bool // the first reading is shown as it is, without rates
	before traffic.Totals
	rates  traffic.Rates
}

// read returns the rates since the last reading; the first time it waits for an interval,
// unless it is on a terminal.
func (t *top) read(ctx context.Context, every time.Duration) (traffic.Rates, error) {
	if t.before.Time.IsZero() && !t.atOnce {
		if err := t.ask(&t.before); err != nil {
			return traffic.Rates{}, err
		}
		// Two requests within a second get the same reading.
		if !sleep(ctx, max(every, time.Second+shortestInterval)) {
			return traffic.Rates{}, ctx.Err()
		}
	}
	var now traffic.Totals
	if err := t.ask(&now); err != nil {
		t.before = traffic.Totals{} // counters of another run
		return traffic.Rates{}, err
	}
	if t.rates.Time.IsZero() || t.before.Time.IsZero() || now.Time.After(t.before.Time) {
		t.rates = now.Since(t.before)
		t.before = now
	}
	return t.rates, nil
}
