package supervise

import (
	"context"
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync"
	"time"
)

// Pause is the time between a failure of a goroutine and its next run.
const Pause = time.Second

// Group owns goroutines by name. Each runs until Keep or Stop ends it, and is restarted after an error or a panic: it
// must not harm the box that serves. One goroutine calls Keep, Forward and Stop. Make one with NewGroup.
type Group struct {
	// Signal gets a value when a member of the group has news.
	Signal chan struct{}

	log     *slog.Logger
	ctx     context.Context
	end     context.CancelFunc
	running map[string]context.CancelFunc
	tasks   sync.WaitGroup
}

// NewGroup returns an empty group.
func NewGroup(log *slog.Logger) *Group {
	g := &Group{Signal: make(chan struct{}, 1), log: log, running: map[string]context.CancelFunc{}}
	g.ctx, g.end = context.WithCancel(context.Background())
	return g
}

// Wake sends on Signal, unless a value is there.
func (g *Group) Wake() { Wake(g.Signal) }

// Wake sends on a channel of size 1, unless a value is there.
func Wake(signal chan<- struct{}) {
	select {
	case signal <- struct{}{}:
	default:
	}
}

// Keep starts a goroutine that is wanted, and ends one that is not.
func (g *Group) Keep(name string, wanted bool, run func(context.Context) error) {
	stop, runs := g.running[name]
	switch {
	case wanted && !runs:
		ctx, cancel := context.WithCancel(g.ctx)
		g.running[name] = cancel
		g.tasks.Go(func() { Restart(ctx, g.log.With("task", name), run) })
	case !wanted && runs:
		stop()
		delete(g.running, name)
	}
}

// Forward sends on Signal for each value of a channel.
func (g *Group) Forward(name string, from <-chan struct{}) {
	g.Keep(name+" news", true, func(ctx context.Context) error {
		for {
			select {
			case <-ctx.Done():
				return nil
			case <-from:
				g.Wake()
			}
		}
	})
}

// End ends a goroutine, and the forwarding of its channel.
func (g *Group) End(name string) {
	g.Keep(name, false, nil)
	g.Keep(name+" news", false, nil)
}

// Stop ends all goroutines, and waits for them.
func (g *Group) Stop() {
	g.end()
	clear(g.running)
	g.tasks.Wait()
}

// Restart runs a function until ctx ends, with a pause between two runs.
func Restart(ctx context.Context, log *slog.Logger, run func(context.Context) error) {
	for ctx.Err() == nil {
		if err := Recover(ctx, run); err != nil && ctx.Err() == nil {
			log.Error("task failed; restarting it", "error", err, "in", Pause)
		}
		select {
		case <-ctx.Done():
		case <-time.After(Pause):
		}
	}
}

// Recover runs a function once, and returns its panic as an error.
func Recover(ctx context.Context, run func(context.Context) error) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("panic: %v\n%s", v, debug.Stack())
		}
	}()
	return run(ctx)
}
