// Package channels has channels without a limit for GoBGP, in place of a library (replace in weir's go.mod). It never keeps
// a value or a goroutine after Close.
//
// GoBGP 4.8 closes the channel of a peer that weir removes, and reads it empty without waiting. The goroutine of the
// library's channel is not ready to send at that moment, and waits forever if a value is left. That is often so soon after
// a lost session, when weir creates the peer again: GoBGP sends the reason to end its sender, which may have ended already.
// A later GoBGP may not need this package.
package channels

// InfiniteChannel is a channel that never blocks its senders.
type InfiniteChannel struct {
	in, out chan any
	length  chan int
}

// NewInfiniteChannel returns an open channel. It has a goroutine until Close.
func NewInfiniteChannel() *InfiniteChannel {
	c := &InfiniteChannel{in: make(chan any), out: make(chan any), length: make(chan int)}
	go c.run()
	return c
}

// In is the end to send to. After Close a send panics.
func (c *InfiniteChannel) In() chan<- any { return c.in }

// Out is the end to receive from. It is closed soon after Close.
func (c *InfiniteChannel) Out() <-chan any { return c.out }

// Len returns the number of values in the channel; 0 after Close.
func (c *InfiniteChannel) Len() int { return <-c.length }

// Close ends the channel. Values that were not received are dropped.
func (c *InfiniteChannel) Close() { close(c.in) }

func (c *InfiniteChannel) run() {
	defer close(c.out)
	defer close(c.length)
	var held []any
	for {
		var out chan any // nil while there is nothing to receive
		var next any
		if len(held) > 0 {
			out, next = c.out, held[0]
		}
		select {
		case v, open := <-c.in:
			if !open {
				return
			}
			held = append(held, v)
		case out <- next:
			held[0] = nil // for the garbage collector
			if held = held[1:]; len(held) == 0 {
				held = nil // and its array
			}
		case c.length <- len(held):
		}
	}
}
