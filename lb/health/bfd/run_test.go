package bfd

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// end is one end of a session over loopback.
type end struct {
	status chan Status
	stop   context.CancelFunc
	ended  chan struct{}
}

func begin(t *testing.T, p Peer) *end {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	e := &end{status: make(chan Status, 100), stop: stop, ended: make(chan struct{})}
	go func() {
		defer close(e.ended)
		Run(ctx, p, func(s Status) { e.status <- s })
	}()
	t.Cleanup(e.close)
	return e
}

func (e *end) close() {
	e.stop()
	<-e.ended
}

// until waits for a status.
func (e *end) until(t *testing.T, up bool, reason string) Status {
	t.Helper()
	limit := time.After(20 * time.Second)
	var last Status
	for {
		select {
		case last = <-e.status:
			if last.Up == up && strings.Contains(fmt.Sprint(last.Err), reason) {
				return last
			}
		case <-limit:
			t.Fatalf("the last status is %+v; want up %t, reason %q", last, up, reason)
		}
	}
}

// freePort returns a UDP port that no socket has.
func freePort(t *testing.T, a netip.Addr) uint16 {
	t.Helper()
	c, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(a, 0)))
	if err != nil {
		t.Skipf("this machine lacks %s: %v", a, err)
	}
	defer c.Close()
	return c.LocalAddr().(*net.UDPAddr).AddrPort().Port()
}

func peer(own, other string, port uint16) Peer {
	return Peer{Address: netip.AddrPortFrom(netip.MustParseAddr(other), port), Source: netip.MustParseAddr(own), TTL: 255,
		Config: Config{MinTx: 50 * time.Millisecond, IdleTx: time.Second, MinRx: 50 * time.Millisecond, Multiplier: 20}}
}

// TestSession has two ends that exchange real packets: up, ended by one side, and up again.
func TestSession(t *testing.T) {
	t.Parallel()
	port := freePort(t, netip.MustParseAddr("127.0.0.1"))
	a, b := begin(t, peer("127.0.0.11", "127.0.0.12", port)), begin(t, peer("127.0.0.12", "127.0.0.11", port))
	a.until(t, true, "")
	b.until(t, true, "")
	b.close()
	a.until(t, false, "AdminDown")
	begin(t, peer("127.0.0.12", "127.0.0.11", port))
	a.until(t, true, "")
}

// TestSeveralSessions has sessions that share the port with each other and with a socket for all
// addresses, such as GoBGP's.
func TestSeveralSessions(t *testing.T) {
	t.Parallel()
	port := freePort(t, netip.MustParseAddr("127.0.0.1"))
	lc := net.ListenConfig{Control: func(_, _ string, raw syscall.RawConn) error {
		return raw.Control(func(fd uintptr) { _ = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEADDR, 1) })
	}}
	other, err := lc.ListenPacket(t.Context(), "udp", fmt.Sprintf(":%d", port))
	must(t, err)
	defer other.Close()
	a1, a2 := begin(t, peer("127.0.0.21", "127.0.0.22", port)), begin(t, peer("127.0.0.21", "127.0.0.23", port))
	b1 := begin(t, peer("127.0.0.22", "127.0.0.21", port))
	b2 := begin(t, peer("127.0.0.23", "127.0.0.21", port))
	for _, e := range []*end{a1, a2, b1, b2} {
		e.until(t, true, "")
	}
	b1.close()
	a1.until(t, false, "AdminDown")
	if len(a2.status) > 0 {
		t.Errorf("the end of one session changed the other: %+v", <-a2.status)
	}
	// The other socket has the packets of all other addresses.
	c, err := Dial(netip.AddrPortFrom(netip.MustParseAddr("127.0.0.21"), port), netip.MustParseAddr("127.0.0.24"), LinkTTL)
	must(t, err)
	defer c.Close()
	if _, err := c.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	var buf [1]byte
	for {
		_, from, err := other.ReadFrom(buf[:])
		must(t, err)
		if from.(*net.UDPAddr).AddrPort().Addr().Unmap() == netip.MustParseAddr("127.0.0.24") {
			return
		}
	}
}

// handmade is an end without the timers of Run, which is up with a.
func handmade(t *testing.T, p Peer, a *end) *session {
	t.Helper()
	b := &session{peer: p, machine: newMachine(config()), changed: func(Status) {}}
	must(t, b.open())
	go b.read()
	for b.machine.state != Up {
		send, final := b.machine.receive(<-b.received, time.Now())
		if send || final {
			must(t, b.send(final))
		}
	}
	a.until(t, true, "")
	return b
}

// TestSilentPeer has a peer that sends nothing more, without an announcement.
func TestSilentPeer(t *testing.T) {
	t.Parallel()
	port := freePort(t, netip.MustParseAddr("127.0.0.1"))
	a := begin(t, peer("127.0.0.31", "127.0.0.32", port))
	handmade(t, peer("127.0.0.32", "127.0.0.31", port), a).close()
	a.until(t, false, "no packet within")
}

// TestSilentPeerOfNewSockets has a session that is up when its sockets are opened again, and no
// packet comes any more.
func TestSilentPeerOfNewSockets(t *testing.T) {
	t.Parallel()
	m := newMachine(config())
	m.receive(peerPacket(m, Init), time.Now())
	down := make(chan Status, 1)
	s := &session{peer: peer("127.0.0.33", "127.0.0.34", freePort(t, netip.MustParseAddr("127.0.0.1"))), machine: m,
		last: Status{Up: true}, changed: func(now Status) { down <- now }}
	must(t, s.open())
	ctx, stop := context.WithTimeout(t.Context(), 10*time.Second)
	defer stop()
	if err := s.exchange(ctx); err != nil {
		t.Error(err)
	}
	s.close()
	if ctx.Err() != nil || (<-down).Up {
		t.Error("the session stays up without a packet")
	}
}

