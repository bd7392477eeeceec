package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"weir/cmd/weirlab/internal/props"
	"weir/cmd/weirlab/lab"
)

// startWeb has a host answer requests with its name and whom it saw.
func startWeb(m *lab.Machine, port int) (stop func(), err error) {
	l, err := m.Listen("tcp", fmt.Sprintf(":%d", port))
	if err != nil {
		return nil, fmt.Errorf("serve on %s: %w", m.Name(), err)
	}
	return props.Serve(l, props.Named(m.Name())), nil
}

// load sends requests until it is stopped, and remembers each.
type load struct {
	cancel context.CancelFunc
	done   sync.WaitGroup

	mu       sync.Mutex
	requests []request
}

type request struct {
	began, ended time.Time
	err          error
}

// workers is how many requests are under way at once.
const workers = 4

func startLoad(ctx context.Context, from *lab.Machine, addrs []string) *load {
	ctx, cancel := context.WithCancel(ctx)
	l := &load{cancel: cancel}
	for i := range workers {
		l.done.Go(func() {
			for n := i; ctx.Err() == nil; n++ {
				began := time.Now()
				_, err := props.Ask(ctx, from.DialContext, addrs[n%len(addrs)])
				if ctx.Err() != nil {
					return
				}
				l.mu.Lock()
				l.requests = append(l.requests, request{began, time.Now(), err})
				l.mu.Unlock()
			}
		})
	}
	return l
}

// stop ends the load and waits for it. Stopping twice is fine.
func (l *load) stop() {
	l.cancel()
	l.done.Wait()
}

func (l *load) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.requests)
}

// wait waits until n requests are through.
func (l *load) wait(ctx context.Context, n int) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for l.count() < n {
		select {
		case <-ctx.Done():
			return fmt.Errorf("%d of %d requests got through: %w", l.count(), n, errors.Join(ctx.Err(), l.firstError()))
		case <-tick.C:
		}
	}
	return nil
}

// tally counts requests.
type tally struct {
	requests, failed int
}

// failed counts the requests that ended before one instant, those that began
// after another, and the rest.
func (l *load) failed(from, to time.Time) (before, between, after tally) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, r := range l.requests {
		t := &between
		switch {
		case r.ended.Before(from):
			t = &before
		case r.began.After(to):
			t = &after
		}
		t.requests++
		if r.err != nil {
			t.failed++
		}
	}
	return before, between, after
}

// firstError is an error that a request met, if any did.
func (l *load) firstError() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, r := range l.requests {
		if r.err != nil {
			return r.err
		}
	}
	return nil
}

func sorted(set map[string]bool) []string { return slices.Sorted(maps.Keys(set)) }
