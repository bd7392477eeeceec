package bgp

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strconv"
	"sync"

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
// Without the filter, hosts beyond the link could end sessions. So a listener that can't have
// it accepts no packets: BFD sessions stay down, and BGP sessions are as without BFD. Status
// has the reason, also if the kernel refuses even that. The next listener gets another try: that of a weir, or of a GoBGP, that
// starts again.

// ttlFilter is the state of the filter on GoBGP's listener.
type ttlFilter struct {
	attach func(fd int) error

	mu   sync.Mutex
	err  error // the reason why the listener accepts no packets
	open bool  // it accepts all: nothing could prevent that
}

func attachTTLFilter(fd int) error { return bfd.AttachTTLFilter(fd, bfd.LinkTTL) }

// install attaches the filter to each BFD listener of this process, and drops the packets that
// a listener has queued before. The caller must know that no listener closes meanwhile.
func (f *ttlFilter) install() error {
	found, open := false, false
	var errs []error
	for _, fd := range descriptors() {
		if !listensForBFD(fd) {
			continue
		}
		found = true
		if err := f.attach(fd); err != nil {
			refused := deafen(fd)
			errs = append(errs, err, refused)
			open = open || refused != nil
		}
		dropQueued(fd)
	}
	if !found {
		errs = append(errs, errors.New("no BFD listener found"))
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.err, f.open = errors.Join(errs...), open
	return f.err
}

// problem returns the problem of a peer with BFD.
func (f *ttlFilter) problem() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.err == nil {
		return ""
	}
	if f.open {
		return fmt.Sprintf("BFD accepts packets from beyond the link, because its TTL filter can't be installed: %v", f.err)
	}
	return fmt.Sprintf("BFD is off, because its TTL filter can't be installed: %v", f.err)
}

// deafen makes a UDP socket of any address accept only packets from port 9 (discard) of this
// host, which nothing sends. Without IPv6 on the loopback interface, a socket for both families
// has a route to 127.0.0.1 only.
func deafen(fd int) error {
	const discard = 9
	to := []unix.Sockaddr{&unix.SockaddrInet4{Port: discard, Addr: [4]byte{127, 0, 0, 1}}}
	if name, err := unix.Getsockname(fd); err == nil {
		if _, ok := name.(*unix.SockaddrInet6); ok {
			mapped := netip.MustParseAddr("::ffff:127.0.0.1").As16()
			to = []unix.Sockaddr{&unix.SockaddrInet6{Port: discard, Addr: [16]byte{15: 1}}, &unix.SockaddrInet6{Port: discard, Addr: mapped}}
		}
	}
	var err error
	for _, addr := range to {
		if err = unix.Connect(fd, addr); err == nil {
			return nil
		}
	}
	return fmt.Errorf("refuse all BFD packets: %w", err)
}

// maxDescriptor limits a search without /proc.
const maxDescriptor = 1 << 16

// descriptors returns the open file descriptors of this process. Without /proc it returns all
// that may be open.
func descriptors() (out []int) {
	open, err := os.ReadDir("/proc/self/fd")
	for _, e := range open {
		if fd, err := strconv.Atoi(e.Name()); err == nil {
			out = append(out, fd)
		}
	}
	if err != nil {
		out = nil
		for fd := range maxDescriptor {
			out = append(out, fd)
		}
	}
	return out
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
