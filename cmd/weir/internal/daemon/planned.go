package daemon

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	"weir/bgp"
	"weir/cmd/weir/internal/config"
	"weir/cmd/weir/internal/status"
	"weir/lb"
)

// What a configuration would have routers hear: weir plan.

// world is what a box knows that is in no configuration.
type world struct {
	// services of the clusters, by source, and the verdicts on all backends.
	services map[string][]lb.Service
	health   map[lb.ServiceID]lb.Health
	drains   bgp.Drains
	roles    map[netip.Addr]bgp.Role
	// now is what is announced at this time.
	now map[netip.Prefix][]bgp.Path
}

// plan tells what would become of routes and addresses with the configuration of a
// file, as the box knows the world now.
func (b *box) plan(ctx context.Context, file string) (status.PlannedRoutes, error) {
	cfg, err := config.Load(file)
	if err != nil {
		// Whoever asks has read it himself. What the daemon, as root, finds in a file
		// that he may not read is not for him.
		return status.PlannedRoutes{}, fmt.Errorf("the daemon can't load %s: put it where it can be read, with all that it includes", file)
	}
	var w world
	var restart []string
	if err := b.do(ctx, func() { w, restart = b.world(), config.RestartNeeded(b.cfg, cfg) }); err != nil {
		return status.PlannedRoutes{}, err
	}
	doc, err := planRoutes(ctx, cfg, b.mode, w)
	if err != nil {
		return doc, err
	}
	doc.Restart = restart
	for _, n := range b.provider.Stranded(cfg.Addresses.IPAM) {
		doc.Stranded = append(doc.Stranded, status.Stranded{Service: n.Service.String(), Address: addrText(n.Addr), Text: n.Text})
	}
	return doc, nil
}

// world is that, as of now.
func (b *box) world() world {
	w := world{services: map[string][]lb.Service{}, health: maps.Clone(b.rec.Facts().Health)}
	catalog := b.rec.Catalog()
	for _, id := range catalog.IDs() {
		if id.Source != config.Source {
			svc, _ := catalog.Get(id)
			w.services[id.Source] = append(w.services[id.Source], svc)
		}
	}
	if b.announcer != nil {
		w.drains, w.roles, w.now = b.drainer.stages, b.announcer.adv.Roles(), b.announcer.adv.Announced()
	}
	return w
}

// PlanRoutes is the plan where no daemon runs, and nothing is announced: that of the
// static services.
func PlanRoutes(ctx context.Context, cfg *config.Config, m Mode) (status.PlannedRoutes, error) {
	return planRoutes(ctx, cfg, m, world{})
}

// planRoutes compares what is announced with what would be if the kernel had taken all
// that a configuration wants.
func planRoutes(ctx context.Context, cfg *config.Config, m Mode, w world) (status.PlannedRoutes, error) {
	doc := status.PlannedRoutes{Announce: []status.PlannedRoute{}, Change: []status.PlannedRoute{}, Withdraw: []status.PlannedRoute{}, Stranded: []status.Stranded{}}
	then, err := announcedBy(ctx, cfg, m, w)
	if err != nil {
		return doc, err
	}
	for _, p := range slices.SortedFunc(maps.Keys(then), netip.Prefix.Compare) {
		switch before, known := w.now[p]; {
		case !known:
			doc.Announce = append(doc.Announce, plannedRoute(p, then[p]))
		case !slices.EqualFunc(before, then[p], bgp.Path.Equal):
			doc.Change = append(doc.Change, plannedRoute(p, then[p]))
		}
	}
	for _, p := range slices.SortedFunc(maps.Keys(w.now), netip.Prefix.Compare) {
		if _, still := then[p]; !still {
			doc.Withdraw = append(doc.Withdraw, plannedRoute(p, w.now[p]))
		}
	}
	return doc, nil
}

// announcedBy has a kernel in memory take all that a configuration wants.
func announcedBy(ctx context.Context, cfg *config.Config, m Mode, w world) (map[netip.Prefix][]bgp.Path, error) {
	if cfg.BGP == nil {
		return nil, nil
	}
	now := time.Now()
	opts := LBOptions(cfg, m)
	opts.Guards = nil
	rec := lb.NewReconciler(&lb.Fake{}, opts, Sources(cfg)...)
	rec.Update(lb.Update{Source: config.Source, Put: cfg.Services, Synced: true})
	for _, c := range cfg.Clusters {
		rec.Update(lb.Update{Source: c.Name, Put: w.services[c.Name], Synced: true})
	}
	rec.SetHealth(w.health)
	if _, err := rec.Sync(ctx, now); err != nil {
		return nil, err
	}
	routes, err := rec.Routes(ctx)
	if err != nil {
		return nil, err
	}
	adv := bgp.NewAdvertiser()
	adv.Configure(cfg.BGP.Policy, now)
	adv.Drain(w.drains, now)
	if cfg.Fleet != nil {
		adv.Assign(w.roles, now) // as if no owner changed
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

func plannedRoute(p netip.Prefix, paths []bgp.Path) status.PlannedRoute {
	out := status.PlannedRoute{Prefix: p.String(), Paths: []status.PlannedPath{}}
	for _, path := range paths {
		x := status.PlannedPath{Peers: path.Peers, Attributes: []string{}}
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
