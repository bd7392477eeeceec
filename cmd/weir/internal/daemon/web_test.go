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
		service        bool // what healthCheckNodePorts say of the box
		text           string
	}{
		{"all is well", func(*view, *k8ssync.Status) {}, 200, 200, true, "weir is ok"},
		{"degraded", func(v *view, _ *k8ssync.Status) { v.status.Kernel.Pending = 1 }, 200, 200, true, "weir is degraded"},
		{"starting", func(v *view, _ *k8ssync.Status) { v.ready = false }, 503, 200, false, "weir is starting"},
		{"the kernel can't be read", func(v *view, _ *k8ssync.Status) { v.status.Kernel.Error = "x" }, 503, 200, false, "weir is failed"},
		{"the loop hangs", func(v *view, _ *k8ssync.Status) { v.status.Kernel.LastSync = time.Now().Add(-2 * time.Hour) }, 503, 503, false, "weir hangs"},
		{"drained", func(v *view, _ *k8ssync.Status) {
			v.status.Drained = &status.Drained{All: &status.DrainState{Since: time.Now(), Stage: status.Shutting}}
		}, 503, 200, true, "weir is degraded: THE WHOLE BOX IS DRAINED"},
		{"the Node leaves", func(_ *view, s *k8ssync.Status) { s.NodeLeaving = true }, 503, 200, true, "this Node leaves its cluster: weir is ok"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := newLand(t, calm)
				cfgs := blocks("prod")
				cfgs[0].NodeName = "node1"
				l.set(t.Context(), cfgs)
				synctest.Wait()
				v := &view{ready: true, period: time.Minute, clusters: []*followed{l.all["prod"]}}
				v.status.Kernel.LastSync = time.Now()
				tt.change(v, &l.towns[0].status)
				b := &box{cfg: &config.Config{}, clusters: l.clusters, checks: health.New(health.Options{})}
				b.metrics = newMetrics(b)
				b.published.Store(v)
				for path, want := range map[string]int{"/healthz": tt.healthz, "/livez": tt.livez} {
					w := httptest.NewRecorder()
					b.webHandler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
					if w.Code != want {
						t.Errorf("%s: %d %s", path, w.Code, w.Body)
					}
					if path == "/healthz" && !strings.HasPrefix(w.Body.String(), tt.text) {
						t.Errorf("%s says %s", path, w.Body)
					}
				}
				if b.isHealthy() != tt.service {
					t.Errorf("healthCheckNodePorts say %v", b.isHealthy())
				}
			})
		})
	}
}
