package daemon

import (
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// Of two boxes with one name the one that comes second claims nothing, and says why.
func TestABoxOfAnothersNameClaimsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mine, _ := rivals()
		m := newMember(t, inFleet+onWire+services(mine))
		m.turn(t)
		m.told()
		m.rumor.status.Twin = "10.9.0.9:7946"
		m.rumor.says(t, settledMember("b"), able(netip.MustParseAddr(mine)))
		m.hear(t)
		m.live(t, 2*joinWindow)
		m.check(t, "it has another's name")
		if next := m.fleet.next(); !next.IsZero() && !next.After(time.Now()) {
			t.Errorf("it does not sleep: it is to wake at %s", next)
		}
		if why := m.fleet.stand.why; !strings.Contains(why, "10.9.0.9:7946 is called a, too") {
			t.Errorf("it says %q", why)
		}
		m.rumor.status.Twin = ""
		m.hear(t)
		time.Sleep(30 * time.Second)
		m.hear(t)
		m.live(t, sayEvery)
		if got := strings.Join(m.told(), ", "); !strings.Contains(got, "claim "+mine) {
			t.Errorf("the other one is gone: %s", got)
		}
	})
}
