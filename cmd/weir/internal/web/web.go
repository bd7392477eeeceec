// Package web is the status page: the data of weir status, services, members, bgp, pools
// and events in a browser. It never changes anything, and answers only GET and HEAD.
//
// A page is complete without JavaScript; filter, order and page are parameters of its
// address. With JavaScript it follows the box: /live sends the changed sections as
// server-sent events, rendered by the same templates, and weir.js updates the page.
//
// The kernel is read at most once every two seconds for any number of clients, and never
// without clients. All data comes from a Source. The package imports status and the
// documentation.
package web

import (
	"bytes"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"time"
)

// Page answers HTTP with the status page.
type Page struct {
	read      *reader
	listeners places
	tick      time.Duration // between readings for /live
	now       func() time.Time
}

// New returns the page of a Source.
func New(source Source) *Page {
	return &Page{read: newReader(source), tick: readPeriod, now: time.Now}
}

// Register adds the page and its files to mux.
func (p *Page) Register(mux *http.ServeMux) {
	for _, kind := range kinds {
		mux.Handle("GET "+kind.pattern(), guarded(p.page(kind)))
	}
	mux.Handle("GET /live", guarded(http.HandlerFunc(p.live)))
	mux.Handle("GET /doc/{name}", guarded(http.HandlerFunc(document)))
	for _, a := range assets {
		mux.Handle("GET /"+a.name, guarded(a))
	}
}

// headers permit only the style and script of the page itself, and no frames.
var headers = map[string]string{
	"Content-Security-Policy": "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; img-src 'self'; " +
		"form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
	"X-Content-Type-Options":       "nosniff",
	"X-Frame-Options":              "DENY",
	"Referrer-Policy":              "no-referrer",
	"Cross-Origin-Resource-Policy": "same-origin",
	"Permissions-Policy":           "camera=(), geolocation=(), microphone=()",
}

// writeTime is the timeout of a response.
const writeTime = 15 * time.Second

// guarded sets the headers of a response, and refuses requests of other sites.
func guarded(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for name, value := range headers {
			w.Header().Set(name, value)
		}
		if !HostAllowed(r) {
			http.Error(w, "on loopback the status page accepts only localhost and addresses, no other names: "+
				"http://127.0.0.1 and the port of daemon.page_listen", http.StatusMisdirectedRequest)
			return
		}
		if r.Header.Get("Sec-Fetch-Site") == "cross-site" && r.Header.Get("Sec-Fetch-Mode") != "navigate" {
			http.Error(w, "pages of other sites may link to this page, but not load it", http.StatusForbidden)
			return
		}
		_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(writeTime)) // a recorder has none
		h.ServeHTTP(w, r)
	})
}

// HostAllowed guards a page on loopback against DNS rebinding: a site changes its name to
// 127.0.0.1, and reads the page in the browser of an administrator. On other addresses any
// name is accepted.
func HostAllowed(r *http.Request) bool {
	local, _ := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	if local == nil {
		return true
	}
	if at, err := netip.ParseAddrPort(local.String()); err != nil || !at.Addr().Unmap().IsLoopback() {
		return true
	}
	host := r.Host
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	host = strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
	if _, err := netip.ParseAddr(host); err == nil {
		return true
	}
	host = strings.TrimSuffix(strings.ToLower(host), ".")
	return host == "localhost" || strings.HasSuffix(host, ".localhost")
}

// page serves a complete page.
func (p *Page) page(k kind) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		read := p.read.get(r.Context())
		if read == nil {
			http.Error(w, "weir is busy: try again, or run weir status", http.StatusServiceUnavailable)
			return
		}
		var out bytes.Buffer
		if err := page.ExecuteTemplate(&out, "page", newView(k, read, parseQuery(r.URL.Query()), p.now())); err != nil {
			http.Error(w, "the page can't be made: "+err.Error(), http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		w.Header().Set("Cache-Control", "no-store")
		_, _ = w.Write(out.Bytes()) // the client may be gone
	})
}

// live sends the sections of a page as they change, until the client or weir ends.
func (p *Page) live(w http.ResponseWriter, r *http.Request) {
	k, q, err := listened(r.URL.Query())
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	leave, err := p.listeners.enter(r.RemoteAddr)
	if err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	defer leave()
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Accel-Buffering", "no") // nginx must not buffer
	l := &listener{page: p, kind: k, query: q, to: w, control: http.NewResponseController(w), sent: map[string]uint64{}}
	if r.Method == http.MethodHead || l.write(fmt.Sprintf("retry: %d\n\n", retryTime.Milliseconds())) != nil {
		return
	}
	tick := time.NewTicker(p.tick)
	defer tick.Stop()
	for {
		if l.send(p.read.get(r.Context())) != nil {
			return
		}
		select {
		case <-tick.C:
		case <-r.Context().Done():
			return
		}
	}
}
