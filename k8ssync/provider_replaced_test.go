package k8ssync

import (
	"context"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// replace follows cluster prod by another Cluster, like a daemon after a change of its
// configuration.
func (b *box) replace(t *testing.T, s *apiServer) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	c := testCluster(t, s, func(cfg *Config) { cfg.Name, cfg.Events = "prod", true })
	var tasks sync.WaitGroup
	tasks.Go(func() { c.Run(ctx) }) //nolint:errcheck // it never fails
	tasks.Go(func() { b.judge(ctx, c) })
	t.Cleanup(func() {
		cancel()
		tasks.Wait()
	})
	b.Follow(map[string]*Cluster{"prod": c})
	eventually(t, "the other one is believed", func() bool {
		b.mu.Lock()
		defer b.mu.Unlock()
		m := b.members["prod"]
		return m != nil && m.cluster == c && m.synced
	})
}

func TestAStatusIsWrittenByTheClusterThatReplacesAnother(t *testing.T) {
	s := newAPIServer(t)
	s.put(testNode("n1", "10.0.0.1"), testBalancer("web", "10.96.0.1", "", nil))
	var refuse atomic.Bool
	refuse.Store(true)
	s.misbehave(func(w http.ResponseWriter, r *http.Request) bool {
		if !refuse.Load() || !is(r, http.MethodPatch, "/status") {
			return false
		}
		answer(w, http.StatusForbidden, metav1.StatusReasonForbidden, "no such right")
		return true
	})
	p := newBox(t, providerConfig("box1", pool("public", "192.0.2.0/30")), map[string]*apiServer{"prod": s})
	eventually(t, "refused", func() bool { return strings.Contains(p.Status().Clusters["prod"], "patch") })
	// As an operator does who gives weir another kubeconfig.
	p.replace(t, s)
	refuse.Store(false)
	has(t, s, "web", "192.0.2.0", "Assigned")
	eventually(t, "all is well", func() bool {
		st := p.Status()
		return len(st.Clusters) == 0 && st.Decisions[0].Written && st.Decisions[0].Error == ""
	})
}

func TestIPModeIsRewrittenByTheClusterThatReplacesAnother(t *testing.T) {
	s, p := one(t, pool("public", "192.0.2.0/30"))
	has(t, s, "web", "192.0.2.0", "Assigned")
	p.replace(t, s)
	cfg := providerConfig("box1", pool("public", "192.0.2.0/30"))
	cfg.IPMode = ModeProxy
	p.Configure(cfg)
	eventually(t, "Proxy", func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		in := s.objects["services"]["shop/web"].(*corev1.Service).Status.LoadBalancer.Ingress
		return len(in) == 1 && *in[0].IPMode == corev1.LoadBalancerIPModeProxy
	})
}

func TestAHiddenServiceIsRememberedByTheClusterThatReplacesAnother(t *testing.T) {
	s := newAPIServer(t)
	s.put(testNode("n1", "10.0.0.1"))
	p := newBox(t, providerConfig("box1", pool("public", "192.0.2.0/30")), map[string]*apiServer{"prod": s})
	eventually(t, "it writes", p.mayWrite)
	vip := "VIP"
	hidden := readService(testBalancer("kept", "10.96.0.9", "192.0.2.0", &vip), nil, DefaultAnnotationPrefix)
	s.misbehave(func(w http.ResponseWriter, r *http.Request) bool { // it exists
		if r.URL.Query().Get("fieldSelector") != "metadata.name=kept" {
			return false
		}
		answer(w, http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable, "away")
		return true
	})
	p.locked(func() { p.hide(p.members["prod"], &hidden) })
	p.replace(t, s)
	asked := s.requests("list services")
	eventually(t, "it is asked for", func() bool { return s.requests("list services") > asked })
	p.locked(func() {
		if p.members["prod"].hidden[hidden.key] == nil {
			t.Error("it is forgotten")
		}
	})
	s.misbehave(nil) // and now it is not there
	eventually(t, "its address is free", func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		return len(p.members["prod"].hidden) == 0
	})
	s.put(testBalancer("web", "10.96.0.1", "", nil))
	has(t, s, "web", "192.0.2.0", "Assigned")
}
