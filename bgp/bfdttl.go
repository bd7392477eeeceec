package bgp

import (
	"errors"
	"fmt"
	"os"
	"strconv"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// GoBGP does not check the TTL of BFD packets, which proves that they come from the link
// (RFC 5881, 5). The kernel has no option for it either: IP_MINTTL is for TCP. So a filter
// on GoBGP's socket drops all packets with another TTL. Rules of iptables would need
// module xt_hl: without it the kernel refuses the whole table.
//
// GoBGP logs that it listens after it has bound the socket and before it reads. The filter
// is attached at that moment (logHandler).

// networkHeader is the offset of the IP header for a filter of a UDP socket, which begins
// at the UDP header (SKF_NET_OFF).
const networkHeader = 0xfff00000

// Offsets in the IP headers.
const (
	offsetTTL      = 8 // IPv4
	offsetHopLimit = 7 // IPv6
)

var bfdTTLFilter = []bpf.Instruction{
	bpf.LoadAbsolute{Off: networkHeader, Size: 1},
	bpf.ALUOpConstant{Op: bpf.ALUOpShiftRight, Val: 4}, // the version
	bpf.JumpIf{Cond: bpf.JumpEqual, Val: 4, SkipFalse: 2},
	bpf.LoadAbsolute{Off: networkHeader + offsetTTL, Size: 1},
	bpf.Jump{Skip: 1},
	bpf.LoadAbsolute{Off: networkHeader + offsetHopLimit, Size: 1},
	bpf.JumpIf{Cond: bpf.JumpEqual, Val: 255, SkipTrue: 1},
	bpf.RetConstant{Val: 0},
	bpf.RetConstant{Val: 1 << 16},
}

// checkBFDTTL attaches the filter to each BFD listener of this process, and drops the
// packets that a listener has queued before. The caller must know that no listener closes
// meanwhile.
func checkBFDTTL() error {
	raw, err := bpf.Assemble(bfdTTLFilter)
	if err != nil {
		return err
	}
	code := make([]unix.SockFilter, len(raw))
	for i, r := range raw {
		code[i] = unix.SockFilter{Code: r.Op, Jt: r.Jt, Jf: r.Jf, K: r.K}
	}
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
		program := unix.SockFprog{Len: uint16(len(code)), Filter: &code[0]}
		if err := unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &program); err != nil {
			return fmt.Errorf("attach the filter: %w", err)
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
		return a.Port == bfdPort && a.Addr == [4]byte{}
	case *unix.SockaddrInet6:
		return a.Port == bfdPort && a.Addr == [16]byte{}
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
