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
	run := execRunner(&new(Traffic).Messages)
	used, forms, err := usedForms(ctx, c, run)
	if err != nil || used == "" {
		return err == nil, err
	}
	if err := tryIPTables(ctx, c, forms, run); err != nil {
		return true, nil //nolint:nilerr // both lack something; weir doctor names a chain that drops
	}
	return false, fmt.Errorf("%s, and rules of nf_tables can't override what they drop", used)
}

// tryIPTables returns an error if the programs of a form can't have the rules, and on a kernel without ipset.
func tryIPTables(ctx context.Context, c Config, forms map[lb.Family]Backend, run runner) error {
	sets := newSets(c.Prefix, marking{c.Mark}, &Traffic{})
	defer sets.conn.close()
	for _, f := range c.Families {
		obs := lb.Observation{Objects: lb.Expecting(nil)}
		if err := sets.observe(ctx, f, &obs); err != nil {
			return err
		}
		if err := tryForm(ctx, newRules(f, run, hasProgram), forms[f]); err != nil {
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

// tryNFTables examines all families in one batch: the kernel waits for a grace period of RCU at its end, some 10 ms.
func tryNFTables(ctx context.Context, conn *conn, c Config) error {
	trials := make([]*nftTrial, len(c.Families))
	for i, f := range c.Families {
		trials[i] = newNFTTrial(conn, c, f)
	}
	errs, err := conn.rehearsal(ctx, func(e *encoder) {
		for _, t := range trials {
			t.put(e)
		}
	})
	switch {
	case noNFTables(err):
		return missingNFTables(err)
	case err != nil:
		return err
	}
	for _, t := range trials {
		n := len(t.parts)
		for i, err := range errs[:n] {
			if err != nil {
				return fmt.Errorf("nftables for %s: %w", t.family, t.parts[i](ctx, err))
			}
		}
		errs = errs[n:]
	}
	return nil
}

// nftTrial is the sets and rules of a family, for the kernel to examine.
type nftTrial struct {
	family lb.Family
	rules  *nftRules
	sets   *nftSets
	// parts has the meaning of an error for each message.
	parts []func(context.Context, error) error
}

func newNFTTrial(conn *conn, c Config, f lb.Family) *nftTrial {
	tables := newNFTTables(conn, trialTable)
	t := &nftTrial{family: f, rules: newNFTRules(f, c.Prefix, tables), sets: newNFTSets(tables, c.Prefix, marking{c.Mark})}
	t.rules.configureTrial(c)
	return t
}

// put adds all messages, and the part of each.
func (t *nftTrial) put(e *encoder) {
	t.base(e, func(p func(error) error) {
		t.parts = append(t.parts, func(_ context.Context, err error) error { return p(err) })
	})
	r := t.rules
	for _, chain := range r.all() {
		for _, rule := range chain.rules {
			r.putRule(e, chain.name, rule)
			t.parts = append(t.parts, func(ctx context.Context, err error) error {
				return missingExpression(chain.name, t.refusedExpression(ctx, chain.name, rule), err)
			})
		}
	}
}

// base adds the messages for all that rules need, and calls add with the meaning of an error for each.
func (t *nftTrial) base(e *encoder, add func(func(error) error)) {
	r := t.rules
	r.tables.putTable(e, t.family, 0)
	add(func(err error) error { return lacksFamily(t.family, err) })
	for _, s := range lb.Sets() {
		id := lb.IPSet{Set: s, Family: t.family}
		putNFTSetNew(e, id, trialTable, t.sets.name(id))
		add(func(err error) error { return missingSet(id, err) })
	}
	if r.serves {
		r.servers.putMaps(e)
		for range numServerMaps {
			add(missingMap)
		}
	}
	for _, chain := range r.all() {
		r.putChain(e, chain)
		add(func(err error) error { return missingChain(chain, err) })
	}
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
// of the rule.
func (t *nftTrial) refusedExpression(ctx context.Context, chain string, rule nftRule) (x expression) {
	n := len(rule.expressions)
	errs, err := t.rules.conn.rehearsal(ctx, func(e *encoder) {
		t.base(e, func(func(error) error) {})
		for i := range n {
			t.rules.putRule(e, chain, nftRule{expressions: rule.expressions[:i+1]})
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
