package k8ssync

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/flowcontrol"

	"weir/lb"
)

// Events are for people, and each is a write into the cluster's database. Therefore they
// are limited: eventBurst at once, then eventsPerSecond; of one Service one in eventGap. A
// written one is not repeated until eventMemory after it ceased to apply; weir remembers at
// most maxRemembered. Namespaces take turns, and each has half of these limits at most, so
// that no tenant delays or prevents the Events of another.
const (
	eventsPerSecond = 1
	eventBurst      = 25
	eventGap        = 10 * time.Second
	eventRetry      = time.Minute
	eventTimeout    = 10 * time.Second
	eventMemory     = time.Hour
	maxRemembered   = 10_000
	maxQueued       = 200
	maxEventText    = 1000 // bytes; the API takes 1024
)

// subject is the content of an Event about a Service.
type subject struct {
	key
	uid    string
	reason lb.Reason
	text   string
	// normal is the type Normal instead of Warning.
	normal bool
}

// eventWriter writes Events.
type eventWriter struct {
	host  string
	pace  flowcontrol.RateLimiter
	gap   time.Duration
	retry time.Duration
	wake  chan struct{}

	mu     sync.Mutex
	client *client
	queue  []subject
	single []subject             // by once; limited, since they are of no use late
	known  map[subject]time.Time // those that were written, with the last time at which they applied
	last   map[key]time.Time     // when the last Event of a Service was written
	failed map[string]time.Time  // when the last Event of a namespace could not be written
	tried  map[string]time.Time  // the last try of a namespace, so that they take turns
	count  uint64
	err    error
}

func newEventWriter(cfg Config) *eventWriter {
	host, err := os.Hostname()
	if err != nil {
		host = "weir"
	}
	return &eventWriter{
		host: cmp.Or(cfg.NodeName, host),
		pace: flowcontrol.NewTokenBucketRateLimiter(eventsPerSecond, eventBurst), gap: eventGap, retry: eventRetry,
		wake: make(chan struct{}, 1), known: map[subject]time.Time{}, last: map[key]time.Time{}, failed: map[string]time.Time{}, tried: map[string]time.Time{},
	}
}

// use replaces the client.
func (w *eventWriter) use(c *client) {
	w.mu.Lock()
	w.client = c
	w.mu.Unlock()
	signal(w.wake)
}

// set replaces the subjects that apply now.
func (w *eventWriter) set(about []subject) {
	now := time.Now()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.queue = w.queue[:0]
	for _, s := range about {
		_, written := w.known[s]
		if written {
			w.known[s] = now
		} else {
			w.queue = append(w.queue, s)
		}
	}
	for s, at := range w.known {
		if now.Sub(at) > eventMemory {
			delete(w.known, s)
		}
	}
	for k, at := range w.last {
		if now.Sub(at) > w.gap {
			delete(w.last, k)
		}
	}
	for namespace, at := range w.tried {
		if now.Sub(at) > eventMemory {
			delete(w.tried, namespace)
		}
	}
	for namespace, at := range w.failed {
		if now.Sub(at) > 2*w.retry { // it is not tried any more
			delete(w.failed, namespace)
		}
	}
	signal(w.wake)
}

// once writes one Event; it is dropped if too many are queued that can be written.
func (w *eventWriter) once(s subject) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.single) >= maxQueued {
		w.single = slices.DeleteFunc(w.single, func(q subject) bool { return !w.failed[q.Namespace].IsZero() })
	}
	n := 0
	for _, q := range w.single {
		if q.Namespace == s.Namespace {
			n++
		}
	}
	if len(w.single) < maxQueued && n < maxQueued/2 {
		w.single = append(w.single, s)
	}
	signal(w.wake)
}

// state returns the number of Events written, and why no more are.
func (w *eventWriter) state() (uint64, string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.err != nil:
		return w.count, w.err.Error()
	case len(w.known) >= maxRemembered:
		return w.count, fmt.Sprintf("%d different ones were written within %s: no more until some expire", maxRemembered, eventMemory)
	}
	if crowded := slices.Sorted(maps.Keys(w.crowded())); len(crowded) > 0 {
		return w.count, fmt.Sprintf("%d different ones were written for namespace %s within %s: no more there until some expire", maxRemembered/2, crowded[0], eventMemory)
	}
	return w.count, ""
}

// crowded returns the namespaces with half of the remembered subjects. w.mu is held.
func (w *eventWriter) crowded() map[string]struct{} {
	if len(w.known) < maxRemembered/2 {
		return nil
	}
	n, out := map[string]int{}, map[string]struct{}{}
	for s := range w.known {
		if n[s.Namespace]++; n[s.Namespace] == maxRemembered/2 {
			out[s.Namespace] = struct{}{}
		}
	}
	return out
}

// run writes Events until ctx ends.
func (w *eventWriter) run(ctx context.Context) {
	again := time.NewTimer(w.gap)
	defer again.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-w.wake:
		case <-again.C:
		}
		again.Reset(w.gap)
		if w.writeAll(ctx) != nil {
			again.Reset(w.retry)
		}
	}
}

