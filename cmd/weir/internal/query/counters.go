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

// Counters are the last reading of the kernel's virtual servers and their counters, for the command line and the status
// page. It is safe for concurrent use. Make one with NewCounters.
//
// A scrape does not use it, but Traffic. It keeps a few numbers of each server while it streams them, where this document
// has names, states and addresses of 100,000 backends. It could not use a cached one either: scrapes come each 15 s or
// more seldom, and clients accept a reading for CountersAge. metrics limits the scrapes at one time.
type Counters struct {
	read func(context.Context) (status.Services, error)
	turn chan struct{} // holds a token during a reading
	doc  status.Services
	at   time.Time
}

// NewCounters returns counters that read reads.
func NewCounters(read func(context.Context) (status.Services, error)) *Counters {
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
	doc, err := c.read(ctx)
	at := begin.Add(time.Since(begin) / 2)
	if err == nil {
		c.doc, c.at = doc, at
		time.AfterFunc(CountersAge, c.forget)
	}
	return doc, at, err
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
