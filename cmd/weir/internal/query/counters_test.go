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
		c := NewCounters(func(context.Context) (status.Services, error) {
			reads++
			time.Sleep(300 * time.Millisecond)
			return status.Services{Frontends: []status.Frontend{{Service: "static/web"}}}, failure
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

// An old reading takes memory and serves no client.
func TestOldReadingIsForgotten(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := NewCounters(func(context.Context) (status.Services, error) {
			return status.Services{Frontends: []status.Frontend{{Service: "static/web"}}}, nil
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
