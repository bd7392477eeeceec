package linux

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"weir/lb"
)

// dnat has the virtual servers of one family as NAT services. With nf_tables they are elements of
// maps (nftservers.go), with iptables chains of table nat (dnattext.go has their rules):
//
//	SERVICES --> VIRTUAL-SERVERS --> SVC-... --> SEP-... --> DNAT
//	                                 one a       one a
//	                                 virtual     real
//	                                 server      server
//
// It remembers the content of the kernel, so that a change is one iptables-restore of the
// chains that change, and reads nothing before. In the kernel the legacy backend still reads
// and replaces the whole table each time, nft only the differences.
//
// The first packet of a connection passes VIRTUAL-SERVERS up to its own rule, where IPVS has a
// hash table. Only packets for a Service come there. See Unsupported for further differences
// from IPVS.
type dnat struct {
	family lb.Family
	natNames
	rules *rules
	nft   *nftServers // nil with iptables
	// services are those of the kernel at the last read or write. known reports that there was
	// one, dispatches that chain VIRTUAL-SERVERS exists.
	services          map[lb.Frontend]natService
	known, dispatches bool
	// damaged are the NAT services that differ from their records in the kernel, with whether
	// VIRTUAL-SERVERS jumps to them.
	damaged map[lb.Frontend]bool
	// orphanRules are rules in VIRTUAL-SERVERS without a NAT service, deadChains are chains of
	// weir without one. referenced are the chains to which foreign rules jump: they can be
	// emptied, but not deleted.
	orphanRules, deadChains []string
	referenced              map[string]bool
}

func newDNAT(r *rules, n natNames) *dnat {
	return &dnat{family: r.family, rules: r, natNames: n, services: map[lb.Frontend]natService{}}
}

// read replaces the known state with the content of table nat.
func (d *dnat) read(t savedTable) {
	*d = *newDNAT(d.rules, d.natNames)
	d.known, d.damaged, d.referenced = true, map[lb.Frontend]bool{}, map[string]bool{}
	mine := map[string]lb.Frontend{}
	for name, specs := range t.rules {
		if !d.named(name) {
			continue
		}
		p, exact, ok := d.parseNATService(d.family, specs)
		f := p.server.Frontend
		if !ok || d.server(f) != name {
			continue
		}
		d.services[f], mine[name] = p, f
		for _, c := range d.chains(p)[1:] {
			exact = exact && sameRules(t.rules[c.name], c.rules)
			mine[c.name] = f
		}
		if !exact {
			d.damaged[f] = false
		}
	}
	d.readDispatch(t, mine)
	d.readRest(t, mine)
}

// sameRules reports whether rules are those that weir writes, in any form of iptables-save.
func sameRules(have, want []string) bool {
	return slices.EqualFunc(have, want, func(have, want string) bool {
		if have == want {
			return true
		}
		r, ok := parseNAT(have)
		return ok && r.String() == want
	})
}

// readDispatch reads the jumps of VIRTUAL-SERVERS to NAT services. Those of marks come before
// those of addresses, as in IPVS.
func (d *dnat) readDispatch(t savedTable, mine map[string]lb.Frontend) {
	specs, there := t.rules[d.dispatch()]
	d.dispatches = there
	dispatched, addresses := map[lb.Frontend]bool{}, false
	for _, spec := range specs {
		r, ok := parseNAT(spec)
		f, known := mine[r.jump]
		if !ok || !known || r != d.dispatchRule(f) || dispatched[f] || f.Mark != 0 && addresses {
			d.orphanRules = append(d.orphanRules, spec)
			continue
		}
		dispatched[f] = true
		addresses = addresses || f.Mark == 0
	}
	for f := range d.services {
		if _, damaged := d.damaged[f]; damaged || !dispatched[f] {
			d.damaged[f] = dispatched[f]
		}
	}
}

// readRest reads the chains without a NAT service.
func (d *dnat) readRest(t savedTable, mine map[string]lb.Frontend) {
	for name, specs := range t.rules {
		if _, ok := mine[name]; ok || name == d.dispatch() {
			continue
		}
		if d.named(name) && slices.ContainsFunc(specs, recorded) {
			d.deadChains = append(d.deadChains, name)
			continue
		}
		for _, spec := range specs {
			d.referenced[target(spec)] = true
		}
	}
	slices.Sort(d.deadChains)
	delete(d.referenced, d.dispatch()) // referenced by weir's own rules
}

