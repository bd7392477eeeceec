package linux

import (
	"bytes"
	"context"
	"maps"
	"slices"
	"sync"

	"golang.org/x/sys/unix"
)

// generations separates foreign changes of nf_tables from weir's own. The kernel numbers all
// changes. The announcement of each ends with its number, and the program that makes a change
// can read the number before and after it.
type generations struct {
	mu        sync.Mutex
	pending   announcement            // without the number so far
	announced map[uint32]announcement // by number
	kept      int                     // bytes of messages about elements
}

// announcement is what a change of nf_tables may have changed, and the messages about elements from the first one that it
// has removed.
type announcement struct {
	bits     hint
	elements []elementMessage
}

// elementMessage is a message about elements of a set, which are added or removed.
type elementMessage struct {
	added bool
	body  []byte
}

// collect collects announcements until their number comes.
func (g *generations) collect(m message) hint {
	g.mu.Lock()
	defer g.mu.Unlock()
	if m.typ != unix.NFNL_SUBSYS_NFTABLES<<8|unix.NFT_MSG_NEWGEN {
		bits := nftHint(m)
		g.pending.bits |= bits
		if bits&(hintTable4|hintTable6) != 0 {
			g.keepElements(m)
		}
		return 0
	}
	number, ok := parseGeneration(m.body)
	if !ok || g.pending.bits == 0 {
		return 0
	}
	if g.announced == nil {
		g.announced = map[uint32]announcement{}
	}
	g.announced[number], g.pending = g.pending, announcement{}
	return hintGeneration
}

// maxElements limits the messages about elements that wait for Watch, in bytes. An audit finds the other removals.
const maxElements = 256 << 10

// keepElements keeps a message about elements that were removed from a set of weir's tables, and those about elements that
// the same change adds after that: a program may flush a set and fill it again.
func (g *generations) keepElements(m message) {
	added := m.typ == unix.NFNL_SUBSYS_NFTABLES<<8|unix.NFT_MSG_NEWSETELEM
	removed := m.typ == unix.NFNL_SUBSYS_NFTABLES<<8|unix.NFT_MSG_DELSETELEM
	switch {
	case !removed && (!added || len(g.pending.elements) == 0):
	case g.kept+len(m.body) <= maxElements:
		g.pending.elements = append(g.pending.elements, elementMessage{added, bytes.Clone(m.body)})
		g.kept += len(m.body)
	case added: // which of them it adds is unknown
		g.pending.elements = nil
	}
}

// take returns the foreign changes.
func (g *generations) take(own func(number uint32) bool) (others announcement) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, number := range slices.Sorted(maps.Keys(g.announced)) {
		if !own(number) {
			others.bits |= g.announced[number].bits
			others.elements = append(others.elements, g.announced[number].elements...)
		}
	}
	clear(g.announced)
	g.kept = 0
	return others
}

func parseGeneration(body []byte) (number uint32, ok bool) {
	if len(body) < 4 {
		return 0, false
	}
	v := attribute(body[4:], unix.NFTA_GEN_ID)
	return getBE32(v), len(v) == 4
}

// generation returns the number of the last change of nf_tables; 0 if it is unknown.
func (c *conntrack) generation(ctx context.Context) (number uint32) {
	err := c.conn.query(ctx, func(e *encoder) {
		e.message(unix.NFNL_SUBSYS_NFTABLES<<8|unix.NFT_MSG_GETGEN, 0)
		e.raw(unix.AF_UNSPEC, unix.NFNETLINK_V0, 0, 0)
	}, func() { number = 0 }, func(m message) { number, _ = parseGeneration(m.body) })
	if err != nil {
		return 0
	}
	return number
}

// maxOwn limits the own changes that Watch has not received yet.
const maxOwn = 1000

// ownChange runs a change of nf_tables, and records its numbers if there was no other one
// meanwhile. One of iptables-nft is a single transaction.
func (w *watcher) ownChange(ctx context.Context, change func() error) error {
	before, n := w.conntrack.generation(ctx), uint32(1)
	if w.tables != nil {
		n = -w.tables.conn.commits
	}
	err := change()
	if w.tables != nil {
		n += w.tables.conn.commits
	}
	after := w.conntrack.generation(ctx)
	w.read.follow(before, after, n, err)
	if before != 0 && after == before+n {
		for number := before + 1; number <= after; number++ {
			w.own = append(w.own, number)
		}
		w.own = slices.Delete(w.own, 0, max(0, len(w.own)-maxOwn))
	}
	return err
}

