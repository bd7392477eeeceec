package e2e

import (
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"
)

// sharedName starts the second box with the name of the first one, as after a copy of its
// configuration. It reports that and answers for nothing; the first one keeps all VIPs.
func (k *kin) sharedName(t *testing.T, more string) {
	first, second := k.boxes[0], k.boxes[1]
	own := k.config(1, `"one.key"`, kinVIPs, "") + more
	k.shared(t)
	second.stop(t, syscall.SIGTERM)
	eventually(t, time.Minute, func() error {
		if n := first.answered(t); n != len(kinVIPs) {
			return fmt.Errorf("box1 answers for %d of %d VIPs", n, len(kinVIPs))
		}
		return nil
	})
	var web, echo []string
	for _, vip := range kinVIPs {
		web, echo = append(web, at(vip, 80)), append(echo, at(vip, 7000))
	}
	c := startClients(t, k.client1, targets{web, echo, at(kinVIPs[0], 7000)})
	moves := first.moves(t)
	begin := time.Now()
	second.run(t, strings.Replace(own, `member = "box2"`, `member = "box1"`, 1))
	eventually(t, time.Minute, func() error {
		return reports(second.call(t, "members").Stdout, "has the name box1 too: give this one another fleet.member")
	})
	figure(t, "trouble: a box starts with the name of a member: reported after", time.Since(begin))
	c.ended(t, 100)
	if n := second.answered(t); n != 0 {
		t.Errorf("the box with the name of another one answers for %d VIPs", n)
	}
	if n, moved := first.answered(t), first.moves(t)-moves; n != len(kinVIPs) || moved != 0 {
		t.Errorf("the first box answers for %d of %d VIPs, and %d have moved", n, len(kinVIPs), moved)
	}
	if n := first.metric(t, "weir_fleet_name_conflicts_total"); n == 0 {
		t.Error("the first box has no message of a second one in weir_fleet_name_conflicts_total")
	}
	c.unhurt(t, "a box starts with the name of a member")
}

// movedMember starts the second box with another address. It gets its share.
func (k *kin) movedMember(t *testing.T, more string) {
	soakOnly(t, "the former address of a member expires: 20 s")
	second, own := k.boxes[1], k.config(1, `"one.key"`, kinVIPs, "")+more
	second.stop(t, syscall.SIGTERM)
	second.box.Must(t, "ip", "addr", "add", "10.1.0.10/24", "dev", "front")
	begin := time.Now()
	second.run(t, strings.Replace(own, `bind = "10.1.0.9:7946"`, `bind = "10.1.0.10:7946"`, 1))
	k.shared(t)
	figure(t, "trouble: a member starts with another address: it has its share after", time.Since(begin))
	k.visit(t)
}
