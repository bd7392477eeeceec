package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/url"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"weir/cmd/weir/internal/config"
	"weir/cmd/weir/internal/daemon"
	"weir/cmd/weir/internal/status"
	"weir/lb"
	"weir/lb/linux"
)

func planCommand(e env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "plan",
		Short: "show what a configuration would change in the kernel, for routers and for who has addresses",
		Long: `Show, in order, every operation that would bring the kernel to what a
configuration wants. Nothing is changed. Backends count as healthy. The Services
of clusters are not part of it: no API server is asked.

Below that: the routes that would be announced, announced otherwise or withdrawn,
and the Services whose address the pools would not give them any more; they would
keep it. A running daemon tells that, for its clusters' Services too and with the
health that backends have now; it must be able to read the file. Where none runs it
is what would be announced of the static services.

Against the live kernel (the default) it needs the privileges of the daemon;
--against nothing shows all that a fresh kernel would get, and needs none.`,
		Args: cobra.NoArgs,
	}
	socket, file := socketFlag(cmd), configFlag(cmd)
	against := cmd.Flags().String("against", "kernel", "what to compare with: kernel or nothing")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		cfg, err := config.Load(*file)
		if err != nil {
			return invalid(err)
		}
		p := planned{kernel: &lb.Fake{}, connections: func(context.Context, func(linux.Connection) bool) error { return nil }}
		mode := daemon.ModeOf(cfg)
		switch *against {
		case "nothing":
		case "kernel":
			k, m, err := daemon.OpenKernel(cmd.Context(), cfg, slog.New(slog.DiscardHandler))
			if err != nil {
				return err
			}
			if mode = m; m.Fallback {
				fmt.Fprintln(e.stderr, "weir: this kernel has no IPVS: this is a plan for mode iptables")
			}
			defer k.Close()
			if err := daemon.RefuseKubeProxy(cmd.Context(), k); err != nil {
				return err
			}
			p.kernel, p.connections = k, k.Connections
		default:
			return exitError{exitInvalid, fmt.Errorf("--against %q is neither kernel nor nothing", *against)}
		}
		p.routes, err = planRoutes(cmd.Context(), cfg, mode, *against, *socket, *file)
		if err != nil {
			fmt.Fprintln(e.stderr, "weir: this plan does not tell of routes and addresses:", err)
		}
		return p.print(cmd.Context(), e.stdout, mode, cfg, e.now())
	}
	return cmd
}

// planRoutes asks the daemon what would become of routes and addresses; where none
// runs, or what is planned is against nothing, there are none yet.
func planRoutes(ctx context.Context, cfg *config.Config, mode daemon.Mode, against, socket, file string) (doc status.PlannedRoutes, err error) {
	if against == "kernel" {
		path, err := filepath.Abs(file)
		if err != nil {
			return doc, err
		}
		err = ask(ctx, socket, file, "GET", "/plan?"+url.Values{"file": {path}}.Encode(), &doc)
		if !errors.Is(err, errNotRunning) {
			return doc, err
		}
	}
	return daemon.PlanRoutes(ctx, cfg, mode)
}

// planned is what a configuration is compared with, and what would become of routes.
type planned struct {
	kernel      lb.Kernel
	connections func(context.Context, func(linux.Connection) bool) error
	routes      status.PlannedRoutes
}

func (p planned) print(ctx context.Context, w io.Writer, mode daemon.Mode, cfg *config.Config, now time.Time) error {
	rec := lb.NewReconciler(p.kernel, daemon.LBOptions(cfg, mode), daemon.Sources(cfg)...)
	rec.Update(lb.Update{Source: config.Source, Put: cfg.Services, Synced: true})
	ops, err := rec.Preview(ctx, now)
	if err != nil {
		return err
	}
	verbs := map[lb.Verb]int{}
	for _, op := range ops {
		verbs[op.Verb]++
		fmt.Fprintln(w, op)
	}
	for _, n := range rec.Notes() {
		fmt.Fprintln(w, "note", n)
	}
	for _, c := range cfg.Clusters {
		fmt.Fprintf(w, "note %s: its Services are not in this plan, and what the kernel holds of them stays\n", c.Name)
	}
	p.routes.Table(w, now)
	if len(ops) == 0 {
		fmt.Fprintln(w, "nothing to do: the kernel is as the configuration wants it")
	} else {
		fmt.Fprintf(w, "%d to add, %d to change, %d to delete\n", verbs[lb.Add], verbs[lb.Change], verbs[lb.Delete])
	}
	if counts := p.routes.Counts(); counts != "" {
		fmt.Fprintln(w, counts)
	}
	impact := daemon.ImpactOf(rec.Have(), ops)
	if impact.Backends > 0 { // there may be millions
		if err := p.connections(ctx, func(c linux.Connection) bool { impact.Count(c); return true }); err != nil {
			return err
		}
	}
	writeImpact(w, impact, p.routes.Restart)
	return nil
}

// writeImpact says what a plan means for clients, if anything.
func writeImpact(w io.Writer, x daemon.Impact, restart []string) {
	if len(x.VIPs) > 0 {
		vips := make([]string, len(x.VIPs))
		for i, a := range x.VIPs {
			vips[i] = a.String()
		}
		fmt.Fprintf(w, "impact: nobody serves %s any more\n", names(vips))
	}
	if x.Backends > 0 {
		fmt.Fprintf(w, "impact: %d backends leave, %d of them at once: %d live connections may end in peace, %d are cut\n", x.Backends, x.Cut, x.Living, x.Cutting)
	}
	if len(restart) > 0 {
		fmt.Fprintf(w, "impact: a reload would be refused, as these can't change while weir runs: %s\n", names(restart))
	}
}
