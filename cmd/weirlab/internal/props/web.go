// Package props has the parts that the demo, the benchmarks and the tests share: web servers that
// report the client's address, requests to them, and configurations of many services. It never
// starts a machine or a program: callers pass connections and listeners.
package props

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"time"
)

// Serve answers requests until stop is called, which closes the listener and all connections.
func Serve(l net.Listener, h http.Handler) (stop func()) {
	srv := &http.Server{Handler: h, ReadHeaderTimeout: 10 * time.Second}
	go func() { _ = srv.Serve(l) }() // ends with stop
	return func() { _ = srv.Close() }
}

// Named answers every request with its own name and the address of who asks, as Ask understands it.
type Named string

func (n Named) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	at, _ := netip.ParseAddrPort(r.RemoteAddr)
	_, _ = fmt.Fprintf(w, "%s %s", n, at.Addr().Unmap())
}

// Answer is the answer of a server, with the client's address that it saw.
type Answer struct{ Server, Saw string }

// patience is how long an answer may take, if the context has no limit.
const patience = 5 * time.Second

// Ask sends one request over a connection of its own.
func Ask(ctx context.Context, dial func(ctx context.Context, network, addr string) (net.Conn, error), addr string) (Answer, error) {
	if _, limited := ctx.Deadline(); !limited {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, patience)
		defer cancel()
	}
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: dial}}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+addr+"/", nil)
	if err != nil {
		return Answer{}, err
	}
	resp, err := client.Do(req)
	if err != nil {
		return Answer{}, err
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return Answer{}, err
	}
	server, saw, ok := strings.Cut(string(text), " ")
	if !ok {
		return Answer{}, fmt.Errorf("answer %q", text)
	}
	return Answer{server, saw}, nil
}
