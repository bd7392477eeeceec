package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"weir/cmd/weirlab/internal/traffic"
	"weir/cmd/weirlab/lab"
)

// Flags of TCP.
const (
	fin    = 0x01
	syn    = 0x02
	ack    = 0x10
	synAck = syn | ack
)

// The client of rollouts has so many ports of each address. An address and port are the number of a connection.
const (
	callerPorts = 50_000
	firstCaller = 10_000
)

var callerNet = netip.MustParsePrefix("10.4.0.0/16")

// caller is the address of a connection by its number, from 0.
func caller(n int) netip.AddrPort {
	addr := callerNet.Addr().As4()
	addr[3] = byte(1 + n/callerPorts)
	return netip.AddrPortFrom(netip.AddrFrom4(addr), uint16(firstCaller+n%callerPorts))
}

// numberOf is the reverse of caller.
func numberOf(from netip.AddrPort) int {
	return int(from.Addr().As4()[3]-1)*callerPorts + int(from.Port()) - firstCaller
}

// segment is a packet of TCP without data. The box's conntrack verifies its checksums.
func segment(from, to netip.AddrPort, flags byte, seq, acked uint32) []byte {
	p := make([]byte, 40)
	copy(p, []byte{0x45, 0, 0, 40, 0, 0, 0x40, 0, 64, 6})
	a, b := from.Addr().As4(), to.Addr().As4()
	copy(p[12:], a[:])
	copy(p[16:], b[:])
	binary.BigEndian.PutUint16(p[20:], from.Port())
	binary.BigEndian.PutUint16(p[22:], to.Port())
	binary.BigEndian.PutUint32(p[24:], seq)
	binary.BigEndian.PutUint32(p[28:], acked)
	copy(p[32:], []byte{5 << 4, flags, 0xff, 0xff})
	binary.BigEndian.PutUint16(p[10:], onesComplement(0, p[:20]))
	binary.BigEndian.PutUint16(p[36:], onesComplement(6+20, p[12:])) // the addresses, the protocol, the length
	return p
}

// onesComplement is the checksum of IPv4 and TCP.
func onesComplement(sum uint32, of []byte) uint16 {
	for i := 0; i < len(of); i += 2 {
		sum += uint32(binary.BigEndian.Uint16(of[i:]))
	}
	sum = sum>>16 + sum&0xffff
	return ^uint16(sum>>16 + sum)
}

// endsOf are the addresses of a packet of TCP.
func endsOf(packet []byte) (from, to netip.AddrPort) {
	end := func(i int) netip.AddrPort {
		return netip.AddrPortFrom(netip.AddrFrom4([4]byte(packet[12+4*i:])), binary.BigEndian.Uint16(packet[20+2*i:]))
	}
	return end(0), end(1)
}

// answer is the packet with which an end goes on to open a connection, nil if there is none.
func answer(got []byte) []byte {
	if len(got) < 40 || got[0] != 0x45 || got[9] != 6 {
		return nil
	}
	from, to := endsOf(got)
	seq, acked := binary.BigEndian.Uint32(got[24:]), binary.BigEndian.Uint32(got[28:])
	switch got[33] {
	case syn:
		return segment(to, from, synAck, 0, seq+1)
	case synAck:
		return segment(to, from, ack, acked, seq+1)
	}
	return nil
}

// openEnd opens an end of connections without sockets: half a million would take gigabytes of this machine. It answers packets
// for a network, which a host forwards to a device, until that is closed.
func openEnd(ctx context.Context, m *lab.Machine, network string, answered func(packet []byte)) (tun *os.File, err error) {
	const name = "ends"
	if err := m.Do(func() (err error) { tun, err = openTUN(name); return err }); err != nil {
		return nil, err
	}
	if _, err := m.Run(ctx, "sh", "-ec", "ip link set "+name+" up; ip route replace "+network+" dev "+name+"; sysctl -qw net.ipv4.ip_forward=1"); err != nil {
		return nil, errors.Join(err, tun.Close())
	}
	go func() {
		packet := make([]byte, 1<<16)
		for {
			n, err := tun.Read(packet)
			if err != nil {
				return
			}
			if out := answer(packet[:n]); out != nil {
				_, _ = tun.Write(out) // a lost one is asked for again
				answered(packet[:n])
			}
		}
	}()
	return tun, nil
}

// closer is a server that ends its connections halfway.
type closer struct {
	addr netip.Addr
	tun  *os.File

	mu   sync.Mutex
	ends [][]byte // the packets for that
}

// note notes a connection that begins.
func (c *closer) note(packet []byte) {
	if from, to := endsOf(packet); to.Addr() == c.addr {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.ends = append(c.ends, segment(to, from, fin|ack, 1, 1))
	}
}

// closeAll ends them. It does so several times, as packets may be lost.
func (c *closer) closeAll(ctx context.Context) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	for range 3 {
		for i, p := range c.ends {
			if _, err := c.tun.Write(p); err != nil {
				return err
			}
			if i%unanswered == 0 {
				if err := traffic.Pause(ctx, 20*time.Millisecond); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// unanswered is how many connections may begin at a time: more than the queue of a device would be lost.
const unanswered = 200

// connectAll makes n connections to an address.
func connectAll(ctx context.Context, client *lab.Machine, to netip.AddrPort, n int) (stop func(), err error) {
	open, room := make([]atomic.Bool, n), make(chan struct{}, unanswered)
	tun, err := openEnd(ctx, client, callerNet.String(), func(packet []byte) {
		_, mine := endsOf(packet)
		if at := numberOf(mine); at >= 0 && at < n && !open[at].Swap(true) {
			select {
			case <-room:
			default:
			}
		}
	})
	if err != nil {
		return func() {}, err
	}
	stop = func() { _ = tun.Close() }
	for range 10 {
		missing := 0
		for i := range n {
			if open[i].Load() {
				continue
			}
			missing++
			select {
			case room <- struct{}{}:
			case <-time.After(time.Second): // packets were lost
				for len(room) > 0 {
					<-room
				}
			}
			if _, err := tun.Write(segment(caller(i), to, syn, 0, 0)); err != nil {
				return stop, err
			}
		}
		if missing == 0 {
			return stop, nil
		}
		if err := traffic.Pause(ctx, time.Second); err != nil {
			return stop, err
		}
	}
	return stop, fmt.Errorf("not all of %d connections to %s were answered", n, to)
}
