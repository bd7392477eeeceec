package l2

import (
	"errors"
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"
)

const (
	// maxGroups bounds the groups joined on an interface. VIPs with the same last three
	// bytes share a group.
	maxGroups = 4096
	// groupsEach are joined with one socket: the kernel bounds what options of a socket
	// may take (net.core.optmem_max, 20 kB on older kernels).
	groupsEach = 256
	// groupsAtOnce are joined before other work is done.
	groupsAtOnce = 256
)

// groups are the solicited-node groups that an interface has joined. The kernel reports
// them to switches by MLD; without that a switch may not forward solicitations to this
// port.
type groups struct {
	index   int
	members []groupSocket
	joined  map[netip.Addr]int // in members
}

type groupSocket struct {
	socket *socket
	size   int
}

// follow joins the wanted groups and leaves all others. more is true if it must be called
// again soon. The error is about groups that cannot be joined.
func (g *groups) follow(wanted map[netip.Addr]bool) (more bool, err error) {
	for group, at := range g.joined {
		if !wanted[group] {
			g.leave(group, at)
		}
	}
	if len(wanted) > maxGroups {
		err = fmt.Errorf("%d groups of IPv6 VIPs, and no more than %d are joined: switches that snoop MLD may keep "+
			"solicitations of the others from this box: have them not snoop MLD", len(wanted), maxGroups)
	}
	did := 0
	for group := range wanted {
		if _, in := g.joined[group]; in || len(g.joined) >= maxGroups {
			continue
		}
		if did++; did > groupsAtOnce {
			return true, err
		}
		if joinErr := g.join(group); joinErr != nil {
			return false, fmt.Errorf("join %s: %w: switches that snoop MLD may keep solicitations from this box", group, joinErr)
		}
	}
	return false, err
}

func (g *groups) join(group netip.Addr) error {
	at := 0
	for at < len(g.members) && g.members[at].size >= groupsEach {
		at++
	}
	if at == len(g.members) {
		fd, err := unix.Socket(unix.AF_INET6, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
		if err != nil {
			return err
		}
		s, err := newSocket(fd, "groups")
		if err != nil {
			return err
		}
		g.members = append(g.members, groupSocket{socket: s})
	}
	if err := g.change(at, group, unix.IPV6_JOIN_GROUP); err != nil {
		return err
	}
	if g.joined == nil {
		g.joined = map[netip.Addr]int{}
	}
	g.joined[group] = at
	g.members[at].size++
	return nil
}

// leave can fail only where the interface has gone, and the membership with it.
func (g *groups) leave(group netip.Addr, at int) {
	_ = g.change(at, group, unix.IPV6_LEAVE_GROUP)
	delete(g.joined, group)
	g.members[at].size--
}

func (g *groups) change(at int, group netip.Addr, option int) error {
	var err error
	ctlErr := g.members[at].socket.raw.Control(func(fd uintptr) {
		err = unix.SetsockoptIPv6Mreq(int(fd), unix.IPPROTO_IPV6, option,
			&unix.IPv6Mreq{Multiaddr: group.As16(), Interface: uint32(g.index)})
	})
	return errors.Join(ctlErr, err)
}

func (g *groups) close() {
	for _, m := range g.members {
		_ = m.socket.close() // which leaves
	}
	g.members, g.joined = nil, nil
}
