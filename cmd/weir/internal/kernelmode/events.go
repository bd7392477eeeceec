package kernelmode

import (
	"sync"

	"weir/lb"
)

// Events are changes of the kernel that the loop has not processed yet. Only lost grows, and weir's objects bound it.
type Events struct {
	// Signal has a token after an Add.
	Signal chan struct{}
	mu     sync.Mutex
	lost   map[lb.Object]struct{}
	host   bool
	what   string
}

// NewEvents returns Events without any.
func NewEvents() *Events { return &Events{Signal: make(chan struct{}, 1)} }

// Add adds an event.
func (e *Events) Add(ev lb.Event) {
	e.mu.Lock()
	if e.lost == nil {
		e.lost = map[lb.Object]struct{}{}
	}
	for _, id := range ev.Lost {
		e.lost[id] = struct{}{}
	}
	e.host = e.host || ev.Host
	e.what = ev.What
	e.mu.Unlock()
	select {
	case e.Signal <- struct{}{}:
	default:
	}
}

// Take returns all events as one.
func (e *Events) Take() lb.Event {
	e.mu.Lock()
	defer e.mu.Unlock()
	ev := lb.Event{Host: e.host, What: e.what}
	for id := range e.lost {
		ev.Lost = append(ev.Lost, id)
	}
	e.lost, e.host, e.what = nil, false, ""
	return ev
}
