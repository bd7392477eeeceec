package cluster

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/memberlist"
)

// air is a network without sockets: under synctest its members live in virtual time,
// and a busy machine delays no member.
type air struct {
	t     *testing.T
	mu    sync.Mutex
	wires map[string]*wire // by address, of those that listen
	hosts int
}

// wire is a member's end of it. Loss, jitter and cut are of what it sends.
type wire struct {
	net     *air
	addr    netip.AddrPort
	packets chan *memberlist.Packet
	streams chan net.Conn

	mu     sync.Mutex
	rand   *rand.Rand
	loss   float64
	jitter time.Duration
	cutTo  netip.AddrPort // it loses everything to this address
	sent   atomic.Int64   // bytes in streams that it opened

	recordTo netip.AddrPort // datagrams to this address are recorded
	recorded [][]byte
}

// inAir runs a test in virtual time, on a network of its own.
func inAir(t *testing.T, test func(t *testing.T, n *air)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		// memberlist's goroutines end when a queried member does not answer in time.
		t.Cleanup(func() { time.Sleep(time.Minute) })
		test(t, &air{t: t, wires: map[string]*wire{}})
	})
}

func (n *air) config(name string, join ...*box) Config {
	n.hosts++
	at := netip.AddrPortFrom(netip.AddrFrom4([4]byte{192, 0, 2, byte(n.hosts)}), DefaultPort)
	cfg := Config{Fleet: "edge", Name: name, Bind: at, Keys: []Key{keyA}, Timing: Local}
	for _, b := range join {
		cfg.Join = append(cfg.Join, b.cfg.Bind.String())
	}
	return cfg
}

// made is a Fleet that does not run yet.
func (n *air) made(cfg Config) *box {
	n.t.Helper()
	b := made(n.t, cfg)
	w := &wire{
		net: n, addr: cfg.Bind, rand: rand.New(rand.NewPCG(uint64(n.hosts), 1)),
		packets: make(chan *memberlist.Packet, 1000), streams: make(chan net.Conn, 100),
	}
	b.wire = w
	b.hooks.connect = func(_ context.Context, address, _ string) error {
		if n.at(address) == nil {
			return syscall.ECONNREFUSED
		}
		return nil
	}
	b.hooks.configure = func(c *memberlist.Config) error {
		n.mu.Lock()
		n.wires[w.addr.String()] = w
		n.mu.Unlock()
		c.Transport = w
		return nil
	}
	return b
}

func (n *air) run(cfg Config) *box {
	n.t.Helper()
	b := n.made(cfg)
	b.start()
	return b
}

// at is who listens at an address.
func (n *air) at(address string) *wire {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.wires[address]
}

func (w *wire) FinalAdvertiseAddr(string, int) (net.IP, int, error) {
	return w.addr.Addr().AsSlice(), int(w.addr.Port()), nil
}
func (w *wire) PacketCh() <-chan *memberlist.Packet { return w.packets }
func (w *wire) StreamCh() <-chan net.Conn           { return w.streams }

func (w *wire) Shutdown() error {
	w.net.mu.Lock()
	defer w.net.mu.Unlock()
	delete(w.net.wires, w.addr.String())
	return nil
}

func (w *wire) WriteTo(b []byte, addr string) (time.Time, error) {
	return w.WriteToAddress(b, memberlist.Address{Addr: addr})
}

func (w *wire) DialTimeout(addr string, timeout time.Duration) (net.Conn, error) {
	return w.DialAddressTimeout(memberlist.Address{Addr: addr}, timeout)
}

// loses reports whether one of so many packets to an address is lost, and how long they
// take.
func (w *wire) loses(address string, packets int) (lost bool, delay time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	lost = w.cutTo.IsValid() && w.cutTo.String() == address
	for range packets {
		lost = lost || w.rand.Float64() < w.loss
	}
	return lost, time.Millisecond + time.Duration(w.rand.Int64N(int64(w.jitter)+1))
}

// cut loses everything to an address from now on; the zero AddrPort: nothing.
func (w *wire) cut(to netip.AddrPort) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.cutTo = to
}

// record records all datagrams to an address. The function returns them.
func (w *wire) record(to netip.AddrPort) func() [][]byte {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.recordTo = to
	return func() [][]byte {
		w.mu.Lock()
		defer w.mu.Unlock()
		return slices.Clone(w.recorded)
	}
}

func (w *wire) WriteToAddress(b []byte, to memberlist.Address) (time.Time, error) {
	w.mu.Lock()
	if w.recordTo.IsValid() && w.recordTo.String() == to.Addr {
		w.recorded = append(w.recorded, slices.Clone(b))
	}
	w.mu.Unlock()
	lost, delay := w.loses(to.Addr, 1)
	if lost {
		return time.Now(), nil
	}
	b = slices.Clone(b)
	time.AfterFunc(delay, func() {
		if peer := w.net.at(to.Addr); peer != nil {
			select {
			case peer.packets <- &memberlist.Packet{Buf: b, From: net.UDPAddrFromAddrPort(w.addr), Timestamp: time.Now()}:
			default: // its queue is full
			}
		}
	})
	return time.Now(), nil
}

// DialAddressTimeout loses one of three packets of a handshake; the kernel tries again
// after a second.
func (w *wire) DialAddressTimeout(to memberlist.Address, timeout time.Duration) (net.Conn, error) {
	for {
		lost, delay := w.loses(to.Addr, 3)
		if !lost {
			time.Sleep(2 * delay)
			break
		}
		time.Sleep(min(timeout, time.Second))
		if timeout -= time.Second; timeout <= 0 {
			return nil, os.ErrDeadlineExceeded
		}
	}
	peer := w.net.at(to.Addr)
	if peer == nil {
		return nil, fmt.Errorf("dial %s: %w", to.Addr, syscall.ECONNREFUSED)
	}
	one, other := net.Pipe()
	peer.streams <- pipe{other, w.addr, &peer.sent}
	return pipe{one, peer.addr, &w.sent}, nil
}

// pipe is a connection with the address of the other end.
type pipe struct {
	net.Conn
	remote netip.AddrPort
	sent   *atomic.Int64
}

func (p pipe) Write(b []byte) (int, error) {
	n, err := p.Conn.Write(b)
	p.sent.Add(int64(n))
	return n, err
}

func (p pipe) RemoteAddr() net.Addr { return net.TCPAddrFromAddrPort(p.remote) }
