package bgp

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"syscall"
)

// listenable are the addresses that GoBGP can listen on, and why it can't on the
// others. GoBGP itself would refuse to start on the first one that it doesn't get,
// and take the sessions that need no listener with it.
func listenable(cfg Config) (ok []netip.AddrPort, problem string) {
	if cfg.ListenPort == 0 {
		return nil, ""
	}
	addrs, chosen := cfg.ListenAddrs, true
	if len(addrs) == 0 {
		addrs, chosen = []netip.Addr{netip.IPv4Unspecified(), netip.IPv6Unspecified()}, false
	}
	for _, a := range addrs {
		at := netip.AddrPortFrom(a, uint16(cfg.ListenPort))
		err := tryListen(at)
		switch {
		case err == nil:
			ok = append(ok, at)
		case !chosen && a.Is6() && (errors.Is(err, syscall.EAFNOSUPPORT) || errors.Is(err, syscall.EADDRNOTAVAIL)):
			// The box has IPv6 switched off, and nobody asked for it.
		case errors.Is(err, syscall.EADDRINUSE):
			problem = fmt.Sprintf("cannot listen on %s, somebody else does (does the CNI speak BGP?): "+
				"routers that connect by themselves don't get through; choose another port or 0", at)
		default:
			problem = fmt.Sprintf("cannot listen on %s: %v", at, err)
		}
	}
	return ok, problem
}

func tryListen(at netip.AddrPort) error {
	network := "tcp4"
	if at.Addr().Is6() {
		network = "tcp6"
	}
	l, err := net.Listen(network, at.String())
	if err != nil {
		return err
	}
	return l.Close()
}

// waits tells whether routers have to connect to weir for there to be a session.
func (p Peer) waits() bool { return p.Passive || p.Range.IsValid() }
