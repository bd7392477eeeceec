package web

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"weir/cmd/weir/internal/status"
	"weir/cmd/weir/internal/status/routing"
	"weir/cmd/weir/internal/status/traffic"
)

// Source is a running weir.
type Source interface {
	// Box returns the state of the daemon, as complete as possible until ctx ends.
	Box(ctx context.Context) Box
	// Services reads all virtual servers from the kernel, with counters and health. It
	// is slow with thousands of them.
	Services(ctx context.Context) (status.Services, error)
}

// Box is the state of the daemon at one moment.
type Box struct {
	// Name is that of the machine.
	Name   string
	Status status.Status
	// Health of the backends that have a check.
	Health status.Health
	// Members is empty without [fleet], Neighbors without [bgp], Pools without a
	// [[pool]].
	Members   status.Members
	Neighbors routing.Neighbors
	Pools     status.Pools
	// Withheld are VIPs that are not advertised.
	Withheld []routing.WithheldVIP
	Events   status.Events
}

const (
	// readPeriod is the shortest interval between readings of the kernel.
	readPeriod = 2 * time.Second
	// readShare bounds the cost of slow readings: the pause after a reading is this many
	// times its duration.
	readShare = 2
	// readTime bounds one reading, and the time that a page waits for one.
	readTime = 10 * time.Second
	// rateAge is the greatest age of an earlier reading that is used for rates.
	rateAge = time.Minute
)

// reader reads a Source for all clients. It has no goroutine: a request that finds the last
// reading too old reads, and requests in between wait for it.
type reader struct {
	source Source
	last   atomic.Pointer[reading]
	now    func() time.Time

	turn chan struct{} // held while reading; it guards the following fields
	next time.Time     // when the last reading is too old
	// before is the traffic of the last reading, pace the recent rates.
	before traffic.Totals
	pace   []float64
}

func newReader(source Source) *reader {
	return &reader{source: source, turn: make(chan struct{}, 1), now: time.Now}
}

// reading is a box at one moment. It is never changed once made.
type reading struct {
	Box
	at time.Time
	// servers are the frontends with their rates and health.
	servers []server
	rates   traffic.Rates
	// pace are the connections per second of the last consecutive readings, the newest
	// last.
	pace []float64
	// problem is the reason why the kernel could not be read; then servers are from the
	// time old.
	problem string
	old     time.Time
}

// get returns a reading no older than a period. If ctx or readTime ends before that, it
// returns the last one, or nil.
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

// read reads the Source, for at most readTime. It continues after the end of the request,
// because other requests use the result.
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
			x.problem = fmt.Sprintf("the reading took longer than %v", readTime)
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

// paceLength is the number of readings in the graph of connections per second.
const paceLength = 90

// count sets the servers and rates from the counters of the kernel.
func (x *reading) count(r *reader, doc status.Services) {
	now := doc.CountedAt(x.at)
	if x.at.Sub(r.before.Time) > rateAge {
		r.before, r.pace = traffic.Totals{}, nil
	}
	x.rates, r.before = now.Since(r.before), now
	if x.rates.Seconds > 0 {
		r.pace = append(slices.Clone(r.pace[max(0, len(r.pace)+1-paceLength):]), x.rates.Total.Connections)
	}
	x.pace = r.pace
	x.servers = serversOf(doc, x.Health, x.rates)
}