// recorded reports whether a rule has a comment of weir's.
func recorded(spec string) bool {
	r, _ := parseNAT(spec)
	return strings.HasPrefix(r.comment, recordWord)
}

// clean reports whether there are no orphans.
func (d *dnat) clean() bool {
	if d.nft != nil {
		return d.nft.clean()
	}
	return len(d.orphanRules)+len(d.deadChains) == 0
}

// gone reports whether the kernel has nothing of virtual servers.
func (d *dnat) gone() bool {
	if d.nft != nil {
		return len(d.nft.maps) == 0
	}
	return !d.dispatches && len(d.services)+len(d.deadChains) == 0
}

// objects returns the virtual and real servers of the kernel. The virtual server of a damaged
// NAT service is Damaged, so that it is written again.
func (d *dnat) objects() lb.Snapshot {
	out := lb.Snapshot{}
	for f, p := range d.services {
		server := p.server
		_, server.Damaged = d.damaged[f]
		out[server.ID()] = server
		for _, rs := range p.reals {
			out[rs.ID()] = rs
		}
	}
	return out
}

// apply carries out ops on virtual servers or on real servers. If the kernel refuses the text,
// a foreign change may be the reason: the second attempt follows a read. The third separates
// NAT services that may fail for different reasons. Without that read there is no further attempt.
func (d *dnat) apply(ctx context.Context, ops []lb.Op) []error {
	if !d.known {
		if err := d.load(ctx); err != nil {
			return slices.Repeat([]error{err}, len(ops))
		}
	}
	next, errs := d.plan(ops)
	err := d.write(ctx, next)
	if err == nil || hindered.MatchString(err.Error()) {
		return d.assignErrors(ops, errs, next, func(lb.Frontend) error { return err })
	}
	if d.flushed(ctx) {
		return d.assignErrors(ops, errs, next, func(lb.Frontend) error { return err })
	}
	if d.load(ctx) != nil {
		d.known = false // the write may have changed something
		return d.assignErrors(ops, errs, next, func(lb.Frontend) error { return err })
	}
	next, errs = d.plan(ops)
	err = d.write(ctx, next)
	kinds := byKind(next)
	if err == nil || len(kinds) < 2 {
		return d.assignErrors(ops, errs, next, func(lb.Frontend) error { return err })
	}
	failed := map[lb.Frontend]error{}
	for _, kind := range slices.Sorted(maps.Keys(kinds)) {
		if err := d.write(ctx, kinds[kind]); err != nil {
			for f := range kinds[kind] {
				failed[f] = err
			}
		}
	}
	return d.assignErrors(ops, errs, next, func(f lb.Frontend) error { return failed[f] })
}

// flushed reports whether another program has removed all maps. What they had stays known: Watch has all of it
// written from memory (lostMaps), and a read would forget it.
func (d *dnat) flushed(ctx context.Context) bool {
	if d.nft == nil || len(d.services) == 0 {
		return false
	}
	maps, err := d.nft.findMaps(ctx)
	return err == nil && len(maps) == 0
}

// assignErrors returns the error of each op: its own, or that of its NAT service.
func (d *dnat) assignErrors(ops []lb.Op, errs []error, next map[lb.Frontend]*natService, failure func(lb.Frontend) error) []error {
	for i, op := range ops {
		if errs[i] != nil {
			continue
		}
		f := serverOf(op.Object)
		if err := failure(f); err != nil {
			errs[i] = d.explain(err, next[f])
		}
	}
	return errs
}

// byKind groups NAT services by their needs: a feature that the kernel lacks affects all of a
// group.
func byKind(next map[lb.Frontend]*natService) map[string]map[lb.Frontend]*natService {
	out := map[string]map[lb.Frontend]*natService{}
	for f, p := range next {
		kind := "none"
		if p != nil {
			kind = fmt.Sprintf("%s affinity=%t several=%t", f.Proto, p.server.Affinity != 0, len(p.reals) > 1)
		}
		if out[kind] == nil {
			out[kind] = map[lb.Frontend]*natService{}
		}
		out[kind][f] = p
	}
	return out
}

