package l2

import (
	"context"
	"net/netip"
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
	panicked, ended := make(chan error, 1), make(chan error, 1)
	go func() {
		panicked <- recovered(func() error { return a.Run(ctx) })
		ended <- a.Run(ctx)
	}()
	a.claim(one4, one6)
	a.becomes(one4, Answered)
	a.becomes(one6, Answered)
	due.Store(true)
	a.claim(netip.MustParseAddr("192.0.2.9")) // for which Run filters its socket from scratch
	if err := <-panicked; err == nil {
		t.Error("Run has not panicked")
	}
	a.becomes(one4, Answered)
	a.becomes(one6, Answered)
	n.sh("ip neigh flush dev eth0")
	await(t, "served", func() bool { return n.ask(one4, time.Second) == "a" && n.ask(one6, time.Second) == "a" })
	cancel()
	must(t, <-ended)
}

// A frame that makes weir panic costs the socket, which is opened again, and not the process.
func TestAPanicOfAReaderFailsItsPort(t *testing.T) {
	t.Parallel()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	must(t, err)
	defer unix.Close(fds[1])
	s, err := newSocket(fds[0], "frames")
	must(t, err)
	defer s.close()
	r := runner{a: New(testLog(t, "a"))}
	p := &port{name: "eth0"}
	r.listen(p, s, func([]byte) (message, bool) { panic("failpoint") })
	_, err = unix.Write(fds[1], []byte("frame"))
	must(t, err)
	r.readers.Wait()
	if !p.failed.Load() {
		t.Error("the port has not failed: its sockets stay unread")
	}
}
