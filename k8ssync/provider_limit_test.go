package k8ssync

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"weir/lb"
)

// remembered counts what a Provider keeps of Services for which there is nothing to do.
func (b *box) remembered(name string) string {
	b.mu.Lock()
	defer b.mu.Unlock()
	m, k := b.members["prod"], key{"shop", name}
	id := lb.ServiceID{Source: "prod", Namespace: "shop", Name: name}
	return fmt.Sprint(m.statuses[k] != nil, m.errs[k], m.backoff.NumRequeues(k), m.conflicts.NumRequeues(k), b.retries.NumRequeues(id), b.claimErrors[id])
}

const nothing = "false <nil> 0 0 0 <nil>"

// A status that came too late is no fault of the cluster.
func TestLateStatusIsNoError(t *testing.T) {
	for _, c := range []struct {
		what  string
		reply func(s *apiServer, w http.ResponseWriter, r *http.Request)
	}{
		{"gone", func(s *apiServer, w http.ResponseWriter, _ *http.Request) {
			s.remove(testBalancer("web", "10.96.0.1", "", nil))
			s.mu.Lock()
			defer s.mu.Unlock()
			s.missing(w, "services", "web")
		}},
		{"written by another", func(s *apiServer, w http.ResponseWriter, r *http.Request) {
			s.ServeHTTP(nobody{http.Header{}}, r)
			answer(w, http.StatusConflict, metav1.StatusReasonConflict, "it is at another version")
		}},
	} {
		t.Run(c.what, func(t *testing.T) {
			s := newAPIServer(t)
			s.put(testNode("n1", "10.0.0.1"))
			var once atomic.Bool
			s.misbehave(func(w http.ResponseWriter, r *http.Request) bool {
				if !is(r, http.MethodPatch, "/status") || once.Swap(true) {
					return false
				}
				c.reply(s, w, r)
				return true
			})
			p := newBox(t, providerConfig("box1", pool("public", "192.0.2.0/30")), map[string]*apiServer{"prod": s})
			s.put(testBalancer("web", "10.96.0.1", "", nil))
			eventually(t, "the API server refuses it", func() bool { return once.Load() && p.Status().Counters.Errors > 0 })
			for name, reason := range p.Status().Clusters {
				// The release of the claim may be too early for a moment: the deletion is not committed yet.
				if !strings.HasSuffix(reason, errNotRead.Error()) {
					t.Errorf("cluster %s: %s", name, reason)
				}
			}
			if c.what == "gone" {
				eventually(t, "it is forgotten", func() bool { return p.remembered("web") == nothing })
			}
		})
	}
}

// A cluster that does not answer whether Services are gone does not keep other claims from
// being written.
func TestSlowReleaseDelaysNoOtherCluster(t *testing.T) {
	home, stage := newAPIServer(t), newAPIServer(t)
	home.put(testNode("n1", "10.0.0.1"))
	stage.put(testNode("n1", "10.0.0.1"))
	const many = releaseWriters + 2*claimWriters
	for i := range many {
		stage.put(testBalancer(fmt.Sprintf("gone%d", i), fmt.Sprintf("10.96.0.%d", i+1), "", nil))
	}
	p := newBox(t, providerConfig("box1", pool("public", "192.0.2.0/26")), map[string]*apiServer{"prod": home, "stage": stage}, func(b *box) {
		b.timing.request = time.Hour
	})
	eventually(t, "all have one", func() bool { return p.Status().Usage.Pools[0].Used == many })
	var slow atomic.Int32
	free := make(chan struct{})
	stage.misbehave(func(_ http.ResponseWriter, r *http.Request) bool {
		if strings.HasPrefix(r.URL.Query().Get("fieldSelector"), "metadata.name=gone") {
			slow.Add(1)
			select {
			case <-r.Context().Done():
			case <-free:
			}
		}
		return false
	})
	for i := range many {
		stage.remove(testBalancer(fmt.Sprintf("gone%d", i), "10.96.0.1", "", nil))
	}
	eventually(t, "all who may wait", func() bool { return slow.Load() >= releaseWriters })
	eventually(t, "the rest waits for them alone", func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		return p.members["stage"].writes.Len() > 0
	})
	home.put(testBalancer("web", "10.96.0.1", "", nil))
	eventually(t, "the other goes on", func() bool { a, _ := home.statusOf("web"); return len(a) == 1 })
	close(free)
	eventually(t, "it goes on", func() bool { return p.Status().Usage.Pools[0].Retained == many })
}

func TestErrorsOfADeletedServiceEnd(t *testing.T) {
	for _, c := range []struct{ what, method, part, want string }{
		{"a claim", http.MethodPost, "/leases", "create leases"},
		{"a status", http.MethodPatch, "/services/web/status", "patch services/status of shop/web: "},
	} {
		t.Run(c.what, func(t *testing.T) {
			s := newAPIServer(t)
			s.put(testNode("n1", "10.0.0.1"))
			p := newBox(t, providerConfig("box1", pool("public", "192.0.2.0/30")), map[string]*apiServer{"prod": s})
			eventually(t, "it writes", p.mayWrite)
			refused, seen := false, make(chan struct{})
			var mu sync.Mutex
			s.misbehave(func(w http.ResponseWriter, r *http.Request) bool {
				if !is(r, c.method, c.part) {
					return false
				}
				mu.Lock()
				defer mu.Unlock()
				if refused {
					select {
					case <-seen:
					case <-r.Context().Done():
					}
					s.remove(testBalancer("web", "10.96.0.1", "", nil)) // while it is tried again
					poll(time.Minute, func() bool { return len(p.Status().Decisions) == 0 })
				}
				refused = true
				answer(w, http.StatusForbidden, metav1.StatusReasonForbidden, "no such right")
				return true
			})
			s.put(testBalancer("web", "10.96.0.1", "", nil))
			eventually(t, "refused", func() bool { return strings.Contains(p.Status().Clusters["prod"], c.want) })
			close(seen)
			eventually(t, "it is gone", func() bool { return len(p.Status().Decisions) == 0 })
			eventually(t, "all is well", func() bool { return len(p.Status().Clusters) == 0 && p.remembered("web") == nothing })
		})
	}
}
