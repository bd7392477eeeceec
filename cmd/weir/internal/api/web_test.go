package api

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"weir/cmd/weir/internal/config"
)

func TestEqualAddressesShareAListener(t *testing.T) {
	t.Parallel()
	probe, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := probe.Addr().String()
	_ = probe.Close()
	sites, err := ListenWeb(config.Daemon{HealthListen: addr, MetricsListen: "127.0.0.1:0", PageListen: addr})
	if err != nil {
		t.Fatal(err)
	}
	if len(sites) != 2 || !slices.Equal(sites[0].Keys, []string{"health_listen", "page_listen"}) || !slices.Equal(sites[1].Keys, []string{"metrics_listen"}) {
		t.Errorf("%+v", sites)
	}
	if _, err := ListenWeb(config.Daemon{PageListen: addr}); err == nil || !strings.HasPrefix(err.Error(), "listen on daemon.page_listen: ") {
		t.Errorf("a taken port: %v", err)
	}
	if err := Close(sites); err != nil {
		t.Error(err)
	}
	if none, err := ListenWeb(config.Daemon{}); err != nil || len(none) != 0 {
		t.Errorf("%v, %v", none, err)
	}
}

func TestAddressesServeTheirOwnPaths(t *testing.T) {
	t.Parallel()
	w := Web{
		Condition: func() Condition { return Condition{Healthy: false, Alive: true, Line: "weir is starting"} },
		Metrics:   http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "metrics") }),
		Page: func(mux *http.ServeMux) {
			mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "page") })
		},
	}
	local := context.WithValue(t.Context(), http.LocalAddrContextKey, net.Addr(&net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 10266}))
	for _, tt := range []struct {
		keys, path, host string
		want             int
	}{
		{"health_listen", "/healthz", "", 503},
		{"health_listen", "/livez", "evil.example", 200},
		{"health_listen", "/metrics", "", 404},
		{"health_listen", "/", "", 404},
		{"metrics_listen", "/metrics", "localhost:10266", 200},
		{"metrics_listen", "/metrics", "evil.example", 421},
		{"metrics_listen", "/healthz", "", 404},
		{"page_listen", "/", "", 200},
		{"page_listen", "/metrics", "", 404},
		{"health_listen metrics_listen page_listen", "/livez", "", 200},
		{"health_listen metrics_listen page_listen", "/", "", 200},
	} {
		r := httptest.NewRequest(http.MethodGet, tt.path, nil).WithContext(local)
		r.Host = tt.host
		out := httptest.NewRecorder()
		w.Handler(strings.Fields(tt.keys)...).ServeHTTP(out, r)
		if out.Code != tt.want {
			t.Errorf("%s%s as %q: %d, want %d", tt.keys, tt.path, tt.host, out.Code, tt.want)
		}
	}
}
