package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"weir/cmd/weirlab/internal/traffic"
	"weir/cmd/weirlab/lab"
)

// The numbers of clients at a time.
const (
	connectClients = 16
	bulkClients    = 8
)

// exchanges are connections over which a client sends some bytes, and then gets some.
type exchanges struct{ count, up, down int }

// The client's addresses and ports. No port is used twice: the box has a state of a connection for minutes.
const (
	sourceNet    = "10.1.0.128/26"
	firstOwnPort = 20_000
	portsOf      = 40_000
)

// nextSource is an address and port of the client that no connection had.
func (b *forwardBench) nextSource() *net.TCPAddr {
	n := int(b.used.Add(1))
	return &net.TCPAddr{IP: net.IPv4(10, 1, 0, byte(128+n/portsOf)), Port: firstOwnPort + n%portsOf}
}

// load is what some exchanges took of the box.
type load struct {
	exchanges
	took time.Duration
	counted
}

func (l load) rate() float64       { return float64(l.count) / l.took.Seconds() }
func (l load) packetRate() float64 { return float64(l.packets) / l.took.Seconds() }
func (l load) byteRate() float64   { return float64(l.bytes) / l.took.Seconds() }

// each is the processor time for one connection.
func (l load) each() time.Duration { return l.cpu / time.Duration(l.count) }

// megabytes is what clients sent or got, whichever is more.
func (l load) megabytes() float64 { return float64(l.count*max(l.up, l.down)) / 1e6 }

// perMB is the processor time for a megabyte of the clients'.
func (l load) perMB() time.Duration { return time.Duration(float64(l.cpu) / l.megabytes()) }

// bytesPerMB are the bytes through the box for a megabyte of the clients'.
func (l load) bytesPerMB() int { return int(float64(l.bytes) / l.megabytes()) }

func (l load) String() string {
	return fmt.Sprintf("%d connections of %d and %d bytes in %s; the box: %d packets, %d bytes, %s", l.count, l.up, l.down, span(l.took), l.packets, l.bytes, span(l.cpu))
}

// run has clients make exchanges with all addresses by turns.
func (b *forwardBench) run(ctx context.Context, e exchanges, addrs []string) (load, error) {
	before, err := b.counters(ctx)
	if err != nil {
		return load{}, err
	}
	var next atomic.Int64
	begin := time.Now()
	failed := lab.SideBySide(min(connectClients, e.count), func(int) error {
		return b.site.Host("client").Do(func() error {
			for {
				i := int(next.Add(1)) - 1
				if i >= e.count {
					return nil
				}
				if err := e.one(ctx, b.nextSource(), addrs[i%len(addrs)]); err != nil {
					return fmt.Errorf("connection %d to %s: %w", i, addrs[i%len(addrs)], err)
				}
			}
		})
	})
	took := time.Since(begin)
	after, err := b.counters(ctx)
	used := counted{after.packets - before.packets, after.bytes - before.bytes, after.cpu - before.cpu}
	return load{e, took, used}, errors.Join(failed, err)
}

// one is an exchange. It ends with a reset, so that no timer of TCP has a part in it.
func (e exchanges) one(ctx context.Context, from *net.TCPAddr, addr string) error {
	dialer := net.Dialer{Timeout: 10 * time.Second, LocalAddr: from}
	c, err := dialer.DialContext(ctx, "tcp4", addr)
	if err != nil {
		return err
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(longEnough))
	request := make([]byte, 8+e.up)
	binary.BigEndian.PutUint32(request, uint32(e.up))
	binary.BigEndian.PutUint32(request[4:], uint32(e.down))
	if _, err := c.Write(request); err != nil {
		return err
	}
	if _, err := io.CopyN(io.Discard, c, int64(e.down)); err != nil {
		return err
	}
	return c.(*net.TCPConn).SetLinger(0)
}

// exchange serves the other side of a connection.
func exchange(c net.Conn) {
	var sizes [8]byte
	if _, err := io.ReadFull(c, sizes[:]); err != nil {
		return
	}
	if _, err := io.CopyN(io.Discard, c, int64(binary.BigEndian.Uint32(sizes[:]))); err != nil {
		return
	}
	_, _ = c.Write(make([]byte, binary.BigEndian.Uint32(sizes[4:])))
	_, _ = c.Read(sizes[:]) // until the client ends it
}

// serve has both servers serve, the one with all VIPs behind tunnels, too.
func (b *forwardBench) serve(ctx context.Context) (stop func(), err error) {
	var stops []func()
	stop = func() {
		for _, stop := range stops {
			stop()
		}
	}
	for _, host := range []string{"web", serverHost} {
		l, err := b.site.Host(host).Listen("tcp4", ":80")
		if err != nil {
			stop()
			return nil, err
		}
		stops = append(stops, traffic.ServeConns(l, exchange))
	}
	if err = b.wire(ctx); err == nil {
		var end io.Closer
		if end, err = endTunnels(ctx, b.site.Host(serverHost)); err == nil {
			stops = append(stops, func() { _ = end.Close() })
		}
	}
	if err != nil {
		stop()
	}
	return stop, err
}

// wire has the client have its addresses, and hosts send packets as a cable carries them: 1,500 bytes at most.
func (b *forwardBench) wire(ctx context.Context) error {
	_, err := b.home.sh(ctx, "sysctl -qw net.netfilter.nf_conntrack_max=262144")
	for host, script := range map[string]string{
		"client":   "ip route replace local " + sourceNet + " dev front; ip link set front gso_max_segs 1",
		"web":      "ip link set back gso_max_segs 1",
		serverHost: "ip link set back gso_max_segs 1",
	} {
		_, failed := b.site.Host(host).Run(ctx, "sh", "-ec", script)
		err = errors.Join(err, failed)
	}
	return err
}

// endTunnels makes all VIPs local addresses of a host, and ends IP-in-IP tunnels there. The kernel of this machine has
// no such tunnels: a socket gets their packets, and a device of packets (tun) gets the inner ones.
func endTunnels(ctx context.Context, m *lab.Machine) (io.Closer, error) {
	var outer net.PacketConn
	var inner *os.File
	err := m.Do(func() (err error) {
		if outer, err = net.ListenPacket("ip4:4", serverAddr); err != nil {
			return err
		}
		inner, err = openTUN("inner")
		return err
	})
	if err == nil {
		_, err = m.Run(ctx, "sh", "-ec", "ip route replace local "+pool+" dev lo; ip link set inner up; sysctl -qw net.ipv4.conf.all.rp_filter=0 net.ipv4.conf.inner.rp_filter=0")
	}
	if err != nil {
		return nil, fmt.Errorf("end tunnels: %w", err)
	}
	go func() {
		defer inner.Close()
		packet := make([]byte, 1<<16)
		for {
			n, _, err := outer.ReadFrom(packet)
			if err != nil {
				return
			}
			_, _ = inner.Write(packet[:n]) // TCP sends again what is lost
		}
	}()
	return outer, nil
}

// openTUN makes a device that exists as long as it is open. Closing it ends a read.
func openTUN(name string) (*os.File, error) {
	fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	request, err := unix.NewIfreq(name)
	if err == nil {
		request.SetUint16(unix.IFF_TUN | unix.IFF_NO_PI)
		err = unix.IoctlIfreq(fd, unix.TUNSETIFF, request)
	}
	if err != nil {
		return nil, errors.Join(err, unix.Close(fd))
	}
	return os.NewFile(uintptr(fd), name), nil
}
