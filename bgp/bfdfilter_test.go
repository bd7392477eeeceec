package bgp

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
)

// TestNoBFDWithoutItsTTLFilter has a kernel that refuses the filter: the BGP session stays, BFD stays down although the
// router speaks it, and the status has the reason.
func TestNoBFDWithoutItsTTLFilter(t *testing.T) { // not parallel: it would silence the listeners of others
	r, b := newRaw(t), newBox(t)
	newBFDRouter(t, r.addr)
	b.sessions.filter.attach = func(int) error { return errors.New("no memory") }
	b.configure(func(c *Config) {
		c.Peers = []Peer{r.peer("r", b.addr)}
		c.Peers[0].Hold = 90 * time.Second // the router sends no keepalives
		c.Peers[0].BFD = BFD{Enabled: true, Interval: 50 * time.Millisecond, Multiplier: 60}
	})
	r.establish(capIPv4, capAS4)
	b.established("r")
	eventually(t, func() string {
		if s := b.status("r"); !strings.Contains(s.Problem, "BFD is off") || !strings.Contains(s.Problem, "no memory") {
			return fmt.Sprintf("%+v", s)
		}
		return ""
	})
	for range 20 { // a session takes two packets of each side
		if s := b.status("r"); s.State != Established || s.Flaps != 0 || s.BFD.State == "up" {
			t.Fatalf("without the filter: %+v", s)
		}
		time.Sleep(50 * time.Millisecond)
	}
}
