// Package goroutines helps tests to prove that servers leave no goroutine behind. It never counts the goroutines of other
// tests, so tests may run in parallel.
package goroutines

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"regexp"
	"runtime/pprof"
	"strconv"
	"sync"
	"testing"
)

// Label marks the goroutine of a test, and all that it starts from now on, for Count.
func Label(t *testing.T) {
	pprof.SetGoroutineLabels(pprof.WithLabels(t.Context(), pprof.Labels("test", t.Name())))
}

var labelled = regexp.MustCompile(`(?m)^(\d+) @.*\n# labels: \{(.*)\}$`)

// Count returns the number of goroutines with the label of a test, itself included.
func Count(t *testing.T) (n int) {
	t.Helper()
	var profile bytes.Buffer
	if err := pprof.Lookup("goroutine").WriteTo(&profile, 1); err != nil {
		t.Fatal(err)
	}
	for _, m := range labelled.FindAllSubmatch(profile.Bytes(), -1) {
		if bytes.Contains(m[2], fmt.Appendf(nil, `"test":%q`, t.Name())) {
			count, err := strconv.Atoi(string(m[1]))
			if err != nil {
				t.Fatal(err)
			}
			n += count
		}
	}
	if n == 0 {
		t.Fatal("the profile has no goroutine of the test itself")
	}
	return n
}

// Listener is a listener in memory. With it, synctest knows when all goroutines of a server wait. Make one with Listen.
type Listener struct {
	conns chan net.Conn
	once  sync.Once
	end   chan struct{}
}

// Listen returns an open Listener.
func Listen() *Listener { return &Listener{conns: make(chan net.Conn), end: make(chan struct{})} }

// Accept implements net.Listener.
func (l *Listener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.end:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (l *Listener) Close() error {
	l.once.Do(func() { close(l.end) })
	return nil
}

// Addr implements net.Listener.
func (l *Listener) Addr() net.Addr { return &net.TCPAddr{} }

// Dial opens a connection, sends a text, and reads until the server closes the connection.
func (l *Listener) Dial(text string) {
	client, server := net.Pipe()
	l.conns <- server
	go func() { _, _ = io.Copy(io.Discard, client) }()
	_, _ = io.WriteString(client, text)
}
