package bgp

import (
	"bytes"
	"fmt"
	"runtime"
	"testing"
)

// TestLostSessionsLeaveNoGoroutine loses a session repeatedly. GoBGP closes the channel of each
// peer that is created again, and its goroutine must end. The channels of other tests would count, too.
func TestLostSessionsLeaveNoGoroutine(t *testing.T) { // not parallel
	r, b := newReturning(t)
	establish := func() {
		r.establish(capIPv4, capAS4, capRestart)
		b.established("r")
	}
	establish()
	before := goroutinesOf("eapache/channels.") // while nothing is created or removed
	for range 8 {
		r.conn.Close()
		b.hasDown("r", "ended without a NOTIFICATION")
		establish()
	}
	eventually(t, func() string {
		if now := goroutinesOf("eapache/channels."); now > before {
			return fmt.Sprintf("%d goroutines of channels, %d before", now, before)
		}
		return ""
	})
}

// goroutinesOf counts the goroutines that are in functions of a package.
func goroutinesOf(name string) (n int) {
	all := make([]byte, 16<<20)
	all = all[:runtime.Stack(all, true)]
	for stack := range bytes.SplitSeq(all, []byte("\n\n")) {
		if bytes.Contains(stack, []byte(name)) {
			n++
		}
	}
	return n
}
