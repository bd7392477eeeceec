package cluster

import (
	"net"
	"runtime"
	"testing"
	"time"
)

// A host that sends datagrams of another fleet makes a member allocate next to nothing.
func TestForeignDatagramsAllocateNothing(t *testing.T) {
	f, err := New(config(t, "a"), quiet())
	must(t, err)
	ports, err := listen(f.cfg, f.lines, f.caught)
	must(t, err)
	defer func() { must(t, ports.Shutdown()) }()
	udp, err := net.Dial("udp", f.cfg.Bind.String())
	must(t, err)
	defer udp.Close()
	foreign := make([]byte, 1400)
	send := func(n int) uint64 {
		refused := func() uint64 { f.mu.Lock(); defer f.mu.Unlock(); return f.table.counts.Refused }
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		end := refused() + uint64(n)
		within(t, "all are refused", func() bool {
			for range 20 {
				_, _ = udp.Write(foreign)
			}
			return refused() >= end
		})
		runtime.ReadMemStats(&after)
		return (after.TotalAlloc - before.TotalAlloc) / uint64(n)
	}
	send(100) // the first warning of the kind is logged
	if each := send(2000); each > 500 {
		t.Errorf("a foreign datagram of %d bytes allocates %d", len(foreign), each)
	}
	// A datagram of the fleet arrives behind those that were sent before, and is the only one that memberlist gets.
	arrives := func() {
		t.Helper()
		within(t, "a datagram of the fleet arrives", func() bool {
			_, _ = udp.Write(append(label[:len(label):len(label)], 'x'))
			select {
			case p := <-ports.PacketCh():
				if string(p.Buf) != string(label)+"x" || p.From.String() != udp.LocalAddr().String() {
					t.Errorf("%q from %s", p.Buf, p.From)
				}
				return true
			case <-time.After(10 * time.Millisecond):
				return false
			}
		})
	}
	arrives()
	before := f.Status().Counters.Refused
	_, _ = udp.Write(nil) // as a program does that only tries the port
	arrives()
	if n := f.Status().Counters.Refused; n != before {
		t.Errorf("%d empty datagrams are refused", n-before)
	}
}

// After Shutdown the port is free, and goroutines that wait for memberlist have ended.
func TestPortsAreFreeAfterShutdown(t *testing.T) {
	t.Parallel()
	f, err := New(config(t, "a"), quiet())
	must(t, err)
	for range 3 {
		ports, err := listen(f.cfg, f.lines, f.caught)
		must(t, err)
		c, err := net.Dial("tcp", f.cfg.Bind.String())
		must(t, err)
		udp, err := net.Dial("udp", f.cfg.Bind.String())
		must(t, err)
		_, _ = udp.Write(label)
		_, _ = udp.Write(label)
		must(t, ports.Shutdown())
		_, _, _ = c.Close(), udp.Close(), ports.Shutdown()
	}
	ports, err := listen(f.cfg, f.lines, f.caught)
	must(t, err)
	must(t, ports.Shutdown())
}

// A host that opens connections and leaves them idle takes no more than a part of the box's memory, and keeps no member
// from being read.
func TestIdleConnectionsEndForNewOnes(t *testing.T) {
	t.Parallel()
	f, err := New(config(t, "a"), quiet())
	must(t, err)
	ports, err := listen(f.cfg, f.lines, f.caught)
	must(t, err)
	defer func() { must(t, ports.Shutdown()) }()
	var accepted []net.Conn
	for range maxStreams + 2 {
		c, err := net.Dial("tcp", f.cfg.Bind.String())
		must(t, err)
		defer c.Close()
		accepted = append(accepted, <-ports.StreamCh())
		if len(accepted) == 2 {
			must(t, accepted[1].Close()) // it makes room
		}
	}
	for i, want := range map[int]bool{0: false, 2: true, maxStreams + 1: true} {
		if err := accepted[i].SetDeadline(time.Now().Add(time.Second)); (err == nil) != want {
			t.Errorf("connection %d: %v, open: want %t", i, err, want)
		}
	}
}
