package fleet

import (
	"testing"
	"time"

	"weir/bgp/advertise"
	"weir/cluster/owner"
	"weir/cmd/weir/internal/config"
	"weir/cmd/weir/internal/fleet/message"
)

// handing returns box "a" that owns a VIP and the gateway, beside a stable "b".
func handing() (e *Engine, other *member) {
	cfg := inFleet(owner.Rules{Mode: owner.ActiveStandby, SingleOwner: true})
	cfg.L2 = &config.L2{Gateways: []config.Gateway{{Address: gateway, Interface: "back"}}}
	e = newTestEngine(cfg)
	other = &member{state: owner.Stable, message: serving(vip, gateway)}
	e.members.byName["b"] = other
	return e, other
}

// The routers of a VIP that moves must not be faster than the gateway of its backends.
func TestRoutesStayUntilTheNextOwnerHasTheReturnPath(t *testing.T) {
	now := time.Unix(1000, 0)
	mine, theirs := owner.Decision{Role: owner.Owner, Owner: "a"}, owner.Decision{Role: owner.Out, Owner: "b"}
	gives := func(name string, e *Engine, had owner.Decision, at time.Time, want bool) {
		t.Helper()
		next := e.members.byName["b"]
		if !e.settings.needsReturnPath() {
			next = nil
		}
		if got := e.ownership.handsOver(vip, had, "a", next, at); got != want {
			t.Errorf("%s: %t, want %t", name, got, want)
		}
	}
	e, _ := handing()
	gives("it moves", e, mine, now, true)
	gives("still", e, theirs, now.Add(time.Second), true)
	if end := e.ownership.handoversEnd(); !end.Equal(now.Add(ReturnPathPatience)) {
		t.Errorf("patience ends %s", end)
	}
	e.ownership.touchOverdue(now.Add(ReturnPathPatience))
	if _, again := e.ownership.touched[vip]; !again {
		t.Error("nobody looks again when patience is over")
	}
	gives("for too long", e, theirs, now.Add(ReturnPathPatience), false)
	gives("after that", e, theirs, now.Add(ReturnPathPatience), false)

	e, other := handing()
	gives("it moves", e, mine, now, true)
	other.message.VIPs[vip] |= message.Owns
	gives("the other has it", e, theirs, now.Add(time.Second), false)

	e, other = handing()
	gives("it moves", e, mine, now, true)
	other.state = owner.Absent
	gives("the other is gone", e, theirs, now.Add(time.Second), false)

	e, _ = handing()
	gives("it never was here", e, theirs, now, false)
	e.ownership.roles[vip] = advertise.Standby
	gives("routers prefer others already", e, mine, now, false)
	delete(e.ownership.roles, vip)
	e.settings.floating = nil
	gives("nothing goes with it", e, mine, now, false)
}

// While the gossip restarts nothing is decided. A handover that takes too long meanwhile must not wake the loop all the time.
func TestAnOverdueHandoverWaitsForTheDecision(t *testing.T) {
	t.Parallel()
	e, _ := handing()
	e.self.joined = false
	e.ownership.handovers[vip] = startTime
	now := startTime.Add(ReturnPathPatience)
	e.update(moment{Inputs: Inputs{Now: now}})
	if next := e.Next(); !next.IsZero() && !next.After(now) {
		t.Errorf("at %s the next decision is due at %s", now, next)
	}
	if _, waits := e.ownership.handovers[vip]; !waits {
		t.Error("it has been decided")
	}
}

func TestHandsOver(t *testing.T) {
	t.Parallel()
	e, other := handing()
	check := func(name, owned string, want bool) {
		t.Helper()
		e.ownership.verdicts[gateway] = owner.Decision{Owner: owned}
		if got := e.View().HandsOver(); got != want {
			t.Errorf("%s: %t, want %t", name, got, want)
		}
	}
	check("the gateway is here", "a", true)
	check("it is on its way", "b", true)
	check("no member serves it", "", false)
	other.message.VIPs[gateway] |= message.Owns
	check("it is there", "b", false)
	e.settings.l2 = nil
	check("nothing to hand over", "a", false)
}
