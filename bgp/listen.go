package bgp

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"syscall"
)

// listenable returns the addresses that GoBGP can listen on, and the problem with the
// others. GoBGP itself would not start if one of them failed, which would also end the
// sessions that need no listener.
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
			// The box has IPv6 switched off, and no address is configured.
		case errors.Is(err, syscall.EADDRINUSE):
			problem = fmt.Sprintf("cannot listen on %s, another program does (a CNI with BGP?): "+
				"routers that connect by themselves fail; choose another port or 0", at)
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

// mustListen reports whether routers must connect to weir.
func (p Peer) mustListen() bool { return p.Passive || p.Range.IsValid() }
