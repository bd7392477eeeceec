package e2e

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	table "weir/cmd/weirlab/internal/conformance"
	"weir/cmd/weirlab/internal/traffic"
	"weir/cmd/weirlab/lab"
)

// A greeter is a backend for any protocol: it sends every guest its own name and
// the guest's address as it sees it, "web1 10.1.0.2". A guest that connects may stay.
//
// Hosts greet and visit from within the test process. A box has a kernel of its
// own, so there this very program runs as a process: see TestMain.

// asPeer in the environment makes this program a greeter or a guest:
//
//	listen NAME NETWORK ADDRESS [NETWORK ADDRESS ...]
//	visit TIMES NETWORK ADDRESS [NETWORK ADDRESS ...]
const asPeer = "WEIR_E2E_PEER"

func TestMain(m *testing.M) {
	if os.Getenv(asPeer) == "" {
		code := m.Run()
		table.Sort(columns.all)
		table.Print(os.Stdout, columns.all)
		printFigures(os.Stdout)
		os.Exit(code)
	}
	if err := peer(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func peer(args []string) error {
	switch {
	case len(args) >= 4 && args[0] == "listen":
		for ends := args[2:]; len(ends) >= 2; ends = ends[2:] {
			if _, err := greetAt(args[1], ends[0], ends[1]); err != nil {
				return err
			}
		}
		fmt.Println("listening")
		select {}
	case len(args) == 6 && args[0] == "attempt":
		text, err := attemptPeer(args[1:])
		fmt.Println(text)
		return err
	case len(args) == 2 && args[0] == "guest":
		return guestPeer(args[1])
	case len(args) == 5 && args[0] == "kill-children":
		return killChildrenPeer(args[1], args[2], args[3], args[4])
	case len(args) == 3 && args[0] == "time-repair":
		return timeRepairPeer(args[1], args[2])
	case len(args) == 2 && args[0] == "relay":
		return relayPeer(args[1])
	case len(args) >= 4 && args[0] == "visit":
		times, err := strconv.Atoi(args[1])
		if err != nil {
			return err
		}
		for ends := args[2:]; len(ends) >= 2; ends = ends[2:] {
			if err := visitTimes(times, ends[0], ends[1]); err != nil {
				return err
			}
		}
		return nil
	}
	return fmt.Errorf("usage: listen NAME NETWORK ADDRESS ... or visit TIMES NETWORK ADDRESS ...")
}

func visitTimes(times int, network, addr string) error {
	for range times {
		c, err := visit(context.Background(), plainDial, network, addr)
		if err != nil {
			return err
		}
		fmt.Println(c.server, c.saw)
		_ = c.Close()
	}
	return nil
}

// greetAt greets in the calling goroutine's network namespace until the closer is
// closed. Networks are those of package net and sctp4, sctp6.
func greetAt(name, network, addr string) (io.Closer, error) {
	if strings.HasPrefix(network, "udp") {
		c, err := net.ListenPacket(network, addr)
		if err != nil {
			return nil, err
		}
		go greetDatagrams(name, c)
		return c, nil
	}
	listen := net.Listen
	if strings.HasPrefix(network, "sctp") {
		listen = listenSCTP
	}
	l, err := listen(network, addr)
	if err != nil {
		return nil, err
	}
	_ = traffic.ServeConns(l, func(c net.Conn) { // until the listener is closed
		if _, err := c.Write(greeting(name, c.RemoteAddr())); err == nil {
			_, _ = io.Copy(c, c)
		}
	})
	return l, nil
}

func greetDatagrams(name string, c net.PacketConn) {
	buf := make([]byte, 64)
	for {
		_, from, err := c.ReadFrom(buf)
		if err != nil {
			return
		}
		_, _ = c.WriteTo(greeting(name, from), from)
	}
}

func greeting(name string, guest net.Addr) []byte {
	at, _ := netip.ParseAddrPort(guest.String())
	return []byte(name + " " + at.Addr().Unmap().String())
}

// dialer connects from somewhere.
type dialer func(ctx context.Context, network, addr string) (net.Conn, error)

// plainDial connects from where this process is.
func plainDial(ctx context.Context, network, addr string) (net.Conn, error) {
	if strings.HasPrefix(network, "sctp") {
		return dialSCTP(ctx, network, addr)
	}
	var d net.Dialer
	return d.DialContext(ctx, network, addr)
}

// dialerOf connects from a host. Each UDP flow has a source port that none had
// before: one that looks like an older flow would be part of it to the kernel, and
// be masqueraded, or not, as that was.
func dialerOf(m *lab.Machine) dialer {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		if !strings.HasPrefix(network, "udp") {
			return m.DialContext(ctx, network, addr)
		}
		return m.DialFrom(ctx, network, &net.UDPAddr{Port: 10000 + int(flows.Add(1)%20000)}, addr)
	}
}

// flows counts those of dialerOf.
var flows atomic.Uint32

// visit connects to a greeter. The connection stays open.
func visit(ctx context.Context, dial dialer, network, addr string) (*conn, error) {
	defer nudge(ctx, dial)()
	return greeted(ctx, dial, network, addr)
}

// nudge sends other packets through the box, both ways, until it is stopped. A
// user-mode Linux kernel that is busy sometimes sleeps over a packet until the
// next one comes, and a guest that sent one datagram would wait in vain. A packet that
// was dropped stays lost.
func nudge(ctx context.Context, dial dialer) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	go func() {
		tick := time.NewTicker(300 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			for _, beyond := range []string{"10.1.0.2:9", "10.2.0.11:9"} {
				if c, err := dial(ctx, "udp", beyond); err == nil {
					_, _ = c.Write([]byte("wake up"))
					_ = c.Close()
				}
			}
		}
	}()
	return cancel
}

