package lb

import (
	"net/netip"
	"slices"
	"time"
)

// Options are the options of a Reconciler. Configure changes them later.
type Options struct {
	// Base is the objects that weir needs beside the Services.
	Base Base
	// RulesVersion changes with the configuration of Rules. The kernel serves with the earlier
	// ones until a Sync has written them.
	RulesVersion uint64
	// Exclude, Pools, NodePortNets: see Facts.
	Exclude      []netip.Prefix
	Pools        []PoolRoute
	NodePortNets []netip.Prefix
	// WithoutIPVS: see Facts.
	WithoutIPVS bool
	// Drain is for real servers that are found unwanted at the start, and that have no known
	// Service.
	Drain time.Duration
	// Guards limit the deletions of sources, by their names.
	Guards map[string]GuardOptions
	// Leaving, if set, is called before Ops after which no backend answers at some addresses,
	// sorted, that Routes reported as served: routers should know first.
	Leaving func([]netip.Addr)
	// Portion limits the number of Ops of one call of the kernel; 0 is no limit. Progress, if
	// set, is called after each portion of a pass that takes several, with the number of Ops
	// that were applied, failed or wait for another one.
	Portion  int
	Progress func(done, total int)
	// PerPass limits the real servers that one Sync adds to all virtual servers of IPVS that have more than so many. They
	// share it, and each gets at least a quarter. 0 is no limit. Next is due at once for the rest, so that changes of
	// other Services wait for a part of it only.
	PerPass int
	// Planned, if set, is called after each Service that a pass has planned: tens of
	// thousands take seconds.
	Planned func()
}

// Configure changes the options. The next Sync applies the difference.
func (r *Reconciler) Configure(opts Options) {
	if opts.RulesVersion != r.opts.RulesVersion {
		r.have.outdate(r.touched)
	}
	r.opts, r.drains.defaultTime, r.facts.WithoutIPVS = opts, opts.Drain, opts.WithoutIPVS
	r.guards.configure(opts.Guards)
	r.want.Replace(Owner{}, opts.Base.Objects(), r.touched)
	if slices.Equal(r.facts.Exclude, opts.Exclude) && slices.Equal(r.facts.Pools, opts.Pools) &&
		slices.Equal(r.facts.NodePortNets, opts.NodePortNets) {
		return
	}
	r.facts.Exclude, r.facts.Pools, r.facts.NodePortNets = opts.Exclude, opts.Pools, opts.NodePortNets
	r.drains.dropLocal()
	for id := range r.catalog.services {
		r.dirty[id] = struct{}{}
	}
}
