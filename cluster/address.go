package cluster

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"time"
)

// lookupTimeout is the time for the lookup of a member's name.
const lookupTimeout = 2 * time.Second

// advertised returns the address at which other members reach this box. Of several
// addresses, and a load balancer has many, it is the one that the kernel uses towards the
// first host of Join: memberlist itself would take any private one, also a VIP.
func (c Config) advertised() (netip.AddrPort, error) {
	if c.Advertise.IsValid() {
		return c.Advertise, nil
	}
	if !c.Bind.Addr().IsUnspecified() {
		return c.Bind, nil
	}
	err := errors.New("there is no member to join")
	for _, name := range c.Join {
		own, problem := c.towards(name)
		if problem == nil {
			return netip.AddrPortFrom(own, c.Bind.Port()), nil
		}
		err = problem
	}
	return netip.AddrPort{}, fmt.Errorf("cannot find the address of this box towards other members, so configure it: %w", err)
}

// towards returns the own address towards a member. The hosts file of a box often maps its
// own name to 127.0.1.1, which other members cannot use.
func (c Config) towards(name string) (netip.Addr, error) {
	host, port, err := net.SplitHostPort(name)
	if err != nil {
		host, port = name, strconv.Itoa(int(c.Bind.Port()))
	}
	network := "udp"
	if c.Bind.Addr().Is4() {
		network = "udp4"
	}
	conn, err := (&net.Dialer{Timeout: lookupTimeout}).Dial(network, net.JoinHostPort(host, port)) // sends nothing
	if err != nil {
		return netip.Addr{}, err
	}
	defer func() { _ = conn.Close() }()
	own, err := netip.ParseAddrPort(conn.LocalAddr().String())
	if err != nil {
		return netip.Addr{}, err
	}
	if _, literal := netip.ParseAddr(host); own.Addr().IsLoopback() && literal != nil {
		return netip.Addr{}, fmt.Errorf("%s is a loopback address of this box", name)
	}
	return own.Addr().Unmap().WithZone(""), nil
}
