// Package props is what the demo, the benchmarks and the tests all need beside a lab: web servers that
// tell whom they see, requests to them, and configurations of many services. It knows neither lab nor
// weir: connections and listeners are given to it.
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

// Answer is what came back: which server, and whom it saw.
type Answer struct{ Server, Saw string }

// patience is how long an answer may take.
const patience = 5 * time.Second

// Ask sends one request over a connection of its own.
func Ask(ctx context.Context, dial func(ctx context.Context, network, addr string) (net.Conn, error), addr string) (Answer, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
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
