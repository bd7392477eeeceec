package daemon

import (
	"context"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"weir/bgp"
	"weir/cmd/weir/internal/config"
)

func TestTheServiceOfAProcess(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ name, cgroup, want string }{
		{"a service", "0::/system.slice/weir.service\n", "weir.service"},
		{"an instance, in a group of its own", "0::/system.slice/system-weir.slice/weir@a.service/main\n", "weir@a.service"},
		{"cgroups of old", "12:cpu,cpuacct:/other.service\n1:name=systemd:/system.slice/weir.service\n0::/\n", "weir.service"},
		{"a login", "0::/user.slice/user-0.slice/session-1.scope\n", ""},
		{"a container", "0::/\n", ""},
		{"no cgroups", "", ""},
		{"something else", "weir.service\n\n:\n", ""},
	} {
		if got := unitOf(tt.cgroup); got != tt.want {
			t.Errorf("%s: %q instead of %q", tt.name, got, tt.want)
		}
	}
}

func FuzzTheServiceOfAProcess(f *testing.F) {
	f.Add("0::/system.slice/weir.service\n")
	f.Add("1:name=systemd:/a.service/b\n0::\n")
	f.Fuzz(func(_ *testing.T, cgroup string) { _ = unitOf(cgroup) })
}

func TestWhyWeirEnds(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, jobs string
		want       ending
	}{
		{"a stop", "1211 weir.service stop running\n", forGood},
		{"the machine goes down", "77 other.service stop waiting\n90 weir.service stop running\n91 reboot.target start waiting\n", forGood},
		{"a restart", "1212 weir.service restart running\n", toRestart},
		{"a stop, and then a start was asked for", "1213 weir.service start waiting\n", toRestart},
		{"somebody else's stop", "77 other.service stop running\n", byHand},
		{"no job", "", byHand},
		{"nothing that is known", "No jobs running.\nweir.service\n", byHand},
	} {
		if got := endingOf(tt.jobs, "weir.service"); got != tt.want {
			t.Errorf("%s: %s instead of %s", tt.name, got, tt.want)
		}
	}
}

func TestWhatAStopDoes(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		onStop config.OnStop
		why    ending
		routed bool // there is a [bgp]
		want   farewell
	}{
		{config.StopDrains, forGood, true, farewell{drains: true}},
		{config.StopDrains, forGood, false, farewell{}},
		{config.StopDrains, toRestart, true, farewell{}},
		{config.StopDrains, byHand, true, farewell{}},
		{config.StopKeeps, forGood, true, farewell{}},
		{config.StopCleansUp, forGood, true, farewell{drains: true, cleansUp: true}},
		{config.StopCleansUp, forGood, false, farewell{cleansUp: true}},
		{config.StopCleansUp, toRestart, true, farewell{}},
		{config.StopCleansUp, byHand, true, farewell{cleansUp: true}},
	} {
		cfg := &config.Config{Daemon: config.Daemon{OnStop: tt.onStop}}
		if tt.routed {
			cfg.BGP = &config.BGP{}
		}
		if got := farewellOf(cfg, tt.why); got != tt.want {
			t.Errorf("on_stop %s, %s, routers %v: %+v instead of %+v", tt.onStop, tt.why, tt.routed, got, tt.want)
		}
	}
}

// A stop goes through the stages of a drain within its time, is kept nowhere, and is
// over when it is done or somebody has had enough.
func TestAStopDrains(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, h, _ := heraldBox(t, oneRouter+web(`"10.1.0.1"`)+"[daemon]\nstop_timeout = \"6s\"\n")
		b.drainer.dir = t.TempDir()
		b.turn(t)
		h.diary.read()
		b.drainer.stopping = time.Now()
		b.turn(t)
		checkDiary(t, "it begins", h, "announce 192.0.2.1/32 shutting")
		if doc := b.drainedNow(); !doc.Stopping || doc.All == nil || doc.Done() || b.drainer.drained.any() {
			t.Errorf("it says %+v", doc)
		}
		if due := time.Until(b.drainer.due); due != 3*time.Second {
			t.Errorf("half of stop_timeout is for routers to look for another way, not %s", due)
		}
		time.Sleep(3 * time.Second)
		b.turn(t)
		checkDiary(t, "later", h, "withdraw 192.0.2.1/32")
		if doc := b.drainedNow(); !doc.Done() {
			t.Errorf("it says %+v", doc)
		}
		if d, err := loadDrained(b.drainer.dir); err != nil || d.any() {
			t.Errorf("the next start finds %v, %v", d, err)
		}
	})
}

