package daemon

import (
	"fmt"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"weir/cmd/weir/internal/config"
	"weir/cmd/weir/internal/kernelmode"
	"weir/lb"
)

// However long a pass plans, the watchdog is fed after each hundred Services.
func TestPlanningFeedsTheWatchdog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newTestBox(&config.Config{})
		opts := b.target.options(b.target.cfg, kernelmode.Node{})
		longest, feed := time.Duration(0), opts.Planned
		opts.Planned = func() {
			time.Sleep(100 * time.Millisecond) // a slow Service
			longest = max(longest, b.watchdog.Silence(time.Now()))
			feed()
		}
		rec := lb.NewReconciler(&lb.Fake{}, opts)
		u := lb.Update{Source: config.Source, Synced: true}
		for i := range 1000 {
			u.Put = append(u.Put, lb.Service{
				ID: lb.ServiceID{Source: config.Source, Name: fmt.Sprint(i)}, VIPs: []lb.VIP{{Addr: netip.AddrFrom4([4]byte{198, 18, byte(i >> 8), byte(i)}), Kind: lb.LoadBalancer}},
				Ports: []lb.Port{{Proto: lb.TCP, Port: 80}},
			})
		}
		rec.Update(u)
		if _, err := rec.Sync(t.Context(), time.Now()); err != nil || longest != 10*time.Second {
			t.Errorf("the watchdog was silent for %s, want 10 s (%v)", longest, err)
		}
	})
}
