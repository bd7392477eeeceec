package linux

import (
	"context"
	"fmt"

	"golang.org/x/sys/unix"

	"weir/lb"
)

// NFTHooks is the name of the tables that keep the kernel's translation of connections.
//
// The kernel tracks and translates packets only while there is a rule that needs conntrack and a base chain of
// type nat (nf_ct_netns_get, nf_nat_register_fn). If another program removes weir's tables, and no other one has such
// a chain, the packets of established connections pass untranslated until the repair, and are
// answered with a reset. So a second table has both. It has an owner: `nft flush ruleset` skips it,
// and others can't delete it. It doesn't persist, unlike weir's own tables (nftowner.go), and
// need not: no packet needs its rule, and without weir nothing is repaired anyway.
const NFTHooks = "weir-hooks"

// hold makes the table of a family. A kernel without owners, before 5.12, gets none.
func (t *nftTables) hold(ctx context.Context, f lb.Family) error {
	r := newNFTRules(f, "", t)
	chain := nftChain{name: "nat-POSTROUTING", hook: &nftHook{"nat", unix.NF_INET_POST_ROUTING, 300}}
	// Only the first packet of a connection comes to the chain, so this matches none.
	rule := nftRule{"weir: keeps the translation of connections", append(state("ESTABLISHED").nft(r.names), decide(unix.NFT_RETURN, ""))}
	err := r.transact(ctx, func(e *encoder) {
		t.putTable(e, f, nftTableOwner)
		r.putChain(e, chain)
		r.putRule(e, chain.name, rule)
	})
	switch {
	case err == nil:
		t.becomeOwner(f)
	case ownerless(err):
		t.shared[f] = true // there is none, and no further attempt
		return &MissingError{What: "support for tables of nf_tables with an owner", Fix: "boot Linux 5.12 or later", Err: err}
	default:
		return fmt.Errorf("create table %s %s: %w", nftTableFamily(f), t.name, err)
	}
	return nil
}

// holdHooks makes the table that keeps translations, beside a table that others can remove. Beside one
// that they can't, it removes it.
func (w *watcher) holdHooks(ctx context.Context, f lb.Family) error {
	need := w.tables.shared[f]
	if need == w.hooks.isOwner(f) || need && w.hooks.shared[f] {
		return nil
	}
	return w.ownChange(ctx, func() error {
		if need {
			return w.hooks.hold(ctx, f)
		}
		return newNFTRules(f, "", w.hooks).remove(ctx)
	})
}
