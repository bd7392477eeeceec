package drain

import (
	"log/slog"
	"net/netip"
	"testing"
	"time"

	"weir/bgp/advertise"
	"weir/cmd/weir/internal/status"
)

func TestADrainEndsDespiteAWrongClock(t *testing.T) {
	t.Parallel()
	delay := 10 * time.Second
	for _, tt := range []struct {
		name  string
		since time.Duration // before now
		stage advertise.Stage
		next  time.Duration
	}{
		{"just now", 0, advertise.Shutting, delay},
		{"for a while", 4 * time.Second, advertise.Shutting, 6 * time.Second},
		{"long enough", delay, advertise.Drained, 0},
		{"in the future", -time.Hour, advertise.Drained, 0},
	} {
		stages, next := Set{}.With(drainTime.Add(-tt.since), vipA).stages(drainTime, delay)
		if got := stages.VIPs[vipA]; got != tt.stage || stages.All != advertise.NotDrained {
			t.Errorf("%s: stage %d", tt.name, got)
		}
		if got := next; tt.next == 0 && !got.IsZero() || tt.next != 0 && got != drainTime.Add(tt.next) {
			t.Errorf("%s: next %s", tt.name, got)
		}
	}
}

func TestAVIPIsWithdrawnWithTheBoxThatDrainedBefore(t *testing.T) {
	t.Parallel()
	d := State{set: Set{}.With(drainTime).With(drainTime.Add(time.Minute), vipA)}
	d.Advance(drainTime.Add(time.Minute), 10*time.Second, nil)
	v := d.Doc(10 * time.Second).VIPs[0]
	if want := drainTime.Add(10 * time.Second); v.Stage != status.Withdrawn || !v.Withdraws.Equal(want) {
		t.Errorf("%s at %s, want withdrawn at %s", v.Stage, v.Withdraws, want)
	}
}

func TestTheLastMemberRetainsItsVIPs(t *testing.T) {
	t.Parallel()
	alone := map[netip.Addr]bool{vipA: true}
	d := State{Fleet: Fleet{LastOne: func(a netip.Addr, _ bool) bool { return alone[a] }, Owner: func(a netip.Addr) (string, bool) {
		if alone[a] {
			return "", false
		}
		return "box2", true
	}}}
	vips := []netip.Addr{vipA, vipB}
	check := func(what string, all, a, b advertise.Stage, kept int) {
		t.Helper()
		d.Advance(drainTime.Add(time.Minute), time.Second, vips)
		if d.All() != all || d.Stage(vipA) != a || d.Stage(vipB) != b || len(d.retained) != kept {
			t.Errorf("%s: the box is at %d, %s at %d, %s at %d, %d kept", what, d.All(), vipA, d.Stage(vipA), vipB, d.Stage(vipB), len(d.retained))
		}
	}
	check("nothing is drained", advertise.NotDrained, advertise.NotDrained, advertise.NotDrained, 0)
	d.set = Set{}.With(drainTime, vipA, vipB)
	check("two are", advertise.NotDrained, advertise.Shutting, advertise.Drained, 1)
	doc := d.Doc(time.Second)
	if doc.Retained != 1 || !doc.VIPs[0].Retained || doc.VIPs[0].Owner != "" || doc.VIPs[1].Retained || doc.VIPs[1].Owner != "box2" || doc.Done() {
		t.Errorf("the document is %+v", doc)
	}
	has := d.Fleet.Owner
	d.Fleet.Owner = func(netip.Addr) (string, bool) { return "box2", false }
	if v := d.VIP(vipB, drainTime, 0); !v.Moving || v.Owner != "" {
		t.Errorf("box2 has not confirmed it: %+v", v)
	}
	d.Fleet.Owner = has
	d.set = d.set.Force(vipA)
	check("by force", advertise.NotDrained, advertise.Drained, advertise.Drained, 0)
	d.set = Set{}.With(drainTime)
	check("the box", advertise.Shutting, advertise.Shutting, advertise.Drained, 1)
	if doc := d.Doc(time.Second); doc.All.Stage == "withdrawn" || doc.Retained != 1 {
		t.Errorf("the document is %+v", doc)
	}
	alone[vipA] = false
	check("another can serve it now", advertise.Drained, advertise.Drained, advertise.Drained, 0)
	alone[vipB] = true
	check("no other member can serve it", advertise.Shutting, advertise.Drained, advertise.Shutting, 1)
	d.set = d.set.Force()
	check("the box by force", advertise.Drained, advertise.Drained, advertise.Drained, 0)
	version := d.version
	check("nothing happens", advertise.Drained, advertise.Drained, advertise.Drained, 0)
	if d.version != version {
		t.Error("what has not changed counts as changed")
	}
}

