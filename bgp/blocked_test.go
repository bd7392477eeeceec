package bgp

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/osrg/gobgp/v4/api"
)

// polled is what a poll reads of a session: the number of messages sent, and a hold time.
func polled(addr netip.Addr, sent uint64, hold time.Duration) *api.Peer {
	return &api.Peer{
		State: &api.PeerState{NeighborAddress: addr.String(), Messages: &api.Messages{
			Sent: &api.Message{Total: sent}, Received: &api.Message{},
		}},
		Timers: &api.Timers{State: &api.TimersState{NegotiatedHoldTime: uint64(hold / time.Second)}},
	}
}

func TestARouterThatReadsNothingLosesItsSession(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name  string
		state State
		hold  time.Duration
		sends func(second int) bool
		at    int // second of the reset; 0: none
	}{
		{"reads all", Established, 9 * time.Second, func(s int) bool { return s%3 == 0 }, 0},
		{"reads once in the hold time", Established, 9 * time.Second, func(s int) bool { return s%9 == 0 }, 0},
		{"reads nothing", Established, 9 * time.Second, func(int) bool { return false }, 10},
		{"stops reading later", Established, 9 * time.Second, func(s int) bool { return s <= 20 }, 30},
		{"without keepalives", Established, 0, func(int) bool { return false }, 0},
		{"has no session", Active, 9 * time.Second, func(int) bool { return false }, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r := Peer{Name: "r", Address: loopback(), ASN: routerASN}
			b := &sessions{log: quietLog(), changed: func() {}, sessions: map[netip.Addr]*session{}}
			b.configure([]Peer{r.WithDefaults(Config{ASN: boxASN})}, 0)
			b.of(r.Address).State = tt.state
			now, sent, at := time.Now(), uint64(2), 0
			b.update(polled(r.Address, sent, tt.hold), now)
			for second := 1; second <= 40 && at == 0; second++ {
				now = now.Add(time.Second)
				if tt.sends(second) {
					sent++
				}
				if b.update(polled(r.Address, sent, tt.hold), now) == reset {
					at = second
				}
			}
			if at != tt.at {
				t.Errorf("reset after %d s, want %d", at, tt.at)
			}
			if down := b.all(false)[0].Down; (tt.at > 0) != strings.Contains(down, "read nothing for 9s") {
				t.Errorf("reason %q", down)
			}
		})
	}
}

// A box that stood still for a minute has sent nothing in that time, without any fault of a router.
func TestABoxThatStoodStillKeepsItsSessions(t *testing.T) {
	t.Parallel()
	r := Peer{Name: "r", Address: loopback(), ASN: routerASN}
	b := &sessions{log: quietLog(), changed: func() {}, sessions: map[netip.Addr]*session{}}
	b.configure([]Peer{r.WithDefaults(Config{ASN: boxASN})}, 0)
	b.of(r.Address).State = Established
	now := time.Now()
	for range 4 {
		if got := b.update(polled(r.Address, 2, 9*time.Second), now); got != noRepair {
			t.Errorf("repair %d", got)
		}
		now = now.Add(time.Minute)
	}
}
