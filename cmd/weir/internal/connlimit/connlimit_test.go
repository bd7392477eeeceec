package connlimit

import (
	"errors"
	"io"
	"net"
	"testing"
	"time"
)

// A new connection closes the oldest; those that ended by themselves do not count.
func TestTheOldestIsClosed(t *testing.T) {
	t.Parallel()
	const limit = 3
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := Wrap(inner, limit)
	defer l.Close()
	pair := func() (client, server net.Conn) {
		t.Helper()
		client, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = client.Close() })
		if server, err = l.Accept(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = server.Close() })
		return client, server
	}
	over := func(c net.Conn) bool {
		_ = c.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
		_, err := c.Read(make([]byte, 1))
		return errors.Is(err, io.EOF)
	}
	before := Closed()
	var clients []net.Conn
	for range limit {
		c, _ := pair()
		clients = append(clients, c)
	}
	if _, server := pair(); !over(clients[0]) || over(clients[1]) {
		t.Errorf("with one more than %d not only the oldest is closed", limit)
	} else if err := server.Close(); err != nil {
		t.Error(err)
	}
	if pair(); over(clients[1]) {
		t.Error("a connection was closed although another one had ended")
	}
	if got := Closed() - before; got != 1 {
		t.Errorf("%d were closed, want 1", got)
	}
}
