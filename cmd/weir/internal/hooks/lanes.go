package hooks

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"weir/cmd/weir/internal/config"
)

const (
	// mostQueued bounds the waiting runs of a hook.
	mostQueued = 256
	// stopTime is for the runs that wait at the end. weir stops only after them, so it is short.
	stopTime = 3 * time.Second
)

type job struct {
	hook  config.Hook
	event Event
}

// lanes have a queue and a goroutine for each hook that had an event, by its name. One goroutine
// owns them.
type lanes struct {
	runner *Runner
	ctx    context.Context // of the runs
	cancel context.CancelFunc
	queues map[string]chan job
	// last is closed when the last lane of a name has ended: a hook that is removed and comes back
	// still runs one event at a time.
	last  map[string]chan struct{}
	ended sync.WaitGroup
}

// newLanes returns lanes that run on after ctx has ended, until close.
func newLanes(ctx context.Context, r *Runner) *lanes {
	l := &lanes{runner: r, queues: map[string]chan job{}, last: map[string]chan struct{}{}}
	l.ctx, l.cancel = context.WithCancel(context.WithoutCancel(ctx))
	return l
}

// add queues a run, or drops it.
func (l *lanes) add(j job) {
	queue := l.queues[j.hook.Name]
	if queue == nil {
		queue = make(chan job, mostQueued)
		l.queues[j.hook.Name] = queue
		before, done := l.last[j.hook.Name], make(chan struct{})
		l.last[j.hook.Name] = done
		l.ended.Go(func() {
			defer close(done)
			if before != nil {
				<-before
			}
			l.work(queue)
		})
	}
	select {
	case queue <- j:
	default:
		l.runner.count(Dropped)
	}
}

// keep ends the lanes of other hooks, after the runs that wait there.
func (l *lanes) keep(hooks []config.Hook) {
	for name, queue := range l.queues {
		if !slices.ContainsFunc(hooks, func(h config.Hook) bool { return h.Name == name }) {
			close(queue)
			delete(l.queues, name)
		}
	}
	maps.DeleteFunc(l.last, func(_ string, done chan struct{}) bool {
		select {
		case <-done:
			return true
		default:
			return false
		}
	})
}

// close ends all lanes. Runs that are not done after stopTime are dropped.
func (l *lanes) close() {
	l.keep(nil)
	late := time.AfterFunc(stopTime, l.cancel)
	l.ended.Wait()
	late.Stop()
	l.cancel()
}

// work runs a queue.
func (l *lanes) work(queue <-chan job) {
	r := l.runner
	for j := range queue {
		err := l.ctx.Err()
		if err == nil {
			err = r.run(l.ctx, j)
		}
		switch {
		case l.ctx.Err() != nil && err != nil:
			r.count(Dropped)
		case err != nil:
			r.count(Failed)
			r.log.Warn("hook failed", "hook", j.hook.Name, "event", j.event.Text, "error", err)
		default:
			r.count(Done)
		}
	}
}
