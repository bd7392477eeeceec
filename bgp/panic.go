package bgp

import (
	"fmt"
	"log/slog"
	"runtime/debug"
	"time"
)

// panicError is the error of a round that has panicked. The box serves without it, so the process goes on.
type panicError struct {
	value any
	stack []byte
}

func newPanicError(value any) *panicError { return &panicError{value, debug.Stack()} }

func (p *panicError) Error() string { return fmt.Sprintf("panic: %v", p.value) }

// logPanic logs a panic of a callback of GoBGP. The goroutine continues. It must be deferred.
func logPanic(log *slog.Logger) {
	if v := recover(); v != nil {
		log.Error("BGP panicked", "value", fmt.Sprint(v), "stack", string(debug.Stack()))
	}
}

// panics are those of the Speaker's goroutine.
type panics struct {
	changing bool   // GoBGP may have half of a change
	problem  string // the last panic, until a poll succeeds
	work     pause  // after a panic of a change: nothing is done
	polls    pause  // after any other one: changes are still sent
}

// panicked records a panic, and returns the pause that follows.
func (p *panics) panicked(err error, now time.Time) time.Duration {
	p.problem = err.Error()
	if p.changing {
		return p.work.begin(now)
	}
	return p.polls.begin(now)
}

const (
	// panicPause is the pause after a panic. Each one that follows soon doubles it, up to maxPanicPause: a session that
	// restarts repeatedly is worse for a router than one that stays as it is.
	panicPause    = time.Second
	maxPanicPause = time.Minute
)

// pause is the pause after a panic.
type pause struct {
	count int // of panics that followed each other soon
	until time.Time
}

func (p *pause) begin(now time.Time) time.Duration {
	if now.Sub(p.until) > maxPanicPause {
		p.count = 0
	}
	length := min(panicPause<<min(p.count, 10), maxPanicPause)
	p.count++
	p.until = now.Add(length)
	return length
}

func (p *pause) over(now time.Time) bool { return !now.Before(p.until) }
