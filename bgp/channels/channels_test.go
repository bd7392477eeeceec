package channels

import (
	"testing"
	"testing/synctest"
)

// TestClosedChannelKeepsNothing closes a channel with values in it. That ends its goroutine: a bubble waits for it.
func TestClosedChannelKeepsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := NewInfiniteChannel()
		for i := range 3 {
			c.In() <- i
		}
		if got := <-c.Out(); got != 0 || c.Len() != 2 {
			t.Errorf("received %v with %d left, want 0 with 2 left", got, c.Len())
		}
		c.Close()
		synctest.Wait()
		if n := c.Len(); n != 0 {
			t.Errorf("%d values are left after Close", n)
		}
		if got, open := <-c.Out(); open {
			t.Errorf("received %v after Close", got)
		}
	})
}
