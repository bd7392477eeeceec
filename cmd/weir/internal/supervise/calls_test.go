package supervise

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// TestALoopThatHangs has a loop that takes nothing: a person gets an answer, and a part of the daemon waits.
func TestALoopThatHangs(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		calls, begun := make(Calls), time.Now()
		err := calls.Ask(t.Context(), func() { t.Error("it ran") })
		const want = "weir is busy: its main loop has taken no request for 30s; weir status has the reason"
		if err == nil || err.Error() != want || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v", err)
		}
		if took := time.Since(begun); took != maxWait {
			t.Errorf("after %s", took)
		}
		go func() {
			time.Sleep(time.Hour)
			(<-calls)()
		}()
		ran := false
		if err := calls.Do(t.Context(), func() { ran = true }); err != nil || !ran {
			t.Errorf("ran: %t, %v", ran, err)
		}
	})
}

// TestWhatBeganEnds has a question that takes long: its result counts.
func TestWhatBeganEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		calls, ended := make(Calls), false
		go func() { (<-calls)() }()
		if err := calls.Ask(t.Context(), func() { time.Sleep(2 * maxWait); ended = true }); err != nil || !ended {
			t.Errorf("ended: %t, %v", ended, err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := calls.Do(ctx, func() { t.Error("it ran") }); err == nil || err.Error() != "weir is busy: context canceled" {
			t.Errorf("%v", err)
		}
	})
}
