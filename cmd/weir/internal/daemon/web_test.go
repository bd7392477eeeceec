package daemon

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"weir/cmd/weir/internal/config"
	"weir/cmd/weir/internal/status"
	"weir/k8ssync"
	"weir/lb/health"
)

func TestHealthAnswers(t *testing.T) {
	for _, tt := range []struct {
		name           string
		change         func(v *view, s *k8ssync.Status)
		healthz, livez int
		service        bool          // the answer of healthCheckNodePorts
		silence        time.Duration // of the loop
		text           string
	}{
		{"all is well", func(*view, *k8ssync.Status) {}, 200, 200, true, 0, "weir is ok"},
		{"degraded", func(v *view, _ *k8ssync.Status) { v.status.Kernel.Pending = 1 }, 200, 200, true, 0, "weir is degraded"},
		{"starting", func(v *view, _ *k8ssync.Status) { v.ready = false }, 503, 200, false, 0, "weir is starting"},
		{"the kernel can't be read", func(v *view, _ *k8ssync.Status) { v.status.Kernel.Error = "x" }, 503, 200, false, 0, "weir is failed"},
		{name: "the loop hangs", silence: 2 * time.Hour, healthz: 503, livez: 503, text: "weir is failed: the main loop has not run for two sync periods"},
		{"drained", func(v *view, _ *k8ssync.Status) {
			v.status.Drained = &status.Drained{All: &status.DrainState{Since: time.Now(), Stage: status.Shutting}}
		}, 503, 200, true, 0, "weir is degraded: THE WHOLE BOX IS DRAINED"},
		{"the Node leaves", func(_ *view, s *k8ssync.Status) { s.NodeLeaving = true }, 503, 200, true, 0, "this Node leaves its cluster: weir is ok"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := newLand(t)
				cfgs := blocks("prod")
				cfgs[0].NodeName = "node1"
				l.Set(t.Context(), cfgs)
				synctest.Wait()
				v := &view{ready: true, period: time.Minute, clusters: l.Followers()}
				v.status.Kernel.LastSync = time.Now()
				if tt.change != nil {
					tt.change(v, &l.towns[0].status)
				}
				b := newTestBox(&config.Config{})
				b.watchdog.Beat(time.Now().Add(-tt.silence))
				b.sources.clusters, b.target.checks = l.Clusters, health.New(health.Options{})
				b.published.view.Store(v)
				for path, want := range map[string]int{"/healthz": tt.healthz, "/livez": tt.livez} {
					w := httptest.NewRecorder()
					b.answers.web().Handler("health_listen").ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
					if w.Code != want {
						t.Errorf("%s: %d %s", path, w.Code, w.Body)
					}
					if path == "/healthz" && !strings.HasPrefix(w.Body.String(), tt.text) {
						t.Errorf("%s says %s", path, w.Body)
					}
				}
				if b.published.isHealthy() != tt.service {
					t.Errorf("healthCheckNodePorts say %v", b.published.isHealthy())
				}
			})
		})
	}
}
