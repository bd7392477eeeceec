package query

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"weir/cmd/weir/internal/status"
)

func TestClientsShareAReading(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		reads := 0
		var failure error
		c := NewCounters(func(_ context.Context, each func(status.Frontend)) error {
			reads++
			time.Sleep(300 * time.Millisecond)
			each(status.Frontend{Service: "static/web"})
			return failure
		})
		var done sync.WaitGroup
		for range 5 {
			done.Go(func() {
				if doc, at, err := c.Get(t.Context(), CountersAge); err != nil || at.IsZero() || len(doc.Frontends) != 1 {
					t.Errorf("%+v at %s: %v", doc, at, err)
				}
			})
		}
		done.Wait()
		if reads != 1 {
			t.Errorf("%d readings for five clients at once", reads)
		}
		if _, _, _ = c.Get(t.Context(), 0); reads != 2 {
			t.Error("age 0 returns an old reading")
		}
		if _, _, _ = c.Get(t.Context(), CountersAge); reads != 2 {
			t.Error("a young reading is not shared")
		}
		time.Sleep(CountersAge)
		failure = errors.New("no kernel")
		if doc, _, err := c.Get(t.Context(), CountersAge); err == nil || len(doc.Frontends) != 1 {
			t.Errorf("a reading that fails: %+v, %v", doc, err)
		}
		failure = nil
		if _, _, err := c.Get(t.Context(), CountersAge); err != nil || reads != 4 {
			t.Errorf("a failed reading is shared: %d readings, %v", reads, err)
		}
	})
}

// A scrape uses the reading of another client, also one that is not complete yet. Without one it reads and keeps nothing.
func TestScrapeUsesAYoungReading(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		reads := 0
		c := NewCounters(func(_ context.Context, each func(status.Frontend)) error {
			reads++
			time.Sleep(300 * time.Millisecond)
			each(status.Frontend{Service: "static/web"})
			return nil
		})
		scrape := func(want int) {
			t.Helper()
			var got []status.Frontend
			err := c.Each(t.Context(), func(f status.Frontend) { got = append(got, f) })
			if err != nil || len(got) != 1 || got[0].Service != "static/web" || reads != want {
				t.Errorf("%+v, %v after %d readings, want %d", got, err, reads, want)
			}
		}
		go func() { _, _, _ = c.Get(t.Context(), 0) }()
		synctest.Wait()
		scrape(1)
		time.Sleep(CountersAge)
		scrape(2)
		scrape(3)
		if c.doc.Frontends != nil {
			t.Error("a scrape keeps its reading")
		}
	})
}

// An old reading takes memory and serves no client.
func TestOldReadingIsForgotten(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := NewCounters(func(_ context.Context, each func(status.Frontend)) error {
			each(status.Frontend{Service: "static/web"})
			return nil
		})
		kept := func() (bool, time.Time) {
			synctest.Wait()
			c.turn <- struct{}{}
			defer func() { <-c.turn }()
			return c.doc.Frontends != nil, c.at
		}
		_, first, _ := c.Get(t.Context(), 0)
		time.Sleep(CountersAge / 2)
		_, second, _ := c.Get(t.Context(), 0)
		time.Sleep(CountersAge / 2)
		if ok, at := kept(); !ok || !at.Equal(second) || first.Equal(second) {
			t.Errorf("the second reading is gone with the first: %t, at %s", ok, at)
		}
		time.Sleep(CountersAge / 2)
		if ok, at := kept(); ok {
			t.Errorf("the reading at %s is kept", at)
		}
	})
}

func TestCopy(t *testing.T) {
	t.Parallel()
	doc := status.Services{Frontends: []status.Frontend{{Servers: []status.Server{{Health: ""}}}}}
	Copy(doc).Frontends[0].Servers[0].Health = "up"
	if doc.Frontends[0].Servers[0].Health != "" {
		t.Error("the copy is not independent")
	}
}
