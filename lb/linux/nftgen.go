package linux

import (
	"context"
	"slices"
	"sync"

	"golang.org/x/sys/unix"
)

// generations tells weir's own changes of nf_tables from others'. The kernel numbers
// all changes; each announcement of one ends with its number, which whoever makes a
// change can find out before and after it.
type generations struct {
	mu        sync.Mutex
	pending   hint            // announced, and its number is still to come
	announced map[uint32]hint // by number
}

// look collects what is announced, until its number tells that it is complete.
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

// take gives what others have changed.
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

// generation asks nf_tables for the number of its last change; 0 if it can't tell.
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

// maxOwn is how many of its own changes weir remembers, which Watch has not heard of
// yet.
const maxOwn = 1000

// ownChange runs a change of nf_tables, and remembers its number if it was the only
// one meanwhile.
func (w *watcher) ownChange(ctx context.Context, change func() error) error {
	before := w.conntrack.generation(ctx)
	err := change()
	if after := w.conntrack.generation(ctx); before != 0 && after == before+1 {
		w.own = append(w.own, after)
		w.own = slices.Delete(w.own, 0, max(0, len(w.own)-maxOwn))
	}
	return err
}

// othersChanges gives the families whose rules others have changed. It waits for
// what weir itself is changing.
func (w *watcher) othersChanges(g *generations) hint {
	w.mu.Lock()
	defer w.mu.Unlock()
	return g.take(func(number uint32) bool { return slices.Contains(w.own, number) })
}
