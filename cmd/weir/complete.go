package main

import (
	"context"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"weir/cmd/weir/internal/status"
	"weir/cmd/weir/internal/status/routing"
)

// completeTime is the timeout of a request for completions.
const completeTime = time.Second

// completions has shells complete what only the daemon knows, each where it is an argument.
// Where none runs, or it is slow, there is nothing to choose from.
func completions(root *cobra.Command) {
	for path, names := range map[string]func(context.Context, question) []string{
		"conns": endpoints, "explain": endpoints, "drain": vips, "undrain": vips, "pools": pools, "guard release": guarded,
	} {
		cmd, _, err := root.Find(strings.Fields(path))
		if err != nil {
			panic("weir: completions of " + path + ": " + err.Error())
		}
		many := path == "drain" || path == "undrain"
		cmd.ValidArgsFunction = func(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
			if len(args) > 0 && !many {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			return chosen(cmd, names, args), cobra.ShellCompDirectiveNoFileComp
		}
	}
	routes, _, err := root.Find([]string{"bgp", "routes"})
	if err != nil {
		panic("weir: completions of bgp routes: " + err.Error())
	}
	_ = routes.RegisterFlagCompletionFunc("peer", func(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
		return chosen(cmd, peers, nil), cobra.ShellCompDirectiveNoFileComp
	})
}

// chosen gives the names, sorted, that are not among the arguments yet.
func chosen(cmd *cobra.Command, names func(context.Context, question) []string, args []string) []string {
	ctx, cancel := context.WithTimeout(cmd.Context(), completeTime)
	defer cancel()
	asked := question{file: defaultConfig}
	if f := cmd.Flag("socket"); f != nil {
		asked.socket = f.Value.String()
	}
	if f := cmd.Flag("config"); f != nil {
		asked.file = f.Value.String()
	}
	all := slices.DeleteFunc(names(ctx, asked), func(n string) bool { return slices.Contains(args, n) })
	slices.Sort(all)
	return slices.Compact(all)
}

// vips are the addresses that are served.
func vips(ctx context.Context, q question) []string {
	var out []string
	for _, f := range served(ctx, q) {
		out = append(out, f.Address)
	}
	return out
}

// endpoints are the addresses with the ports that are served.
func endpoints(ctx context.Context, q question) []string {
	var out []string
	for _, f := range served(ctx, q) {
		if addr, err := netip.ParseAddr(f.Address); err == nil {
			out = append(out, netip.AddrPortFrom(addr, f.Port).String())
		}
	}
	return out
}

// served returns the virtual servers of Services that have an address.
func served(ctx context.Context, q question) []status.Frontend {
	var doc status.Services
	if ask(ctx, q.socket, q.file, "GET", "/services", &doc) != nil {
		return nil
	}
	return slices.DeleteFunc(doc.Frontends, func(f status.Frontend) bool { return f.Service == "" || f.Address == "" })
}

func pools(ctx context.Context, q question) []string {
	return named(ctx, q, "/pools", func(doc status.Pools) []status.Pool { return doc.Pools }, func(p status.Pool) string { return p.Name })
}

func guarded(ctx context.Context, q question) []string {
	return named(ctx, q, "/guard", func(doc status.Guard) []status.GuardedSource { return doc.Guarded }, func(h status.GuardedSource) string { return h.Source })
}

func peers(ctx context.Context, q question) []string {
	return named(ctx, q, "/bgp/neighbors", func(doc routing.Neighbors) []routing.Neighbor { return doc.Neighbors }, func(n routing.Neighbor) string { return n.Name })
}

// named gives the names of the things that are in the daemon's document at a path.
func named[Doc, Thing any](ctx context.Context, q question, path string, things func(Doc) []Thing, name func(Thing) string) []string {
	var doc Doc
	if ask(ctx, q.socket, q.file, "GET", path, &doc) != nil {
		return nil
	}
	var out []string
	for _, x := range things(doc) {
		out = append(out, name(x))
	}
	return out
}
