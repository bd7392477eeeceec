package query

import (
	"context"
	"slices"
	"time"

	"weir/cmd/weir/internal/status"
)

// CountersAge is the age up to which clients share a reading of the kernel's counters: less than their intervals. A
// reading asks the kernel about each virtual server: 10,000 of ten real servers each took 3.6 to 9 s on a simulated
// processor with much else to do, and are 14 MB of JSON.
const CountersAge = time.Second

// countersTimeout bounds a reading.
const countersTimeout = 30 * time.Second

// Counters are the last reading of the kernel's virtual servers and their counters, for the command line, the status page
// and scrapes. It is safe for concurrent use. Make one with NewCounters.
type Counters struct {
	read func(ctx context.Context, each func(status.Frontend)) error
	turn chan struct{} // holds a token during a reading for Get
	doc  status.Services
	at   time.Time
}

// NewCounters returns counters that read reads, one frontend after the other.
func NewCounters(read func(ctx context.Context, each func(status.Frontend)) error) *Counters {
	return &Counters{read: read, turn: make(chan struct{}, 1)}
}

// Get returns a reading that is younger than age, and its time. With age 0 it begins after the call. Clients must not
// change it. An error comes with the part that could be read.
func (c *Counters) Get(ctx context.Context, age time.Duration) (status.Services, time.Time, error) {
	select {
	case c.turn <- struct{}{}:
		defer func() { <-c.turn }()
	case <-ctx.Done():
		return status.Services{Frontends: []status.Frontend{}}, time.Time{}, ctx.Err()
	}
	if since := time.Since(c.at); since >= 0 && since < age {
		return c.doc, c.at, nil
	}
	ctx, cancel := context.WithTimeout(ctx, countersTimeout)
	defer cancel()
	begin := time.Now()
	doc := status.Services{Frontends: []status.Frontend{}}
	err := c.read(ctx, func(f status.Frontend) { doc.Frontends = append(doc.Frontends, f) })
	at := begin.Add(time.Since(begin) / 2)
	if err == nil {
		c.doc, c.at = doc, at
		time.AfterFunc(CountersAge, c.forget)
	}
	return doc, at, err
}

// Each calls each for one frontend after the other: of the last reading if it is younger than CountersAge, as it is with the status
// page or weir top open, else of the kernel. Then it keeps nothing: scrapes are rare, and the
// document of 100,000 backends is large.
func (c *Counters) Each(ctx context.Context, each func(status.Frontend)) error {
	select {
	case c.turn <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	doc, since := c.doc, time.Since(c.at)
	<-c.turn
	if since < 0 || since >= CountersAge {
		return c.read(ctx, each)
	}
	for _, f := range doc.Frontends {
		each(f)
	}
	return nil
}

// forget drops a reading that is too old for any client: it is large, and most boxes have none for hours.
func (c *Counters) forget() {
	c.turn <- struct{}{}
	defer func() { <-c.turn }()
	if time.Since(c.at) >= CountersAge {
		c.doc, c.at = status.Services{}, time.Time{}
	}
}

// Copy returns a copy of a reading for a client that adds to it.
func Copy(doc status.Services) status.Services {
	doc.Frontends = slices.Clone(doc.Frontends)
	for i := range doc.Frontends {
		doc.Frontends[i].Servers = slices.Clone(doc.Frontends[i].Servers)
	}
	return doc
}
