package eventlog

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"weir/cmd/weir/internal/status"
)

// quietLog discards the log.
func quietLog() *slog.Logger { return slog.New(slog.NewTextHandler(io.Discard, nil)) }

func TestLogLinesAreKeptAsWritten(t *testing.T) {
	t.Parallel()
	r := New()
	var out strings.Builder
	log := r.Wrap(slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelWarn})))
	log.Debug("too small")
	log.With("cluster", "prod").WithGroup("g").Info("connected", "took", 1234567*time.Nanosecond, "addresses", []netip.Addr{netip.MustParseAddr("192.0.2.1")},
		slog.Group("of", "n", 3), "empty", "", "nothing", nil)
	log.Warn("down", "error", errors.New("connection refused"))
	log.Error(strings.Repeat("ä", 1000), "stack", strings.Repeat("x", 10_000))
	got, _ := r.after(0)
	for i := range got.Events {
		if got.Events[i].Time.IsZero() {
			t.Errorf("event %d has no time", i)
		}
		got.Events[i].Time = time.Time{}
	}
	long := strings.Repeat("ä", maxText/2) + "..."
	want := status.Events{Last: 3, Began: r.began, Events: []status.Event{
		{Seq: 1, Level: "info", Text: "connected", Attrs: []status.Attr{
			{Key: "cluster", Value: "prod"}, {Key: "g.took", Value: "1.23ms"}, {Key: "g.addresses", Value: "192.0.2.1"}, {Key: "g.of.n", Value: "3"},
		}},
		{Seq: 2, Level: "warn", Text: "down", Attrs: []status.Attr{{Key: "error", Value: "connection refused"}}},
		{Seq: 3, Level: "error", Text: long, Attrs: []status.Attr{{Key: "stack", Value: strings.Repeat("x", maxText) + "..."}}},
	}}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	if n := strings.Count(out.String(), "\n"); n != 2 {
		t.Errorf("the log itself has %d lines, want the 2 of its level:\n%s", n, out.String())
	}
}

func TestOldRecordsMakeRoom(t *testing.T) {
	t.Parallel()
	r := New()
	log := r.Wrap(quietLog())
	for i := range maxRecords + 5 {
		log.Info("it happens", "i", i)
	}
	all, _ := r.after(0)
	if len(all.Events) != maxRecords || all.Expired != 5 || all.Events[0].Seq != 6 || all.Last != maxRecords+5 {
		t.Errorf("%d events from %d to %d, %d forgotten", len(all.Events), all.Events[0].Seq, all.Last, all.Expired)
	}
	if some, _ := r.after(all.Last - 2); len(some.Events) != 2 || some.Expired != 0 || some.Events[0].Seq != all.Last-1 {
		t.Errorf("the last two: %+v", some)
	}
	if none, _ := r.after(all.Last + 7); len(none.Events) != 0 || none.Last != all.Last {
		t.Errorf("after what is yet to come: %+v", none)
	}
	var args []any
	for i := range 2 * maxAttrs {
		args = append(args, strconv.Itoa(i), strings.Repeat("y", 2*maxText))
	}
	for range maxRecords {
		log.Warn("a long story", args...)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	sum := 0
	for _, e := range r.events {
		sum += sizeOf(e)
	}
	if sum != r.bytes || sum > maxBytes || sum < maxBytes*9/10 {
		t.Errorf("%d records of %d bytes, counted as %d; want at most %d", len(r.events), sum, r.bytes, maxBytes)
	}
}

func TestWait(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := New()
		log := r.Wrap(quietLog())
		begin := time.Now()
		if doc := r.Wait(t.Context(), 0, 7*time.Second); len(doc.Events) != 0 || time.Since(begin) != 7*time.Second {
			t.Errorf("without an event: after %s %+v", time.Since(begin), doc)
		}
		begin = time.Now()
		var done sync.WaitGroup
		for range 3 {
			done.Go(func() {
				if doc := r.Wait(t.Context(), 0, time.Hour); len(doc.Events) != 1 || doc.Events[0].Text != "now" || time.Since(begin) != time.Second {
					t.Errorf("after %s: %+v", time.Since(begin), doc)
				}
			})
		}
		time.Sleep(time.Second)
		log.Info("now")
		done.Wait()
		if doc := r.Wait(t.Context(), 0, 5*time.Second); len(doc.Events) != 1 {
			t.Errorf("an event that is there: %+v", doc)
		}
		if begin = time.Now(); len(r.Wait(t.Context(), 1, time.Hour).Events) != 0 || time.Since(begin) != maxWait {
			t.Errorf("the wait takes %s", time.Since(begin))
		}
	})
}

// BenchmarkWrap compares the cost of a line with and without a Log.
func BenchmarkWrap(b *testing.B) {
	for _, bb := range []struct {
		name string
		log  *slog.Logger
	}{{"without", quietLog()}, {"with", New().Wrap(quietLog())}} {
		b.Run(bb.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				bb.log.LogAttrs(context.Background(), slog.LevelInfo, "applied", slog.Int("ops", 3), slog.String("first", "add real server 10.0.0.7:80"), slog.Duration("took", time.Millisecond))
			}
		})
	}
}
