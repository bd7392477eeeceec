package bgp

import (
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// TestNoBFDWithoutItsTTLFilter has BGP sessions, and no BFD, while the filter can't be installed: neither if a probe
// finds that out, nor if only the listener refuses it. BFD comes back with the filter.
func TestNoBFDWithoutItsTTLFilter(t *testing.T) {
	for name, probeFinds := range map[string]bool{"the probe fails": true, "the listener refuses it": false} {
		t.Run(name, func(t *testing.T) {
			parallel(t)
			r, b := newRaw(t), newBox(t)
			other := newBFDRouter(t, r.addr)
			var works atomic.Bool
			var tries atomic.Int32
			fail := func() error {
				tries.Add(1)
				if works.Load() {
					return nil
				}
				return errors.New("no memory")
			}
			f := &b.sessions.filter
			f.retryAfter = 0
			if probeFinds {
				f.probe = fail
			} else {
				f.attach = fail
			}
			b.configure(func(c *Config) {
				c.Peers = []Peer{r.peer("r", b.addr)}
				c.Peers[0].Hold = 90 * time.Second // the router sends no keepalives
				c.Peers[0].BFD = BFD{Enabled: true, Interval: 50 * time.Millisecond, Multiplier: 60}
			})
			r.establish(capIPv4, capAS4)
			b.established("r")
			eventually(t, func() string {
				if s := b.status("r"); !strings.Contains(s.Problem, "BFD is switched off") || !strings.Contains(s.Problem, "no memory") || s.BFD.State != "down" {
					return fmt.Sprintf("%+v", s)
				}
				return ""
			})
			// GoBGP listens a second after the start, and would send all the time.
			eventually(t, func() string {
				before := other.count()
				time.Sleep(time.Second)
				if now := other.count(); now != before || probeFinds && now > 0 {
					return fmt.Sprintf("the box sends BFD without the filter: %d packets", now)
				}
				return ""
			})
			if s := b.status("r"); s.State != Established || s.Flaps != 0 {
				t.Errorf("the session without BFD: %+v", s)
			}
			if !probeFinds { // one listener, and no other: each could end the sessions
				if n := tries.Load(); n != attachTries {
					t.Errorf("the filter was tried %d times, want %d", n, attachTries)
				}
				return
			}
			works.Store(true)
			eventually(t, func() string {
				if s := b.status("r"); s.Problem != "" || s.BFD.State != "up" {
					return fmt.Sprintf("%+v", s)
				}
				return ""
			})
		})
	}
}

func (r *bfdRouter) count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.packets
}
