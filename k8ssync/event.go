package k8ssync

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
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

// Events are for people, and every one is a write into the cluster's database. So
// there are few: eventBurst at once, then eventsPerSecond; of one Service one in
// eventGap. What is said once is not repeated for eventMemory after it stopped
// being so, and weir does not remember more than maxTold.
const (
	eventsPerSecond = 1
	eventBurst      = 25
	eventGap        = 10 * time.Second
	eventRetry      = time.Minute
	eventTimeout    = 10 * time.Second
	eventMemory     = time.Hour
	maxTold         = 10_000
	maxSaid         = 200
	maxEventText    = 1000 // bytes; the API takes 1024
)

// subject is what an Event says of a Service.
type subject struct {
	key
	uid    string
	reason lb.Reason
	text   string
	// normal is one that tells of nothing wrong.
	normal bool
}

// teller writes Events.
type teller struct {
	host  string
	pace  flowcontrol.RateLimiter
	gap   time.Duration
	retry time.Duration
	wake  chan struct{}

	mu     sync.Mutex
	client *client
	queue  []subject
	said   []subject             // by say; of no use to those who read them late, so that there are few
	told   map[subject]time.Time // when it was last so
	last   map[key]time.Time     // when the last Event of a Service was written
	count  uint64
	err    error
}

func newTeller(cfg Config) *teller {
	host, err := os.Hostname()
	if err != nil {
		host = "weir"
	}
	return &teller{
		host: cmp.Or(cfg.NodeName, host),
		pace: flowcontrol.NewTokenBucketRateLimiter(eventsPerSecond, eventBurst), gap: eventGap, retry: eventRetry,
		wake: make(chan struct{}, 1), told: map[subject]time.Time{}, last: map[key]time.Time{},
	}
}

// use gives the client to write with.
func (t *teller) use(c *client) {
	t.mu.Lock()
	t.client = c
	t.mu.Unlock()
	signal(t.wake)
}

// set says what is so now.
func (t *teller) set(about []subject) {
	now := time.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	t.queue = t.queue[:0]
	for _, s := range about {
		_, known := t.told[s]
		if known {
			t.told[s] = now
		} else {
			t.queue = append(t.queue, s)
		}
	}
	for s, at := range t.told {
		if now.Sub(at) > eventMemory {
			delete(t.told, s)
		}
	}
	for k, at := range t.last {
		if now.Sub(at) > t.gap {
			delete(t.last, k)
		}
	}
	signal(t.wake)
}

// say writes what has happened, once; if there is too much of it, not at all.
func (t *teller) say(s subject) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.said) < maxSaid {
		t.said = append(t.said, s)
	}
	signal(t.wake)
}

// state gives how many Events were written, and why no more are.
func (t *teller) state() (uint64, string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case t.err != nil:
		return t.count, t.err.Error()
	case len(t.told) >= maxTold:
		return t.count, fmt.Sprintf("%d different ones were written within %s: no more until some are forgotten", maxTold, eventMemory)
	}
	return t.count, ""
}

// run writes Events until ctx ends.
func (t *teller) run(ctx context.Context) {
	again := time.NewTimer(t.gap)
	defer again.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.wake:
		case <-again.C:
		}
		again.Reset(t.gap)
		if t.writeAll(ctx) != nil {
			again.Reset(t.retry)
		}
	}
}

// writeAll writes what may be written now. An error stops it: it is more likely
// the API server's, or a missing right, than one Event's.
func (t *teller) writeAll(ctx context.Context) error {
	for {
		s, with := t.next()
		if with == nil {
			return nil
		}
		if err := t.pace.Wait(ctx); err != nil {
			return nil //nolint:nilerr // ctx has ended, which is nobody's fault
		}
		err := t.write(ctx, with, s)
		t.mu.Lock()
		t.err = err
		if err == nil || hopeless(err) {
			t.done(s)
		}
		if err == nil {
			t.count++
		}
		t.mu.Unlock()
		if err != nil && !hopeless(err) {
			return err
		}
	}
}

// done notes that something was told. t.mu is held.
func (t *teller) done(s subject) {
	if i := slices.Index(t.said, s); i >= 0 {
		t.said = slices.Delete(t.said, i, i+1)
		return
	}
	t.told[s] = time.Now()
	t.last[s.key] = time.Now()
}

// next takes what is to be written now; no client is nothing.
func (t *teller) next() (subject, *client) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.client != nil && len(t.said) > 0 {
		return t.said[0], t.client
	}
	if t.client == nil || len(t.told) >= maxTold {
		return subject{}, nil
	}
	for _, s := range t.queue {
		_, known := t.told[s]
		if last, ok := t.last[s.key]; !known && (!ok || time.Since(last) >= t.gap) {
			return s, t.client
		}
	}
	return subject{}, nil
}

// hopeless tells that it is this Event which can't be written, and never will be:
// its namespace is gone or about to be, or the API server doesn't like it.
func hopeless(err error) bool {
	return apierrors.IsNotFound(err) || apierrors.IsInvalid(err) || apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause)
}

// write writes one Event. Its name follows from what it says, so that a weir that
// starts again finds its own and only says that it is still so.
func (t *teller) write(ctx context.Context, with *client, s subject) error {
	ctx, cancel := context.WithTimeout(ctx, eventTimeout)
	defer cancel()
	now := metav1.Now()
	e := t.event(s, now)
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

func (t *teller) event(s subject, now metav1.Time) *corev1.Event {
	kind := corev1.EventTypeWarning
	if s.normal {
		kind = corev1.EventTypeNormal
	}
	sum := sha256.Sum256([]byte(strings.Join([]string{t.host, s.uid, string(s.reason), s.text}, "\x00")))
	return &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: s.Name + "." + hex.EncodeToString(sum[:8])},
		InvolvedObject: corev1.ObjectReference{
			Kind: "Service", APIVersion: "v1", Namespace: s.Namespace, Name: s.Name, UID: types.UID(s.uid),
		},
		Type: kind, Reason: camel(s.reason), Message: cut(s.text, maxEventText),
		FirstTimestamp: now, LastTimestamp: now, Count: 1,
		Source:              corev1.EventSource{Component: "weir", Host: t.host},
		ReportingController: "weir", ReportingInstance: t.host,
	}
}

// camel writes a Reason as Kubernetes writes them: NoBackends.
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