// load reads table nat, or the maps.
func (d *dnat) load(ctx context.Context) error {
	if d.nft != nil {
		services, damaged, err := d.nft.read(ctx)
		if err != nil {
			return fmt.Errorf("read virtual servers %s: %w", d.family, err)
		}
		d.services, d.damaged, d.known = services, damaged, true
		return nil
	}
	have, err := d.rules.peek(ctx)
	if err != nil {
		return fmt.Errorf("read virtual servers %s: %w", d.family, err)
	}
	d.read(have["nat"])
	return nil
}

// lostMaps returns the virtual servers with their backends, and forgets them, if all of their maps are gone. It
// reports false if they are unknown, or if some of them may be left.
func (d *dnat) lostMaps(ctx context.Context) (lost []lb.Object, gone bool, err error) {
	if d.rules.config.Mode != ModeNetfilter || !d.known {
		return nil, false, nil
	}
	before := d.objects()
	if maps, err := d.nft.findMaps(ctx); err != nil || len(maps) > 0 {
		return nil, false, err
	}
	if err := d.load(ctx); err != nil { // nothing
		return nil, false, err
	}
	return lostServers(before, nil), true, nil
}

func serverOf(o lb.Object) lb.Frontend {
	if rs, ok := o.(lb.RealServer); ok {
		return rs.Frontend
	}
	return o.(lb.VirtualServer).Frontend
}

// write writes NAT services to the kernel, each at one instant, and remembers them.
func (d *dnat) write(ctx context.Context, next map[lb.Frontend]*natService) error {
	if d.nft != nil {
		if err := d.nft.write(ctx, next, d.own(ctx)); err != nil {
			return err
		}
	} else if text := d.text(next); text != "" {
		if err := d.restore(ctx, text); err != nil {
			return err
		}
		d.dispatches = true
	}
	for f, p := range next {
		delete(d.damaged, f)
		if p == nil {
			delete(d.services, f)
			continue
		}
		d.services[f] = *p
	}
	return nil
}

// own returns the function that runs a transaction of nf_tables, which Watch ignores.
func (d *dnat) own(ctx context.Context) func(change func() error) error {
	return func(change func() error) error {
		if d.rules.own == nil {
			return change()
		}
		return d.rules.own(ctx, change)
	}
}

// restore runs iptables-restore. Watch ignores this change, but not a foreign one just before.
func (d *dnat) restore(ctx context.Context, text string) error {
	r := d.rules
	change := func() error { return r.restore(ctx, text) }
	seen := r.stamp == readStamp(d.family)
	var err error
	if r.backend() == NFT && r.own != nil {
		err = r.own(ctx, change)
	} else {
		err = change()
	}
	r.fresh = nil
	if seen {
		r.stamp = readStamp(d.family)
	}
	return err
}

// sweep removes orphans.
func (d *dnat) sweep(ctx context.Context) error {
	if d.clean() {
		return nil
	}
	if d.nft != nil {
		return d.nft.sweep(ctx, d.own(ctx))
	}
	e := natEdit{referenced: d.referenced}
	for _, spec := range d.orphanRules {
		fmt.Fprintf(&e.jumps, "-D %s %s\n", d.dispatch(), spec)
	}
	for _, name := range d.deadChains {
		e.remove(name)
	}
	if err := d.restore(ctx, e.String()); err != nil {
		return d.rules.explain(err)
	}
	d.orphanRules, d.deadChains = nil, nil
	return nil
}

// remove removes all NAT services and orphans. No rule may jump to VIRTUAL-SERVERS any more.
func (d *dnat) remove(ctx context.Context) error {
	if d.nft != nil {
		if err := d.nft.removeMaps(ctx, d.own(ctx)); err != nil {
			return err
		}
		return d.load(ctx)
	}
	e := natEdit{referenced: d.referenced}
	for _, name := range d.deadChains {
		e.remove(name)
	}
	for _, f := range slices.SortedFunc(maps.Keys(d.services), lb.Frontend.Compare) {
		for _, c := range d.chains(d.services[f]) {
			e.remove(c.name)
		}
	}
	if d.dispatches {
		e.remove(d.dispatch())
	}
	if text := e.String(); text != "" {
		if err := d.restore(ctx, text); err != nil {
			return d.rules.explain(err)
		}
	}
	d.read(savedTable{})
	return nil
}
