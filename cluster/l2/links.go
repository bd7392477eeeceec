package l2

import (
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

const (
	// The kernel's notifications come in bursts; debounce collects them.
	debounce = 5 * time.Millisecond
	// inspectInterval is the interval between checks without a notification.
	inspectInterval = 5 * time.Second
)

// watch reads the state of interfaces. A notification of the kernel only starts a check,
// so a lost one does no harm.
type watch struct {
	handle *netlink.Handle
	hints  *socket
}

func openWatch() (*watch, error) {
	handle, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("open netlink socket: %w", err)
	}
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.NETLINK_ROUTE)
	if err != nil {
		handle.Close()
		return nil, fmt.Errorf("open netlink socket: %w", err)
	}
	hints, err := newSocket(fd, "netlink")
	if err != nil {
		handle.Close()
		return nil, err
	}
	w := &watch{handle, hints}
	if err := unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK, Groups: 1 << (unix.RTNLGRP_LINK - 1)}); err != nil {
		w.close()
		return nil, fmt.Errorf("listen for changes of links: %w", err)
	}
	return w, nil
}

func (w *watch) close() {
	w.handle.Close()
	_ = w.hints.close() // it is only read
}

// listen calls hint whenever interfaces may have changed, until the watch is closed.
func (w *watch) listen(hint func()) {
	buf := make([]byte, 32<<10)
	for {
		_, err := w.hints.read(buf)
		if errors.Is(err, os.ErrClosed) {
			return
		}
		time.Sleep(debounce) // also after notifications were lost
		hint()
	}
}

// inspect returns the state of an interface.
func (w *watch) inspect(name string) linkState {
	l, err := w.handle.LinkByName(name)
	if errors.As(err, &netlink.LinkNotFoundError{}) {
		return linkState{problem: "there is no interface " + name + " (ip link show)"}
	}
	if err != nil {
		return linkState{problem: fmt.Sprintf("inspect interface %s: %v", name, err)}
	}
	a := l.Attrs()
	if a.EncapType != "ether" || len(a.HardwareAddr) != len(MAC{}) {
		return linkState{problem: fmt.Sprintf("%s is not an Ethernet interface", name)}
	}
	st := linkState{index: a.Index, mac: MAC(a.HardwareAddr)}
	if master := w.masterOf(a); master != "" {
		st.index = 0
		st.problem = fmt.Sprintf("%s is a port of %s, which receives its frames: configure %[2]s instead", name, master)
		return st
	}
	switch {
	case a.RawFlags&unix.IFF_UP == 0:
		st.problem = fmt.Sprintf("%s is down (ip link set %s up)", name, name)
	case a.RawFlags&unix.IFF_NOARP != 0:
		st.problem = fmt.Sprintf("ARP is off on %s (ip link set %s arp on)", name, name)
	default:
		st.carrier = a.RawFlags&unix.IFF_RUNNING != 0
	}
	return st
}

// masterOf returns the bridge or bond that takes an interface's frames before packet
// sockets see them.
func (w *watch) masterOf(a *netlink.LinkAttrs) string {
	if a.MasterIndex == 0 {
		return ""
	}
	master, err := w.handle.LinkByIndex(a.MasterIndex)
	if err != nil {
		return ""
	}
	switch master.Type() {
	case "bridge", "bond", "team", "openvswitch":
		return master.Attrs().Name
	}
	return "" // a VRF, for one
}
