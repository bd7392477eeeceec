package kernelmode

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"weir/lb"
)

// Leftovers are the virtual servers of an earlier run in the other mode. Each serves until this mode's takes its place, and
// keeps its connections until they end. The zero value has not checked the kernel yet.
type Leftovers struct {
	done bool
	left int
	err  string    // of the last check
	next time.Time // of the next check
	cut  time.Time // end of the last connections; zero before the first check
	end  time.Time // removal of everything; zero before the first check
}

const (
	// leftoversEvery is also the least time between the first check and the end of connections: a request that is
	// on its way when this mode takes over is answered, even if the drain is 0.
	leftoversEvery = 2 * time.Second
	// leftoversLimit is for a Service that never gets into place: the kernel refuses it, or its cluster is unreachable.
	// No source updates these virtual servers, so their backends may serve something else by now.
	leftoversLimit = 10 * time.Minute
)

// Forgetter removes virtual servers of the other mode that may go, and returns the number of the rest.
type Forgetter interface {
	ForgetOther(ctx context.Context, may func(lb.Frontend) bool, cut bool) (int, error)
}

// Next returns the time of the next check; the zero time if none is due.
func (o *Leftovers) Next() time.Time { return o.next }

// Forget removes leftovers that this mode serves, and all of them after a time limit.
func (o *Leftovers) Forget(ctx context.Context, kernel Forgetter, takenOver func() func(lb.Frontend) bool, drain time.Duration, now time.Time, log *slog.Logger) {
	if o.done || now.Before(o.next) {
		return
	}
	if o.end.IsZero() {
		o.cut, o.end = now.Add(max(drain, leftoversEvery)), now.Add(leftoversLimit)
	}
	taken := sync.OnceValue(takenOver)
	over := !now.Before(o.end)
	left, err := kernel.ForgetOther(ctx, func(f lb.Frontend) bool { return over || taken()(f) }, !now.Before(o.cut))
	o.next = now.Add(leftoversEvery)
	before := o.err
	o.err = ""
	switch {
	case err != nil:
		if o.err = err.Error(); o.err != before {
			log.Error("leftovers of the other mode not removed; retrying", "error", err)
		}
	case left == 0:
		o.done, o.next = true, time.Time{}
	case left != o.left:
		log.Info("virtual servers of the other mode kept: they have connections, or have no replacement yet", "servers", left, "until", o.end)
	}
	o.left = left
}
