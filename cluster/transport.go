package cluster

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/memberlist"
	"golang.org/x/sys/unix"
)

const (
	// receiveBuffer holds some hundred datagrams, in bytes of the kernel. Answers to pings must not be lost while a
	// busy box has no time for them.
	receiveBuffer = 2 << 20
	// longestDatagram is longer than any datagram of UDP.
	longestDatagram = 1 << 16
	// maxStreams is the number of connections that are read at a time. Any host can open one, and leave it idle for
	// memberlist's TCPTimeout; a member needs milliseconds.
	maxStreams = 256
	// portRetry is the pause after an error of a port, such as a lack of file descriptors.
	portRetry = 100 * time.Millisecond
	// labelHeader begins a message with a label, and is followed by the length of the label (memberlist's hasLabelMsg).
	labelHeader = 244
)

// transport is the UDP and the TCP port of a member, for memberlist. The library's own transport allocates 64 KiB for
// each datagram of any host: at 500 a second, the garbage keeps a small box from answering pings in time. This one
// copies only datagrams of the fleet, and only their own bytes.
type transport struct {
	udp     *net.UDPConn
	tcp     *net.TCPListener
	label   []byte // begins all datagrams of the fleet
	packets chan *memberlist.Packet
	streams chan net.Conn
	open    connections
	lines   *logFilter
	caught  func()
	end     sync.Once
	ended   chan struct{}
	readers sync.WaitGroup
}

var _ memberlist.NodeAwareTransport = (*transport)(nil)

// listen opens the ports of a member. lines gets warnings, and caught is deferred in each goroutine.
func listen(cfg Config, lines *logFilter, caught func()) (*transport, error) {
	tcp, err := net.ListenTCP("tcp", net.TCPAddrFromAddrPort(cfg.Bind))
	if err != nil {
		return nil, err
	}
	udp, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(cfg.Bind))
	if err != nil {
		return nil, errors.Join(err, tcp.Close())
	}
	widen(udp)
	t := &transport{
		udp: udp, tcp: tcp, label: append([]byte{labelHeader, byte(len(cfg.Fleet))}, cfg.Fleet...),
		packets: make(chan *memberlist.Packet), streams: make(chan net.Conn),
		lines: lines, caught: caught, ended: make(chan struct{}),
	}
	t.readers.Go(t.readDatagrams)
	t.readers.Go(t.acceptStreams)
	return t, nil
}

// widen enlarges the receive buffer of a socket: past the limit of net.core.rmem_max with the right to do so
// (CAP_NET_ADMIN), else up to it.
func widen(udp *net.UDPConn) {
	forced := errors.ErrUnsupported
	if raw, err := udp.SyscallConn(); err == nil {
		_ = raw.Control(func(fd uintptr) {
			forced = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, receiveBuffer)
		})
	}
	if forced != nil {
		_ = udp.SetReadBuffer(receiveBuffer) // a smaller buffer is enough on a quiet network
	}
}

// readDatagrams hands datagrams of the fleet to memberlist, until Shutdown.
func (t *transport) readDatagrams() {
	defer t.caught()
	buf := make([]byte, longestDatagram)
	for {
		n, from, err := t.udp.ReadFromUDPAddrPort(buf)
		now := time.Now()
		switch {
		case errors.Is(err, net.ErrClosed):
			return
		case err != nil:
			t.lines.warn(now, "datagram not read", "error", err)
			if t.paused() {
				continue
			}
			return
		case n == 0: // a program that tries the port may send that
			continue
		case !bytes.HasPrefix(buf[:n], t.label):
			t.lines.refused()
			t.lines.warn(now, "datagram of another fleet", "from", from)
			continue
		}
		from = netip.AddrPortFrom(from.Addr().Unmap(), from.Port())
		select {
		case t.packets <- &memberlist.Packet{Buf: bytes.Clone(buf[:n]), From: net.UDPAddrFromAddrPort(from), Timestamp: now}:
		case <-t.ended:
			return
		}
	}
}

// acceptStreams hands connections to memberlist, until Shutdown. memberlist ends each within its TCPTimeout.
func (t *transport) acceptStreams() {
	defer t.caught()
	for {
		c, err := t.tcp.AcceptTCP()
		switch {
		case errors.Is(err, net.ErrClosed):
			return
		case err != nil:
			t.lines.warn(time.Now(), "connection not accepted", "error", err)
			if t.paused() {
				continue
			}
			return
		}
		select {
		case t.streams <- t.open.add(c):
		case <-t.ended:
			_ = c.Close()
			return
		}
	}
}

// connections are those that are open, the oldest first.
type connections struct {
	mu  sync.Mutex
	all []*connection
}

// connection leaves the others when it is closed.
type connection struct {
	net.Conn
	of *connections
}

// add adds a connection. One too many ends the oldest.
func (s *connections) add(c net.Conn) net.Conn {
	out := &connection{c, s}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.all) >= maxStreams {
		_ = s.all[0].Conn.Close() // memberlist notices
		s.all = slices.Delete(s.all, 0, 1)
	}
	s.all = append(s.all, out)
	return out
}

// Close implements net.Conn.
func (s *connection) Close() error {
	s.of.mu.Lock()
	defer s.of.mu.Unlock()
	if i := slices.Index(s.of.all, s); i >= 0 {
		s.of.all = slices.Delete(s.of.all, i, i+1)
	}
	return s.Conn.Close()
}

// paused waits after an error. It reports false after Shutdown.
func (t *transport) paused() bool {
	select {
	case <-time.After(portRetry):
		return true
	case <-t.ended:
		return false
	}
}

// Shutdown closes the ports and waits for the goroutines that read them. Only its first call can have an error.
func (t *transport) Shutdown() (err error) {
	t.end.Do(func() {
		close(t.ended)
		err = errors.Join(t.udp.Close(), t.tcp.Close())
	})
	t.readers.Wait()
	return err
}

func (t *transport) PacketCh() <-chan *memberlist.Packet { return t.packets }
func (t *transport) StreamCh() <-chan net.Conn           { return t.streams }

// FinalAdvertiseAddr returns the address to advertise, which Config.library always gives.
func (t *transport) FinalAdvertiseAddr(ip string, port int) (net.IP, int, error) {
	a, err := netip.ParseAddr(ip)
	if err == nil && a.Zone() != "" {
		err = fmt.Errorf("%s has a zone, which other members do not know", a)
	}
	if err != nil {
		return nil, 0, fmt.Errorf("the address to advertise: %w", err)
	}
	return a.Unmap().AsSlice(), port, nil
}

func (t *transport) WriteTo(b []byte, addr string) (time.Time, error) {
	return t.WriteToAddress(b, memberlist.Address{Addr: addr})
}

func (t *transport) DialTimeout(addr string, timeout time.Duration) (net.Conn, error) {
	return t.DialAddressTimeout(memberlist.Address{Addr: addr}, timeout)
}

// WriteToAddress sends a datagram, and returns when that was done.
func (t *transport) WriteToAddress(b []byte, to memberlist.Address) (time.Time, error) {
	at, err := netip.ParseAddrPort(to.Addr)
	if err != nil {
		return time.Time{}, err
	}
	_, err = t.udp.WriteToUDPAddrPort(b, at)
	return time.Now(), err
}

func (t *transport) DialAddressTimeout(to memberlist.Address, timeout time.Duration) (net.Conn, error) {
	d := net.Dialer{Timeout: timeout}
	return d.Dial("tcp", to.Addr)
}