// TestUnusableSockets has a session that is up while its sockets can't be opened, once in each
// reopenInterval.
func TestUnusableSockets(t *testing.T) {
	t.Parallel()
	m := newMachine(config())
	s := &session{machine: m, changed: func(Status) {}}
	now := time.Now()
	m.receive(peerPacket(m, Init), now)
	if s.unusable(unix.EMFILE); m.state != Up {
		t.Error("down before the detection time")
	}
	m.expires = now.Add(-reopenInterval)
	if s.unusable(unix.EMFILE); m.state != Down || m.diag != Expired || !errors.Is(s.last.Err, unix.EMFILE) {
		t.Errorf("after the detection time: %s, %s, %+v", m.state, m.diag, s.last)
	}
}

// TestSpoofedICMPError has ICMP errors of all codes about the port of a session. Its
// socket stays open.
func TestSpoofedICMPError(t *testing.T) {
	t.Parallel()
	port := freePort(t, netip.MustParseAddr("127.0.0.1"))
	p := peer("127.0.0.35", "127.0.0.36", port)
	m := newMachine(config())
	s := &session{peer: p, machine: m, changed: func(Status) {}}
	must(t, s.open())
	go s.read()
	defer s.close()
	for code := range 16 {
		spoofUnreachable(t, p, byte(code))
		time.Sleep(time.Millisecond) // an error hides the one before
	}
	out, err := Dial(netip.AddrPortFrom(p.Source, port), p.Address.Addr(), LinkTTL)
	must(t, err)
	defer out.Close()
	if _, err := out.Write(peerPacket(m, Init).Marshal()); err != nil {
		t.Fatal(err)
	}
	if _, ok := <-s.received; !ok {
		t.Errorf("a spoofed ICMP error closes the socket: %v", <-s.failed)
	}
}

// spoofUnreachable sends an ICMP error to the receiving socket of p, as any host can. It
// reports that the peer is unreachable.
func spoofUnreachable(t *testing.T, p Peer, code byte) {
	t.Helper()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_ICMP)
	if err != nil {
		t.Skipf("SKIPPED: no raw socket: %v", err)
	}
	defer unix.Close(fd)
	src, dst := p.Source.As4(), p.Address.Addr().As4()
	ip := []byte{0x45, 0, 0, 52, 0, 0, 0, 0, 64, unix.IPPROTO_UDP, 0, 0}
	ip = append(append(ip, src[:]...), dst[:]...)
	udp := binary.BigEndian.AppendUint16(nil, p.Address.Port())
	udp = append(udp, 0x12, 0x34, 0, 32, 0, 0)
	icmp := slices.Concat([]byte{3, code, 0, 0, 0, 0, 0, 0}, ip, udp)
	sum := uint32(0)
	for i := 0; i < len(icmp); i += 2 {
		sum += uint32(binary.BigEndian.Uint16(icmp[i:]))
	}
	binary.BigEndian.PutUint16(icmp[2:], ^uint16(sum+sum>>16))
	must(t, unix.Sendto(fd, icmp, 0, &unix.SockaddrInet4{Addr: src}))
}

func TestNoPeer(t *testing.T) {
	t.Parallel()
	port := freePort(t, netip.MustParseAddr("127.0.0.1"))
	begin(t, peer("127.0.0.41", "127.0.0.42", port)).until(t, false, "connection refused")
	begin(t, peer("192.0.2.1", "127.0.0.42", port)).until(t, false, "cannot assign requested address")
}

// TestDistantPackets has a peer beyond a router, by the TTL of its packets.
func TestDistantPackets(t *testing.T) {
	t.Parallel()
	port := freePort(t, netip.MustParseAddr("127.0.0.1"))
	near, far := peer("127.0.0.51", "127.0.0.52", port), peer("127.0.0.52", "127.0.0.51", port)
	far.TTL, far.MaxHops = 254, 254
	a := begin(t, near)
	b := begin(t, far)
	a.until(t, false, "no packet of the peer")
	if len(b.status) > 0 {
		if s := <-b.status; s.Up {
			t.Error("a session over one link came up with TTL 254")
		}
	}
	a.close()
	near.MaxHops = 1
	begin(t, near).until(t, true, "")
}

// TestSessionIPv6 has one session that is its own peer, since loopback has one address of IPv6.
func TestSessionIPv6(t *testing.T) {
	t.Parallel()
	port := freePort(t, netip.IPv6Loopback())
	begin(t, Peer{Address: netip.AddrPortFrom(netip.IPv6Loopback(), port), TTL: 255, Config: config()}).until(t, true, "")
}

// must ends the test if err is not nil.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// The box may get another address towards a peer that has never answered: the session must not keep its first one.
func TestSocketsWithoutAPacketAreOpenedAgain(t *testing.T) {
	t.Parallel()
	ctx, stop := context.WithTimeout(t.Context(), 20*time.Second)
	defer stop()
	p := peer("127.0.0.51", "127.0.0.52", freePort(t, netip.MustParseAddr("127.0.0.1")))
	silent, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(p.Address)) // otherwise the peer refuses packets
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	s := &session{peer: p, machine: newMachine(p.Config), changed: func(Status) {}, unheard: 50 * time.Millisecond}
	if err := s.open(); err != nil {
		t.Fatal(err)
	}
	defer s.close()
	if err := s.exchange(ctx); err != nil || ctx.Err() != nil {
		t.Errorf("the session keeps its sockets: %v, %v", err, ctx.Err())
	}
}
