package daemon

import (
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"
)

// from is a connection that says where it comes from.
type from struct {
	net.Conn
	at     string
	closed bool
}

func (c *from) RemoteAddr() net.Addr {
	at, _ := net.ResolveTCPAddr("tcp", c.at)
	return at
}

func (c *from) Close() error { c.closed = true; return nil }

func TestConnLimitLeavesRoomForOthers(t *testing.T) {
	l := newConnLimit(5, 3)
	opened := func(at string) *from {
		c := &from{at: at}
		l.state(c, http.StateNew)
		return c
	}
	var one []*from
	for range 10 {
		one = append(one, opened("192.0.2.1:4000"))
	}
	for i, c := range one {
		if c.closed != (i >= 3) {
			t.Errorf("connection %d of one address: closed %v", i, c.closed)
		}
	}
	if opened("[::ffff:192.0.2.1]:4000").closed != true {
		t.Error("an address is another one when it is written otherwise")
	}
	if opened("192.0.2.2:1").closed || opened("[2001:db8::1]:1").closed || !opened("192.0.2.3:1").closed {
		t.Error("five are allowed, of whomever")
	}
	for _, c := range one { // those that were refused, too
		l.state(c, http.StateClosed)
	}
	if c := opened("192.0.2.1:4000"); c.closed || len(l.open) != 3 || len(l.of) != 3 {
		t.Errorf("after they have gone: closed %v, %d open, of %d", c.closed, len(l.open), len(l.of))
	}
}

// A server that is full answers again as soon as one has gone.
func TestWebServerIsBounded(t *testing.T) {
	srv := httptest.NewUnstartedServer(nil)
	srv.Config = newWebServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok") }))
	srv.Start()
	defer srv.Close()
	var held []net.Conn
	for range maxWebConnsEach {
		c, err := net.Dial("tcp", srv.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close() //nolint:errcheck // it has no say
		held = append(held, c)
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	if r, err := client.Get(srv.URL); err == nil {
		_ = r.Body.Close()
		t.Fatalf("one too many is answered: %s", r.Status)
	}
	_ = held[0].Close()
	var err error
	for range 200 {
		var r *http.Response
		if r, err = client.Get(srv.URL); err == nil {
			_ = r.Body.Close()
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
	t.Errorf("with one less it answers nobody: %v", err)
}
