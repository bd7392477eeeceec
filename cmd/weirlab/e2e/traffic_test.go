package e2e

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"weir/cmd/weirlab/internal/traffic"
	"weir/cmd/weirlab/lab"
)

// The load of package traffic, for tests: what a load needs fails the test when it fails.

// The outcomes that tests ask for.
const (
	refused     = string(traffic.Refused)
	silence     = string(traffic.Dropped)
	unreachable = traffic.Unreachable
)

// load makes new connections until it is ended or the test ends.
type load struct{ *traffic.Load }

// startLoad sends requests from a host to web servers behind addresses, by turns. Zero options are the
// defaults.
func startLoad(t testing.TB, from *lab.Machine, o traffic.Options, addrs ...string) *load {
	if o.Ask == nil {
		o.Ask = traffic.HTTP(dialOwnPort(from, ""))
	}
	l := &load{traffic.Start(t.Context(), o, addrs...)}
	t.Cleanup(func() { l.Stop() })
	return l
}

// startStream is startLoad with the default beat and patience.
func startStream(t testing.TB, from *lab.Machine, addrs ...string) *load {
	return startLoad(t, from, traffic.Options{}, addrs...)
}

// hammerBeat finds short gaps, and leaves some of the boxes' one processor to weir.
const hammerBeat = 8 * time.Millisecond

// startHammer is startLoad with a short beat.
func startHammer(t testing.TB, from *lab.Machine, patience time.Duration, addrs ...string) *load {
	return startLoad(t, from, traffic.Options{Beat: hammerBeat, Patience: patience}, addrs...)
}

// more waits for n more answers.
func (l *load) more(t testing.TB, n int) {
	t.Helper()
	must(t, l.Wait(t.Context(), n))
}

// mustAllBeAnswered fails for tries that began within a time and were not answered; a zero end sets
// no limit. what describes what was going on.
func mustAllBeAnswered(t testing.TB, what string, tries traffic.Tries, from, to time.Time) {
	t.Helper()
	within := tries.Between(from, to)
	if err := within.Err(3); err != nil {
		t.Errorf("%s: %v", what, err)
	}
	if len(within) == 0 {
		t.Errorf("%s: no request at all: the test shows nothing", what)
	}
	t.Logf("%s: %s", what, within.Report())
}

// mustHaveLostNothing ends loads and fails the test if a request failed.
func mustHaveLostNothing(t testing.TB, loads ...*load) {
	t.Helper()
	for _, l := range loads {
		mustAllBeAnswered(t, "a load", l.Stop(), time.Time{}, time.Time{})
	}
}

// holdPatience is how long a held connection waits for an answer.
const holdPatience = 10 * time.Second

// hold opens a connection to an echo server and holds it until Release, the end of the test, or
// whatever cuts it.
func hold(t testing.TB, from *lab.Machine, addr string) *traffic.Held {
	t.Helper()
	return holdMany(t, 1, from, addr)[0]
}

// holdMany holds n connections to each address.
func holdMany(t testing.TB, n int, from *lab.Machine, addrs ...string) traffic.Holds {
	t.Helper()
	o := traffic.HoldOptions{Beat: time.Duration(sized(100, 20)) * time.Millisecond, Patience: holdPatience} // a cut shows at any beat, a short gap at a short one
	all, err := traffic.HoldMany(t.Context(), dialOwnPort(from, ""), n*len(addrs), o, addrs...)
	t.Cleanup(func() { all.Release() })
	if err != nil {
		t.Fatalf("%s holds connections: %v", from.Name(), err)
	}
	return all
}

// moves fails unless each connection answers some more bytes.
func moves(t testing.TB, held ...*traffic.Held) {
	t.Helper()
	for _, h := range held {
		must(t, h.Wait(t.Context(), 3))
	}
}

// mustBeCut waits until a connection is cut, and returns the time of that.
func mustBeCut(t testing.TB, h *traffic.Held, limit time.Duration) time.Time {
	t.Helper()
	eventually(t, limit, func() error {
		if h.Err() == nil {
			return fmt.Errorf("the connection to %s lives", h.Server)
		}
		return nil
	})
	return h.Ended()
}

// releaseAll ends held connections, which must all have lived until now.
func releaseAll(t testing.TB, what string, held traffic.Holds) {
	t.Helper()
	r := held.Release()
	if r.Cut > 0 {
		t.Errorf("%s: %s", what, r)
	}
	t.Logf("%s: %s", what, r)
}

// flow is a UDP client with one source port.
type flow struct{ *traffic.Flow }

func startFlow(t testing.TB, from *lab.Machine, port int, addr string) *flow {
	t.Helper()
	c, err := from.DialFrom(within(t, 10*time.Second), "udp", &net.UDPAddr{Port: port}, addr)
	must(t, err)
	f := &flow{traffic.StartFlow(c)}
	t.Cleanup(func() { f.Stop() })
	return f
}

// answered waits for n more answers and returns the last.
func (f *flow) answered(t testing.TB, n int) traffic.Datagram {
	t.Helper()
	d, err := f.Wait(t.Context(), n)
	must(t, err)
	return d
}

// serveEcho puts an echo server on a host.
func serveEcho(t testing.TB, m *lab.Machine, port int) {
	t.Helper()
	l, err := m.Listen("tcp", fmt.Sprintf(":%d", port))
	must(t, err)
	t.Cleanup(traffic.ServeEcho(l, m.Name()))
}

// echoAll puts an echo server and a UDP server on all three web servers, at port 7000.
func echoAll(t testing.TB, l *lab.Lab) {
	t.Helper()
	for _, name := range webs {
		serveEcho(t, l.Host(name), 7000)
		serveUDP(t, l.Host(name), 7000)
	}
}

// serveConns puts a TCP server on a host that does something with each connection and closes it then.
func serveConns(t testing.TB, m *lab.Machine, port int, do func(net.Conn)) {
	t.Helper()
	l, err := m.Listen("tcp", fmt.Sprintf(":%d", port))
	must(t, err)
	t.Cleanup(traffic.ServeConns(l, do))
}

// serveUDP puts a UDP server on a host that answers with the host's name.
func serveUDP(t testing.TB, m *lab.Machine, port int) {
	t.Helper()
	for _, network := range []string{"udp4", "udp6"} {
		c, err := m.ListenPacket(network, fmt.Sprintf(":%d", port))
		must(t, err)
		t.Cleanup(func() { _ = c.Close() })
		go traffic.ServeUDP(c, m.Name())
	}
}

// ownPort is the last port that a client of dialOwnPort had. They are below those that a kernel chooses
// (net.ipv4.ip_local_port_range), and above those of servers.
var ownPort atomic.Uint32

const (
	firstOwnPort = 12000
	ownPorts     = 20000
)

// dialOwnPort dials from an address of a host, or from any, and from a port that no other client of this process had
// among the last 20,000. The kernel would choose a port of the host a second time after some seconds. IPVS and
// conntrack know it for two minutes, and can cut a connection from such a port (packaging/doc/kernel.md).
func dialOwnPort(from *lab.Machine, addr string) traffic.Dial {
	return func(ctx context.Context, network, to string) (c net.Conn, err error) {
		for range 10 { // others may have some ports
			port := firstOwnPort + int(ownPort.Add(1)%ownPorts)
			c, err = from.DialFrom(ctx, network, &net.TCPAddr{IP: net.ParseIP(addr), Port: port}, to)
			if !errors.Is(err, syscall.EADDRINUSE) {
				break
			}
		}
		return c, err
	}
}
