package daemon

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"os"
	"strconv"
	"sync/atomic"
	"time"

	"weir/cmd/weir/internal/announce"
	"weir/cmd/weir/internal/api"
	"weir/cmd/weir/internal/config"
	"weir/cmd/weir/internal/config/load"
	"weir/cmd/weir/internal/drain"
	"weir/cmd/weir/internal/eventlog"
	"weir/cmd/weir/internal/kernelmode"
	"weir/cmd/weir/internal/kube"
	"weir/cmd/weir/internal/metrics"
	"weir/cmd/weir/internal/query"
	"weir/cmd/weir/internal/status"
	"weir/cmd/weir/internal/status/explain"
	"weir/cmd/weir/internal/status/plan"
	"weir/cmd/weir/internal/status/routing"
	"weir/cmd/weir/internal/status/traffic"
	"weir/cmd/weir/internal/supervise"
	statuspage "weir/cmd/weir/internal/web"
	"weir/lb"
)

// answers make the documents for operators. They read published state, or ask the loop. It is safe for concurrent use.
type answers struct {
	*telemetry
	calls     supervise.Calls
	target    *target
	steering  *steering
	sources   *sources
	published *published
	recent    *eventlog.Log
	counters  *query.Counters
	owned     atomic.Pointer[query.Owners]
	ownersOf  uint64 // the generation of Services that owned was made from; belongs to the loop
}

// ownersTimeout bounds how long a reader waits for a busy loop; after that it gets the result of the last time.
const ownersTimeout = 2 * time.Second

// owners returns the owners of virtual servers. The loop computes them on request, if Services have changed.
func (a *answers) owners(ctx context.Context) *query.Owners {
	ctx, cancel := context.WithTimeout(ctx, ownersTimeout)
	defer cancel()
	_ = a.calls.Do(ctx, func() {
		if a.ownersOf != a.target.changes.services {
			a.ownersOf = a.target.changes.services
			a.owned.Store(query.NewOwners(a.target.rec, a.target.cfg.Checks))
		}
	})
	return a.owned.Load()
}

// status returns the state of the box, with the current state of its routers.
func (a *answers) status(ctx context.Context) status.Status {
	a.routers().Refresh(ctx)
	return a.published.status()
}

func (a *answers) routers() *announce.Reader                   { return a.steering.announcer.Reader() }
func (a *answers) neighbors(context.Context) routing.Neighbors { return a.routers().Neighbors() }

func (a *answers) guard(context.Context) status.Guard {
	return status.Guard{Guarded: a.published.view.Load().status.Guarded}
}

func (a *answers) poolsDoc(context.Context) status.Pools { return a.published.view.Load().pools.Doc() }

// conns returns the connections of the kernel that match a request.
func (a *answers) conns(r *http.Request) (status.Conns, error) {
	limit, err := strconv.Atoi(r.FormValue("limit"))
	if err != nil {
		return status.Conns{}, status.Refusal(errors.New("limit must be a number"))
	}
	return query.Conns(r.Context(), a.target.kernel, r.FormValue("match"), limit)
}

// explain answers a question from the state of the loop.
func (a *answers) explain(r *http.Request) (doc explain.Answer, err error) {
	q, err := query.ParseQuestion(r.FormValue("vip"), r.FormValue("proto"), r.FormValue("from"))
	if err != nil {
		return doc, status.Refusal(err)
	}
	err = a.calls.Ask(r.Context(), func() {
		doc = query.Explain(a.target.rec, q, a.explainBase(q.Addr))
		doc.Owned = a.steering.fleet.View().Owned(q.Addr)
	})
	doc = query.ShowFailures(doc, a.target.checks.Backends())
	routers, v := a.routers(), a.published.view.Load()
	doc.SetOldData(v.clusterStatuses())
	doc.Mode, doc.Rules = v.status.Kernel.Mode, v.status.Kernel.Rules
	routers.Refresh(r.Context())
	doc.Address, doc.Announced = v.pools.Explain(q.Addr), routers.Explain(q.Addr)
	return doc, err
}

// explainBase returns the detectors and names of the static rules, and the other members that serve an address.
func (a *answers) explainBase(addr netip.Addr) lb.Query {
	c := kernelmode.KernelConfig(a.target.cfg, a.target.mode, a.target.node, a.log)
	return lb.Query{
		Detectors: lb.Detectors{ClusterCIDRs: c.ClusterCIDRs, MasqueradeAll: c.MasqueradeAll, Interfaces: len(c.LocalInterfaces) > 0},
		Names:     c.Names(),
		Sources:   a.target.cfg.Kernel.MasqueradeSource,
		Fleet:     a.steering.fleet.View().Survival(a.target.cfg, addr),
	}
}

// plan returns the changes of routes and addresses that the configuration of a file would cause now.
func (a *answers) plan(ctx context.Context, file string) (plan.Routes, error) {
	cfg, err := load.File(file)
	if err != nil {
		// The client has read the file itself. The content of a file that root can read and the client can't is not
		// for the client.
		return plan.Routes{}, status.Refusal(fmt.Errorf("the daemon can't load %s: move it to a folder that the daemon can read, with all that it includes", file))
	}
	var w query.World
	var restart []string
	if err := a.calls.Ask(ctx, func() {
		w, restart = query.NewWorld(a.target.rec), config.RestartNeeded(a.target.cfg, cfg)
		if a.steering.announcer != nil {
			w.Drains, w.Roles, w.Announced = a.steering.drains.Stages(), a.steering.announcer.Advertiser().Roles(), a.steering.announcer.Advertiser().Announced()
		}
	}); err != nil {
		return plan.Routes{}, err
	}
	doc, err := query.PlanRoutes(ctx, cfg, a.target.mode, w)
	if err != nil {
		return doc, err
	}
	doc.Restart = restart
	for _, n := range a.sources.pools.OutsidePool(cfg.Addresses.IPAM) {
		doc.OutsidePool = append(doc.OutsidePool, plan.OutsidePool{Service: n.Service.String(), Address: n.Addr.String(), Text: n.Text})
	}
	return doc, nil
}

