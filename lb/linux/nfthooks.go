package linux

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"weir/lb"
)

// NFTHooksTable is the name of the tables that keep the kernel's translation of connections.
//
// The kernel tracks and translates packets only while there is a rule that needs conntrack and a base chain of
// type nat (nf_ct_netns_get, nf_nat_register_fn). If another program removes weir's tables, and no other one has such
// a chain, the packets of established connections pass untranslated until the repair, and are
// answered with a reset. So a second table has both. It has an owner: `nft flush ruleset` skips it,
// and others can't delete it. It doesn't persist, unlike weir's own tables (nftowner.go), and
// need not: no packet needs its rule, and without weir nothing is repaired anyway.
const NFTHooksTable = "weir-hooks"

// hooksRule needs conntrack. Only the first packet of a connection comes to its chain, so it matches none.
var hooksRule = when(state("ESTABLISHED")).then(pass)

// hooksChain returns the only chain of the table.
func hooksChain(n ruleNames) nftChain {
	return nftChain{
		"nat-POSTROUTING", &nftHook{"nat", unix.NF_INET_POST_ROUTING, 300, nfAccept},
		[]nftRule{{"weir: keeps the translation of connections", hooksRule.nft(n)}},
	}
}

// hold makes the table of a family with a chain, instead of one that another program has made, as from a saved
// ruleset: the kernel gives that no owner. A kernel without owners, before 5.12, gets none.
func (t *nftTables) hold(ctx context.Context, f lb.Family, chain nftChain) error {
	r := newNFTRules(f, "", t)
	exists, err := t.exists(ctx, f)
	if err == nil && exists {
		err = r.remove(ctx)
	}
	var errs []error
	if err == nil {
		errs, err = r.conn.transaction(ctx, func(e *encoder) {
			t.putTable(e, f, t.ownerFlags)
			r.putChain(e, chain)
			for _, rule := range chain.rules {
				r.putRule(e, chain.name, rule)
			}
		})
	}
	if len(errs) > 0 && ownerless(errs[0]) {
		t.shared[f] = true // there is none, and no further attempt
		return nftFeature{"tables with an owner", "5.12", ""}.missing("a table", errs[0])
	}
	if err := errors.Join(err, firstError(errs)); err != nil {
		return fmt.Errorf("create table %s %s: %w", nftTableFamily(f), t.name, err)
	}
	t.becomeOwner(f)
	return nil
}

// holdHooks makes the table that keeps translations while other programs can remove weir's own table of a
// family. Once weir owns that and has written its chains, which come after the table and its sets, it removes it.
func (w *watcher) holdHooks(ctx context.Context, f lb.Family) error {
	need := w.tables.shared[f]
	if need == w.hookTables.isOwner(f) || need && w.hookTables.shared[f] {
		return nil
	}
	if !need {
		translates, err := newNFTRules(f, "", w.tables).translates(ctx)
		if errors.Is(err, errInterrupted) { // another program writes; the next call tries again
			return nil
		}
		if err != nil || !translates {
			return err
		}
	}
	return w.ownChange(ctx, func() error {
		r := newNFTRules(f, "", w.hookTables)
		if need {
			return w.hookTables.hold(ctx, f, hooksChain(r.names))
		}
		return r.remove(ctx)
	})
}

// translates reports whether the table has a base chain of type nat.
func (r *nftRules) translates(ctx context.Context) (bool, error) {
	chains, err := r.chains(ctx)
	for _, hook := range chains {
		if hook != nil && hook.kind == "nat" {
			return true, err
		}
	}
	return false, err
}
