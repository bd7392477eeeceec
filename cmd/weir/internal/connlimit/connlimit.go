// Package connlimit limits the open connections of a listener: with one too many it closes the oldest. It never refuses
// or delays a new connection, so that idle connections of one client do not keep others from an answer.
package connlimit

import (
	"container/list"
	"net"
	"sync"
	"sync/atomic"
)

// closed is the total of Closed.
var closed atomic.Uint64

// Closed returns how many connections of all listeners were closed for newer ones since the start of the process.
func Closed() uint64 { return closed.Load() }

// Wrap returns a listener with at most limit open connections. A client that needs milliseconds for a request is
// disturbed only by limit new connections within that time.
func Wrap(l net.Listener, limit int) net.Listener {
	return &listener{Listener: l, limit: limit}
}

type listener struct {
	net.Listener
	limit int

	mu   sync.Mutex
	open list.List // of *conn, the oldest first
}

// Accept implements net.Listener.
func (l *listener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	n := &conn{Conn: c, from: l}
	l.mu.Lock()
	n.place = l.open.PushBack(n)
	var oldest *conn
	if l.open.Len() > l.limit {
		oldest = l.open.Remove(l.open.Front()).(*conn)
		oldest.place = nil
	}
	l.mu.Unlock()
	if oldest != nil {
		closed.Add(1)
		_ = oldest.Conn.Close() // its server notices, and closes it, too
	}
	return n, nil
}

// conn is an open connection.
type conn struct {
	net.Conn
	from  *listener
	place *list.Element // in from.open; nil after its removal
}

// Close implements net.Conn.
func (c *conn) Close() error {
	c.from.mu.Lock()
	if c.place != nil {
		c.from.open.Remove(c.place)
		c.place = nil
	}
	c.from.mu.Unlock()
	return c.Conn.Close()
}