// web returns the handlers of the HTTP addresses.
func (a *answers) web() api.Web {
	scrape := a.metrics.Handler(metrics.Sources{Traffic: a.counters.Each, Checks: a.target.checks.Each})
	return api.Web{Condition: a.condition, Metrics: scrape, Page: a.page}
}

// condition returns the state of the box for load balancers and the kubelet.
func (a *answers) condition() api.Condition {
	v := a.published.view.Load()
	c := api.Condition{Alive: a.published.isAlive(), Line: a.published.status().Line()}
	c.Healthy = a.published.isHealthy() && !kube.NodeLeaves(v.clusters) && !v.isDrained()
	if kube.NodeLeaves(v.clusters) {
		c.Line = "this Node leaves its cluster: " + c.Line
	}
	return c
}

// traffic returns the counters of all virtual servers. It uses a socket of its own, so neither the loop nor a change waits.
func (a *answers) traffic(ctx context.Context) (traffic.Totals, error) {
	doc, at, err := a.counters.Get(ctx, query.CountersAge)
	return doc.CountedAt(at), err
}

// sample returns the state of the box for a scrape.
func (a *answers) sample() metrics.Sample {
	routers := a.routers()
	routers.Refresh(context.Background())
	v := a.published.view.Load()
	out := metrics.Sample{
		Status: a.published.status(), Objects: v.counts, Checks: a.target.checks.Stats(), Kernel: a.target.kernel.Counters(),
		Peers: routers.Snapshot(announce.SnapshotAge).Peers, Fleet: v.numbers.Numbers, HealthPorts: len(a.sources.probes.Open()),
		Provider: v.pools.Numbers(),
	}
	out.ProbesOK, out.ProbesFailed = a.sources.probes.Answered()
	if v.numbers.Gossip != nil {
		now := v.numbers.Gossip.Status()
		out.Gossip = &now
	}
	if v.numbers.Answerer != nil {
		now := v.numbers.Answerer.Status()
		out.L2 = &now
	}
	return out
}

// healthDoc returns the results of all checks, and the Services without a check.
func (a *answers) healthDoc(ctx context.Context) status.Health {
	return query.Health(a.target.checks, a.owners(ctx))
}

// services returns the kernel's virtual servers with health and owners. age is the accepted age of the counters.
func (a *answers) services(ctx context.Context, age time.Duration) (status.Services, error) {
	v, owners := a.published.view.Load(), a.owners(ctx)
	doc, _, err := a.counters.Get(ctx, age)
	if err != nil {
		return doc, err
	}
	doc = query.Copy(doc)
	doc.OldData = status.OldDataOf(v.clusterStatuses())
	a.showOwners(ctx, &doc)
	query.ShowHealth(&doc, owners, a.target.checks.Backends(), v.draining)
	return doc, nil
}

// members returns the members of the fleet.
func (a *answers) members(ctx context.Context) (status.Members, error) {
	var doc status.Members
	err := a.calls.Ask(ctx, func() { doc = a.steering.fleet.Members(time.Now()) })
	return doc, err
}

// showOwners adds the owner of its VIP to each frontend. While the loop is busy there are
// none.
func (a *answers) showOwners(ctx context.Context, doc *status.Services) {
	if a.steering.fleet == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, ownersTimeout)
	defer cancel()
	_ = a.calls.Do(ctx, func() {
		for i := range doc.Frontends {
			a.steering.fleet.View().ShowOwner(&doc.Frontends[i])
		}
	})
}

// draining returns the drains, with the connections that are left.
func (a *answers) draining(ctx context.Context) (status.Drained, error) {
	var doc status.Drained
	cant := errNoSteering
	busy := a.calls.Ask(ctx, func() {
		if drain.Possible(a.target.cfg) {
			doc, cant = a.steering.drains.Details(a.target.cfg, a.target.rec.Catalog()), nil
		}
	})
	if err := cmp.Or(busy, cant); err != nil || len(doc.VIPs) == 0 {
		return doc, err
	}
	err := query.CountConnections(ctx, a.target.kernel, &doc)
	return doc, err
}

// page adds the status page to mux.
func (a *answers) page(mux *http.ServeMux) { statuspage.New(pageSource{a}).Register(mux) }

// pageSource gives the status page the documents of the command line.
type pageSource struct{ *answers }

// Box implements statuspage.Source.
func (p pageSource) Box(ctx context.Context) statuspage.Box {
	out := statuspage.Box{Status: p.published.status(), Health: p.healthDoc(ctx), Neighbors: p.neighbors(ctx), Pools: p.poolsDoc(ctx)}
	out.Name, _ = os.Hostname() // a page without a name is one, too
	out.Events = p.recent.After(0)
	if routes, err := p.routers().Routes(ctx, ""); err == nil {
		out.Withheld = routes.Withheld
	}
	if out.Status.Fleet != nil {
		ctx, cancel := context.WithTimeout(ctx, ownersTimeout)
		defer cancel()
		out.Members, _ = p.members(ctx) // a busy loop: no members this time
	}
	return out
}

// Services implements statuspage.Source.
func (p pageSource) Services(ctx context.Context) (status.Services, error) {
	return p.services(ctx, query.CountersAge)
}

// errNoSteering refuses to drain a box that has nowhere to steer clients.
var errNoSteering = status.Refusal(errors.New("no way to steer clients to another box: the configuration has no [bgp], no [l2] and no [fleet]"))
