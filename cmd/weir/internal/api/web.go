package api

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"

	"weir/cmd/weir/internal/config"
	"weir/cmd/weir/internal/web"
)

// Site is a listener and the keys of [daemon] that name its address: health_listen, metrics_listen, page_listen.
type Site struct {
	net.Listener
	Keys []string
}

// ListenWeb opens the HTTP addresses of a configuration. Keys with equal addresses share a listener.
func ListenWeb(d config.Daemon) (sites []Site, err error) {
	index := map[string]int{}
	for _, l := range d.Listeners() {
		if i, open := index[l.Addr]; open {
			sites[i].Keys = append(sites[i].Keys, l.Key)
			continue
		}
		listener, err := net.Listen("tcp", l.Addr)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("listen on daemon.%s: %w", l.Key, err), Close(sites))
		}
		index[l.Addr] = len(sites)
		sites = append(sites, Site{listener, []string{l.Key}})
	}
	return sites, nil
}

// Close closes listeners that no server has.
func Close(sites []Site) error {
	var all []error
	for _, s := range sites {
		all = append(all, s.Close())
	}
	return errors.Join(all...)
}

// Condition is the state of the box for load balancers and the kubelet.
type Condition struct {
	Healthy bool // new traffic is welcome
	Alive   bool // no restart is needed
	Line    string
}

// Web are the handlers of the HTTP addresses.
type Web struct {
	Condition func() Condition
	Metrics   http.Handler
	Page      func(*http.ServeMux) // adds its patterns
}

// Serve answers on the listener of a site until ctx ends.
func (w Web) Serve(ctx context.Context, s Site) error {
	return Serve(ctx, s.Listener, w.Handler(s.Keys...), webTimeout)
}

// Handler returns the handler for the keys of one address.
func (w Web) Handler(keys ...string) http.Handler {
	mux := http.NewServeMux()
	for _, key := range keys {
		switch key {
		case "health_listen":
			mux.HandleFunc("GET /healthz", func(out http.ResponseWriter, _ *http.Request) {
				c := w.Condition()
				condition(out, c.Healthy, c.Line)
			})
			mux.HandleFunc("GET /livez", func(out http.ResponseWriter, _ *http.Request) {
				c := w.Condition()
				condition(out, c.Alive, c.Line)
			})
		case "metrics_listen":
			mux.Handle("GET /metrics", guarded(w.Metrics))
		case "page_listen":
			w.Page(mux)
		}
	}
	return mux
}

func condition(w http.ResponseWriter, ok bool, line string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	if !ok {
		w.WriteHeader(http.StatusServiceUnavailable)
	}
	fmt.Fprintln(w, line)
}

// guarded refuses requests to loopback under a foreign name (DNS rebinding), as the status page does.
func guarded(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !web.HostAllowed(r) {
			http.Error(w, "metrics are served here to localhost and to addresses, not to other names", http.StatusMisdirectedRequest)
			return
		}
		h.ServeHTTP(w, r)
	})
}
