package daemon

import (
	"context"
	"fmt"
	"net"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"weir/bgp/advertise"
	"weir/cmd/weir/internal/config"
	"weir/cmd/weir/internal/drain"
	"weir/cmd/weir/internal/supervise"
)

func TestWhatAStopDoes(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		onStop config.OnStop
		reason supervise.Ending
		routed bool // there is a [bgp]
		want   shutdown
	}{
		{config.StopDrains, supervise.ForGood, true, shutdown{drains: true}},
		{config.StopDrains, supervise.ForGood, false, shutdown{}},
		{config.StopDrains, supervise.ToRestart, true, shutdown{}},
		{config.StopDrains, supervise.ByHand, true, shutdown{}},
		{config.StopDrains, supervise.Unclear, true, shutdown{drains: true}},
		{config.StopKeeps, supervise.ForGood, true, shutdown{}},
		{config.StopCleansUp, supervise.ForGood, true, shutdown{drains: true, cleansUp: true}},
		{config.StopCleansUp, supervise.ForGood, false, shutdown{cleansUp: true}},
		{config.StopCleansUp, supervise.ToRestart, true, shutdown{}},
		{config.StopCleansUp, supervise.Unclear, true, shutdown{drains: true}},
		{config.StopCleansUp, supervise.ByHand, true, shutdown{cleansUp: true}},
	} {
		cfg := &config.Config{Daemon: config.Daemon{OnStop: tt.onStop}}
		if tt.routed {
			cfg.BGP = &config.BGP{}
		}
		if got := shutdownOf(cfg, tt.reason); got != tt.want {
			t.Errorf("on_stop %s, %s, routers %v: %+v instead of %+v", tt.onStop, tt.reason, tt.routed, got, tt.want)
		}
	}
}

// A stop goes through the stages of a drain within its time, is kept nowhere, and is
// over when it is done or an operator has had enough.
func TestAStopDrains(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, h, _ := speakerBox(t, oneRouter+web(`"10.1.0.1"`)+"[daemon]\nstop_timeout = \"6s\"\n")
		dir := t.TempDir()
		b.steering.drains.Move(dir)
		b.pass(t)
		h.history.read()
		b.steering.drains.Stopping = time.Now()
		b.pass(t)
		checkDiary(t, "it begins", h, "announce 192.0.2.1/32 shutting")
		if doc := b.steering.drains.Details(b.target.cfg, b.target.rec.Catalog()); !doc.Stopping || doc.All == nil || doc.Done() || b.steering.drains.Set().Any() {
			t.Errorf("it says %+v", doc)
		}
		if due := time.Until(b.steering.drains.Due()); due != 3*time.Second {
			t.Errorf("half of stop_timeout is for routers to look for another way, not %s", due)
		}
		time.Sleep(3 * time.Second)
		b.pass(t)
		checkDiary(t, "later", h, "withdraw 192.0.2.1/32")
		if doc := b.steering.drains.Details(b.target.cfg, b.target.rec.Catalog()); !doc.Done() {
			t.Errorf("it says %+v", doc)
		}
		if d, err := drain.Load(dir); err != nil || d.Any() {
			t.Errorf("the next start finds %v, %v", d, err)
		}
	})
}

// A box without routers drains, too.
func TestAFleetWithoutRoutersDrains(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, _, _ := speakerBox(t, oneRouter+web(`"10.1.0.1"`))
		b.target.cfg = parse(t, "[l2]\ninterfaces = [\"eth0\"]\n"+web(`"10.1.0.1"`))
		b.steering.announcer = nil
		b.steering.drains.Move(t.TempDir())
		b.pass(t)
		b.steering.drains.Replace(b.steering.drains.Set().With(time.Now(), drain.VIPs(b.target.rec.Catalog(), b.target.cfg)...))
		b.pass(t)
		if doc := b.steering.drains.Details(b.target.cfg, b.target.rec.Catalog()); len(doc.VIPs) != 1 || doc.VIPs[0].Stage != "withdrawn" || doc.VIPs[0].Address != vipA.String() {
			t.Errorf("it says %+v", doc)
		}
		b.steering.drains.Replace(drain.Set{})
		b.pass(t)
		if b.steering.drains.Stage(vipA) != advertise.NotDrained {
			t.Error("undrained, it does not return")
		}
	})
}

func TestADaemonEndsOnRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, _, _ := speakerBox(t, oneRouter+web(`"10.1.0.1"`))
		ctx, cancel := context.WithCancel(t.Context())
		life, end := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); b.awaitEnd(ctx, life) }()
		synctest.Wait()
		end() // a task could not go on
		<-done
		cancel()
		if b.shutdown != (shutdown{}) {
			t.Errorf("it does %+v", b.shutdown)
		}
	})
}

// TestASignalEndsAStart has a signal while the first checks run, which need a long time: the end waits for none of them, and
// nothing is written.
func TestASignalEndsAStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := idleConcurrent(t)
		c.target.cfg.Services, c.target.cfg.Checks = parse(t, twoServices).Services, parse(t, twoServices).Checks
		c.target.cfg.Daemon.OnStop = config.StopCleansUp
		ending, signal := context.WithCancel(t.Context())
		c.run(t, ending)
		time.Sleep(time.Second)
		signal()
		began := time.Now()
		must(t, <-c.ended)
		if took := time.Since(began); took > 0 {
			t.Errorf("it ended after %s", took)
		}
		if ops := c.target.rec.Have().Len(); ops != 0 || !c.shutdown.cleansUp {
			t.Errorf("%d objects were written, and the end does %+v", ops, c.shutdown)
		}
	})
}

// notifications returns a function that waits for the next message to systemd.
func notifications(t *testing.T) func() string {
	t.Helper()
	socket := filepath.Join(t.TempDir(), "notify")
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: socket, Net: "unixgram"})
	must(t, err)
	t.Cleanup(func() { conn.Close() })
	t.Setenv("NOTIFY_SOCKET", socket)
	return func() string {
		must(t, conn.SetReadDeadline(time.Now().Add(time.Minute)))
		text := make([]byte, 1<<10)
		n, err := conn.Read(text)
		must(t, err)
		return string(text[:n])
	}
}

// TestACleanupAsksForTime cleans up after a drain that has used up the time of systemd.
func TestACleanupAsksForTime(t *testing.T) {
	notified := notifications(t)
	b, _, _ := speakerBox(t, oneRouter+web(`"10.1.0.1"`))
	b.steering.announcer, b.shutdown.cleansUp = nil, true
	b.stop()
	if got, want := notified(), fmt.Sprintf("EXTEND_TIMEOUT_USEC=%d", (90*time.Second).Microseconds()); got != want {
		t.Errorf("%q instead of %q", got, want)
	}
}

// TestAStopAsksForTimeOfABusyLoop stops a daemon with a loop that takes no request: a first sync may take longer than the
// time of the unit.
func TestAStopAsksForTimeOfABusyLoop(t *testing.T) {
	notified := notifications(t)
	b, _, _ := speakerBox(t, oneRouter+web(`"10.1.0.1"`))
	stop, signal := context.WithCancel(t.Context())
	signal()
	life, end := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); b.awaitEnd(stop, life) }()
	ask := fmt.Sprintf("EXTEND_TIMEOUT_USEC=%d", extension.Microseconds())
	for _, want := range []string{"STOPPING=1", ask, ask} {
		if got := notified(); got != want {
			t.Errorf("%q instead of %q", got, want)
		}
	}
	end()
	<-done
}
