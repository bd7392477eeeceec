package l2

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strings"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// interest is what the sockets of a link must receive: the words of its addresses (cover),
// and the groups of the IPv6 ones.
type interest struct {
	four, six []uint32
	groups    map[netip.Addr]bool
}

// interest returns what the bindings of a link need.
func (l *link) interest() interest {
	w := interest{groups: map[netip.Addr]bool{}}
	for vip := range l.bindings {
		if vip.Is4() {
			w.four = append(w.four, filterWord(vip))
			continue
		}
		w.six = append(w.six, filterWord(vip))
		w.groups[solicitedNode(vip)] = true
	}
	return w
}

// port has the sockets of an interface. Only the goroutine of Run changes it. A family has
// a socket only while it has VIPs, so IPv6 packets cost nothing for IPv4 VIPs.
type port struct {
	name         string
	index        int
	four, six    atomic.Pointer[socket] // nil: there is none
	groups       groups
	allMulticast bool // six receives all groups
	incomplete   bool // follow must be called again soon
	listen       func(*port, *socket, func([]byte) (message, bool))
	failed       atomic.Bool   // a socket has failed and is no longer read
	panics       atomic.Uint64 // frames dropped since the last call of lost, each after a panic
}

// follow opens, closes and filters sockets. An error without closed is about frames that
// may be missed.
func (p *port) follow(w interest) (more, deaf bool, err error) {
	if err := p.family(&p.four, typeARP, w.four, filterARP, parseARP); err != nil {
		return false, true, err
	}
	if err := p.family(&p.six, typeIPv6, w.six, filterND, parseND); err != nil {
		return false, true, err
	}
	more, err = p.groups.follow(w.groups)
	if err != nil {
		p.receiveAllMulticast()
	}
	if len(w.six) > 0 && p.withoutIPv6() {
		err = fmt.Errorf("IPv6 is off on %[1]s, and what comes to IPv6 VIPs is dropped: sysctl net.ipv6.conf.%[1]s.disable_ipv6=0", p.name)
	}
	return more, false, err
}

// withoutIPv6 reports whether the kernel drops all IPv6 packets on the interface.
func (p *port) withoutIPv6() bool {
	b, err := os.ReadFile("/proc/sys/net/ipv6/conf/" + p.name + "/disable_ipv6")
	if errors.Is(err, os.ErrNotExist) {
		_, err = os.Stat("/proc/sys/net/ipv6")
		return err != nil // otherwise the interface has another name
	}
	return err == nil && strings.TrimSpace(string(b)) != "0"
}

func (p *port) family(at *atomic.Pointer[socket], protocol uint16, words []uint32, filter program, parse func([]byte) (message, bool)) error {
	s := at.Load()
	if len(words) == 0 {
		if s != nil {
			at.Store(nil)
			_ = s.close() // no frame is pending
		}
		return nil
	}
	code := append(arrivedOn(p.index), filter(cover(words))...)
	if s != nil {
		return s.filter(code)
	}
	s, err := openPacket(p.index, protocol, code)
	if err != nil {
		return err
	}
	p.allMulticast = p.allMulticast && protocol != typeIPv6
	at.Store(s)
	p.listen(p, s, parse)
	return nil
}

// receiveAllMulticast makes the interface receive all multicast groups, as far as the
// switch forwards them: a second best. Interface.Error has the reason.
func (p *port) receiveAllMulticast() {
	s := p.six.Load()
	if s == nil || p.allMulticast {
		return
	}
	p.allMulticast = true
	_ = s.raw.Control(func(fd uintptr) {
		_ = unix.SetsockoptPacketMreq(int(fd), unix.SOL_PACKET, unix.PACKET_ADD_MEMBERSHIP,
			&unix.PacketMreq{Ifindex: int32(p.index), Type: unix.PACKET_MR_ALLMULTI})
	})
}

func (p *port) close() {
	for _, at := range []*atomic.Pointer[socket]{&p.four, &p.six} {
		if s := at.Swap(nil); s != nil {
			_ = s.close() // no frame is pending
		}
	}
	p.groups.close()
}

// write sends a frame if the interface accepts it at once.
func (p *port) write(f frame) bool {
	s := p.four.Load()
	if f.six {
		s = p.six.Load()
	}
	return s != nil && s.write(f.data) == nil
}

// lost returns the number of frames dropped since the last call.
func (p *port) lost() (n uint64) {
	n = p.panics.Swap(0)
	for _, at := range []*atomic.Pointer[socket]{&p.four, &p.six} {
		if s := at.Load(); s != nil {
			n += uint64(s.lost())
		}
	}
	return n
}

// frames reads a socket until it is closed or fails.
func (s *socket) frames(handle func(frame []byte)) error {
	buf := make([]byte, 2048)
	var b budget
	for {
		n, err := s.read(buf)
		switch {
		case errors.Is(err, os.ErrClosed):
			return nil
		case errors.Is(err, unix.ENETDOWN): // reported once each time that the interface goes down
			continue
		case err != nil:
			return err
		}
		b.spend()
		handle(buf[:n])
	}
}
