package l2

import (
	"context"
	"log/slog"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// A panic of Run ends this run only. The next one, which the daemon starts, answers again for the same claims.
func TestRunAnswersAgainAfterAPanic(t *testing.T) {
	t.Parallel()
	lan := newSwitch(t, "lan")
	n := newNeighbour(t, "n", 100, lan)
	a := newBox(t, "a", 11, lan, one4, one6)
	must(t, a.stop())
	var due atomic.Bool
	a.inNamespace = func(do func() error) error {
		if due.CompareAndSwap(true, false) {
			panic("failpoint")
		}
		return a.in(do)
	}
	ctx, cancel := context.WithCancel(context.Background())
	panicked, ended := make(chan any, 1), make(chan error, 1)
	go func() {
		func() {
			defer func() { panicked <- recover() }()
			_ = a.Run(ctx)
		}()
		ended <- a.Run(ctx)
	}()
	a.claim(one4, one6)
	a.becomes(one4, Answered)
	a.becomes(one6, Answered)
	due.Store(true)
	a.claim(netip.MustParseAddr("192.0.2.9")) // for which Run filters its socket from scratch
	if v := <-panicked; v == nil {
		t.Error("Run has not panicked")
	}
	a.becomes(one4, Answered)
	a.becomes(one6, Answered)
	n.sh("ip neigh flush dev eth0")
	await(t, "served", func() bool { return n.ask(one4, time.Second) == "a" && n.ask(one6, time.Second) == "a" })
	cancel()
	must(t, <-ended)
}

// A frame that makes weir panic costs neither the process nor the socket, which any host could make deaf otherwise.
func TestAFrameThatPanicsIsDropped(t *testing.T) {
	t.Parallel()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	must(t, err)
	s, err := newSocket(fds[0], "frames")
	must(t, err)
	log := &strings.Builder{} // read after the goroutine
	r := runner{a: New(slog.New(slog.NewTextHandler(log, nil)))}
	p := &port{name: "eth0"}
	parsed := make(chan struct{}, 1)
	r.listen(p, s, func(frame []byte) (message, bool) {
		if string(frame) == "bad" {
			panic("failpoint")
		}
		parsed <- struct{}{}
		return message{}, true
	})
	for _, frame := range []string{"bad", "bad", "good"} {
		_, err = unix.Write(fds[1], []byte(frame))
		must(t, err)
	}
	select {
	case <-parsed:
	case <-time.After(time.Minute):
		t.Error("the frame after two bad ones is not read")
	}
	if p.failed.Load() {
		t.Error("the port has failed")
	}
	if n := p.lost(); n != 2 {
		t.Errorf("%d frames are counted as dropped, want 2", n)
	}
	must(t, s.close())
	must(t, unix.Close(fds[1]))
	r.readers.Wait()
	if n := strings.Count(log.String(), "failpoint"); n != 1 {
		t.Errorf("the log has %d panics, want 1:\n%s", n, log)
	}
}

// A panic after a notification of the kernel does not end the process.
func TestAPanicOfAHintIsCaught(t *testing.T) {
	t.Parallel()
	var log strings.Builder
	a := New(slog.New(slog.NewTextHandler(&log, nil)))
	r := runner{a: a}
	a.engine = nil // without which a hint panics
	r.linkHint()
	if !strings.Contains(log.String(), "link change not handled") {
		t.Errorf("no panic is logged: %s", log.String())
	}
	if !a.mu.TryLock() {
		t.Error("the panic keeps the lock")
	}
}
