package cluster

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"time"
)

// lookupTimeout is how long the name of one member may take to be looked up.
const lookupTimeout = 2 * time.Second

// advertised gives what this box tells others to reach it by. Of several addresses,
// which a load balancer has many of, it is the one that the kernel would use towards
// the first of Join: memberlist itself would take any that is private, also a VIP.
func (c Config) advertised() (netip.AddrPort, error) {
	if c.Advertise.IsValid() {
		return c.Advertise, nil
	}
	if !c.Bind.Addr().IsUnspecified() {
		return c.Bind, nil
	}
	err := errors.New("there is nobody to join")
	for _, name := range c.Join {
		own, problem := c.towards(name)
		if problem == nil {
			return netip.AddrPortFrom(own, c.Bind.Port()), nil
		}
		err = problem
	}
	return netip.AddrPort{}, fmt.Errorf("the box's own address towards other members is not known, so write it: %w", err)
}

// towards gives the box's own address towards a member. A box's own name often stands
// for 127.0.1.1 in its hosts file, which is nothing to tell others.
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
		return netip.Addr{}, fmt.Errorf("%s is this box itself, by an address that others don't reach", name)
	}
	return own.Addr().Unmap().WithZone(""), nil
}
