package k8ssync

import (
	"context"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// rollback is the time since which the lists of a client have been older than the known state. The zero value is
// ready.
type rollback struct {
	probing sync.Mutex // held by the feed that looks for another server

	mu          sync.Mutex
	since, last time.Time
}

// lasts records an older list and returns the time since the first one. Without one for longer than gap, this is
// the first.
func (r *rollback) lasts(now time.Time, gap time.Duration) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.since.IsZero() || now.Sub(r.last) > gap {
		r.since = now
	}
	r.last = now
	return now.Sub(r.since)
}

func (r *rollback) end() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.since = time.Time{}
}

// outdated returns an error for a list that is older than the known state. Either the cluster was restored from a
// backup, or the server lags behind another one at the same address, and its list would remove Services that work.
// So new connections are made until one has a current state. If there is none for twice the longest pause, all
// feeds accept the older one.
func (l *lister) outdated(ctx context.Context, resourceVersion string) error {
	at := version(resourceVersion)
	if !l.precedes(at) {
		if l.behind {
			l.client.rollback.end()
		}
		l.behind = false
		return nil
	}
	r, window := &l.client.rollback, 2*l.retries.longest
	older := func() bool { return r.lasts(time.Now(), 2*window) < window }
	if l.behind = older(); !l.behind {
		return nil
	}
	err := fmt.Errorf("%s: the API server has an older state, resourceVersion %d, than before, %d", l.permission("list"), at, l.known)
	l.broken(err)
	r.probing.Lock()
	defer r.probing.Unlock()
	const probes = 30
	for ctx.Err() == nil {
		if at, err := l.stateOf(ctx); err != nil || !l.precedes(at) || !older() {
			break
		}
		l.client.conns.CloseAll()
		sleep(ctx, window/probes)
	}
	return err
}

// precedes reports whether a state of the server is older than the known one, which it had.
func (l *lister) precedes(at uint64) bool {
	return at != 0 && at < l.known && l.current().server == l.client.server
}

// stateOf returns the resourceVersion of the server, 0 if it can't be compared.
func (l *lister) stateOf(ctx context.Context) (uint64, error) {
	list, err := l.request(metav1.ListOptions{Limit: 1}).Do(ctx).Get()
	if err != nil {
		return 0, err
	}
	m, err := meta.ListAccessor(list)
	if err != nil {
		return 0, err
	}
	return version(m.GetResourceVersion()), nil
}
