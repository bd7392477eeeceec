package bgp

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"weir/lb/health/bfd"
)

// GoBGP does not check the TTL of BFD packets, which proves that they come from the link
// (RFC 5881, 5). The kernel has no option for it either: IP_MINTTL is for TCP. So a filter
// on GoBGP's socket drops all packets with another TTL. Rules of iptables would need
// module xt_hl: without it the kernel refuses the whole table.
//
// GoBGP logs that it listens after it has bound the socket and before it reads. The filter
// is attached at that moment (logHandler).
//
// BFD without the filter would let hosts beyond the link end sessions. So GoBGP has no BFD
// sessions while the filter can't be installed. The BGP sessions stay, and Status has the
// reason. A probe finds most causes before GoBGP listens, and is repeated. If the listener
// refuses the filter nevertheless, packets are accepted for the milliseconds until the next
// poll, and BFD stays off: each try could make the routers end their sessions.

// ttlFilter is the state of the filter on GoBGP's listener.
type ttlFilter struct {
	attach     func() error // to the listener
	probe      func() error // reports whether attach can work
	retryAfter time.Duration

	mu     sync.Mutex
	err    error // the reason why GoBGP must have no BFD sessions
	failed time.Time
	final  bool // the listener has refused the filter: no other try before GoBGP is started again
}

// ttlRetryAfter is the pause before another probe. The filter of the listener is tried
// attachTries times, while GoBGP waits.
const (
	ttlRetryAfter = time.Minute
	attachTries   = 5
	attachPause   = 20 * time.Millisecond
)

// install attaches the filter to the listener.
func (f *ttlFilter) install() error {
	var err error
	for range attachTries {
		if err = f.attach(); err == nil {
			return nil
		}
		time.Sleep(attachPause)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.err, f.final = err, true
	return err
}

func (f *ttlFilter) failure() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.err
}

// retry probes whether the filter works now.
func (f *ttlFilter) retry() {
	err := f.probe()
	f.mu.Lock()
	defer f.mu.Unlock()
	f.err, f.failed, f.final = err, time.Now(), false
}

// retryIfDue is retry after the pause that follows a failure.
func (f *ttlFilter) retryIfDue(now time.Time) {
	f.mu.Lock()
	due := f.err != nil && !f.final && now.Sub(f.failed) >= f.retryAfter
	f.mu.Unlock()
	if due {
		f.retry()
	}
}

// problem returns the problem of a peer with BFD.
func (f *ttlFilter) problem() string {
	if err := f.failure(); err != nil {
		return fmt.Sprintf("BFD is switched off, because its TTL filter can't be installed: %v", err)
	}
	return ""
}

// probeBFDTTL reports whether a socket can have the filter, and whether this process can
// find its sockets.
func probeBFDTTL() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open a socket: %w", err)
	}
	defer unix.Close(fd)
	if err := bfd.AttachTTLFilter(fd, bfd.LinkTTL); err != nil {
		return err
	}
	_, err = os.Stat("/proc/self/fd/" + strconv.Itoa(fd))
	return err
}

// checkBFDTTL attaches the filter to each BFD listener of this process, and drops the
// packets that a listener has queued before. The caller must know that no listener closes
// meanwhile.
func checkBFDTTL() error {
	open, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return err
	}
	found := false
	for _, e := range open {
		fd, err := strconv.Atoi(e.Name())
		if err != nil || !listensForBFD(fd) {
			continue
		}
		found = true
		if err := bfd.AttachTTLFilter(fd, bfd.LinkTTL); err != nil {
			return err
		}
		dropQueued(fd)
	}
	if !found {
		return errors.New("no BFD listener found")
	}
	return nil
}

// listensForBFD reports whether fd is a UDP socket with BFD's port on all addresses.
func listensForBFD(fd int) bool {
	if proto, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_PROTOCOL); err != nil || proto != unix.IPPROTO_UDP {
		return false
	}
	name, err := unix.Getsockname(fd)
	if err != nil {
		return false
	}
	switch a := name.(type) {
	case *unix.SockaddrInet4:
		return a.Port == bfd.Port && a.Addr == [4]byte{}
	case *unix.SockaddrInet6:
		return a.Port == bfd.Port && a.Addr == [16]byte{}
	}
	return false
}

// maxQueued is above the number of packets in a default receive buffer. Packets that come
// meanwhile have passed the filter.
const maxQueued = 10000

func dropQueued(fd int) {
	var buf [1]byte
	for range maxQueued {
		_, _, err := unix.Recvfrom(fd, buf[:], unix.MSG_DONTWAIT)
		if err != nil && !errors.Is(err, unix.EINTR) {
			return // the queue is empty
		}
	}
}
