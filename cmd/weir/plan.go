package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"path/filepath"

	"github.com/spf13/cobra"

	"weir/cmd/weir/internal/config"
	"weir/cmd/weir/internal/config/load"
	"weir/cmd/weir/internal/kernelmode"
	"weir/cmd/weir/internal/query"
	"weir/cmd/weir/internal/status/plan"
	"weir/lb"
	"weir/lb/linux"
)

func planCommand(e env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "plan [FILE]",
		Short: "show the changes that a configuration would cause in the kernel, routes and addresses",
		Long: `Show, in order, every operation that would make the kernel match a configuration.
FILE is the same as --config FILE. Nothing is changed. Backends count as healthy.
Services of clusters are not included: no API server is contacted.

The base objects that would be added are counted in one line. They are the device, sets,
rules, parameters, and an anchor of each family, which keeps conntrack alive. --all and -o
json list them.

The routes follow that would be announced, changed or withdrawn. Services with an
address that no pool would assign any more retain it, and are listed. A running daemon
computes these with the present health, and for the Services of its clusters too; it
must be able to read the file. Without a daemon the routes are those of the static
services.

Against the live kernel (the default) it needs the privileges of the daemon;
--against nothing shows the operations for an empty kernel, and needs none.

Exit status: 0 shown, 1 failed, 2 invalid configuration.`,
		Args: cobra.MaximumNArgs(1),
	}
	socket, flag, format := socketFlag(cmd), configFlag(cmd), outputFlag(cmd)
	against := cmd.Flags().String("against", "kernel", "compare with: kernel or nothing")
	all := cmd.Flags().Bool("all", false, "list the base objects too")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		file, err := fileArg(cmd, *flag, args)
		if err != nil {
			return err
		}
		cfg, err := load.File(file)
		if err != nil {
			return exitError{exitInvalid, err}
		}
		p := planned{kernel: &lb.Fake{}, connections: func(context.Context, func(linux.Connection) bool) error { return nil }}
		mode := kernelmode.Of(cfg)
		switch *against {
		case "nothing":
		case "kernel":
			k, m, err := kernelmode.Open(cmd.Context(), cfg, slog.New(slog.DiscardHandler))
			if err != nil {
				return err
			}
			if mode = m; m.Fallback {
				fmt.Fprintln(e.stderr, "weir: this kernel has no IPVS: this is a plan for mode netfilter")
			}
			defer k.Close()
			if err := kernelmode.RefuseKubeProxy(cmd.Context(), k); err != nil {
				return err
			}
			p.kernel, p.connections = k, k.Connections
		default:
			return exitError{exitInvalid, fmt.Errorf("--against %q is neither kernel nor nothing", *against)}
		}
		routes, err := planRoutes(cmd.Context(), cfg, mode, *against, *socket, file)
		if err != nil {
			fmt.Fprintln(e.stderr, "weir: routes and addresses are missing from this plan:", err)
		}
		doc, err := p.plan(cmd.Context(), e, mode, cfg)
		if err != nil {
			return err
		}
		doc.Routes, doc.All = routes, *all
		return e.write(doc, *format)
	}
	return cmd
}

// planRoutes asks the daemon for the changes of routes and addresses. Without a daemon,
// and against nothing, there are no routes yet.
func planRoutes(ctx context.Context, cfg *config.Config, mode kernelmode.Mode, against, socket, file string) (doc plan.Routes, err error) {
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
	return query.PlanRoutes(ctx, cfg, mode, query.World{})
}

// planned is the kernel that a configuration is compared with.
type planned struct {
	kernel      lb.Kernel
	connections func(context.Context, func(linux.Connection) bool) error
}

// plan returns the operations for a configuration and their impact.
func (p planned) plan(ctx context.Context, e env, mode kernelmode.Mode, cfg *config.Config) (doc plan.Diff, err error) {
	rec := lb.NewReconciler(p.kernel, kernelmode.LBOptions(cfg, mode, kernelmode.Node{}), kernelmode.Sources(cfg)...)
	rec.Update(lb.Update{Source: config.Source, Put: cfg.Services, Synced: true})
	ops, err := rec.Preview(ctx, e.now())
	if err != nil {
		return doc, err
	}
	doc.Operations = []plan.Operation{}
	for _, op := range ops {
		doc.Operations = append(doc.Operations, plan.Operation{Verb: op.Verb.String(), Kind: lb.Kind(op.Object), Object: op.Object.String(), Anchor: isAnchor(op.Object)})
	}
	for _, n := range rec.Notes() {
		doc.Notes = append(doc.Notes, fmt.Sprint(n))
	}
	for _, c := range cfg.Clusters {
		doc.Notes = append(doc.Notes, c.Name+": its Services are not in this plan, and their objects in the kernel stay")
	}
	impact := query.ImpactOf(rec.Have(), ops, cfg.Services)
	if impact.Backends+impact.Redirected > 0 { // there may be millions
		if err := p.connections(ctx, func(c linux.Connection) bool { impact.Count(c); return true }); err != nil {
			return doc, err
		}
	}
	doc.Impact = plan.Impact{
		Backends: impact.Backends, Removed: impact.Cut, Draining: impact.Living, Cut: impact.Cutting,
		Redirected: impact.Redirected, Masqueraded: impact.Masqueraded,
	}
	for _, a := range impact.VIPs {
		doc.Impact.VIPs = append(doc.Impact.VIPs, a.String())
	}
	return doc, nil
}

// isAnchor reports whether an object belongs to a frontend that keeps conntrack alive.
func isAnchor(o lb.Object) bool {
	switch o := o.(type) {
	case lb.VirtualServer:
		return lb.IsAnchor(o.Frontend)
	case lb.RealServer:
		return lb.IsAnchor(o.Frontend)
	}
	return false
}
