package linux

import (
	"context"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"

	"weir/lb"
)

// trialTable is the name of a table that never exists: the kernel only examines it.
const trialTable = "weir-trial"

// SelectNFTables reports whether nf_tables should have the sets and rules, and otherwise the
// reason: a part that this kernel lacks, or rules of another program in iptables, before which only other
// rules of iptables can accept packets of Services. It changes nothing.
func SelectNFTables(ctx context.Context, c Config) (use bool, reason error) {
	if err := TryNFTables(ctx, c); err != nil {
		return false, err
	}
	used, err := UsedFilter(ctx, c)
	if err != nil || used == "" {
		return err == nil, err
	}
	if err := tryIPTables(ctx, c); err != nil {
		return true, nil //nolint:nilerr // both lack something; weir doctor names a chain that drops
	}
	return false, fmt.Errorf("%s, and rules of nf_tables can't override what they drop", used)
}

// tryIPTables returns an error without the programs of iptables, and on a kernel without ipset.
func tryIPTables(ctx context.Context, c Config) error {
	var count Traffic
	sets := newSets(c.Prefix, marking{c.Mark}, &count)
	defer sets.conn.close()
	for _, f := range c.Families {
		obs := lb.Observation{Objects: lb.Expecting(nil)}
		if err := sets.observe(ctx, f, &obs); err != nil {
			return err
		}
		if err := newRules(f, execRunner(&count.Messages), hasProgram).find(ctx, AutoBackend); err != nil {
			return err
		}
	}
	return nil
}

// TryNFTables has the kernel examine the sets and rules of a configuration, in tables of their
// own, and changes nothing. It may load modules. The error names the first part that this kernel lacks.
func TryNFTables(ctx context.Context, c Config) error {
	conn := newConn(unix.NETLINK_NETFILTER, &Traffic{})
	defer conn.close()
	return tryNFTables(ctx, conn, c)
}

func tryNFTables(ctx context.Context, conn *conn, c Config) error {
	for _, f := range c.Families {
		if err := tryFamily(ctx, conn, c, f); err != nil {
			return fmt.Errorf("nftables for %s: %w", f, err)
		}
	}
	return nil
}

func tryFamily(ctx context.Context, conn *conn, c Config, f lb.Family) error {
	tables := newNFTTables(conn, trialTable)
	r := newNFTRules(f, c.Prefix, tables)
	r.configureTrial(c)
	sets := newNFTSets(tables, c.Prefix, marking{c.Mark})
	// parts has the meaning of an error for each message.
	parts := []func(error) error{func(err error) error { return lacksFamily(f, err) }}
	for _, s := range lb.Sets() {
		parts = append(parts, func(err error) error { return missingSet(lb.IPSet{Set: s, Family: f}, err) })
	}
	if r.serves {
		parts = append(parts, slices.Repeat([]func(error) error{missingMap}, int(numServerMaps))...)
	}
	for _, chain := range r.all() {
		parts = append(parts, func(err error) error { return missingChain(chain, err) })
	}
	base := func(e *encoder) {
		tables.putTable(e, f, 0)
		for _, s := range lb.Sets() {
			id := lb.IPSet{Set: s, Family: f}
			putNFTSetNew(e, id, trialTable, sets.name(id))
		}
		if r.serves {
			r.servers.putMaps(e)
		}
		for _, chain := range r.all() {
			r.putChain(e, chain)
		}
	}
	errs, err := conn.rehearsal(ctx, func(e *encoder) {
		base(e)
		for _, chain := range r.all() {
			for _, rule := range chain.rules {
				r.putRule(e, chain.name, rule)
				parts = append(parts, func(err error) error {
					return missingExpression(chain.name, refusedExpression(ctx, r, base, chain.name, rule), err)
				})
			}
		}
	})
	switch {
	case noNFTables(err):
		return missingNFTables(err)
	case err != nil:
		return err
	}
	for i, err := range errs {
		if err != nil {
			return parts[i](err)
		}
	}
	return nil
}

// configureTrial gives it all rules of a configuration, and some kinds of virtual servers.
func (r *nftRules) configureTrial(c Config) {
	if c.Mode != ModeNetfilter {
		r.configure(c, byIPVS, insidePorts{})
		return
	}
	servers := newNFTServers(r, marking{c.Mark})
	servers.kinds = map[serverKind]bool{{slots: 2}: true, {slots: 2, affinity: 60}: true}
	r.configure(c, byDNAT, insidePorts{})
	r.extra = servers.kindChains()
}

// refusedExpression returns the expression of a rule that the kernel refuses: it examines ever longer beginnings
// of the rule. base makes all that the rule needs.
func refusedExpression(ctx context.Context, r *nftRules, base func(*encoder), chain string, rule nftRule) (x expression) {
	n := len(rule.expressions)
	errs, err := r.conn.rehearsal(ctx, func(e *encoder) {
		base(e)
		for i := range n {
			r.putRule(e, chain, nftRule{expressions: rule.expressions[:i+1]})
		}
	})
	if err != nil {
		return x
	}
	if i := slices.IndexFunc(errs[len(errs)-n:], func(err error) bool { return err != nil }); i >= 0 {
		x = rule.expressions[i]
	}
	return x
}
