package e2e

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"weir/cmd/weirlab/lab"
)

// taken is `weir drain -o json`, as far as these tests ask.
type taken struct {
	All      *struct{ Stage string }
	Retained int
	VIPs     []struct {
		Address, Stage, Owner string
		Retained              bool
		Connections           int
	}
}

// isOff is nil when all VIPs are drained on a box and a member, "" for none, has them;
// with kept, when none is withdrawn, since that is the box itself.
func (s *site) isOff(t testing.TB, owner string, kept bool) error {
	t.Helper()
	var doc taken
	s.weirJSON(t, &doc, "drain")
	if doc.All == nil || len(doc.VIPs) != len(kinVIPs) || kept != (doc.Retained > 0) {
		return fmt.Errorf("%s drains %+v", s.box.Name(), doc)
	}
	for _, v := range doc.VIPs {
		if v.Retained != kept || v.Owner != owner || kept != (v.Stage == "shutting") {
			return fmt.Errorf("%s drains %+v, which %q should have", s.box.Name(), v, owner)
		}
	}
	return nil
}

// drainsToEnd runs weir drain --wait. A connection that was torn while it was opened or closed counts for a minute.
func (s *site) drainsToEnd(t testing.TB, what string) lab.Output {
	t.Helper()
	out, err := s.box.Run(within(t, 3*time.Minute), s.weir, "drain", what, "--wait")
	if err != nil && out.Code == 0 {
		t.Fatal(err)
	}
	return out
}

// own waits until box1 owns so many VIPs, -1 for some, and box2 the others; all answer.
func (k *kin) own(t testing.TB, first int) {
	t.Helper()
	eventually(t, time.Minute, func() error { return k.shares(t, first) })
	k.visit(t)
}

func (s *site) off(t testing.TB, owner string, kept bool) {
	t.Helper()
	eventually(t, 30*time.Second, func() error { return s.isOff(t, owner, kept) })
}

// undrained ends the drains of both boxes, and waits until they share the VIPs again.
func (k *kin) undrained(t testing.TB) {
	t.Helper()
	for _, s := range k.boxes {
		s.box.Must(t, s.weir, "undrain", "--all")
	}
	k.own(t, -1)
}

// drainsBoth takes both boxes out of service, one after the other: whatever one of them can
// serve stays served.
func (k *kin) drainsBoth(t *testing.T) {
	one, two := k.boxes[0], k.boxes[1]
	begin := time.Now()
	if out := one.drainsToEnd(t, "--all"); out.Code != 0 {
		t.Errorf("weir drain --all --wait: %+v", out)
	}
	figure(t, "weir drain --all --wait, of 16 addresses at rest", time.Since(begin))
	one.off(t, "box2", false)
	k.own(t, 0)

	one.stop(t, syscall.SIGTERM)
	one.start(t)
	one.off(t, "box2", false)
	k.own(t, 0)

	// No member is left for the VIPs of box2: it keeps them, and reports that.
	if out := two.call(t, "drain", "--all", "--wait=3s"); out.Code != 4 || !strings.Contains(out.Stdout, "retained: no other member can serve it") {
		t.Errorf("weir drain of the last box: %+v", out)
	}
	two.off(t, "box2", true)
	k.own(t, 0)

	// Until there is another member again.
	one.box.Must(t, one.weir, "undrain", "--all")
	if out := two.drainsToEnd(t, "--all"); out.Code != 0 {
		t.Errorf("weir drain --wait of a box that is not the last any more: %+v", out)
	}
	two.off(t, "box1", false)
	k.own(t, len(kinVIPs))
	k.undrained(t)
}

// drainsOne drains an address on both boxes: the second one keeps it, until an operator
// insists, on each.
func (k *kin) drainsOne(t *testing.T) {
	one, two := k.boxes[0], k.boxes[1]
	vip := kinVIPs[0]
	if out := one.drainsToEnd(t, vip); out.Code != 0 || !strings.Contains(out.Stdout, "box2") {
		t.Errorf("weir drain of one address: %+v", out)
	}
	k.visit(t)
	keeps := func(s *site) {
		t.Helper()
		eventually(t, 30*time.Second, func() error {
			if out := s.call(t, "drain"); !strings.Contains(out.Stdout, "retained") {
				return fmt.Errorf("%s says %s", s.box.Name(), out.Stdout)
			}
			return nil
		})
		k.visit(t)
	}
	two.box.Must(t, two.weir, "drain", vip)
	keeps(two)
	two.box.Must(t, two.weir, "drain", vip, "--force")
	keeps(one)
	one.box.Must(t, one.weir, "drain", vip, "--force")
	eventually(t, 30*time.Second, func() error {
		k.client1.Must(t, "ip", "neigh", "flush", "dev", "front")
		if _, err := get(within(t, 2*time.Second), k.client1, at(vip, 80)); err == nil {
			return fmt.Errorf("%s is still answered for", vip)
		}
		return nil
	})
	k.undrained(t)
}

// TestAFleetUnderSystemd has systemd restart, stop and start one of two boxes: a restart
// moves nothing, and a stopped box leaves the fleet when the other one has everything.
func TestAFleetUnderSystemd(t *testing.T) {
	t.Parallel()
	lab.RequireSystemd(t)
	k := newKin(t, underSystemd(boxBeside(plain(lab.UML), 9)))
	k.serveAll(t, 8080)
	key := newKey()
	one, two := k.boxes[0], k.boxes[1]
	one.installUnit(t)
	for i, s := range k.boxes {
		name := []string{"credential:fleet.key", "credentials/fleet.key"}[i] // box1's weir is not root
		s.key(t, "credentials/fleet.key", key)
		s.configure(t, k.config(i, strconv.Quote(name), kinVIPs, ""))
	}
	one.box.Must(t, "systemctl", "start", "weir")
	two.start(t)
	own := func(first int, one string) {
		t.Helper()
		eventually(t, time.Minute, func() error {
			return errors.Join(two.are(t, "box1 "+one, "box2 serving"), k.ownedBy(t, first, one == "serving"))
		})
		k.visit(t)
	}
	own(-1, "serving")

	moves := two.moves(t)
	for range 3 {
		one.box.Must(t, "systemctl", "restart", "weir")
		k.visitKnown(t)
	}
	own(-1, "serving")
	if n := two.moves(t) - moves; n != 0 {
		t.Errorf("%d addresses have moved for three restarts", n)
	}

	begin := time.Now()
	one.box.Must(t, "systemctl", "stop", "weir")
	figure(t, "systemctl stop weir in a fleet, at rest", time.Since(begin))
	own(0, "left")
	if said := one.box.Must(t, "journalctl", "-u", "weir", "-o", "cat", "--no-pager"); !strings.Contains(said, "msg=drained") {
		t.Errorf("the journal does not say that it was drained:\n%s", said)
	}
	one.box.Must(t, "systemctl", "start", "weir")
	own(-1, "serving")
}

// ownedBy is shares, also while box1 does not run and so can't be asked.
func (k *kin) ownedBy(t testing.TB, first int, runs bool) error {
	t.Helper()
	if runs {
		return k.shares(t, first)
	}
	owned := k.boxes[1].owned(t)
	if answered := k.boxes[1].answered(t); owned != len(kinVIPs) || answered != owned {
		return fmt.Errorf("box2 owns %d and answers for %d of %d", owned, answered, len(kinVIPs))
	}
	return nil
}
