package supervise

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// TestGroup has a task that panics and fails, and ends it.
func TestGroup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := NewGroup(slog.New(slog.DiscardHandler))
		var begun atomic.Int32
		p.Keep("odd", true, func(ctx context.Context) error {
			switch begun.Add(1) {
			case 1:
				panic("out of order")
			case 2:
				return errors.New("no socket")
			}
			<-ctx.Done()
			return nil
		})
		p.Keep("odd", true, func(context.Context) error { t.Error("it runs twice"); return nil })
		time.Sleep(10 * Pause)
		if n := begun.Load(); n != 3 {
			t.Errorf("it has run %d times", n)
		}
		news := make(chan struct{}, 1)
		p.Forward("odd", news)
		news <- struct{}{}
		synctest.Wait()
		select {
		case <-p.Signal:
		default:
			t.Error("its news are lost")
		}
		p.Keep("odd", false, nil)
		p.Stop()
	})
}

func TestStopWaitsForGoroutines(t *testing.T) {
	t.Parallel()
	g := NewGroup(slog.New(slog.DiscardHandler))
	ended := 0 // without a lock: Stop orders it
	begun := make(chan struct{})
	g.Keep("slow", true, func(ctx context.Context) error {
		close(begun)
		<-ctx.Done()
		time.Sleep(10 * time.Millisecond)
		ended++
		return nil
	})
	<-begun
	if g.Stop(); ended != 1 {
		t.Error("a goroutine is left after Stop")
	}
}
