package linux

import (
	"context"
	"fmt"

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
	if c.Mode == ModeNetfilter {
		servers := newNFTServers(r, marking{c.Mark})
		servers.kinds = map[serverKind]bool{{slots: 2}: true, {slots: 2, affinity: 60}: true}
		r.configure(c, byDNAT, insidePorts{})
		r.extra = servers.kindChains()
	} else {
		r.configure(c, byIPVS, insidePorts{})
	}
	sets := newNFTSets(tables, c.Prefix, marking{c.Mark})
	// parts has the meaning of an error for each message.
	parts := []func(error) error{func(err error) error { return lacksFamily(f, err) }}
	errs, err := conn.rehearsal(ctx, func(e *encoder) {
		tables.putTable(e, f, 0)
		for _, s := range lb.Sets() {
			id := lb.IPSet{Set: s, Family: f}
			putNFTSetNew(e, id, trialTable, sets.name(id))
			parts = append(parts, func(err error) error { return missingSet(id, err) })
		}
		if r.serves {
			r.servers.putMaps(e)
			for range numServerMaps {
				parts = append(parts, func(err error) error { return fmt.Errorf("a map of virtual servers: %w", err) })
			}
		}
		for _, chain := range r.all() {
			r.putChain(e, chain)
			parts = append(parts, func(err error) error { return fmt.Errorf("chain %s: %w", chain.name, err) })
		}
		for _, chain := range r.all() {
			for _, rule := range chain.rules {
				r.putRule(e, chain.name, rule)
				parts = append(parts, func(err error) error { return fmt.Errorf("a rule of chain %s: %w", chain.name, err) })
			}
		}
	})
	switch {
	case noNFTables(err):
		return missingModule("nf_tables", err)
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