func TestTheLastOfAFleetKeepsItsVIPs(t *testing.T) {
	t.Parallel()
	alone := map[netip.Addr]bool{vipA: true}
	d := drainer{lastOne: func(a netip.Addr, _ bool) bool { return alone[a] }, owner: func(a netip.Addr) (string, bool) {
		if alone[a] {
			return "", false
		}
		return "box2", true
	}}
	vips := []netip.Addr{vipA, vipB}
	check := func(what string, all, a, b bgp.Stage, kept int) {
		t.Helper()
		d.advance(drainTime.Add(time.Minute), time.Second, vips)
		if d.all() != all || d.stage(vipA) != a || d.stage(vipB) != b || len(d.kept) != kept {
			t.Errorf("%s: the box is at %d, %s at %d, %s at %d, %d kept", what, d.all(), vipA, d.stage(vipA), vipB, d.stage(vipB), len(d.kept))
		}
	}
	check("nothing is drained", bgp.NotDrained, bgp.NotDrained, bgp.NotDrained, 0)
	d.drained = drained{}.with(drainTime, vipA, vipB)
	check("two are", bgp.NotDrained, bgp.Shutting, bgp.Drained, 1)
	doc := d.doc(time.Second)
	if doc.Kept != 1 || !doc.VIPs[0].Kept || doc.VIPs[0].Owner != "" || doc.VIPs[1].Kept || doc.VIPs[1].Owner != "box2" || doc.Done() {
		t.Errorf("it says %+v", doc)
	}
	has := d.owner
	d.owner = func(netip.Addr) (string, bool) { return "box2", false }
	if v := d.vip(vipB, drainTime, 0); !v.Moving || v.Owner != "" {
		t.Errorf("box2 does not say that it has it: %+v", v)
	}
	d.owner = has
	d.drained = d.drained.force(vipA)
	check("by force", bgp.NotDrained, bgp.Drained, bgp.Drained, 0)
	d.drained = drained{}.with(drainTime)
	check("the box", bgp.Shutting, bgp.Shutting, bgp.Drained, 1)
	if doc := d.doc(time.Second); doc.All.Stage == "withdrawn" || doc.Kept != 1 {
		t.Errorf("it says %+v", doc)
	}
	alone[vipA] = false
	check("another can serve it now", bgp.Drained, bgp.Drained, bgp.Drained, 0)
	alone[vipB] = true
	check("nobody else can any more", bgp.Shutting, bgp.Drained, bgp.Shutting, 1)
	d.drained = d.drained.force()
	check("the box by force", bgp.Drained, bgp.Drained, bgp.Drained, 0)
	version := d.version
	check("nothing happens", bgp.Drained, bgp.Drained, bgp.Drained, 0)
	if d.version != version {
		t.Error("what has not changed counts as changed")
	}
}

