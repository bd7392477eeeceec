// Package channels has channels without a limit for GoBGP, in place of a library (replace in weir's go.mod). It never keeps
// anything after Close.
//
// GoBGP closes the channel of a session with the peer, and reads it empty without waiting. The goroutine of the
// library's channel is not ready to send at that moment, and waits forever if something is left. That is often so after the
// loss of a session with graceful restart: GoBGP puts the reason there to end its sender, which may have ended already.
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

// Close ends the channel. The values in it are dropped.
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
			held = held[1:]
		case c.length <- len(held):
		}
	}
}
