package daemon

import (
	"log/slog"
	"net"
	"net/netip"
	"testing"

	"weir/cmd/weir/internal/kube"
)

// posing makes a listener look as if it were on another port: tests that run beside each other need ports of their own.
type posing struct {
	net.Listener
	port uint16
}

func (p posing) Accept() (net.Conn, error) {
	c, err := p.Listener.Accept()
	return posingConn{c, p.port}, err
}

type posingConn struct {
	net.Conn
	port uint16
}

func (c posingConn) LocalAddr() net.Addr { return &net.TCPAddr{Port: int(c.port)} }

var loopback = []netip.Addr{netip.MustParseAddr("127.0.0.1")}

// localPorts returns HealthPorts of a healthy box, and where each port really listens.
func localPorts(t *testing.T) (*kube.HealthPorts, map[uint16]string) {
	addrs := map[uint16]string{}
	p := kube.NewHealthPorts(slog.New(slog.DiscardHandler), func() bool { return true })
	p.Listen = func(at netip.AddrPort) (net.Listener, error) {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		addrs[at.Port()] = l.Addr().String()
		return posing{l, at.Port()}, nil
	}
	t.Cleanup(p.Close)
	return p, addrs
}
