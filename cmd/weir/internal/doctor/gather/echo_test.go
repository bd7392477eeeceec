package gather

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net/netip"
	"os"
	"runtime"
	"sync/atomic"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"weir/cmd/weir/internal/doctor/facts"
)

// A router before a narrow link refuses large packets with an ICMP error, which senders receive, too: only
// without it are they lost. The kernel reports it to a raw socket.
func TestNarrowPathsOfTheKernel(t *testing.T) {
	t.Parallel()
	done := make(chan error)
	go func() {
		defer close(done)
		runtime.LockOSThread() // and it ends with the thread, which keeps the namespace
		tun, err := openTUN("path")
		if err != nil {
			done <- err
			return
		}
		defer tun.Close()
		path := &narrow{tun: tun}
		go path.serve()
		for _, to := range []string{"10.9.0.2", "fd09::2"} {
			for _, silent := range []bool{false, true} {
				path.silent.Store(silent)
				w := facts.Way{Backend: netip.MustParseAddr(to), MTU: 1500}
				echoes(t.Context(), &w)
				if !w.Probed || !w.Small || w.Large == silent {
					t.Errorf("%s, ICMP errors %v: probed %v, small %v, large %v", to, !silent, w.Probed, w.Small, w.Large)
				}
			}
		}
	}()
	if err := <-done; err != nil {
		t.Skipf("SKIPPED: no namespace with a network device of this process: %v", err)
	}
}

// openTUN makes a namespace for the thread, with one device to 10.9.0.0/24 and fd09::/64. The
// packets to it can be read.
func openTUN(name string) (*os.File, error) {
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		return nil, err
	}
	fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	request, err := unix.NewIfreq(name)
	if err != nil {
		return nil, err
	}
	request.SetUint16(unix.IFF_TUN | unix.IFF_NO_PI)
	if err := unix.IoctlIfreq(fd, unix.TUNSETIFF, request); err != nil {
		return nil, fmt.Errorf("%w, %w", err, unix.Close(fd))
	}
	tun := os.NewFile(uintptr(fd), name)
	link, err := netlink.LinkByName(name)
	if err != nil {
		return nil, err
	}
	for _, a := range []string{"10.9.0.1/24", "fd09::1/64"} {
		addr, err := netlink.ParseAddr(a)
		if err != nil {
			return nil, err
		}
		addr.Flags = unix.IFA_F_NODAD
		if err := netlink.AddrAdd(link, addr); err != nil {
			return nil, err
		}
	}
	return tun, netlink.LinkSetUp(link)
}

// narrow is a path that carries no large packets, and its other end.
type narrow struct {
	tun    *os.File
	silent atomic.Bool // it sends no ICMP errors
}

// narrowMTU is the largest packet on that path.
const narrowMTU = 1400

func (n *narrow) serve() {
	buf := make([]byte, largestToProbe)
	for {
		size, err := n.tun.Read(buf)
		if err != nil {
			return
		}
		if out := n.answer(bytes.Clone(buf[:size])); out != nil {
			_, _ = n.tun.Write(out) // a lost one is requested again
		}
	}
}

// answer gives the reply to an echo request or the error about its size, nil if there is none.
func (n *narrow) answer(p []byte) []byte {
	v6 := p[0]>>4 == 6
	head, from, to, request := 20, p[12:16], p[16:20], byte(echo4)
	if v6 {
		head, from, to, request = 40, p[8:24], p[24:40], echo6
	}
	if len(p) <= head || p[head] != request || len(p) > narrowMTU && n.silent.Load() {
		return nil
	}
	message := p[head:]
	switch {
	case len(p) > narrowMTU && v6: // RFC 4443, 3.2
		message = append([]byte{2, 0, 0, 0, 0, 0, 0, 0}, p[:1000]...)
		binary.BigEndian.PutUint32(message[4:], narrowMTU)
	case len(p) > narrowMTU: // RFC 1191, 4
		message = append([]byte{3, 4, 0, 0, 0, 0, 0, 0}, p[:head+8]...)
		binary.BigEndian.PutUint16(message[6:], narrowMTU)
	case v6:
		message[0] = 129
	default:
		message[0] = 0
	}
	message[2], message[3] = 0, 0
	out := bytes.Clone(p[:head])
	if v6 {
		copy(out[8:], to)
		copy(out[24:], from)
		binary.BigEndian.PutUint16(out[4:], uint16(len(message)))
		pseudo := append(bytes.Clone(out[8:40]), 0, 0, byte(len(message)>>8), byte(len(message)), 0, 0, 0, 58)
		binary.BigEndian.PutUint16(message[2:], checksum(append(pseudo, message...)))
		return append(out, message...)
	}
	copy(out[12:], to)
	copy(out[16:], from)
	binary.BigEndian.PutUint16(out[2:], uint16(head+len(message)))
	out[10], out[11] = 0, 0
	binary.BigEndian.PutUint16(out[10:], checksum(out))
	binary.BigEndian.PutUint16(message[2:], checksum(message))
	return append(out, message...)
}
