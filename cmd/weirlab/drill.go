package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"weir/cmd/weirlab/internal/drill"
	"weir/cmd/weirlab/lab"
)

func drillCommand() *cobra.Command {
	o := drill.Options{Loss: time.Minute}
	boxes := 2
	var modes []string
	for _, m := range drill.Modes {
		modes = append(modes, string(m))
	}
	known := strings.Join(modes, ", ")
	cmd := &cobra.Command{
		Use:   "drill",
		Short: "let things go wrong in a fleet of boxes, and count what clients notice; beside keepalived",
		Long: `Boots boxes behind a router, with clients and backends, and lets one thing after the other
go wrong while clients make new connections and hold others: power cuts, pulled cables, killed
daemons, restarts, upgrades, drains, partitions, lost packets, clocks, keys. In each of weir's
modes, and with keepalived (VRRP and IPVS) on the same kernels.
Prints one table, with what is promised of each event, and fails when a promise is broken.`,
		Args: cobra.NoArgs,
	}
	cmd.Flags().StringSliceVar(&modes, "modes", modes, "of "+known)
	cmd.Flags().IntVar(&boxes, "boxes", boxes, "how many boxes: 2 or 3")
	cmd.Flags().StringSliceVar(&o.Only, "only", nil, "only events whose names have one of these words")
	cmd.Flags().BoolVar(&o.Short, "short", o.Short, "fewer connections and shorter looks, as in the tests")
	cmd.Flags().DurationVar(&o.Loss, "loss", o.Loss, "for how long boxes hear each other badly")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGINT, syscall.SIGTERM)
		defer stop()
		for _, m := range modes {
			if !slices.Contains(drill.Modes, drill.Mode(m)) {
				return fmt.Errorf("--modes %s: want %s", m, known)
			}
			o.Modes = append(o.Modes, drill.Mode(m))
		}
		if boxes < 2 || boxes > 3 {
			return fmt.Errorf("--boxes %d: want 2 or 3", boxes)
		}
		o.Progress = os.Stderr
		return runDrill(ctx, cmd, boxes, o)
	}
	return cmd
}

// drillFolder is for what a drill leaves behind that broke a promise.
const drillFolder = "artifacts/drill"

func runDrill(ctx context.Context, cmd *cobra.Command, boxes int, o drill.Options) (err error) {
	site, err := drill.Open(ctx, boxes)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, site.Close()) }()
	release, err := site.Box("box1").Run(ctx, "uname", "-r")
	if err != nil {
		return err
	}
	rows, err := drill.Run(ctx, site, o)
	if len(o.Only) == 0 && err == nil {
		var more []drill.Row
		more, err = drill.Variants(ctx, site, o)
		rows = append(rows, more...)
	}
	out := cmd.OutOrStdout()
	fmt.Fprintf(out, "%d boxes on %v, %s; take_back = 3s, all else by default; BFD 300 ms x 3. %s.\n", boxes, lab.UML,
		strings.TrimSpace(release.Stdout), drill.Beside)
	fmt.Fprintf(out, "A new connection every %s, late if TCP had to send again, lost if not answered in %s.\n\n", drill.Beat, drill.Patience)
	drill.Print(out, rows)
	if err = errors.Join(err, drill.Broken(rows)); err != nil {
		err = errors.Join(err, site.Dump(drillFolder), fmt.Errorf("logs and kernel state of every machine are in %s", drillFolder))
	}
	return err
}
