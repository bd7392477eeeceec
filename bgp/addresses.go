package bgp

import (
	"encoding/binary"
	"errors"
	"net/netip"
	"syscall"

	"golang.org/x/sys/unix"
)

// addressCache has the addresses of each interface of the box. They are read again only
// after the kernel has reported a change: a box has thousands of VIPs, and reading 10,000
// addresses takes 17 ms.
type addressCache struct {
	events     int // a netlink socket; 0: there is none
	interfaces [][]netip.Addr
	valid      bool
}

// get returns the addresses of each interface.
func (c *addressCache) get() [][]netip.Addr {
	if c.events == 0 {
		c.events = openAddressEvents()
	}
	if c.events == 0 || c.changed() || !c.valid {
		c.interfaces = interfaces()
		c.valid = c.interfaces != nil
	}
	return c.interfaces
}

// changed reports whether an address has changed since the last call. Lost notifications
// are a change, too.
func (c *addressCache) changed() bool {
	changed := false
	buf := make([]byte, 1<<15)
	for {
		_, _, err := unix.Recvfrom(c.events, buf, unix.MSG_DONTWAIT)
		switch {
		case errors.Is(err, unix.EINTR):
		case errors.Is(err, unix.EAGAIN):
			return changed
		case err != nil && !errors.Is(err, unix.ENOBUFS):
			c.close()
			return true
		default:
			changed = true
		}
	}
}

func (c *addressCache) close() {
	if c.events != 0 {
		_ = unix.Close(c.events) // it is only read
	}
	c.events, c.valid = 0, false
}

// openAddressEvents returns a socket with the kernel's notifications, or 0.
func openAddressEvents() int {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.NETLINK_ROUTE)
	if err != nil {
		return 0
	}
	if err := unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK, Groups: unix.RTMGRP_IPV4_IFADDR | unix.RTMGRP_IPV6_IFADDR}); err != nil {
		_ = unix.Close(fd)
		return 0
	}
	return fd
}

// interfaces returns the addresses of each interface. It reads all of them at once;
// net.Interfaces would read each interface by itself.
func interfaces() [][]netip.Addr {
	table, err := syscall.NetlinkRIB(syscall.RTM_GETADDR, syscall.AF_UNSPEC)
	if err != nil {
		return nil
	}
	messages, err := syscall.ParseNetlinkMessage(table)
	if err != nil {
		return nil
	}
	var out [][]netip.Addr
	at := map[uint32]int{}
	for i := range messages {
		index, addr := addrOf(&messages[i])
		if !addr.IsValid() {
			continue
		}
		if _, ok := at[index]; !ok {
			at[index] = len(out)
			out = append(out, nil)
		}
		out[at[index]] = append(out[at[index]], addr)
	}
	return out
}

// unusableFlags mark IPv6 addresses that must not be announced: not ready yet, or about to
// go.
const unusableFlags = unix.IFA_F_TENTATIVE | unix.IFA_F_DADFAILED | unix.IFA_F_DEPRECATED | unix.IFA_F_TEMPORARY

// addrOf parses an address and its interface (rtnetlink(7), RTM_NEWADDR).
func addrOf(m *syscall.NetlinkMessage) (index uint32, addr netip.Addr) {
	if m.Header.Type != syscall.RTM_NEWADDR || len(m.Data) < syscall.SizeofIfAddrmsg {
		return 0, netip.Addr{}
	}
	family, flags := m.Data[0], m.Data[2]
	if family == syscall.AF_INET6 && flags&unusableFlags != 0 {
		return 0, netip.Addr{}
	}
	attrs, err := syscall.ParseNetlinkRouteAttr(m)
	if err != nil {
		return 0, netip.Addr{}
	}
	for _, a := range attrs {
		// Of a point-to-point link, IFA_ADDRESS is the other end's.
		if a.Attr.Type == syscall.IFA_LOCAL || a.Attr.Type == syscall.IFA_ADDRESS && !addr.IsValid() {
			addr, _ = netip.AddrFromSlice(a.Value)
		}
	}
	return binary.NativeEndian.Uint32(m.Data[4:]), addr
}
