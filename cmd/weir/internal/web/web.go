// Package web is the status page: what weir status, services, members, bgp, pools and
// events say, in a browser, beside /metrics. It only reads: there is nothing on it that
// changes anything, and it answers GET and HEAD alone.
//
// A page is complete as it comes from the server, without JavaScript; filters, order
// and pages are parameters of its address. With JavaScript it follows the box: /live
// sends the sections that changed as server-sent events, made by the same templates, and
// weir.js puts into the page what is different in them.
//
// However many look, the kernel is read once every two seconds at most (see reading),
// and not at all when nobody does. The package gathers nothing itself: what it shows
// comes from a Source. It imports status, and the documentation for what Notes mean;
// only daemon imports it.
package web

import (
	"context"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"time"

	"weir/cmd/weir/internal/status"
)

// Source is a running weir.
type Source interface {
	// Box is what weir knows by itself. It may take until the loop has a moment, and is
	// as complete as could be had until ctx ended.
	Box(ctx context.Context) Box
	// Services reads the virtual servers from the kernel, strangers' too, with their
	// counters and what checks say. Of thousands that takes its time.
	Services(ctx context.Context) (status.Services, error)
}

// Box is what weir knows by itself at one moment.
type Box struct {
	// Name is that of the machine.
	Name   string
	Status status.Status
	// Health of the backends that have a check.
	Health status.Health
	// Members is empty without [cluster], Neighbors without [bgp], Pools without a
	// [[pool]].
	Members   status.Members
	Neighbors status.Neighbors
	Pools     status.Pools
	// Withheld are VIPs that no router hears of.
	Withheld []status.WithheldVIP
	Events   status.Events
}

// Page answers HTTP with the status page.
type Page struct {
	read      *reader
	listeners places
	tick      time.Duration // between looks, for one who listens
	now       func() time.Time
}

// New gives the page of a Source.
func New(source Source) *Page {
	return &Page{read: newReader(source), tick: readPeriod, now: time.Now}
}

// Register has mux answer with the page and what belongs to it.
func (p *Page) Register(mux *http.ServeMux) {
	for _, kind := range kinds {
		mux.Handle("GET "+kind.pattern(), guarded(p.page(kind)))
	}
	mux.Handle("GET /live", guarded(http.HandlerFunc(p.live)))
	for _, a := range assets {
		mux.Handle("GET /"+a.name, guarded(a))
	}
}

// headers let the page load its own style and script and connect to its own server, and
// nobody put it into a frame.
var headers = map[string]string{
	"Content-Security-Policy": "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; img-src 'self'; " +
		"form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
	"X-Content-Type-Options":       "nosniff",
	"X-Frame-Options":              "DENY",
	"Referrer-Policy":              "no-referrer",
	"Cross-Origin-Resource-Policy": "same-origin",
	"Permissions-Policy":           "camera=(), geolocation=(), microphone=()",
}

// writeTime is how long a reader may take to read what it asked for.
const writeTime = 15 * time.Second

// guarded gives every answer its headers, and refuses who should not have it.
func guarded(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for name, value := range headers {
			w.Header().Set(name, value)
		}
		if !hostAllowed(r) {
			http.Error(w, "the status page answers here to localhost and to addresses, not to other names: "+
				"http://127.0.0.1 and the port of daemon.listen", http.StatusMisdirectedRequest)
			return
		}
		if r.Header.Get("Sec-Fetch-Site") == "cross-site" && r.Header.Get("Sec-Fetch-Mode") != "navigate" {
			http.Error(w, "another site's page may link to this one, and not load it", http.StatusForbidden)
			return
		}
		_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(writeTime)) // a recorder has none
		h.ServeHTTP(w, r)
	})
}

// hostAllowed guards a page on loopback against sites whose name suddenly means
// 127.0.0.1 (DNS rebinding): the browser of an administrator would read it for them.
// Elsewhere a page may have any name.
func hostAllowed(r *http.Request) bool {
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
