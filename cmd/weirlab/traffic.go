package main

import (
	"context"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"weir/cmd/weirlab/lab"
)

// demoWeb answers every request with its host's name and whom it saw.
type demoWeb struct {
	name string
	srv  *http.Server
}

func startWeb(m *lab.Machine, port int) (*demoWeb, error) {
	l, err := m.Listen("tcp", fmt.Sprintf(":%d", port))
	if err != nil {
		return nil, fmt.Errorf("serve on %s: %w", m.Name(), err)
	}
	w := &demoWeb{name: m.Name()}
	w.srv = &http.Server{Handler: w, ReadHeaderTimeout: 10 * time.Second}
	go func() { _ = w.srv.Serve(l) }() // ends with stop
	return w, nil
}

func (w *demoWeb) stop() { _ = w.srv.Close() }

func (w *demoWeb) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	host, _, _ := net.SplitHostPort(r.RemoteAddr)
	addr, _ := netip.ParseAddr(host)
	_, _ = fmt.Fprintf(rw, "%s %s", w.name, addr.Unmap())
}

// answer is what came back: which server, and whom it saw.
type answer struct {
	server, saw string
}

// ask sends one request over a connection of its own.
func ask(ctx context.Context, from *lab.Machine, addr string) (answer, error) {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: from.DialContext}}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+addr+"/", nil)
	if err != nil {
		return answer{}, err
	}
	resp, err := client.Do(req)
	if err != nil {
		return answer{}, err
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return answer{}, err
	}
	server, saw, _ := strings.Cut(string(text), " ")
	return answer{server, saw}, nil
}

// load sends requests until it is stopped, and remembers each.
type load struct {
	cancel context.CancelFunc
	done   sync.WaitGroup

	mu       sync.Mutex
	requests []request
}

type request struct {
	began, ended time.Time
	err          error
}

// workers is how many requests are under way at once.
const workers = 4

func startLoad(ctx context.Context, from *lab.Machine, addrs []string) *load {
	ctx, cancel := context.WithCancel(ctx)
	l := &load{cancel: cancel}
	for i := range workers {
		l.done.Go(func() {
			for n := i; ctx.Err() == nil; n++ {
				began := time.Now()
				_, err := ask(ctx, from, addrs[n%len(addrs)])
				if ctx.Err() != nil {
					return
				}
				l.mu.Lock()
				l.requests = append(l.requests, request{began, time.Now(), err})
				l.mu.Unlock()
			}
		})
	}
	return l
}

// stop ends the load and waits for it. Stopping twice is fine.
func (l *load) stop() {
	l.cancel()
	l.done.Wait()
}

func (l *load) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.requests)
}

// wait waits until n requests are through.
func (l *load) wait(ctx context.Context, n int) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for l.count() < n {
		select {
		case <-ctx.Done():
			return fmt.Errorf("%d of %d requests got through: %w", l.count(), n, ctx.Err())
		case <-tick.C:
		}
	}
	return nil
}

// tally counts requests.
type tally struct {
	requests, failed int
}

// failed counts the requests that ended before one instant, those that began
// after another, and the rest.
func (l *load) failed(from, to time.Time) (before, between, after tally) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, r := range l.requests {
		t := &between
		switch {
		case r.ended.Before(from):
			t = &before
		case r.began.After(to):
			t = &after
		}
		t.requests++
		if r.err != nil {
			t.failed++
		}
	}
	return before, between, after
}

// firstError is an error that a request met, if any did.
func (l *load) firstError() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, r := range l.requests {
		if r.err != nil {
			return r.err
		}
	}
	return nil
}

func sorted(set map[string]bool) []string { return slices.Sorted(maps.Keys(set)) }