// Of two boxes that are drained one after the other the second one keeps what there is,
// whatever the first one does; of two that are drained at once, both do.
func TestTheSecondThatIsDrainedIsTheLast(t *testing.T) {
	t.Parallel()
	type end struct{ first, second bgp.Stage }
	for _, tt := range []struct {
		name    string
		first   time.Time // when it is drained
		restart bool      // of the first, at the end
		want    end
	}{
		{"one after the other", drainTime, false, end{bgp.Drained, bgp.Shutting}},
		{"and the first restarts", drainTime, true, end{bgp.Drained, bgp.Shutting}},
		{"at once", drainTime.Add(time.Minute), false, end{bgp.Shutting, bgp.Shutting}},
	} {
		var first, second drainer
		others := func(other *drainer) func(netip.Addr, bool) bool { // as fleet.lastOne has it
			return func(a netip.Addr, gone bool) bool {
				serves, drains := other.stage(a) != bgp.Drained, !other.drained.since(a).IsZero()
				return !serves || !gone && drains
			}
		}
		first.lastOne, second.lastOne = others(&second), others(&first)
		second.advance(drainTime, 0, []netip.Addr{vipA})
		for i := range 90 {
			now := drainTime.Add(time.Duration(i) * time.Second)
			if !now.Before(tt.first) {
				first.drained = first.drained.with(now)
			}
			if !now.Before(drainTime.Add(time.Minute)) {
				second.drained = second.drained.with(now)
			}
			if i == 80 && tt.restart {
				first = drainer{drained: first.drained, lastOne: first.lastOne}
			}
			first.advance(now, 0, []netip.Addr{vipA})
			second.advance(now, 0, []netip.Addr{vipA})
		}
		if got := (end{first.stage(vipA), second.stage(vipA)}); got != tt.want {
			t.Errorf("%s: they end at %+v, want %+v", tt.name, got, tt.want)
		}
	}
}

func TestForceIsKept(t *testing.T) {
	t.Parallel()
	one := drained{}.with(drainTime, vipA, vipB).force(vipB)
	for _, want := range []drained{one, drained{}.with(drainTime).force(), one.with(drainTime).force()} {
		dir := t.TempDir()
		if err := want.save(dir); err != nil {
			t.Fatal(err)
		}
		if got, err := loadDrained(dir); err != nil || !got.equal(want) {
			t.Errorf("%v, %v instead of %v", got, err, want)
		}
	}
	if one.isForced(vipA) || !one.isForced(vipB) {
		t.Errorf("forced: %v", one)
	}
	back, err := one.without(vipB)
	if err != nil || back.isForced(vipB) || !one.isForced(vipB) {
		t.Errorf("undrained: %v, %v; before: %v", back, err, one)
	}
	for _, content := range []string{
		`{"version": 1, "forced": ["192.0.2.1"]}`, `{"version": 1, "all_forced": true}`,
		`{"version": 1, "vips": {"192.0.2.1": "2026-01-02T03:04:05Z"}, "forced": ["::ffff:192.0.2.1"]}`,
	} {
		if d, err := parseDrained([]byte(content)); err == nil {
			t.Errorf("%s reads as %v", content, d)
		}
	}
}

// A box without routers drains, too.
func TestAFleetWithoutRoutersDrains(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, _, _ := heraldBox(t, oneRouter+web(`"10.1.0.1"`))
		b.cfg = parse(t, "[l2]\ninterfaces = [\"eth0\"]\n"+web(`"10.1.0.1"`))
		b.announcer = nil
		b.drainer.dir = t.TempDir()
		b.turn(t)
		b.drainer.set(b.drainer.drained.with(time.Now(), b.vips()...))
		b.turn(t)
		if doc := b.drainedNow(); len(doc.VIPs) != 1 || doc.VIPs[0].Stage != "withdrawn" || doc.VIPs[0].Address != vipA.String() {
			t.Errorf("it says %+v", doc)
		}
		b.drainer.set(drained{})
		b.turn(t)
		if b.drainer.stage(vipA) != bgp.NotDrained {
			t.Error("undrained, it does not return")
		}
	})
}

func TestADaemonThatIsToldToEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, _, _ := heraldBox(t, oneRouter+web(`"10.1.0.1"`))
		ctx, cancel := context.WithCancel(t.Context())
		life, end := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); b.awaitEnd(ctx, life) }()
		synctest.Wait()
		end() // a task could not go on
		<-done
		cancel()
		if b.farewell != (farewell{}) {
			t.Errorf("it does %+v", b.farewell)
		}
	})
}
