package query

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	"weir/bgp/advertise"
	"weir/cmd/weir/internal/config"
	"weir/cmd/weir/internal/kernelmode"
	"weir/cmd/weir/internal/status/plan"
	"weir/lb"
)

// World is the part of the box's state that is in no configuration. The zero value is a box without a daemon.
type World struct {
	// Services of the clusters, by source, and the health of all backends.
	Services map[string][]lb.Service
	Health   map[lb.ServiceID]lb.Health
	Drains   advertise.Drains
	Roles    map[netip.Addr]advertise.Role
	// Announced are the current routes.
	Announced map[netip.Prefix][]advertise.Path
}

// NewWorld returns the Services of clusters and the health that a Reconciler has.
func NewWorld(rec *lb.Reconciler) World {
	w := World{Services: map[string][]lb.Service{}, Health: maps.Clone(rec.Facts().Health)}
	catalog := rec.Catalog()
	for _, id := range catalog.IDs() {
		if id.Source != config.Source {
			svc, _ := catalog.Get(id)
			w.Services[id.Source] = append(w.Services[id.Source], svc)
		}
	}
	return w
}

// PlanRoutes compares the current routes with those of a configuration that the kernel holds completely.
func PlanRoutes(ctx context.Context, cfg *config.Config, m kernelmode.Mode, w World) (plan.Routes, error) {
	doc := plan.Routes{Announce: []plan.Route{}, Change: []plan.Route{}, Withdraw: []plan.Route{}, OutsidePool: []plan.OutsidePool{}}
	then, err := announcedBy(ctx, cfg, m, w)
	if err != nil {
		return doc, err
	}
	for _, p := range slices.SortedFunc(maps.Keys(then), netip.Prefix.Compare) {
		switch before, known := w.Announced[p]; {
		case !known:
			doc.Announce = append(doc.Announce, plannedRoute(p, then[p]))
		case !slices.EqualFunc(before, then[p], advertise.Path.Equal):
			doc.Change = append(doc.Change, plannedRoute(p, then[p]))
		}
	}
	for _, p := range slices.SortedFunc(maps.Keys(w.Announced), netip.Prefix.Compare) {
		if _, still := then[p]; !still {
			doc.Withdraw = append(doc.Withdraw, plannedRoute(p, w.Announced[p]))
		}
	}
	return doc, nil
}

// announcedBy returns the routes of a configuration that a kernel in memory holds.
func announcedBy(ctx context.Context, cfg *config.Config, m kernelmode.Mode, w World) (map[netip.Prefix][]advertise.Path, error) {
	if cfg.BGP == nil {
		return nil, nil
	}
	now := time.Now()
	opts := kernelmode.LBOptions(cfg, m, kernelmode.Node{})
	opts.Guards = nil
	rec := lb.NewReconciler(&lb.Fake{}, opts, kernelmode.Sources(cfg)...)
	rec.Update(lb.Update{Source: config.Source, Put: cfg.Services, Synced: true})
	for _, c := range cfg.Clusters {
		rec.Update(lb.Update{Source: c.Name, Put: w.Services[c.Name], Synced: true})
	}
	rec.SetHealth(w.Health, true)
	if _, err := rec.Sync(ctx, now); err != nil {
		return nil, err
	}
	routes, err := rec.Routes(ctx)
	if err != nil {
		return nil, err
	}
	adv := advertise.New()
	adv.Configure(cfg.BGP.Policy, now)
	adv.Drain(w.Drains, now)
	if cfg.Fleet != nil {
		adv.Assign(w.Roles, now) // as if no owner changed
	}
	for _, a := range cfg.Kernel.MasqueradeSource {
		routes = append(routes, lb.Route{Addr: a, Serves: []lb.Serving{{Service: config.MasqueradeID}}})
	}
	adv.Take(routes, func(id lb.ServiceID) map[string]string {
		svc, _ := rec.Catalog().Get(id)
		return svc.Labels
	}, now)
	return adv.Announced(), nil
}

func plannedRoute(p netip.Prefix, paths []advertise.Path) plan.Route {
	out := plan.Route{Prefix: p.String(), Paths: []plan.Path{}}
	for _, path := range paths {
		x := plan.Path{Peers: path.Peers, Attributes: []string{}}
		for _, c := range path.Communities {
			x.Attributes = append(x.Attributes, c.String())
		}
		for _, c := range path.LargeCommunities {
			x.Attributes = append(x.Attributes, c.String())
		}
		if path.LocalPref.Given {
			x.Attributes = append(x.Attributes, fmt.Sprintf("local-pref %d", path.LocalPref.Value))
		}
		if path.MED.Given {
			x.Attributes = append(x.Attributes, fmt.Sprintf("med %d", path.MED.Value))
		}
		if path.Prepend > 0 {
			x.Attributes = append(x.Attributes, fmt.Sprintf("prepend %d", path.Prepend))
		}
		out.Paths = append(out.Paths, x)
	}
	return out
}
