package k8ssync

import (
	"context"
	"net"
	"sync"
	"time"
)

// conns are the connections of one client. A transport closes idle ones alone, and
// one that was just cancelled is idle a moment too late.
type conns struct {
	dialer net.Dialer

	mu     sync.Mutex
	open   map[net.Conn]struct{}
	closed bool
}

func newConns(timeout, keepAlive time.Duration) *conns {
	return &conns{dialer: net.Dialer{Timeout: timeout, KeepAlive: keepAlive}, open: map[net.Conn]struct{}{}}
}

func (c *conns) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	conn, err := c.dialer.DialContext(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		conn.Close() //nolint:errcheck // nothing was written
		return nil, net.ErrClosed
	}
	one := &oneConn{conn, c}
	c.open[one] = struct{}{}
	return one, nil
}

// close ends all connections, and those that are still being made.
func (c *conns) close() {
	c.mu.Lock()
	open := c.open
	c.open, c.closed = map[net.Conn]struct{}{}, true
	c.mu.Unlock()
	for conn := range open {
		conn.Close() //nolint:errcheck // whoever used it has gone
	}
}

// oneConn is forgotten when it is closed.
type oneConn struct {
	net.Conn
	of *conns
}

func (c *oneConn) Close() error {
	c.of.mu.Lock()
	delete(c.of.open, c)
	c.of.mu.Unlock()
	return c.Conn.Close()
}
