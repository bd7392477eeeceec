package e2e

import (
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"weir/cmd/weirlab/internal/traffic"
	"weir/cmd/weirlab/lab"
)

// garbage answers requests with something else than Kubernetes, each with the next kind of it.
type garbage struct{ answered atomic.Int64 }

var garbageKinds = []func(http.ResponseWriter, *http.Request){
	func(w http.ResponseWriter, _ *http.Request) { garble(w, "application/json", "It works!") },
	func(w http.ResponseWriter, _ *http.Request) {
		garble(w, "application/json", `{"kind": "ServiceList", "apiVersion": "v1", "metadata": {"resourceVersion": "9"}, "items": [{"meta`)
	},
	func(w http.ResponseWriter, _ *http.Request) {
		garble(w, "application/vnd.kubernetes.protobuf", "k8s\x00\x0a\x0f\x0a\x02v1\x12\x0bServi")
	},
	func(w http.ResponseWriter, _ *http.Request) { garble(w, "text/html", "<html>log in</html>") },
	func(w http.ResponseWriter, _ *http.Request) { // of another type, and without one
		garble(w, "application/json", `{"type": "MODIFIED", "object": {"kind": "Pod", "apiVersion": "v1", "metadata": {"name": "web"}}}
			{"type": "DELETED", "object": 7}`)
	},
	func(w http.ResponseWriter, r *http.Request) { // without end
		for garble(w, "application/json", strings.Repeat("[", 16<<10)) == nil && traffic.Pause(r.Context(), 5*time.Millisecond) == nil {
		}
	},
}

func garble(w http.ResponseWriter, kind, text string) error {
	w.Header().Set("Content-Type", kind)
	_, err := w.Write([]byte(text))
	_ = http.NewResponseController(w).Flush()
	return err
}

func (g *garbage) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	n := g.answered.Add(1) - 1
	garbageKinds[n%int64(len(garbageKinds))](w, r)
}

// clusterGarbage has the API server of one of two clusters answer with garbage. Clients of both clusters notice
// nothing, and changes of the other one are programmed.
func clusterGarbage(t *testing.T, s *land) {
	const otherVIP = "192.0.2.40"
	p := s.proxy(t, s.prod)
	defer s.kubeconfig(t, "prod", lab.KubeWeir)
	s.run(t, follows("", "prod", "stage"))
	s.balance(t, s.prod, "web", vip4, "", "10.2.0.11")
	defer forget(t, s.prod, "web")
	s.balance(t, s.stage, "other", otherVIP, "", "10.2.0.11")
	defer forget(t, s.stage, "other")
	s.answers(t, at(vip4, 80), "web1")
	s.answers(t, at(otherVIP, 80), "web1")
	stream := startLoad(t, s.client1, traffic.Options{Beat: 50 * time.Millisecond}, at(vip4, 80), at(otherVIP, 80))
	s.sliceOf(t, s.stage, "PUT", "/other", "other", "10.2.0.12")
	figure(t, "a change of the other cluster is served after", s.answers(t, at(otherVIP, 80), "web2"))

	rss := s.rss(t)
	g := &garbage{}
	p.replace(g)
	p.cut(t)
	begin := time.Now()
	s.statusIs(t, "garbage", func(d statusDoc) bool {
		return time.Since(begin) > 3*time.Second && g.answered.Load() >= int64(2*len(garbageKinds)) && cluster(d, "prod", "unreachable") && cluster(d, "stage", "connected")
	})
	t.Logf("after %d answers in %s weir status says %+v", g.answered.Load(), time.Since(begin).Round(time.Second), s.status(t).Clusters)
	for _, c := range s.status(t).Clusters {
		if c.Name == "prod" && (c.Error == "" || c.Services != 1) {
			t.Errorf("weir status says of the hostile cluster: %+v", c)
		}
	}
	s.sliceOf(t, s.stage, "PUT", "/other", "other", "10.2.0.13")
	figure(t, "  and while the first one answers with garbage, after", s.answers(t, at(otherVIP, 80), "web3"))
	s.answers(t, at(vip4, 80), "web1")
	figure(t, "  and the memory of weir before and then, MiB", fmt.Sprintf("%d, %d", rss, s.rss(t)))
	if now := s.rss(t); now > rss+64 {
		t.Errorf("weir has %d MiB of memory, and had %d", now, rss)
	}
	p.replace(nil)
	p.cut(t)
	figure(t, "  and it is connected again after", s.connected(t, 1, retryTime))
	s.sliceOf(t, s.prod, "PUT", "/web", "web", "10.2.0.12")
	s.answers(t, at(vip4, 80), "web2")
	mustHaveLostNothing(t, stream)
}
