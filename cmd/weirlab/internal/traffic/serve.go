package traffic

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"
)

// ServeEcho answers every connection with a name in a line, and then gives back every byte. stop
// closes the listener and all connections.
func ServeEcho(l net.Listener, name string) (stop func()) {
	return ServeConns(l, func(c net.Conn) {
		if _, err := fmt.Fprintln(c, name); err == nil {
			_, _ = io.Copy(c, c) // until the client, or stop, has enough
		}
	})
}

// ServeConns calls do for each connection and closes it then, or when stop is called.
func ServeConns(l net.Listener, do func(net.Conn)) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	all.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			all.Go(func() {
				defer func() { _ = c.Close() }()
				defer context.AfterFunc(ctx, func() { _ = c.SetDeadline(time.Unix(1, 0)) })()
				do(c)
			})
		}
	})
	return func() {
		cancel()
		_ = l.Close()
		all.Wait()
	}
}

// ServeUDP answers every datagram with itself and a name, until the socket is closed.
func ServeUDP(c net.PacketConn, name string) {
	buf := make([]byte, 2048)
	for {
		n, from, err := c.ReadFrom(buf)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err == nil {
			_, _ = c.WriteTo(fmt.Appendf(nil, "%s %s", buf[:n], name), from)
		}
	}
}
