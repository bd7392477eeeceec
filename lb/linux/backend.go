package linux

import (
	"context"

	"golang.org/x/sys/unix"

	"weir/lb"
)

// Backend returns the backend in use for a family.
func (k *Kernel) Backend(f lb.Family) Backend {
	k.mu.Lock()
	defer k.mu.Unlock()
	if r := k.rules[f]; r != nil {
		return r.backend()
	}
	return ""
}

// setStore has the sets of weir in the kernel: ipset, or nf_tables itself.
type setStore interface {
	applySets(ctx context.Context, ops []lb.Op) []error
	// applyMembers adds and removes members, those of one set together.
	applyMembers(ctx context.Context, ops []lb.Op) []error
	// observe reads the sets of a family with their members.
	observe(ctx context.Context, f lb.Family, obs *lb.Observation) error
	// auditor returns the same sets for reads beside changes, over a socket of its own.
	auditor(count *Traffic) setStore
	socket() *conn
}

// newSetStore returns the sets in tables, or with nil those of ipset.
func newSetStore(c Config, tables *nftTables, count *Traffic) setStore {
	if tables != nil {
		return newNFTSets(tables, c.Prefix, marking{c.Mark})
	}
	return newSets(c.Prefix, marking{c.Mark}, count)
}

func (s *sets) socket() *conn { return s.conn }

func (s *sets) auditor(count *Traffic) setStore {
	a := newSets(s.prefix, s.marks, count)
	a.listing = s.listing
	return a
}

func (s *nftSets) socket() *conn { return s.conn }

func (s *nftSets) auditor(count *Traffic) setStore {
	return s.reader(newConn(unix.NETLINK_NETFILTER, count))
}

// changeSets runs a change of the sets, which Watch must ignore.
func (w *watcher) changeSets(ctx context.Context, change func() []error) (errs []error) {
	if w.tables == nil {
		return change()
	}
	_ = w.ownChange(ctx, func() error {
		errs = change()
		return firstError(errs)
	})
	return errs
}

// takeOver makes this process the owner of weir's tables of nf_tables, those of an earlier
// process too. It logs once why a table has another owner or none, and the next call tries again.
func (w *watcher) takeOver(ctx context.Context) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.tables == nil {
		return
	}
	for _, f := range w.config.Families {
		var err error
		if !w.tables.final(f) {
			err = w.ownChange(ctx, func() error { return w.tables.takeOver(ctx, f) })
		}
		var hooksErr error
		if err == nil {
			hooksErr = w.holdHooks(ctx, f)
		}
		table, reason := nftTableFamily(f)+" "+w.tables.name, ""
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			reason = err.Error()
		case hooksErr != nil:
			reason = hooksErr.Error()
		case w.tables.shared[f]:
			reason = "shared"
		}
		if reason == w.notOwner[f] {
			continue
		}
		w.notOwner[f] = reason
		switch {
		case err != nil:
			w.log.Warn("table without owner", "table", table, "error", err)
		case hooksErr != nil:
			w.log.Warn("table of hooks without owner", "table", table, "effect", "connections are reset if another program removes the table", "error", hooksErr)
		case reason != "":
			w.log.Info("table without owner, repaired after foreign changes", "table", table, "reason", w.tables.whyShared(ctx, f))
		}
	}
}
