package linux

import (
	"context"
	"slices"
	"sync"

	"golang.org/x/sys/unix"
)

// generations separates foreign changes of nf_tables from weir's own. The kernel numbers all
// changes. The announcement of each ends with its number, and the program that makes a change
// can read the number before and after it.
type generations struct {
	mu        sync.Mutex
	pending   hint            // announced without the number so far
	announced map[uint32]hint // by number
}

// collect collects announcements until their number comes.
func (g *generations) collect(m message) hint {
	g.mu.Lock()
	defer g.mu.Unlock()
	if m.typ != unix.NFNL_SUBSYS_NFTABLES<<8|unix.NFT_MSG_NEWGEN {
		g.pending |= nftHint(m)
		return 0
	}
	number, ok := parseGeneration(m.body)
	if !ok || g.pending == 0 {
		return 0
	}
	if g.announced == nil {
		g.announced = map[uint32]hint{}
	}
	g.announced[number] |= g.pending
	g.pending = 0
	return hintGeneration
}

// take returns the foreign changes.
func (g *generations) take(own func(number uint32) bool) (others hint) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for number, bits := range g.announced {
		if !own(number) {
			others |= bits
		}
	}
	clear(g.announced)
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
	if after := w.conntrack.generation(ctx); before != 0 && after == before+n {
		for number := before + 1; number <= after; number++ {
			w.own = append(w.own, number)
		}
		w.own = slices.Delete(w.own, 0, max(0, len(w.own)-maxOwn))
	}
	return err
}

// othersChanges returns the families with foreign changes of the rules. It waits for a change
// of weir's own.
func (w *watcher) othersChanges(g *generations) hint {
	w.mu.Lock()
	defer w.mu.Unlock()
	return g.take(func(number uint32) bool { return slices.Contains(w.own, number) })
}