// Of two boxes that are drained one after the other the second one keeps what there is,
// whatever the first one does; of two that are drained at once, both do.
func TestTheSecondDrainedMemberRetainsItsVIPs(t *testing.T) {
	t.Parallel()
	type end struct{ first, second advertise.Stage }
	for _, tt := range []struct {
		name    string
		first   time.Time // when it is drained
		restart bool      // of the first, at the end
		want    end
	}{
		{"one after the other", drainTime, false, end{advertise.Drained, advertise.Shutting}},
		{"and the first restarts", drainTime, true, end{advertise.Drained, advertise.Shutting}},
		{"at once", drainTime.Add(time.Minute), false, end{advertise.Shutting, advertise.Shutting}},
	} {
		var first, second State
		others := func(other *State) func(netip.Addr, bool) bool { // as fleet.lastOne has it
			return func(a netip.Addr, gone bool) bool {
				serves, drains := other.Stage(a) != advertise.Drained, !other.set.Since(a).IsZero()
				return !serves || !gone && drains
			}
		}
		first.Fleet.LastOne, second.Fleet.LastOne = others(&second), others(&first)
		second.Advance(drainTime, 0, []netip.Addr{vipA})
		for i := range 90 {
			now := drainTime.Add(time.Duration(i) * time.Second)
			if !now.Before(tt.first) {
				first.set = first.set.With(now)
			}
			if !now.Before(drainTime.Add(time.Minute)) {
				second.set = second.set.With(now)
			}
			if i == 80 && tt.restart {
				first = State{set: first.set, Fleet: first.Fleet}
			}
			first.Advance(now, 0, []netip.Addr{vipA})
			second.Advance(now, 0, []netip.Addr{vipA})
		}
		if got := (end{first.Stage(vipA), second.Stage(vipA)}); got != tt.want {
			t.Errorf("%s: they end at %+v, want %+v", tt.name, got, tt.want)
		}
	}
}

func TestForceSurvivesARestart(t *testing.T) {
	t.Parallel()
	one := Set{}.With(drainTime, vipA, vipB).Force(vipB)
	for _, want := range []Set{one, Set{}.With(drainTime).Force(), one.With(drainTime).Force()} {
		dir := t.TempDir()
		if err := want.Save(dir); err != nil {
			t.Fatal(err)
		}
		if got, err := Load(dir); err != nil || !got.Equal(want) {
			t.Errorf("%v, %v instead of %v", got, err, want)
		}
	}
	if one.Forced(vipA) || !one.Forced(vipB) {
		t.Errorf("forced: %v", one)
	}
	back, err := one.Without(vipB)
	if err != nil || back.Forced(vipB) || !one.Forced(vipB) {
		t.Errorf("undrained: %v, %v; before: %v", back, err, one)
	}
	for _, content := range []string{
		`{"version": 1, "forced": ["192.0.2.1"]}`, `{"version": 1, "all_forced": true}`,
		`{"version": 1, "vips": {"192.0.2.1": "2026-01-02T03:04:05Z"}, "forced": ["::ffff:192.0.2.1"]}`,
	} {
		if d, err := parse([]byte(content)); err == nil {
			t.Errorf("%s reads as %v", content, d)
		}
	}
}

// TestAMovedFileIsNotReadLater changes the directory and back, with a drain that begins and ends between.
func TestAMovedFileIsNotReadLater(t *testing.T) {
	t.Parallel()
	a, b := t.TempDir(), t.TempDir()
	s := New(a, slog.New(slog.DiscardHandler))
	for _, tt := range []struct {
		dir  string
		set  Set
		want map[string]bool // whether the next start drains, by directory
	}{
		{a, Set{}.With(drainTime, vipA), map[string]bool{a: true, b: false}},
		{b, Set{}.With(drainTime, vipA), map[string]bool{a: false, b: true}},
		{b, Set{}, map[string]bool{a: false, b: false}},
	} {
		s.Move(tt.dir)
		s.Replace(tt.set)
		for dir, want := range tt.want {
			if got, err := Load(dir); err != nil || got.Any() != want || s.Err() != nil {
				t.Errorf("%+v, %v, %v; want a drain: %v", got, err, s.Err(), want)
			}
		}
	}
	if err := (Set{}).With(drainTime, vipA).Save(a); err != nil { // by another run
		t.Fatal(err)
	}
	s.Move(a)
	if got, err := Load(a); err != nil || got.Any() {
		t.Errorf("a stale drain stays: %+v, %v", got, err)
	}
}
