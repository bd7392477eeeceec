// Package eventlog keeps the latest records of the log in memory, for weir events and the status page. It never writes to
// a disk and never filters or changes the log itself.
package eventlog

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"weir/cmd/weir/internal/status"
	"weir/cmd/weir/internal/status/text"
)

// Limits of the kept records: their number, their bytes, and the attributes and texts of each. 1,000 records are hours of
// a box in trouble and weeks of a healthy one; the journal has the rest.
const (
	maxRecords = 1000
	maxBytes   = 1 << 20
	maxAttrs   = 16
	maxText    = 300
)

// Log keeps the latest records from level info up, independent of the level of the log. It is safe for concurrent use.
// Make one with New.
type Log struct {
	mu     sync.Mutex
	events []status.Event // the oldest first
	bytes  int            // of their texts
	last   uint64
	began  time.Time
	more   chan struct{} // closed when the next record arrives
}

// New returns an empty log.
func New() *Log { return &Log{began: time.Now().Round(0), more: make(chan struct{})} }

func (r *Log) add(e status.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.last++
	e.Seq = r.last
	r.events = append(r.events, e)
	r.bytes += sizeOf(e)
	gone := 0
	for len(r.events)-gone > maxRecords || r.bytes > maxBytes {
		r.bytes -= sizeOf(r.events[gone])
		gone++
	}
	clear(r.events[:gone])
	r.events = r.events[gone:]
	close(r.more)
	r.more = make(chan struct{})
}

// After returns the records after a sequence number.
func (r *Log) After(seq uint64) status.Events {
	doc, _ := r.after(seq)
	return doc
}

// after returns the records after a sequence number, and a channel that is closed when there are more.
func (r *Log) after(seq uint64) (status.Events, <-chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	doc := status.Events{Events: []status.Event{}, Last: r.last, Began: r.began}
	if seq > r.last {
		return doc, r.more // a number of an earlier run
	}
	first := r.last - uint64(len(r.events)) // the last dropped record
	if seq < first {
		doc.Expired = first - seq
	}
	doc.Events = append(doc.Events, r.events[max(seq, first)-first:]...)
	return doc, r.more
}

// maxWait bounds the wait for the next event.
const maxWait = time.Minute

// Wait returns the records after a sequence number. If there is none it waits for the next one, but not longer than wait.
func (r *Log) Wait(ctx context.Context, seq uint64, wait time.Duration) status.Events {
	doc, more := r.after(seq)
	if len(doc.Events) > 0 || doc.Last != seq || wait <= 0 {
		return doc
	}
	ctx, cancel := context.WithTimeout(ctx, min(wait, maxWait))
	defer cancel()
	select {
	case <-more:
	case <-ctx.Done():
	}
	return r.After(seq)
}

// sizeOf returns the approximate bytes of a record.
func sizeOf(e status.Event) int {
	n := 64 + len(e.Text)
	for _, a := range e.Attrs {
		n += 32 + len(a.Key) + len(a.Value)
	}
	return n
}

// handler is a slog.Handler that keeps records in a Log and passes them on.
type handler struct {
	log    *Log
	next   slog.Handler
	prefix string        // of open groups, with their dots
	attrs  []status.Attr // of the logger
}

// Wrap returns a logger that logs to next and keeps the records.
func (r *Log) Wrap(next *slog.Logger) *slog.Logger {
	return slog.New(handler{log: r, next: next.Handler()})
}

// Enabled implements slog.Handler.
func (k handler) Enabled(ctx context.Context, level slog.Level) bool {
	return level >= slog.LevelInfo || k.next.Enabled(ctx, level)
}

// Handle implements slog.Handler.
func (k handler) Handle(ctx context.Context, rec slog.Record) error {
	if rec.Level >= slog.LevelInfo {
		e := status.Event{Time: rec.Time.Round(0), Level: levelText(rec.Level), Text: text.Cut(rec.Message, maxText), Attrs: slices.Clip(k.attrs)}
		rec.Attrs(func(a slog.Attr) bool {
			e.Attrs = appendAttr(e.Attrs, k.prefix, a)
			return len(e.Attrs) < maxAttrs
		})
		if e.Attrs == nil {
			e.Attrs = []status.Attr{}
		}
		k.log.add(e)
	}
	if !k.next.Enabled(ctx, rec.Level) {
		return nil
	}
	return k.next.Handle(ctx, rec)
}

// WithAttrs implements slog.Handler.
func (k handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	k.attrs = slices.Clip(k.attrs)
	for _, a := range attrs {
		k.attrs = appendAttr(k.attrs, k.prefix, a)
	}
	k.next = k.next.WithAttrs(attrs)
	return k
}

// WithGroup implements slog.Handler.
func (k handler) WithGroup(name string) slog.Handler {
	if name != "" {
		k.prefix += name + "."
	}
	k.next = k.next.WithGroup(name)
	return k
}

// appendAttr appends an attribute, and the parts of a group one by one, but no empty ones.
func appendAttr(out []status.Attr, prefix string, a slog.Attr) []status.Attr {
	value := a.Value.Resolve()
	if value.Kind() == slog.KindGroup {
		if a.Key != "" {
			prefix += a.Key + "."
		}
		for _, part := range value.Group() {
			out = appendAttr(out, prefix, part)
		}
		return out
	}
	v := valueText(value)
	if v == "" || len(out) >= maxAttrs {
		return out
	}
	return append(out, status.Attr{Key: text.Cut(prefix+a.Key, maxText), Value: text.Cut(v, maxText)})
}

// valueText returns a value for people.
func valueText(v slog.Value) string {
	switch v.Kind() {
	case slog.KindDuration:
		return v.Duration().Round(10 * time.Microsecond).String()
	case slog.KindTime:
		return v.Time().Format(time.RFC3339)
	case slog.KindAny:
		if v.Any() == nil {
			return ""
		}
		return strings.TrimSuffix(strings.TrimPrefix(fmt.Sprint(v.Any()), "["), "]")
	}
	return v.String()
}

func levelText(l slog.Level) string {
	switch {
	case l >= slog.LevelError:
		return "error"
	case l >= slog.LevelWarn:
		return "warn"
	}
	return "info"
}
