package cluster

import (
	"context"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/memberlist"
)

// againEvery is how often it is tried whether dead members can be reached again. Where
// somebody answers who is not that member, it takes twice as long each time, up to
// againSeldom.
const (
	againEvery  = time.Second
	againSeldom = time.Minute
)

// attempts are how often one has been joined who did not come back for it, and when that
// was last.
type attempts struct {
	n    int
	last time.Time
}

// due tells whether it is time to join once more.
func (a attempts) due(now time.Time) bool {
	wait := againSeldom
	if a.n < 6 {
		wait = againEvery << a.n
	}
	return a.n == 0 || now.Sub(a.last) >= wait
}

// meetAgain joins dead members as soon as they can be reached, until ctx ends. After a
// partition both sides have owners of their own, so it is urgent that they meet; and a
// library's attempt to join one that can't be reached yet takes ten seconds.
func (f *Fleet) meetAgain(ctx context.Context, list *memberlist.Memberlist) {
	var mu sync.Mutex
	tried := map[string]attempts{} // by address
	for ctx.Err() == nil {
		sleep(ctx, againEvery)
		room := make(chan struct{}, looksMost)
		var all sync.WaitGroup
		dead := f.dead()
		mu.Lock()
		maps.DeleteFunc(tried, func(addr string, _ attempts) bool { return !slices.Contains(dead, addr) })
		dead = slices.DeleteFunc(dead, func(addr string) bool { return !tried[addr].due(time.Now()) })
		mu.Unlock()
		for _, addr := range dead {
			room <- struct{}{}
			all.Go(func() {
				defer func() { <-room }()
				try, cancel := context.WithTimeout(ctx, knockTimeout)
				defer cancel()
				if f.knock(try, addr, f.fleet()) == nil {
					_, err := list.Join([]string{addr})
					mu.Lock()
					tried[addr] = attempts{tried[addr].n + 1, time.Now()}
					mu.Unlock()
					f.log.Debug("a dead member answers", "address", addr, "error", err)
				}
			})
		}
		all.Wait()
	}
}

// dead gives the addresses of members that are dead, but not those that others have by
// now.
func (f *Fleet) dead() (addrs []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	taken := map[netip.AddrPort]bool{}
	for _, m := range f.members {
		taken[m.Addr] = taken[m.Addr] || m.Life == Alive
	}
	for _, m := range f.members {
		if m.Life == Dead && m.Name != f.cfg.Name && !taken[m.Addr] {
			addrs = append(addrs, m.Addr.String())
		}
	}
	return addrs
}