// subscription is that of Watch to the changes of nf_tables.
type subscription struct {
	socket *socket
	hints  *hints
}

func (w *watcher) subscribe(s *subscription) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.changes = s
}

// manyOps is the number of ops from which weir ends its subscription while it carries them out.
const manyOps = 100

// pause ends the subscription while weir itself makes many changes. The kernel announces each element,
// and would spend a sixth of a start with 1,000 services on that. resume subscribes again. If another
// program has changed nf_tables meanwhile, Watch reports that.
func (w *watcher) pause(ctx context.Context) (resume func()) {
	s, resume := w.changes, func() {}
	if s == nil || w.tables == nil {
		return resume
	}
	// idle would create a table that is missing, and without an owner.
	if ready, err := w.tables.ready(ctx, w.config.Families[0]); err != nil || !ready {
		return resume
	}
	conn := w.tables.conn
	before, commits := w.conntrack.generation(ctx), conn.commits
	// The kernel numbers a transaction before it announces it, and carries out one at a time: after an
	// empty one all up to before are announced.
	if before == 0 || conn.idle(ctx, nftFamily(w.config.Families[0]), w.tables.name) != nil || s.socket.leave(unix.NFNLGRP_NFTABLES) != nil {
		return resume
	}
	return func() {
		if s.socket.join(unix.NFNLGRP_NFTABLES) != nil {
			_ = s.socket.close() // Watch fails, and begins again
		}
		if w.conntrack.generation(ctx) != before+conn.commits-commits {
			s.hints.add(hintMissed)
		}
	}
}

// completeEvery is the number of audits of which the first reads all rules and sets.
const completeEvery = 10

// nftRead is a complete read of the rules and sets in nf_tables. While only weir itself changes
// nf_tables, an audit need not read them again.
type nftRead struct {
	// number is that of the last change, if all changes since the read began were weir's own and
	// succeeded. 0 is unknown.
	number uint32
	done   bool
	audits int // since, without a read
}

// follow records n changes of weir's own, which ended with an error or nil. The kernel does not
// number a change that changes nothing. A foreign change at the same moment would count as that one,
// until the next complete read.
func (r *nftRead) follow(before, after, n uint32, err error) {
	if after == 0 || r.number != before || after != before && after != before+n || err != nil {
		*r = nftRead{}
		return
	}
	r.number = after
}

// keeps reports whether an audit that may do so need not read the rules and sets: all changes since
// the last read are known. Otherwise a complete read begins.
func (w *watcher) keeps(ctx context.Context, may bool) bool {
	if w.tables == nil {
		return false
	}
	for _, r := range w.rules {
		may = may && r.inPlace
	}
	number := w.conntrack.generation(ctx)
	if may && w.read.done && number == w.read.number && w.read.audits < completeEvery-1 {
		w.read.audits++
		return true
	}
	w.read = nftRead{number: number}
	return false
}

// endRead ends a complete read, which had an error or nil.
func (w *watcher) endRead(ctx context.Context, err error) {
	if w.tables == nil {
		return
	}
	if err != nil || w.read.number == 0 || w.conntrack.generation(ctx) != w.read.number {
		w.read = nftRead{}
		return
	}
	w.read.done = true
}

// othersChanges returns the hints of foreign changes, and records in rules the members that they have removed. It waits
// for a change of weir's own.
func (w *watcher) othersChanges(g *generations, rules rulesWatch) hint {
	w.mu.Lock()
	defer w.mu.Unlock()
	others := g.take(func(number uint32) bool { return slices.Contains(w.own, number) })
	for _, f := range w.config.Families {
		if r := w.rules[f]; len(others.elements) == 0 || r == nil || r.nft == nil { // ipset has the members
			continue
		}
		rules.removed(f, removedMembers(others.elements, w.config.Prefix, f))
	}
	return others.bits
}
