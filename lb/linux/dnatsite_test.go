package linux

import (
	"errors"
	"net/netip"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"weir/lb"
)

// served is a service with a listener per backend, for any protocol.
func served(fe lb.Frontend, scheduler string, affinity uint32, weights ...uint32) []lb.Object {
	out := []lb.Object{
		lb.Member{Set: lb.SetIPVSIPs, Addr: fe.Addr}, lb.Address{Addr: fe.Addr},
		lb.VirtualServer{Frontend: fe, Scheduler: lb.Scheduler{Name: scheduler}, Affinity: affinity},
		lb.Member{Set: lb.SetLoadBalancer, Addr: fe.Addr, Port: fe.Port, Proto: fe.Proto},
		lb.Member{Set: lb.SetIPVSPorts, Addr: fe.Addr, Port: fe.Port, Proto: fe.Proto},
	}
	port := map[lb.Protocol]uint16{lb.TCP: 8080, lb.UDP: 5353, lb.SCTP: 9090}[fe.Proto]
	for i, w := range weights {
		out = append(out, lb.RealServer{Frontend: fe, Addr: netip.AddrPortFrom(backendAddr(fe.Addr, i+1), port), Weight: w})
	}
	return out
}

func (s *site) serveSCTP(name string) {
	s.Helper()
	s.in(name, func() {
		for _, family := range []int{unix.AF_INET, unix.AF_INET6} {
			fd, err := unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, unix.IPPROTO_SCTP)
			if err != nil {
				s.Fatal(err)
			}
			at := unix.Sockaddr(&unix.SockaddrInet4{Port: 9090})
			if family == unix.AF_INET6 {
				unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_V6ONLY, 1)
				at = &unix.SockaddrInet6{Port: 9090}
			}
			if err := unix.Bind(fd, at); err != nil {
				s.Fatal(err)
			}
			if err := unix.Listen(fd, 100); err != nil {
				s.Fatal(err)
			}
			s.Cleanup(func() { unix.Shutdown(fd, unix.SHUT_RDWR); unix.Close(fd) })
			go func() {
				for {
					c, _, err := unix.Accept(fd)
					if err != nil {
						return
					}
					unix.Write(c, []byte(name))
					unix.Close(c)
				}
			}()
		}
	})
}

// getSCTP connects and returns the name of the backend.
func (s *site) getSCTP(from string, to netip.AddrPort) (got string) {
	s.Helper()
	s.in(from, func() {
		family, at := unix.AF_INET6, unix.Sockaddr(&unix.SockaddrInet6{Port: int(to.Port()), Addr: to.Addr().As16()})
		if to.Addr().Is4() {
			family, at = unix.AF_INET, &unix.SockaddrInet4{Port: int(to.Port()), Addr: to.Addr().As4()}
		}
		fd, err := unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, unix.IPPROTO_SCTP)
		if err != nil {
			s.Fatal(err)
		}
		defer unix.Close(fd)
		// SCTP sends again what was lost after 3 s, TCP after 1 s.
		wait := unix.NsecToTimeval(int64(3 * patience))
		unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_SNDTIMEO, &wait)
		unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &wait)
		err = unix.Connect(fd, at)
		for errors.Is(err, unix.EINTR) || errors.Is(err, unix.EALREADY) { // Go's own signals
			err = unix.Connect(fd, at)
		}
		if err != nil && !errors.Is(err, unix.EISCONN) {
			got = err.Error()
			return
		}
		buf := make([]byte, 100)
		n, err := unix.Read(fd, buf)
		for errors.Is(err, unix.EINTR) {
			n, err = unix.Read(fd, buf)
		}
		if got = string(buf[:max(n, 0)]); err != nil {
			got = err.Error()
		}
	})
	return got
}

// ask1 sends a request to a service of any protocol and returns the name of the backend, or
// the error.
func (s *site) ask1(from string, fe lb.Frontend) string {
	s.Helper()
	to := netip.AddrPortFrom(fe.Addr, fe.Port)
	if fe.Proto == lb.SCTP {
		return s.getSCTP(from, to)
	}
	answer := s.get(from, fe.Proto.String(), to.String(), patience)
	if name, _, ok := strings.Cut(answer, " "); ok && strings.HasPrefix(name, "backend") {
		return name
	}
	return answer
}

func allProtocols() (out []lb.Frontend) {
	for _, vip := range []netip.Addr{vip4, vip6} {
		for _, proto := range []lb.Protocol{lb.TCP, lb.UDP, lb.SCTP} {
			out = append(out, lb.Frontend{Addr: vip, Port: 7000, Proto: proto})
		}
	}
	return out
}

func newRulesSite(t *testing.T, change ...func(*Config)) *site {
	t.Helper()
	inBox(t)
	inRulesMode(t)
	s := newSite(t, change...)
	s.serveSCTP("backend1")
	s.serveSCTP("backend2")
	return s
}
