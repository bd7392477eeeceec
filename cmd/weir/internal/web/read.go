package web

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"weir/cmd/weir/internal/status"
)

const (
	// readPeriod is how often the kernel is read at most, whoever asks.
	readPeriod = 2 * time.Second
	// readShare bounds what reading costs where it takes long: the pause after it is so
	// many times as long as it took.
	readShare = 2
	// readTime bounds one reading, and the time that a page waits for one.
	readTime = 10 * time.Second
	// rateAge is how old an earlier reading may be to give rates: those of an hour are no
	// rates of now.
	rateAge = time.Minute
)

// reader reads a Source for all who look. There is no goroutine of its own: who finds
// what was read last too old reads, and those who come meanwhile wait for it.
type reader struct {
	source Source
	last   atomic.Pointer[reading]
	now    func() time.Time

	turn chan struct{} // held by who reads; what follows is his
	next time.Time     // when the last reading is too old
	// before is the traffic of the last reading, pace what the rates were.
	before status.Traffic
	pace   []float64
}

func newReader(source Source) *reader {
	return &reader{source: source, turn: make(chan struct{}, 1), now: time.Now}
}

// reading is a box at one moment. It is never changed once made.
type reading struct {
	Box
	at time.Time
	// servers are the frontends with all that is known of them; took is how long the
	// kernel was read.
	servers []server
	rates   status.Rates
	// pace are the connections per second of the last readings, as long as they came one
	// after the other; the newest is the last.
	pace []float64
	// problem is why the kernel could not be read; servers are as of old then.
	problem string
	old     time.Time
}

// get gives what was read not longer than a period ago. Where that can't be had until
// ctx or readTime ends, it gives what there is, and nil if there is nothing.
func (r *reader) get(ctx context.Context) *reading {
	ctx, cancel := context.WithTimeout(ctx, readTime)
	defer cancel()
	select {
	case r.turn <- struct{}{}:
		defer func() { <-r.turn }()
	case <-ctx.Done():
		return r.last.Load()
	}
	if r.last.Load() == nil || !r.now().Before(r.next) {
		r.read(ctx)
	}
	return r.last.Load()
}

// read reads the Source, for at most readTime. It reads for all, and so to the end, though
// who asked may have gone: those who come and go would have the kernel read all the time.
func (r *reader) read(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), readTime)
	defer cancel()
	x, last := &reading{Box: r.source.Box(ctx)}, r.last.Load()
	begin := r.now()
	doc, err := r.source.Services(ctx)
	x.at = r.now()
	took := x.at.Sub(begin)
	if err == nil {
		x.count(r, doc)
	} else {
		x.problem = err.Error()
		if ctx.Err() != nil {
			x.problem = fmt.Sprintf("that took longer than %v", readTime)
		}
		if last != nil {
			x.servers, x.rates, x.pace, x.old = last.servers, last.rates, last.pace, last.at
			if !last.old.IsZero() {
				x.old = last.old
			}
		}
	}
	r.next = x.at.Add(max(readPeriod, readShare*took))
	r.last.Store(x)
}

// paceLength is how many readings the line of connections per second has.
const paceLength = 90

// count takes in what the kernel has counted.
func (x *reading) count(r *reader, doc status.Services) {
	now := doc.CountedAt(x.at)
	if x.at.Sub(r.before.Time) > rateAge {
		r.before, r.pace = status.Traffic{}, nil
	}
	x.rates, r.before = now.Since(r.before), now
	if x.rates.Seconds > 0 {
		r.pace = append(slices.Clone(r.pace[max(0, len(r.pace)+1-paceLength):]), x.rates.Total.Connections)
	}
	x.pace = r.pace
	x.servers = serversOf(doc, x.Health, x.rates)
}
