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

// wants is what a link's sockets are to hear: words of its addresses (cover), the groups
// of those of IPv6.
type wants struct {
	four, six []uint32
	groups    map[netip.Addr]bool
}

// wants gathers what the seats of a link want heard.
func (l *link) wants() wants {
	w := wants{groups: map[netip.Addr]bool{}}
	for vip := range l.seats {
		if vip.Is4() {
			w.four = append(w.four, word(vip))
			continue
		}
		w.six = append(w.six, word(vip))
		w.groups[solicitedNode(vip)] = true
	}
	return w
}

// port is an interface that is spoken on. Only Run's goroutine changes it. A family has a
// socket only while there are VIPs of it: nothing is spent on IPv6 packets for IPv4 VIPs.
type port struct {
	name      string
	index     int
	four, six atomic.Pointer[socket] // nil: none
	groups    groups
	all       bool // six hears all groups
	rest      bool // follow is to be called again
	listen    func(*port, *socket, func([]byte) (message, bool))
	failed    atomic.Bool // a socket has, and is no longer read
}

// follow opens, closes and filters sockets. An error without deaf is about what would be
// heard better.
func (p *port) follow(w wants) (more, deaf bool, err error) {
	if err := p.family(&p.four, typeARP, w.four, filterARP, parseARP); err != nil {
		return false, true, err
	}
	if err := p.family(&p.six, typeIPv6, w.six, filterND, parseND); err != nil {
		return false, true, err
	}
	more, err = p.groups.follow(w.groups)
	if err != nil {
		p.hearAllGroups()
	}
	if len(w.six) > 0 && p.withoutIPv6() {
		err = fmt.Errorf("IPv6 is off on %[1]s, and what comes to IPv6 VIPs is dropped: sysctl net.ipv6.conf.%[1]s.disable_ipv6=0", p.name)
	}
	return more, false, err
}

// withoutIPv6 tells whether the kernel drops all that is IPv6 on the interface.
func (p *port) withoutIPv6() bool {
	b, err := os.ReadFile("/proc/sys/net/ipv6/conf/" + p.name + "/disable_ipv6")
	if errors.Is(err, os.ErrNotExist) {
		_, err = os.Stat("/proc/sys/net/ipv6")
		return err != nil // else it is another name of the interface's
	}
	return err == nil && strings.TrimSpace(string(b)) != "0"
}

func (p *port) family(at *atomic.Pointer[socket], protocol uint16, words []uint32, filter program, parse func([]byte) (message, bool)) error {
	s := at.Load()
	if len(words) == 0 {
		if s != nil {
			at.Store(nil)
			_ = s.close() // nothing was left to be written
		}
		return nil
	}
	code := filter(cover(words))
	if s != nil {
		return s.filter(code)
	}
	s, err := openPacket(p.index, protocol, code)
	if err != nil {
		return err
	}
	p.all = p.all && protocol != typeIPv6
	at.Store(s)
	p.listen(p, s, parse)
	return nil
}

// hearAllGroups has the interface hear all groups, as far as the switch lets them
// through. It is a second best; that it was needed is told.
func (p *port) hearAllGroups() {
	s := p.six.Load()
	if s == nil || p.all {
		return
	}
	p.all = true
	_ = s.raw.Control(func(fd uintptr) {
		_ = unix.SetsockoptPacketMreq(int(fd), unix.SOL_PACKET, unix.PACKET_ADD_MEMBERSHIP,
			&unix.PacketMreq{Ifindex: int32(p.index), Type: unix.PACKET_MR_ALLMULTI})
	})
}

func (p *port) close() {
	for _, at := range []*atomic.Pointer[socket]{&p.four, &p.six} {
		if s := at.Swap(nil); s != nil {
			_ = s.close() // here, too
		}
	}
	p.groups.close()
}

// write sends a frame if the interface takes it at once.
func (p *port) write(f frame) bool {
	s := p.four.Load()
	if f.six {
		s = p.six.Load()
	}
	return s != nil && s.write(f.data) == nil
}

// lost tells how many frames have come too fast since it was last asked.
func (p *port) lost() (n uint64) {
	for _, at := range []*atomic.Pointer[socket]{&p.four, &p.six} {
		if s := at.Load(); s != nil {
			n += uint64(s.lost())
		}
	}
	return n
}

// frames reads a socket until it is closed, or fails.
func (s *socket) frames(parse func([]byte) (message, bool), heard func(message)) error {
	buf := make([]byte, 2048)
	var b budget
	for {
		n, err := s.read(buf)
		switch {
		case errors.Is(err, os.ErrClosed):
			return nil
		case errors.Is(err, unix.ENETDOWN): // told once each time that the interface goes down
			continue
		case err != nil:
			return err
		}
		b.spend()
		if m, ok := parse(buf[:n]); ok {
			heard(m)
		}
	}
}