// again is how long a guest waits before it sends a datagram or an echo request
// once more. The way there has a user-mode Linux kernel in it, which a busy machine
// makes late, or lose a packet: TCP and SCTP repeat themselves, these two don't.
const again = 200 * time.Millisecond

// readGreeting reads the greeting, for which a UDP guest has to ask.
func readGreeting(ctx context.Context, c net.Conn, network string) (answer, error) {
	limit := time.Now().Add(5 * time.Second)
	if deadline, ok := ctx.Deadline(); ok {
		limit = deadline
	}
	question := ""
	if strings.HasPrefix(network, "udp") {
		question = "?"
	}
	buf := make([]byte, 256)
	n, err := askUntil(c, []byte(question), buf, limit)
	if err != nil {
		return answer{}, err
	}
	server, saw, ok := strings.Cut(string(buf[:n]), " ")
	if !ok {
		return answer{}, fmt.Errorf("greeted with %q", buf[:n])
	}
	return answer{server, saw}, nil
}

// askUntil reads what comes first. Until then it asks repeatedly, if there is
// something to ask. An error that ICMP brings ends it at once.
func askUntil(c net.Conn, question, buf []byte, limit time.Time) (int, error) {
	for {
		next := limit
		if len(question) > 0 {
			// The box's own rules may have dropped or refused its packet. ICMP reports a refusal.
			if _, err := c.Write(question); err != nil && !errors.Is(err, syscall.EPERM) {
				return 0, err
			}
			if soon := time.Now().Add(again); soon.Before(limit) {
				next = soon
			}
		}
		if err := c.SetReadDeadline(next); err != nil {
			return 0, err
		}
		n, err := c.Read(buf)
		if next.Equal(limit) || !errors.Is(err, os.ErrDeadlineExceeded) {
			return n, err
		}
	}
}

// The SCTP of a kernel, one-to-one style: for package net a socket that it gets
// ready-made is TCP's, and that will do. Each end is bound to one address, so that
// none offers its peer other paths, which no NAT knows of.

// greet puts a greeter on a host until the test ends.
func greet(t testing.TB, m *lab.Machine, network, addr string) {
	t.Helper()
	err := m.Do(func() error {
		c, err := greetAt(m.Name(), network, addr)
		if err == nil {
			t.Cleanup(func() { _ = c.Close() })
		}
		return err
	})
	must(t, err)
}

// greetAll puts a greeter on all three backends.
func (s *site) greetAll(t testing.TB, network string, port int) {
	t.Helper()
	for i := range webs {
		greet(t, s.web(i+1), network, fmt.Sprintf(":%d", port))
	}
}

// greetOnBox runs a greeter called "box" on the box: a daemon of the host that
// has nothing to do with weir. Ends are networks and addresses by turns.
func (s *site) greetOnBox(t testing.TB, ends ...string) {
	t.Helper()
	s.launchIn(t, "", append([]string{"listen", "box"}, ends...)...)
}

// launchIn starts this program as a greeter in a network namespace of the box, or
// on the box itself. It ends with the test.
func (s *site) launchIn(t testing.TB, namespace string, args ...string) {
	t.Helper()
	c, err := peerCommand(namespace, args...)
	must(t, err)
	c.Log = "greeter"
	p, err := s.box.Launch(c)
	must(t, err)
	t.Cleanup(p.Kill)
	if err := p.Expect(within(t, time.Minute), "listening"); err != nil {
		t.Fatalf("greeter on the box: %v\n%s", err, p.Output())
	}
}

// visitsIn visits from a network namespace of the box, or from the box itself:
// each end, a network and an address, so many times.
func (s *site) visitsIn(ctx context.Context, namespace string, times int, ends ...string) ([]answer, error) {
	c, err := peerCommand(namespace, append([]string{"visit", strconv.Itoa(times)}, ends...)...)
	if err != nil {
		return nil, err
	}
	out, err := s.box.Exec(ctx, c)
	if err != nil {
		return nil, err
	}
	var answers []answer
	for line := range strings.Lines(out.Stdout) {
		server, saw, _ := strings.Cut(strings.TrimSpace(line), " ")
		answers = append(answers, answer{server, saw})
	}
	return answers, nil
}

func peerCommand(namespace string, args ...string) (lab.Command, error) {
	program, err := os.Executable()
	if err != nil {
		return lab.Command{}, err
	}
	args = append([]string{program}, args...)
	if namespace != "" {
		args = append([]string{"ip", "netns", "exec", namespace}, args...)
	}
	return lab.Command{Args: args, Env: []string{asPeer + "=1"}}, nil
}
