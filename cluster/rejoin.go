package cluster

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/memberlist"
)

// rejoinEvery is the interval at which dead members are tried. Where another host answers,
// the interval doubles each time, up to rejoinMax.
const (
	rejoinEvery = time.Second
	rejoinMax   = time.Minute
)

// attempts are the joins of an address that did not bring the member back.
type attempts struct {
	n    int
	last time.Time
	busy bool // one is running
}

// due reports whether it is time for the next join.
func (a attempts) due(now time.Time) bool {
	wait := rejoinMax
	if a.n < 6 {
		wait = rejoinEvery << a.n
	}
	return !a.busy && (a.n == 0 || now.Sub(a.last) >= wait)
}

// rejoinDead joins dead members as soon as they can be reached, until ctx ends. After a
// partition both sides have owners, so the sides must reach each other quickly; a join of memberlist
// to an unreachable host takes ten seconds, and to one that accepts and does not answer five. It delays no other.
func (f *Fleet) rejoinDead(ctx context.Context, list *memberlist.Memberlist) {
	var mu sync.Mutex
	tried := map[string]attempts{} // by address
	room := make(chan struct{}, maxProbes)
	var all sync.WaitGroup
	defer all.Wait()
	for ctx.Err() == nil {
		sleep(ctx, rejoinEvery)
		var dead []string
		var fleet string
		f.locked(func() { dead, fleet = f.table.dead(f.cfg.Name), f.cfg.Fleet })
		mu.Lock()
		maps.DeleteFunc(tried, func(addr string, x attempts) bool { return !x.busy && !slices.Contains(dead, addr) })
		dead = slices.DeleteFunc(dead, func(addr string) bool { return !tried[addr].due(time.Now()) })
		for _, addr := range dead {
			tried[addr] = attempts{tried[addr].n, tried[addr].last, true}
		}
		mu.Unlock()
		for _, addr := range dead {
			room <- struct{}{}
			all.Go(func() {
				defer f.caught()
				defer func() { <-room }()
				try, cancel := context.WithTimeout(ctx, connectTimeout)
				defer cancel()
				answers := f.hooks.connect(try, addr, fleet) == nil
				if answers {
					_, err := list.Join([]string{addr})
					f.log.Debug("dead member answers", "address", addr, "error", err)
				}
				mu.Lock()
				defer mu.Unlock()
				x := tried[addr]
				if x.busy = false; answers {
					x.n, x.last = x.n+1, time.Now()
				}
				tried[addr] = x
			})
		}
	}
}
