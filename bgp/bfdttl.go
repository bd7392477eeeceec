package bgp

import (
	"errors"
	"os"
	"strconv"

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
