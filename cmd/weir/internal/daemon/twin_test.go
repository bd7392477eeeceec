package daemon

import (
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"weir/cmd/weir/internal/fleet"
)

// Of two boxes with one name the one that comes second claims nothing, and reports why.
func TestNameConflictClaimsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mine, _ := ownVIPs()
		m := newMember(t, inFleet+onWire+services(mine))
		m.pass(t)
		m.announced()
		m.gossip.status.NameConflict = "10.9.0.9:7946"
		m.gossip.report(t, stablePeer("b"), serving(netip.MustParseAddr(mine)))
		m.receive(t)
		m.live(t, 2*fleet.JoinWindow)
		m.check(t, "it has another's name")
		if next := m.steering.fleet.Next(); !next.IsZero() && !next.After(time.Now()) {
			t.Errorf("it does not sleep: it is to wake at %s", next)
		}
		if reason := m.steering.fleet.Members(time.Now()).Members[0].Reason; !strings.Contains(reason, "10.9.0.9:7946 has the name a too") {
			t.Errorf("it says %q", reason)
		}
		m.gossip.status.NameConflict = ""
		m.receive(t)
		time.Sleep(30 * time.Second)
		m.receive(t)
		m.live(t, publishEvery)
		if got := strings.Join(m.announced(), ", "); !strings.Contains(got, "claim "+mine) {
			t.Errorf("the other one is gone: %s", got)
		}
	})
}
