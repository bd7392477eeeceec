package bgp

import (
	"testing"

	"github.com/eapache/channels"
)

// TestClosedChannelKeepsNothing closes a channel of GoBGP with values in it. That ends its goroutine.
func TestClosedChannelKeepsNothing(t *testing.T) {
	t.Parallel()
	c := channels.NewInfiniteChannel()
	for i := range 3 {
		c.In() <- i
	}
	if got := <-c.Out(); got != 0 || c.Len() != 2 {
		t.Errorf("received %v with %d left, want 0 with 2 left", got, c.Len())
	}
	c.Close()
	eventually(t, func() string {
		if n := c.Len(); n > 0 {
			return "the goroutine of the channel goes on"
		}
		return ""
	})
	if got, open := <-c.Out(); open {
		t.Errorf("received %v after Close", got)
	}
}
