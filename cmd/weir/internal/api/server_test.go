package api

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestTheSocketIsTakenOnlyFromTheDead(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "weir.sock")
	first, err := ListenSocket(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := ListenSocket(path); err == nil || !strings.Contains(err.Error(), "another weir answers") {
		t.Errorf("beside one that answers: %v", err)
	}
	first.(*net.UnixListener).SetUnlinkOnClose(false)
	_ = first.Close()
	next, err := ListenSocket(path)
	if err != nil {
		t.Fatalf("after one that was killed: %v", err)
	}
	_ = next.Close()

	// What is no socket is not weir's to remove.
	file := filepath.Join(t.TempDir(), "weir.sock")
	if err := os.WriteFile(file, []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := ListenSocket(file); err == nil {
		t.Error("a file was taken for a socket")
	}
	if _, err := os.Stat(file); err != nil {
		t.Errorf("the file is gone: %v", err)
	}
}

// Idle connections, however many, keep no other client from an answer.
func TestConnectionsAreBounded(t *testing.T) {
	t.Parallel()
	ctx, stop := context.WithCancel(t.Context())
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() {
		done <- Serve(ctx, l, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok") }), time.Minute)
	}()
	var held []net.Conn
	for range 2 * maxConns {
		c, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()                                //nolint:errcheck // not under test
		_, _ = io.WriteString(c, "GET / HTTP/1.1\r\n") // half a request
		held = append(held, c)
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: readTimeout / 2}
	r, err := client.Get("http://" + l.Addr().String())
	if err != nil {
		t.Fatalf("among %d half requests: %v", len(held), err)
	}
	_ = r.Body.Close()
	_ = held[0].SetReadDeadline(time.Now().Add(readTimeout / 2))
	var timeout net.Error
	if _, err := held[0].Read(make([]byte, 1)); err == nil || errors.As(err, &timeout) && timeout.Timeout() {
		t.Errorf("the oldest connection is still open: %v", err)
	}
	stop()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// Half a request ends after readTimeout; a handler that takes longer than that is not disturbed.
func TestTimeouts(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	srv := httptest.NewUnstartedServer(nil)
	srv.Config = newServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-release:
		case <-r.Context().Done():
			t.Error("the context of a slow handler has ended")
		}
	}), 0)
	const limit = 2 * time.Second // a busy machine reads a whole request in this time
	srv.Config.ReadTimeout, srv.Config.ReadHeaderTimeout = limit, limit
	srv.Start()
	defer srv.Close()
	half, err := net.Dial("tcp", srv.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer half.Close() //nolint:errcheck // not under test
	time.AfterFunc(limit+time.Second, func() { close(release) })
	if _, err := io.WriteString(half, "GET / HTTP/1.1\r\nHost: x\r\n"); err != nil {
		t.Fatal(err)
	}
	r, err := http.PostForm(srv.URL, url.Values{"confirm": {"5m"}})
	if err != nil || r.StatusCode != http.StatusOK {
		t.Fatalf("%v, %v", r, err)
	}
	_ = r.Body.Close()
	_ = half.SetReadDeadline(time.Now().Add(10 * time.Second))
	if _, err := io.ReadAll(half); err != nil {
		t.Errorf("half a request keeps its connection: %v", err)
	}
}

// A request without the rest of its body ends after readTimeout, too, and does not reach its handler, which could have few places.
func TestRestOfARequestHasATimeout(t *testing.T) {
	t.Parallel()
	srv := httptest.NewUnstartedServer(nil)
	srv.Config = newServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("the handler got half a request") }), 0)
	srv.Config.ReadTimeout = 100 * time.Millisecond
	srv.Start()
	defer srv.Close()
	c, err := net.Dial("tcp", srv.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close() //nolint:errcheck // not under test
	if _, err := io.WriteString(c, "GET /metrics HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	_ = c.SetReadDeadline(time.Now().Add(10 * time.Second))
	if _, err := io.ReadAll(c); err != nil {
		t.Errorf("half a request keeps its connection: %v", err)
	}
}
