package linux

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"

	"golang.org/x/sys/unix"

	"weir/lb"
)

// auditor reads the whole kernel state over its own sockets: that takes seconds with many
// services, and changes go on meanwhile. Where virtual servers are rules, it reads under the
// lock of changes, because each change of the rules starts from their last known state.
//
// This package keeps some state of the kernel: connection limits, the order of mh's real
// servers, the ledger. The result updates it, except for objects that changed meanwhile.
type auditor struct {
	k         *Kernel
	mu        sync.Mutex
	ipvs      *ipvsTable // nil without IPVS
	sets      setStore
	addresses *addresses
}

// init makes the auditor's tables like those of k.
func (a *auditor) init(k *Kernel) {
	a.k = k
	a.sets = k.sets.auditor(&k.counters.IPSet)
	a.addresses = newAddresses(k.addresses.device, &k.counters.Route)
	if k.ipvs != nil {
		a.ipvs = newTable(newConn(unix.NETLINK_GENERIC, &k.counters.IPVS), k.ipvs.family, k.ipvs.marks)
	}
}

func (a *auditor) close() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.sets.socket().close()
	a.addresses.conn.close()
	if a.ipvs != nil {
		a.ipvs.conn.close()
	}
}

// observe reads everything.
func (a *auditor) observe(ctx context.Context, expected *lb.Table) (lb.Observation, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	locked := a.k.locked
	if a.k.byRules() {
		a.k.mu.Lock()
		defer a.k.mu.Unlock()
		locked = func(f func() error) error { return f() }
	}
	obs := lb.Observation{Objects: lb.Expecting(expected)}
	var c Config
	err := locked(func() error {
		c = a.k.config
		a.begin()
		if err := a.k.other.search(ctx); err != nil {
			return err
		}
		obs.Keep(a.kept(ctx, expected))
		return nil
	})
	if err == nil {
		err = a.read(ctx, c, locked, &obs)
	}
	var r reading
	if err == nil {
		r = readingOf(&obs) // no change waits for it
	}
	_ = locked(func() error {
		a.end(ctx, obs.Kept(), r, err)
		return nil
	})
	if err != nil {
		return lb.Observation{}, needPrivilege(err)
	}
	return obs, nil
}

// begin prepares an observation.
func (a *auditor) begin() {
	a.k.watcher.ours.begin()
	if t := a.ipvs; t != nil {
		t.family, t.detailed, t.orders = a.k.ipvs.family, maps.Clone(a.k.ipvs.detailed), newOrders()
		a.k.ipvs.orders.altered = map[lb.Frontend]bool{}
	}
}

// kept returns the objects that need not be read. Sets of the other backend are in no number of
// nf_tables.
func (a *auditor) kept(ctx context.Context, expected *lb.Table) lb.Kept {
	switch may := expected != nil && a.k.other.left == nil; {
	case !a.k.watcher.keeps(ctx, may):
		return lb.KeptNothing
	case a.k.byRules():
		return lb.KeptServers
	}
	return lb.KeptRules
}

// reading is what this package keeps of an observation.
type reading struct {
	onLinks *ledger
	mapped  []lb.Member
}

// readingOf walks through all objects, which takes tens of milliseconds with ten thousand services.
func readingOf(obs *lb.Observation) reading {
	return reading{ledgerOf(obs), slices.Collect(obs.Objects.Mappings())}
}

// end takes over the result, unless the read has failed.
func (a *auditor) end(ctx context.Context, kept lb.Kept, r reading, err error) {
	if kept == lb.KeptNothing {
		a.k.watcher.endRead(ctx, err)
		a.k.counters.RulesRead.Add(1)
	} else {
		a.k.counters.RulesKept.Add(1)
	}
	if t := a.ipvs; t != nil {
		if t.family != a.k.ipvs.family {
			a.k.ipvs.family = t.family
			a.k.reader.follow(t.family)
		}
		if err == nil {
			a.k.ipvs.orders.adopt(t.orders)
			maps.Copy(a.k.ipvs.detailed, t.detailed)
		}
		a.k.ipvs.orders.altered = nil
	}
	a.k.watcher.ours.adopt(r.onLinks)
	if err != nil {
		return
	}
	a.k.addresses.index.Store(a.addresses.index.Load())
	a.k.conntrack.adopt(r.mapped)
}

func (a *auditor) read(ctx context.Context, c Config, locked func(func() error) error, obs *lb.Observation) error {
	if a.ipvs != nil {
		if err := a.ipvs.observe(ctx, obs); err != nil {
			return err
		}
	}
	if err := a.readRules(ctx, c, locked, obs); err != nil {
		return err
	}
	links := func() error { return a.addresses.observe(ctx, c.Families, obs) }
	err := links()
	if errors.Is(err, unix.EAGAIN) { // the kernel lists links only while they stay as they are
		err = locked(links)
	}
	if err != nil {
		return err
	}
	return a.k.sysctls.observe(c.Sysctls, obs)
}

// readRules reads the sets and rules, and virtual servers that are rules.
func (a *auditor) readRules(ctx context.Context, c Config, locked func(func() error) error, obs *lb.Observation) error {
	switch obs.Kept() {
	case lb.KeptServers:
		return nil
	case lb.KeptRules:
		return locked(func() error {
			for f, r := range a.k.rules {
				r.ports.show(f, &obs.Objects)
			}
			return nil
		})
	}
	for _, f := range c.Families {
		if err := a.sets.observe(ctx, f, obs); err != nil {
			return err
		}
	}
	_ = locked(func() error {
		a.k.other.show(&obs.Objects)
		return nil
	})
	if a.k.byRules() {
		for m := range obs.Objects.Mappings() {
			a.k.byRule.faces.note(m)
		}
		if err := a.k.byRule.findIPVS(ctx, &obs.Objects); err != nil {
			return err
		}
	}
	for _, f := range c.Families {
		var ahead func() *prior
		_ = locked(func() error {
			ahead = a.k.rules[f].prefetch(ctx)
			return nil
		})
		var before *prior
		if ahead != nil {
			before = ahead()
		}
		err := locked(func() error {
			a.k.rules[f].prior = before
			return a.k.observeRules(ctx, f, obs)
		})
		if err != nil {
			return err
		}
	}
	return nil
}
