package cluster

import (
	"context"
	"sync"
	"time"

	"github.com/hashicorp/memberlist"
)

// againEvery is how often it is tried whether dead members can be reached again.
const againEvery = time.Second

// meetAgain joins dead members as soon as they can be reached, until ctx ends. After a
// partition both sides have owners of their own, so it is urgent that they meet; and a
// library's attempt to join one that can't be reached yet takes ten seconds.
func (f *Fleet) meetAgain(ctx context.Context, list *memberlist.Memberlist) {
	for ctx.Err() == nil {
		sleep(ctx, againEvery)
		room := make(chan struct{}, looksMost)
		var all sync.WaitGroup
		for _, addr := range f.dead() {
			room <- struct{}{}
			all.Go(func() {
				defer func() { <-room }()
				try, cancel := context.WithTimeout(ctx, knockTimeout)
				defer cancel()
				if f.knock(try, addr, f.fleet()) == nil {
					_, err := list.Join([]string{addr})
					f.log.Debug("a dead member answers", "address", addr, "error", err)
				}
			})
		}
		all.Wait()
	}
}

// dead gives the addresses of members that are dead.
func (f *Fleet) dead() (addrs []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, m := range f.members {
		if m.Life == Dead && m.Name != f.cfg.Name {
			addrs = append(addrs, m.Addr.String())
		}
	}
	return addrs
}