// writeAll writes the Events that are due. After an error it leaves out the namespace, which
// may have used up a quota. A second error ends it: its cause is more likely the API server
// or a missing permission.
func (w *eventWriter) writeAll(ctx context.Context) error {
	var failed error
	for {
		s, with := w.next()
		if with == nil {
			return failed
		}
		if err := w.pace.Wait(ctx); err != nil {
			return nil //nolint:nilerr // ctx has ended, which is no error
		}
		err := w.write(ctx, with, s)
		w.mu.Lock()
		w.tried[s.Namespace] = time.Now()
		retry := err != nil && !rejected(err)
		if retry {
			w.failed[s.Namespace] = time.Now()
		} else {
			delete(w.failed, s.Namespace)
			w.done(s)
		}
		if err == nil {
			w.count++
		}
		if err != nil || len(w.failed) == 0 {
			w.err = err
		}
		w.mu.Unlock()
		if retry && failed != nil {
			return err
		}
		if retry {
			failed = err
		}
	}
}

// done records a written subject. w.mu is held.
func (w *eventWriter) done(s subject) {
	if i := slices.Index(w.single, s); i >= 0 {
		w.single = slices.Delete(w.single, i, i+1)
		return
	}
	w.known[s] = time.Now()
	w.last[s.key] = time.Now()
}

// next returns the next subject to write; no client is none. It is of the namespace that has
// waited longest. A namespace with an error is left out for a while, and its turn is after all
// others then, so that several such namespaces harm no other.
func (w *eventWriter) next() (next subject, with *client) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.client == nil {
		return subject{}, nil
	}
	crowded, nextFails := w.crowded(), false
	for i, queue := range [][]subject{w.single, w.queue} {
		for _, s := range queue {
			failed, fails := w.failed[s.Namespace]
			_, full := crowded[s.Namespace]
			switch {
			case i > 0 && (full || !w.due(s)), fails && time.Since(failed) < w.retry:
			case with == nil, nextFails && !fails, nextFails == fails && w.tried[s.Namespace].Before(w.tried[next.Namespace]):
				next, with, nextFails = s, w.client, fails
			}
		}
	}
	return next, with
}

// due reports whether a queued subject may be written now. w.mu is held.
func (w *eventWriter) due(s subject) bool {
	_, written := w.known[s]
	last, ok := w.last[s.key]
	return len(w.known) < maxRemembered && !written && (!ok || time.Since(last) >= w.gap)
}

// rejected reports whether one Event can never be written: its namespace is gone or is
// being deleted, or the API server rejects it.
func rejected(err error) bool {
	return apierrors.IsNotFound(err) || apierrors.IsInvalid(err) || apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause)
}

// write writes one Event. Its name follows from its content, so that weir finds it after a
// restart and updates only its time.
func (w *eventWriter) write(ctx context.Context, with *client, s subject) error {
	ctx, cancel := context.WithTimeout(ctx, eventTimeout)
	defer cancel()
	now := metav1.Now()
	e := w.event(s, now)
	err := with.core.Post().Namespace(s.Namespace).Resource("events").Body(e).Do(ctx).Error()
	verb := "create"
	if apierrors.IsAlreadyExists(err) {
		verb = "patch"
		patch := fmt.Appendf(nil, `{"lastTimestamp":%q}`, now.UTC().Format(time.RFC3339))
		err = with.core.Patch(types.StrategicMergePatchType).Namespace(s.Namespace).Resource("events").Name(e.Name).Body(patch).Do(ctx).Error()
	}
	if err != nil {
		return fmt.Errorf("%s events: %w", verb, err)
	}
	return nil
}

func (w *eventWriter) event(s subject, now metav1.Time) *corev1.Event {
	kind := corev1.EventTypeWarning
	if s.normal {
		kind = corev1.EventTypeNormal
	}
	sum := sha256.Sum256([]byte(strings.Join([]string{w.host, s.uid, string(s.reason), s.text}, "\x00")))
	return &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: s.Name + "." + hex.EncodeToString(sum[:8])},
		InvolvedObject: corev1.ObjectReference{
			Kind: "Service", APIVersion: "v1", Namespace: s.Namespace, Name: s.Name, UID: types.UID(s.uid),
		},
		Type: kind, Reason: camel(s.reason), Message: cut(s.text, maxEventText),
		FirstTimestamp: now, LastTimestamp: now, Count: 1,
		Source:              corev1.EventSource{Component: "weir", Host: w.host},
		ReportingController: "weir", ReportingInstance: w.host,
	}
}

// camel returns a Reason in the style of Kubernetes: NoBackends.
func camel(r lb.Reason) string {
	var out string
	for word := range strings.SplitSeq(string(r), "-") {
		if word != "" {
			out += strings.ToUpper(word[:1]) + word[1:]
		}
	}
	return out
}

// cut shortens a text to n bytes of valid UTF-8.
func cut(s string, n int) string {
	s = strings.ToValidUTF8(s, "?")
	if len(s) <= n {
		return s
	}
	return strings.ToValidUTF8(s[:n-len("…")], "") + "…"
}
