package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"weir/cmd/weirlab/internal/drill"
	"weir/cmd/weirlab/internal/known"
)

func drillCommand() *cobra.Command {
	d := fullDrill(os.Stderr)
	var modes []string
	for _, m := range drill.Modes {
		modes = append(modes, string(m))
	}
	names := strings.Join(modes, ", ")
	cmd := &cobra.Command{
		Use:   "drill",
		Short: "let things go wrong in a fleet of boxes, and count what clients notice; beside keepalived",
		Long: `Boots boxes behind a router, with clients and backends, and causes one failure after the
other while clients make new connections and keep others. The failures are power cuts, pulled
cables, killed daemons, restarts, upgrades, drains, partitions, lost packets, clocks and keys.
It does so in each of weir's modes, and with keepalived (VRRP and IPVS) on the same kernels.
Prints one table with the promise of each event. Fails when a count is larger than promised:
requests lost, connections cut, moves. Times depend on the machine and are only compared.`,
		Args: cobra.NoArgs,
	}
	cmd.Flags().StringSliceVar(&modes, "modes", modes, "of "+names)
	cmd.Flags().IntVar(&d.boxes, "boxes", 0, "how many boxes: 2 or 3; 0 is 2, and for some events of l2 3")
	cmd.Flags().StringSliceVar(&d.Only, "only", nil, "only events with names that have one of these words")
	cmd.Flags().BoolVar(&d.Short, "short", false, "all of the code in about a minute: some events, small sizes")
	cmd.Flags().DurationVar(&d.Loss, "loss", 0, "how long boxes lose packets between each other; 0 is a minute, or 3 s if short")
	cmd.Flags().StringVar(&d.write, "write", "", "a folder; the table is written to fleet.md there")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		var chosen []drill.Mode
		for _, m := range modes {
			if !slices.Contains(drill.Modes, drill.Mode(m)) {
				return fmt.Errorf("--modes %s: want %s", m, names)
			}
			chosen = append(chosen, drill.Mode(m))
		}
		if d.boxes != 0 && d.boxes != 2 && d.boxes != 3 {
			return fmt.Errorf("--boxes %d: want 2 or 3", d.boxes)
		}
		d.Modes = chosen
		return d.run(cmd.Context(), cmd.OutOrStdout())
	}
	return cmd
}

// drillFolder is for what a drill leaves behind that broke a promise.
const drillFolder = "artifacts/drill"

// drillRun is a run of make drill: modes and events, and what becomes of the table.
type drillRun struct {
	drill.Options
	boxes int
	write string // a folder
	place string // the circumstances
}

// fullDrill is all events in all modes.
func fullDrill(progress io.Writer) *drillRun {
	return &drillRun{Options: drill.Options{Modes: drill.Modes, Progress: progress}}
}

func (d *drillRun) run(ctx context.Context, out io.Writer) error {
	list, err := known.Load()
	if err != nil {
		return err
	}
	var rows []drill.Row
	var failed []error
	for _, boxes := range d.sites() {
		more, err := d.onSite(ctx, boxes, list)
		rows, failed = append(rows, more...), append(failed, err)
	}
	fmt.Fprintf(out, "%s\n%s; weir with preempt_delay = %s, BFD 300 ms x 3.\n", d.place, drill.Beside, d.PreemptDelay())
	fmt.Fprintf(out, "A new connection every %s, late if TCP had to send again, lost if not answered in %s.\n\n", d.Beat(), drill.Patience)
	drill.Print(out, rows)
	if d.write != "" {
		failed = append(failed, writeTable(d.write, "fleet.md", "make drill", d.place+".\n\n"+drill.Markdown(rows)))
	}
	return errors.Join(failed...)
}

// sites are the numbers of boxes of the sites to open.
func (d *drillRun) sites() []int {
	switch {
	case d.boxes != 0:
		return []int{d.boxes}
	case len(d.Only) > 0 || !slices.Contains(d.Modes, drill.L2):
		return []int{2}
	}
	return []int{2, 3}
}

// onSite drills on a site with so many boxes. Those that come after the two have l2 only.
func (d *drillRun) onSite(ctx context.Context, boxes int, list known.List) (rows []drill.Row, err error) {
	site, err := drill.Open(ctx, boxes)
	if err != nil {
		return nil, err
	}
	defer site.Close()
	if d.place, err = circumstances(ctx, site.Box("box1"), "keepalived --version"); err != nil {
		return nil, err
	}
	o := d.Options
	third := boxes == 3 && d.boxes == 0
	if third {
		o.Modes, o.Only = []drill.Mode{drill.L2}, []string{"power cut", "split"}
		if o.Short {
			o.Only = o.Only[:1]
		}
	}
	rows, err = drill.Run(ctx, site, o)
	if !third && err == nil {
		var more []drill.Row
		more, err = drill.Variants(ctx, site, o)
		rows = append(rows, more...)
	}
	if err = errors.Join(err, drill.Broken(rows, list)); err != nil {
		err = errors.Join(err, site.Dump(drillFolder), fmt.Errorf("logs and kernel state of every machine are in %s", drillFolder))
	}
	return rows, err
}
