package e2e

import (
	"os"
	"strings"
	"testing"
	"time"

	"weir/cmd/weirlab/internal/drill"
	"weir/cmd/weirlab/lab"
)

// drills lets things go wrong in a fleet, and fails for every promise that is broken.
func drills(t *testing.T, boxes int, o drill.Options) []drill.Row {
	t.Helper()
	lab.Require(t, lab.UML)
	lab.RequireRouters(t)
	lab.RequireKeepalived(t)
	o.Short, o.Patient, o.Loss, o.Progress = true, true, 12*time.Second, os.Stderr
	site, err := drill.Open(t.Context(), boxes)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = site.Close() })
	site.Watch(t)
	rows, err := drill.Run(t.Context(), site, o)
	if err != nil {
		t.Error(err)
	}
	if err := drill.Broken(rows); err != nil {
		t.Error(err)
	}
	var table strings.Builder
	drill.Print(&table, rows)
	t.Logf("\n%s", table.String())
	for _, r := range rows {
		figure(t, r.Mode+": "+r.Event, r.Summary())
	}
	return rows
}

// TestFleetDrillL2 has one box answer ARP for a VIP and for the backends' gateway.
func TestFleetDrillL2(t *testing.T) {
	drills(t, 2, drill.Options{Modes: []drill.Mode{drill.L2}, Only: []string{
		"power cut", "cable", "killed", "rolling restart", "rolling drain", "nothing of each other", "30 %", "clock", "wrong key", "three steps", "another configuration",
	}})
}

// TestFleetDrillActiveStandby has routers prefer the box that has everything.
func TestFleetDrillActiveStandby(t *testing.T) {
	drills(t, 2, drill.Options{
		Modes: []drill.Mode{drill.ActiveStandby}, Only: []string{"power cut", "killed", "rolling", "nothing of each other"},
	})
}

// TestFleetDrillActiveActive has routers spread clients over both boxes.
func TestFleetDrillActiveActive(t *testing.T) {
	drills(t, 2, drill.Options{
		Modes: []drill.Mode{drill.ActiveActive}, Only: []string{"power cut", "killed", "rolling"},
	})
}

// TestFleetDrillBesideKeepalived cuts the power of weir's owner and of keepalived's master: weir's
// clients wait less.
func TestFleetDrillBesideKeepalived(t *testing.T) {
	gaps := map[string]time.Duration{}
	for _, r := range drills(t, 2, drill.Options{Modes: []drill.Mode{drill.L2, drill.Keepalived}, Only: []string{"power cut"}}) {
		gaps[r.Mode] = max(gaps[r.Mode], r.Gap)
	}
	if weir, keepalived := gaps[string(drill.L2)], gaps[string(drill.Keepalived)]; weir == 0 || weir >= keepalived {
		t.Errorf("no service for %s with weir, for %s with keepalived", weir, keepalived)
	}
}

// TestFleetDrillThreeBoxes has two boxes left to agree when the owner goes, and a network split in
// one and two.
func TestFleetDrillThreeBoxes(t *testing.T) {
	drills(t, 3, drill.Options{Modes: []drill.Mode{drill.L2}, Only: []string{"power cut", "split"}})
}
