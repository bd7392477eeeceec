package e2e

import (
	"fmt"
	"net"
	"net/netip"
	"testing"
	"time"
)

// ownsMany has two boxes share many VIPs, and one take over all of them when the other one
// has lost its power.
func (k *kin) ownsMany(t *testing.T) {
	many := sized(200, 2000)
	vips := make([]string, many)
	for i, a := 0, netip.MustParseAddr("198.18.0.1"); i < many; i, a = i+1, a.Next() {
		vips[i] = a.String()
	}
	k.client1.Must(t, "ip", "route", "add", "198.18.0.0/16", "dev", "front")
	for i, s := range k.boxes {
		s.reload(t, k.config(i, `"two.key"`, vips, ""))
	}
	eventually(t, 2*time.Minute, func() error {
		a, b := k.boxes[0].answered(t), k.boxes[1].answered(t)
		if a+b != many || a < many/3 || b < many/3 {
			return fmt.Errorf("they answer for %d and %d of %d", a, b, many)
		}
		return nil
	})
	figure(t, fmt.Sprintf("fleet of %d VIPs: answered for by each", many), fmt.Sprint(k.boxes[0].answered(t), " and ", k.boxes[1].answered(t)))

	cut := time.Now()
	k.boxes[1].box.PowerCut()
	eventually(t, time.Minute, func() error {
		if n := k.boxes[0].answered(t); n != many {
			return fmt.Errorf("box1 answers for %d", n)
		}
		return nil
	})
	figure(t, fmt.Sprintf("fleet of %d VIPs: power of one box cut, the other one has all", many), time.Since(cut))
	for _, i := range []int{0, 1, many / 2, many - 1} {
		if _, err := get(within(t, 20*time.Second), k.client1, net.JoinHostPort(vips[i], "80")); err != nil {
			t.Errorf("%s: %v", vips[i], err)
		}
	}
}
