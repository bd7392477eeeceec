package daemon

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"weir/cmd/weir/internal/status"
)

// What the daemon keeps of its log, in memory alone: at most so many records and so many
// bytes, and of each at most so many attributes of such a length. 1,000 records are hours
// of a box in trouble and weeks of one that is well; who wants more has the journal.
const (
	keptRecords = 1000
	keptBytes   = 1 << 20
	keptAttrs   = 16
	keptText    = 300
)

// recent keeps the last records of the log from level info up, whatever the log itself
// is limited to. Make one with newRecent. It may be used by many at once.
type recent struct {
	mu     sync.Mutex
	events []status.Event // the oldest first
	bytes  int            // of their texts
	last   uint64
	more   chan struct{} // closed when there is one more
}

func newRecent() *recent { return &recent{more: make(chan struct{})} }

// add keeps a record.
func (r *recent) add(e status.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.last++
	e.Seq = r.last
	r.events = append(r.events, e)
	r.bytes += sizeOf(e)
	gone := 0
	for len(r.events)-gone > keptRecords || r.bytes > keptBytes {
		r.bytes -= sizeOf(r.events[gone])
		gone++
	}
	clear(r.events[:gone])
	r.events = r.events[gone:]
	close(r.more)
	r.more = make(chan struct{})
}

// after gives what came after a record, and a channel that is closed when there is more.
func (r *recent) after(seq uint64) (status.Events, <-chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	doc := status.Events{Events: []status.Event{}, Last: r.last}
	if seq > r.last {
		return doc, r.more // a number of an earlier run
	}
	first := r.last - uint64(len(r.events)) // the last one that is gone
	if seq < first {
		doc.Forgotten = first - seq
	}
	doc.Events = append(doc.Events, r.events[max(seq, first)-first:]...)
	return doc, r.more
}

// sizeOf is about how many bytes a record takes.
func sizeOf(e status.Event) int {
	n := 64 + len(e.Text)
	for _, a := range e.Attrs {
		n += 32 + len(a.Key) + len(a.Value)
	}
	return n
}

// eventsPatience bounds how long one who asks for events waits for the next one.
const eventsPatience = time.Minute

// serveEvents answers with the records after that with the number "after"; with "wait",
// in seconds, it waits so long for one if there is none.
func (r *recent) serveEvents(w http.ResponseWriter, req *http.Request) {
	after, err := strconv.ParseUint(req.FormValue("after"), 10, 64)
	if req.FormValue("after") != "" && err != nil {
		http.Error(w, "after must be the number of an event", http.StatusBadRequest)
		return
	}
	seconds, err := strconv.ParseFloat(req.FormValue("wait"), 64)
	if req.FormValue("wait") != "" && err != nil {
		http.Error(w, "wait must be a number of seconds", http.StatusBadRequest)
		return
	}
	doc, more := r.after(after)
	if len(doc.Events) == 0 && doc.Last == after && seconds > 0 {
		ctx, cancel := context.WithTimeout(req.Context(), min(time.Duration(seconds*float64(time.Second)), eventsPatience))
		defer cancel()
		select {
		case <-more:
		case <-ctx.Done():
		}
		doc, _ = r.after(after)
	}
	reply(w, doc, nil)
}

// keeper is the slog.Handler that has a recent keep what is logged, and passes it on.
type keeper struct {
	recent *recent
	next   slog.Handler
	prefix string        // of open groups, with their dots
	attrs  []status.Attr // of the logger
}

// keep gives a logger that logs to next and has r keep the records.
func (r *recent) keep(next *slog.Logger) *slog.Logger {
	return slog.New(keeper{recent: r, next: next.Handler()})
}

// Enabled implements slog.Handler.
func (k keeper) Enabled(ctx context.Context, level slog.Level) bool {
	return level >= slog.LevelInfo || k.next.Enabled(ctx, level)
}

// Handle implements slog.Handler.
func (k keeper) Handle(ctx context.Context, rec slog.Record) error {
	if rec.Level >= slog.LevelInfo {
		e := status.Event{Time: rec.Time.Round(0), Level: levelText(rec.Level), Text: cutText(rec.Message), Attrs: slices.Clip(k.attrs)}
		rec.Attrs(func(a slog.Attr) bool {
			e.Attrs = appendAttr(e.Attrs, k.prefix, a)
			return len(e.Attrs) < keptAttrs
		})
		if e.Attrs == nil {
			e.Attrs = []status.Attr{}
		}
		k.recent.add(e)
	}
	if !k.next.Enabled(ctx, rec.Level) {
		return nil
	}
	return k.next.Handle(ctx, rec)
}

// WithAttrs implements slog.Handler.
func (k keeper) WithAttrs(attrs []slog.Attr) slog.Handler {
	k.attrs = slices.Clip(k.attrs)
	for _, a := range attrs {
		k.attrs = appendAttr(k.attrs, k.prefix, a)
	}
	k.next = k.next.WithAttrs(attrs)
	return k
}

// WithGroup implements slog.Handler.
func (k keeper) WithGroup(name string) slog.Handler {
	if name != "" {
		k.prefix += name + "."
	}
	k.next = k.next.WithGroup(name)
	return k
}

// appendAttr appends an attribute, and the parts of a group one by one. What is empty
// says nothing.
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
	text := valueText(value)
	if text == "" || len(out) >= keptAttrs {
		return out
	}
	return append(out, status.Attr{Key: cutText(prefix + a.Key), Value: cutText(text)})
}

// valueText is a value as people read it.
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

// cutText bounds a text, at a character's end.
func cutText(s string) string {
	if len(s) <= keptText {
		return s
	}
	return strings.ToValidUTF8(s[:keptText], "") + "..."
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
