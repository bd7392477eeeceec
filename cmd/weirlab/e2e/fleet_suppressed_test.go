package e2e

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"weir/cmd/weirlab/internal/traffic"
	"weir/cmd/weirlab/lab"
)

// TestALeafAnswersForADeadBox cuts the power of the owner of a VIP behind a switch that goes on
// answering ARP for it. The other box takes the VIP nevertheless, within the bound of package l2, and
// reports why. Clients that resolve the VIP meanwhile get the dead box. It does not take a second VIP,
// which a host of the network has had from the start.
func TestALeafAnswersForADeadBox(t *testing.T) {
	t.Parallel()
	k := newKin(t, boxBeside(plain(lab.UML), 9))
	k.serveAll(t, 8080)
	key, vip, foreign := newKey(), netip.MustParseAddr(kinVIPs[0]), kinVIPs[2]
	k.client2.Must(t, "ip", "addr", "add", foreign+"/32", "dev", "front")
	weir := hurried(t)
	for i, s := range k.boxes {
		s.weir = weir
		s.key(t, "one.key", key)
		s.run(t, k.config(i, `"one.key"`, []string{vip.String(), foreign}, `placement = "single"`))
	}
	owner := 0
	eventually(t, time.Minute, func() error { // the first box may own both VIPs before the other one is stable
		states := [][]string{{"box1 serving", "box2 standby"}, {"box1 standby", "box2 serving"}}
		for i, s := range k.boxes {
			answered, contested := s.l2(t)
			if owner = i; answered == 1 && contested == 1 {
				return errors.Join(s.are(t, states[i]...), k.boxes[1-i].are(t, states[i]...))
			}
		}
		return fmt.Errorf("no box answers for one VIP, with the other one contested")
	})
	dead, other := k.boxes[owner], k.boxes[1-owner]
	must(t, lab.SuppressARP(dead.box, "front", vip))
	serveEcho(t, k.client2, 7000)
	held := hold(t, k.client1, at(foreign, 7000))
	clients := startStream(t, k.client1, at(vip.String(), 80))
	clients.more(t, 100)
	cut := time.Now()
	dead.box.PowerCut()
	took := eventually(t, time.Minute, func() error {
		if answered, contested := other.l2(t); answered != 1 || contested != 1 {
			return fmt.Errorf("%s answers for %d VIPs, and %d are contested", other.box.Name(), answered, contested)
		}
		return nil
	})
	mustBeOverruled := func() {
		t.Helper()
		if n := other.metric(t, `weir_l2_overruled_total{interface="front"}`); n != 1 {
			t.Errorf("%v VIPs were taken although a host answers, want 1", n)
		}
		var doc struct {
			L2 struct {
				Overruled []struct{ Address, Member string }
			}
		}
		other.weirJSON(t, &doc, "status")
		if o := doc.L2.Overruled; len(o) != 1 || o[0].Address != vip.String() || o[0].Member != []string{"box1", "box2"}[owner] {
			t.Errorf("weir status reports as overruled: %+v", o)
		}
	}
	mustBeOverruled()
	if err := lab.SuppressARP(other.box, "front", vip); err != nil { // the leaf learns from the announcement
		t.Fatal(err)
	}
	eventually(t, 20*time.Second, func() error {
		_, err := get(within(t, time.Second), k.client1, at(vip.String(), 80))
		return err
	})
	learned := time.Now()
	clients.more(t, 300)
	tries := clients.Stop()
	mustAllBeAnswered(t, "before the power cut", tries.Where(func(one traffic.Try) bool { return one.Ended.Before(cut) }), time.Time{}, cut)
	mustAllBeAnswered(t, "after the takeover", tries, learned, time.Time{})
	during := tries.Between(cut, learned)
	figure(t, "a leaf answers for a dead box: VIP taken after", took)
	figure(t, "a leaf answers for a dead box: requests lost meanwhile", fmt.Sprintf("%d of %d", len(during.Lost()), len(during)))

	mustBeOverruled()
	if err := held.Release(); err != nil {
		t.Errorf("the connection to the host with the second VIP: %v", err)
	}
	k.client1.Must(t, "ip", "neigh", "flush", "dev", "front") // it resolves the VIP again
	if got := fate(t.Context(), k.client1, "tcp", at(foreign, 7000)); got != traffic.Answered {
		t.Errorf("the host with the second VIP: %s", got)
	}
	mac := strings.TrimSpace(k.client2.Must(t, "cat", "/sys/class/net/front/address"))
	if neighbour := k.client1.Must(t, "ip", "neigh", "show", foreign); !strings.Contains(neighbour, mac) {
		t.Errorf("the VIP of client2 (%s) is no longer its own: %s", mac, neighbour)
	}
}
