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

func (p *panicError) Error() string { return fmt.Sprintf("panic: %v", p.value) }

// logPanic logs a panic of a callback of GoBGP. The goroutine continues. It must be deferred.
func logPanic(log *slog.Logger) {
	if v := recover(); v != nil {
		log.Error("BGP panicked", "value", fmt.Sprint(v), "stack", string(debug.Stack()))
	}
}

// panics are the rounds that have panicked.
type panics struct {
	// changing is set while GoBGP may have half of a change.
	changing bool
	count    int
	until    time.Time // no round before it
}

const (
	// panicPause is the pause after a panic. Each one that follows soon doubles it, up to maxPanicPause: a session that
	// restarts repeatedly is worse for a router than one that stays as it is.
	panicPause    = time.Second
	maxPanicPause = time.Minute
)

// pause begins the pause after a panic.
func (p *panics) pause(now time.Time) time.Duration {
	if now.Sub(p.until) > maxPanicPause {
		p.count = 0
	}
	pause := min(panicPause<<min(p.count, 10), maxPanicPause)
	p.count++
	p.until = now.Add(pause)
	return pause
}
