package k8ssync

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"weir/k8ssync/ipam"
	"weir/lb"
)

// is reports whether a request is of a method, and for a path with a part.
func is(r *http.Request, method, part string) bool {
	return r.Method == method && strings.Contains(r.URL.Path, part)
}

func TestExistingClaimIsKept(t *testing.T) {
	s := newAPIServer(t)
	s.put(testNode("n1", "10.0.0.1"), testBalancer("web", "10.96.0.1", "", nil))
	var once atomic.Bool
	s.misbehave(func(_ http.ResponseWriter, r *http.Request) bool {
		// Another writer has just claimed it, and the watch has not reported that yet.
		if is(r, http.MethodPost, "/leases") && s.requests("list leases")+s.requests("watch leases") > 0 && s.requests("create leases") > 1 && once.CompareAndSwap(false, true) {
			claim := ipam.Claim{Addr: addrs("192.0.2.0")[0], Holders: []ipam.Holder{{Service: lb.ServiceID{Source: "far", Namespace: "a", Name: "b"}, UID: "u"}}}
			lease, _ := leaseOf(claim, "weir-system", DefaultAnnotationPrefix) //nolint:errcheck // it is one
			s.mu.Lock()
			lease.ResourceVersion = fmt.Sprint(s.version)
			if s.objects["leases"] == nil {
				s.objects["leases"] = map[string]metav1.Object{}
			}
			resourceOf(lease)
			s.objects["leases"]["weir-system/"+lease.Name] = lease
			s.mu.Unlock()
		}
		return false
	})
	p := newBox(t, providerConfig("box1", pool("public", "192.0.2.0/30")), map[string]*apiServer{"prod": s})
	has(t, s, "web", "192.0.2.1", "Assigned")
	if c := p.Counters(); c.Conflicts != 1 {
		t.Errorf("%d conflicts, want 1", c.Conflicts)
	}
	if c := s.claimed(); c["weir-192.0.2.0"] != "far/a/b" || c["weir-192.0.2.1"] != "prod/shop/web" {
		t.Errorf("claims %v", c)
	}
}

// A write with a lost answer may or may not have been made.
func TestLostAnswerLosesNoAddress(t *testing.T) {
	for _, c := range []struct{ what, method, part string }{
		{"of a claim", http.MethodPost, "/leases"},
		{"of a status", http.MethodPatch, "/status"},
	} {
		t.Run(c.what, func(t *testing.T) {
			s := newAPIServer(t)
			s.put(testNode("n1", "10.0.0.1"), testBalancer("web", "10.96.0.1", "", nil), testBalancer("api", "10.96.0.2", "", nil))
			var lost atomic.Int32
			s.misbehave(func(w http.ResponseWriter, r *http.Request) bool {
				if !is(r, c.method, c.part) || r.Header.Get("Again") != "" || lost.Add(1) > 3 {
					return false
				}
				r.Header.Set("Again", "yes")
				s.ServeHTTP(nobody{http.Header{}}, r)
				panic(http.ErrAbortHandler)
			})
			p := newBox(t, providerConfig("box1", pool("public", "192.0.2.0/30")), map[string]*apiServer{"prod": s})
			eventually(t, "both have one", func() bool {
				a, _ := s.statusOf("web")
				b, _ := s.statusOf("api")
				return len(a) == 1 && len(b) == 1 && a[0] != b[0]
			})
			if claims := s.claimed(); len(claims) != 2 {
				t.Errorf("claims %v", claims)
			}
			if n := p.Status().Counters.Conflicts; n != 0 {
				t.Errorf("%d conflicts, with itself", n)
			}
		})
	}
}

// no answer is read.
type nobody struct{ header http.Header }

func (n nobody) Header() http.Header       { return n.header }
func (nobody) Write(b []byte) (int, error) { return len(b), nil }
func (nobody) WriteHeader(int)             {}
func (nobody) Flush()                      {}

func TestAnotherBoxBecomesTheWriter(t *testing.T) {
	s, first := one(t, pool("public", "192.0.2.0/30"))
	has(t, s, "web", "192.0.2.0", "Assigned")
	second := newBox(t, providerConfig("box2", pool("public", "192.0.2.0/30")), map[string]*apiServer{"prod": s})
	eventually(t, "the second sees the first", func() bool {
		st := second.Status()
		return st.Writer == "box1" && !st.Writing && st.Error == "" && len(st.Decisions) == 1 && st.Decisions[0].Written && st.Usage.Pools[0].Used == 1
	})
	first.stop() // it gives the lease back
	s.mu.Lock()
	if l := s.objects["leases"]["weir-system/"+writerLease].(*coordinationv1.Lease); *l.Spec.HolderIdentity == "box1" {
		t.Error("it keeps the lease to its end")
	}
	s.mu.Unlock()
	s.put(testBalancer("api", "10.96.0.2", "", nil))
	has(t, s, "api", "192.0.2.1", "Assigned")
	if st := second.Status(); !st.Writing || st.Writer != "box2" || st.Counters.Transitions != 1 {
		t.Errorf("status %+v", st)
	}
	// One that dies without a word is waited for.
	s.mu.Lock()
	lease := s.objects["leases"]["weir-system/"+writerLease].(*coordinationv1.Lease).DeepCopy()
	s.mu.Unlock()
	*lease.Spec.LeaseDurationSeconds = 2
	second.stop()
	s.put(lease)
	third := newBox(t, providerConfig("box3", pool("public", "192.0.2.0/30")), map[string]*apiServer{"prod": s})
	s.put(testBalancer("db", "10.96.0.3", "", nil))
	eventually(t, "it is seen", func() bool { return third.Status().Writer == "box2" })
	has(t, s, "db", "192.0.2.2", "Assigned")
	if w := third.Status().Writer; w != "box3" {
		t.Errorf("the writer is %s", w)
	}
}

// The end of a box cuts off the answer to a renewal that the server has carried out.
func TestLeaseIsReleasedAfterAnAbortedRenewal(t *testing.T) {
	s, p := one(t, pool("public", "192.0.2.0/30"))
	has(t, s, "web", "192.0.2.0", "Assigned")
	renewed := make(chan struct{})
	var once sync.Once
	s.misbehave(func(_ http.ResponseWriter, r *http.Request) bool {
		cut := false
		if is(r, http.MethodPut, "/"+writerLease) && r.Header.Get("Again") == "" {
			once.Do(func() { cut = true })
		}
		if cut {
			r.Header.Set("Again", "yes")
			s.ServeHTTP(nobody{http.Header{}}, r)
			close(renewed)
			<-r.Context().Done()
		}
		return cut
	})
	<-renewed
	p.stop()
	s.mu.Lock()
	defer s.mu.Unlock()
	if l := s.objects["leases"]["weir-system/"+writerLease].(*coordinationv1.Lease); *l.Spec.HolderIdentity != "" {
		t.Errorf("%q keeps the lease to its end", *l.Spec.HolderIdentity)
	}
}

// The server may also carry it out only when the box has read the lease to release it.
func TestLeaseIsReleasedAfterALateRenewal(t *testing.T) {
	s, p := one(t, pool("public", "192.0.2.0/30"))
	has(t, s, "web", "192.0.2.0", "Assigned")
	cut := make(chan struct{})
	var mu sync.Mutex
	var renewal *http.Request
	s.misbehave(func(_ http.ResponseWriter, r *http.Request) bool {
		if !is(r, http.MethodPut, "/"+writerLease) || r.Header.Get("Again") != "" {
			return false
		}
		mu.Lock()
		held := renewal
		if held == nil {
			body, err := io.ReadAll(r.Body)
			if err != nil {
				t.Error(err)
			}
			renewal = r.Clone(context.Background())
			renewal.Body = io.NopCloser(bytes.NewReader(body))
			renewal.Header.Set("Again", "yes")
			mu.Unlock()
			close(cut)
			<-r.Context().Done()
			return true
		}
		mu.Unlock()
		if held.Header.Get("Served") == "" {
			held.Header.Set("Served", "yes")
			s.ServeHTTP(nobody{http.Header{}}, held)
		}
		return false
	})
	<-cut
	p.stop()
	s.mu.Lock()
	defer s.mu.Unlock()
	if l := s.objects["leases"]["weir-system/"+writerLease].(*coordinationv1.Lease); *l.Spec.HolderIdentity != "" {
		t.Errorf("%q keeps the lease to its end", *l.Spec.HolderIdentity)
	}
}

// A renewal may come too late, and before it is known that the box does not write
// any more: what it has left until then is made up for.
func TestLapsedTermLosesNoStatus(t *testing.T) {
	const many = 3 * statusWriters
	s := newAPIServer(t)
	s.put(testNode("n1", "10.0.0.1"))
	for i := range many {
		s.put(testBalancer(fmt.Sprintf("s%02d", i), fmt.Sprintf("10.96.1.%d", i+1), "", nil))
	}
	var waiting atomic.Int32
	release := make(chan struct{})
	s.misbehave(func(_ http.ResponseWriter, r *http.Request) bool {
		switch {
		case is(r, http.MethodPatch, "/status"):
			waiting.Add(1)
			<-release
		case is(r, http.MethodPut, "/"+writerLease) && waiting.Load() > 0:
			<-release // it is late, and comes
		}
		return false
	})
	p := newBox(t, providerConfig("box1", pool("public", "192.0.2.0/24")), map[string]*apiServer{"prod": s})
	eventually(t, "all writers of statuses are at work, and all claims made", func() bool {
		return waiting.Load() == statusWriters && p.Status().Usage.Pools[0].Used == many
	})
	p.locked(func() { p.election.until = time.Now() })
	close(release)
	eventually(t, "all have an address", func() bool {
		for i := range many {
			if addrs, _ := s.statusOf(fmt.Sprintf("s%02d", i)); len(addrs) != 1 {
				return false
			}
		}
		return true
	})
}

// Two boxes that both act as the writer, all the time.
func TestTwoWritersAssignNoAddressTwice(t *testing.T) {
	const many = 50
	s := newAPIServer(t)
	s.put(testNode("n1", "10.0.0.1"))
	everyone := func(b *box) {
		b.timing.election = electionTiming{lease: time.Second, deadline: time.Hour, retry: time.Millisecond}
	}
	var mine, claims atomic.Int32
	var begun atomic.Bool
	met := make(chan struct{})
	s.misbehave(func(w http.ResponseWriter, r *http.Request) bool {
		if begun.Load() && r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "/leases") {
			body, _ := io.ReadAll(r.Body) //nolint:errcheck // what is missing does not decode
			r.Body = io.NopCloser(bytes.NewReader(body))
			if bytes.Contains(body, []byte(writerLease)) {
				return false // no claim
			}
			// More claims than one box writes at a time: both are at work.
			if claims.Add(1) == claimWriters+1 {
				close(met)
			}
			select {
			case <-met:
			case <-time.After(20 * time.Second):
			}
			return false
		}
		if !strings.HasSuffix(r.URL.Path, "/"+writerLease) { // to each its own
			return false
		}
		mine.Add(1)
		s.missing(w, "leases", writerLease)
		return true
	})
	both := map[string]*apiServer{"prod": s}
	a := newBox(t, providerConfig("box1", pool("public", "192.0.2.0/24")), both, everyone)
	b := newBox(t, providerConfig("box2", pool("public", "192.0.2.0/24")), both, everyone)
	believe := func() { // an election that fails ends it
		for _, x := range []*box{a, b} {
			x.locked(func() { x.election.until = time.Now().Add(time.Hour) })
		}
	}
	eventually(t, "both write", func() bool {
		believe()
		return a.mayWrite() && b.mayWrite()
	})
	begun.Store(true)
	for i := range many {
		s.put(testBalancer(fmt.Sprintf("s%02d", i), fmt.Sprintf("10.96.1.%d", i+1), "", nil))
	}
	seen := map[string]string{}
	eventually(t, "all have one", func() bool {
		believe()
		n := 0
		for i := range many {
			name := fmt.Sprintf("s%02d", i)
			addrs, _ := s.statusOf(name)
			if len(addrs) == 0 {
				continue
			}
			n++
			if other := seen[addrs[0]]; other != "" && other != name {
				t.Fatalf("%s was given to %s and %s", addrs[0], other, name)
			}
			seen[addrs[0]] = name
		}
		return n == many
	})
	for name, holder := range s.claimed() {
		if addr := strings.TrimPrefix(name, "weir-"); "prod/shop/"+seen[addr] != holder {
			t.Errorf("%s is %s's by its claim, and %s's by its status", addr, holder, seen[addr])
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.late == 0 {
		t.Error("they never met")
	}
	t.Logf("%d of their writes came too late", s.late)
}

// A writer that slept while its Service changed writes onto the old version, or not at
// all.
func TestStatusIsWrittenOnlyOntoTheReadVersion(t *testing.T) {
	s := newAPIServer(t)
	s.put(testNode("n1", "10.0.0.1"), testBalancer("web", "10.96.0.1", "", nil))
	var once atomic.Bool
	s.misbehave(func(_ http.ResponseWriter, r *http.Request) bool {
		if is(r, http.MethodPatch, "/status") && once.CompareAndSwap(false, true) {
			s.edit("web", func(v *corev1.Service) { v.Annotations = map[string]string{"weir/addresses": "192.0.2.3"} })
		}
		return false
	})
	newBox(t, providerConfig("box1", pool("public", "192.0.2.0/30")), map[string]*apiServer{"prod": s})
	has(t, s, "web", "192.0.2.3", "Assigned")
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, a := range s.applied {
		if strings.Contains(a, "192.0.2.0") {
			t.Errorf("written onto another version: %s", a)
		}
	}
}

func TestUnreachableHomeChangesNothing(t *testing.T) {
	home, stage := newAPIServer(t), newAPIServer(t)
	home.put(testNode("n1", "10.0.0.1"))
	stage.put(testNode("n1", "10.0.0.1"), testBalancer("web", "10.96.0.1", "", nil))
	p := newBox(t, providerConfig("box1", pool("public", "192.0.2.0/30")), map[string]*apiServer{"prod": home, "stage": stage}, func(b *box) {
		b.timing.election.lease, b.timing.election.deadline = 2*time.Second, 1500*time.Millisecond // which end
	})
	has(t, stage, "web", "192.0.2.0", "Assigned")
	home.misbehave(func(w http.ResponseWriter, _ *http.Request) bool {
		answer(w, http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable, "away")
		return true
	})
	eventually(t, "no writer", func() bool {
		st := p.Status()
		return !st.Writing && st.Writer == "" && strings.Contains(st.Error, "away")
	})
	stage.put(testBalancer("api", "10.96.0.2", "", nil))
	eventually(t, "a Note", func() bool {
		return slices.ContainsFunc(notesOf(p), func(n lb.Note) bool {
			return n.Service.Name == "api" && strings.HasPrefix(n.Text, "no-writer: ")
		})
	})
	if d, ok := p.Decision(lb.ServiceID{Source: "stage", Namespace: "shop", Name: "web"}); !ok || fmt.Sprint(d.Addrs) != "[192.0.2.0]" || d.Pending.Reason != "" {
		t.Errorf("decision %+v", d)
	}
	if a, _ := stage.statusOf("web"); len(a) != 1 {
		t.Error("its address was taken away")
	}
	home.misbehave(nil)
	has(t, stage, "api", "192.0.2.1", "Assigned")
}

func TestServiceDeletedInAnUnreachableClusterKeepsItsClaim(t *testing.T) {
	home, stage := newAPIServer(t), newAPIServer(t)
	home.put(testNode("n1", "10.0.0.1"))
	stage.put(testNode("n1", "10.0.0.1"), testBalancer("web", "10.96.0.1", "", nil))
	cfg := providerConfig("box1", pool("public", "192.0.2.0/30"))
	cfg.IPAM.Retention = time.Millisecond
	newBox(t, cfg, map[string]*apiServer{"prod": home, "stage": stage})
	has(t, stage, "web", "192.0.2.0", "Assigned")
	stage.misbehave(func(w http.ResponseWriter, r *http.Request) bool {
		if r.URL.Query().Get("watch") != "" {
			return false // it reports what is new, and can't be asked
		}
		answer(w, http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable, "away")
		return true
	})
	asked := stage.requests("list services")
	stage.remove(testBalancer("web", "10.96.0.1", "", nil))
	eventually(t, "it was asked for several times", func() bool { return stage.requests("list services") > asked+2 })
	if c := home.claimed(); len(c) != 1 {
		t.Fatalf("claims %v", c)
	}
	stage.misbehave(nil)
	eventually(t, "free", func() bool { return len(home.claimed()) == 0 })
}

// The claims of a cluster that is no longer followed stay, and so it has no error.
func TestARemovedClusterHasNoError(t *testing.T) {
	home, stage := newAPIServer(t), newAPIServer(t)
	home.put(testNode("n1", "10.0.0.1"))
	stage.put(testNode("n1", "10.0.0.1"), testBalancer("web", "10.96.0.1", "", nil))
	p := newBox(t, providerConfig("box1", pool("public", "192.0.2.0/30")), map[string]*apiServer{"prod": home, "stage": stage})
	has(t, stage, "web", "192.0.2.0", "Assigned")
	stage.misbehave(func(w http.ResponseWriter, r *http.Request) bool {
		if r.URL.Query().Get("watch") != "" {
			return false
		}
		answer(w, http.StatusForbidden, metav1.StatusReasonForbidden, "no right")
		return true
	})
	stage.remove(testBalancer("web", "10.96.0.1", "", nil))
	eventually(t, "an error", func() bool { return strings.Contains(p.Status().Clusters["prod"], "no right") })
	p.Follow(map[string]*Cluster{"prod": p.clusters["prod"]})
	eventually(t, "no error", func() bool { return len(p.Status().Clusters) == 0 })
	if c := home.claimed(); len(c) != 1 {
		t.Errorf("claims %v", c)
	}
}

// A request that began before its cluster was removed does not leave an error behind.
func TestARemovedClusterGetsNoErrorLater(t *testing.T) {
	home, stage := newAPIServer(t), newAPIServer(t)
	home.put(testNode("n1", "10.0.0.1"))
	stage.put(testNode("n1", "10.0.0.1"), testBalancer("web", "10.96.0.1", "", nil))
	p := newBox(t, providerConfig("box1", pool("public", "192.0.2.0/30")), map[string]*apiServer{"prod": home, "stage": stage})
	has(t, stage, "web", "192.0.2.0", "Assigned")
	asked, removed := make(chan struct{}, 1), make(chan struct{})
	stage.misbehave(func(w http.ResponseWriter, r *http.Request) bool {
		if !is(r, http.MethodGet, "/services") || r.URL.Query().Get("watch") != "" {
			return false
		}
		signal(asked)
		<-removed
		answer(w, http.StatusForbidden, metav1.StatusReasonForbidden, "no right")
		return true
	})
	stage.remove(testBalancer("web", "10.96.0.1", "", nil))
	<-asked // whether the Service is gone, which precedes the release
	p.mu.Lock()
	if len(p.inFlight) != 1 {
		t.Errorf("%d writes are in flight, want the release", len(p.inFlight))
	}
	p.mu.Unlock()
	p.Follow(map[string]*Cluster{"prod": p.clusters["prod"]})
	eventually(t, "the cluster is forgotten", func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		return p.members["stage"] == nil
	})
	close(removed)
	eventually(t, "the request has ended", func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		return len(p.inFlight) == 0
	})
	if c := p.Status().Clusters; len(c) != 0 {
		t.Errorf("errors %v", c)
	}
	if c := home.claimed(); len(c) != 1 {
		t.Errorf("claims %v", c)
	}
}

// Watches do not show a Service of another proxy, nor what weir writes to it. It keeps its
// address for as long as that is in its status.
func TestHiddenServiceKeepsItsAddress(t *testing.T) {
	hide := func(svc *corev1.Service) { svc.Labels = map[string]string{labelOtherProxy: "x"} }
	for name, change := range map[string]func(*corev1.Service){
		"label": hide,
		"label and type": func(svc *corev1.Service) {
			hide(svc)
			svc.Spec.Type, svc.Status.LoadBalancer = corev1.ServiceTypeClusterIP, corev1.LoadBalancerStatus{}
		},
	} {
		t.Run(name, func(t *testing.T) {
			s, p := one(t, pool("public", "192.0.2.0/30"))
			has(t, s, "web", "192.0.2.0", "Assigned")
			s.edit("web", change)
			has(t, s, "web", "", "") // of another controller now: weir's fields are removed
			s.put(testBalancer("api", "10.96.0.2", "", nil))
			has(t, s, "api", "192.0.2.1", "Assigned")
			cfg := providerConfig("box1", pool("public", "192.0.2.0/30"))
			cfg.IPAM.Retention = time.Millisecond
			p.Configure(cfg)
			eventually(t, "its address is free", func() bool { return len(s.claimed()) == 1 })
		})
	}
}

// A watch that has lost a Service costs the API server a few requests.
func TestLostServiceIsRequestedWithPauses(t *testing.T) {
	s, p := one(t, pool("public", "192.0.2.0/30"))
	has(t, s, "web", "192.0.2.0", "Assigned")
	s.mu.Lock()
	lost := s.objects["services"]["shop/web"].(*corev1.Service).DeepCopy()
	lost.Status = corev1.ServiceStatus{}
	s.objects["services"]["shop/web"] = lost
	s.mu.Unlock()
	s.replay("DELETED", lost)
	eventually(t, "a release is refused", func() bool { return p.Status().Counters.Conflicts > 3 })
	before := s.requests("list services")
	time.Sleep(time.Second)
	if n := s.requests("list services") - before; n > 60 { // every 200 ms, and every 100 ms for its status
		t.Errorf("%d requests in a second", n)
	}
	if c := s.claimed(); len(c) != 1 {
		t.Errorf("claims %v", c)
	}
}

// Another box may follow a namespace that this one does not.
func TestClaimsOfOtherNamespacesStay(t *testing.T) {
	cfg := testConfig("")
	cfg.Namespaces = []string{"shop"}
	p := NewProvider(providerConfig("box1", pool("public", "192.0.2.0/30")), silentLog())
	p.members["prod"] = &member{p: p.providerState, name: "prod", cluster: New(cfg, silentLog())}
	w := claimWrite{decision: ipam.Decision{Service: lb.ServiceID{Source: "prod", Namespace: "bank", Name: "web"}}}
	if err := (claimWriter{p.providerState}).mayRelease(t.Context(), w); !errors.Is(err, errUnfollowed) {
		t.Errorf("got %v", err)
	}
	w.decision.Service = lb.ServiceID{Source: "left", Namespace: "shop", Name: "web"}
	w.Delete = true
	if err := (claimWriter{p.providerState}).mayRelease(t.Context(), w); !errors.Is(err, errUnfollowed) {
		t.Errorf("of a cluster that has just left the file: %v", err)
	}
	w.decision.Service = lb.ServiceID{Source: "prod", Namespace: "shop", Name: "web"}
	if err := (claimWriter{p.providerState}).mayRelease(t.Context(), w); err == nil || errors.Is(err, errUnfollowed) {
		t.Errorf("of a cluster that nobody has read: %v", err)
	}
}

func TestGuardedNamespaceKeepsItsClaims(t *testing.T) {
	s := newAPIServer(t)
	other := testBalancer("db", "10.96.0.3", "", nil)
	other.Namespace = "bank"
	s.put(testNode("n1", "10.0.0.1"), testBalancer("web", "10.96.0.1", "", nil), other)
	p := newBox(t, providerConfig("box1", pool("public", "192.0.2.0/30")), map[string]*apiServer{"prod": s}, func(b *box) { b.hold.Store(true) })
	eventually(t, "it does not keep Services from addresses", func() bool { return len(s.claimed()) == 2 })
	cfg := providerConfig("box1", pool("public", "192.0.2.0/30"))
	cfg.IPAM.Retention = time.Millisecond
	p.Configure(cfg)
	s.remove(testBalancer("web", "10.96.0.1", "", nil), other)
	eventually(t, "it is tried", func() bool { return p.Status().Counters.Errors > 2 && len(s.claimed()) < 2 })
	if c := slices.Collect(maps.Values(s.claimed())); !slices.Equal(c, []string{"prod/shop/web"}) {
		t.Fatalf("claims of %v", c)
	}
	p.hold.Store(false)
	eventually(t, "free", func() bool { return len(s.claimed()) == 0 })
}

func TestSlowClusterDelaysNoOther(t *testing.T) {
	home, stage := newAPIServer(t), newAPIServer(t)
	home.put(testNode("n1", "10.0.0.1"))
	stage.put(testNode("n1", "10.0.0.1"))
	for i := range 2 * statusWriters {
		stage.put(testBalancer(fmt.Sprintf("slow%d", i), fmt.Sprintf("10.96.0.%d", i+1), "", nil))
	}
	var slow atomic.Int32
	free := make(chan struct{})
	stage.misbehave(func(_ http.ResponseWriter, r *http.Request) bool {
		if is(r, http.MethodPatch, "/status") {
			slow.Add(1)
			select {
			case <-r.Context().Done():
			case <-free:
			}
		}
		return false
	})
	newBox(t, providerConfig("box1", pool("public", "192.0.2.0/27")), map[string]*apiServer{"prod": home, "stage": stage})
	eventually(t, "all its writers wait", func() bool { return slow.Load() == statusWriters })
	home.put(testBalancer("web", "10.96.0.1", "", nil))
	eventually(t, "the other goes on", func() bool { a, _ := home.statusOf("web"); return len(a) == 1 })
	close(free)
	eventually(t, "it goes on", func() bool { a, _ := stage.statusOf("slow7"); return len(a) == 1 })
}

func TestMissingPermissionIsNamed(t *testing.T) {
	for _, c := range []struct{ method, part, want string }{
		{http.MethodGet, "/leases?", "leases.coordination.k8s.io in namespace weir-system: "},
		{http.MethodGet, "/leases/" + writerLease, "get leases.coordination.k8s.io in namespace weir-system: "},
		{http.MethodPost, "/leases", "create leases.coordination.k8s.io in namespace weir-system: "},
		{http.MethodPatch, "/services/web/status", "cluster prod: patch services/status of shop/web: "},
	} {
		t.Run(c.method+c.part, func(t *testing.T) {
			s := newAPIServer(t)
			s.put(testNode("n1", "10.0.0.1"), testBalancer("web", "10.96.0.1", "", nil))
			s.misbehave(func(w http.ResponseWriter, r *http.Request) bool {
				if r.Method == c.method && strings.Contains(r.URL.Path+"?", c.part) {
					answer(w, http.StatusForbidden, metav1.StatusReasonForbidden, "no such right")
					return true
				}
				return false
			})
			p := newBox(t, providerConfig("box1", pool("public", "192.0.2.0/30")), map[string]*apiServer{"prod": s})
			eventually(t, "it is named", func() bool {
				st := p.Status()
				text := st.Error + st.Clusters["prod"]
				for _, d := range st.Decisions {
					text += d.Error
				}
				return strings.Contains(text, c.want+"no such right")
			})
			s.misbehave(nil)
			has(t, s, "web", "192.0.2.0", "Assigned")
		})
	}
}

func TestAMissingNamespaceIsNamed(t *testing.T) {
	s := newAPIServer(t)
	s.namespaces = map[string]bool{}
	s.put(testNode("n1", "10.0.0.1"))
	p := newBox(t, providerConfig("box1", pool("public", "192.0.2.0/30")), map[string]*apiServer{"prod": s})
	const want = "there is no namespace weir-system: kubectl create namespace weir-system, or kubectl apply -f rbac/leases.yaml, which makes it"
	eventually(t, "it is named", func() bool { return strings.Contains(p.Status().Error, want) })
}

func TestRetryAfterIsRespected(t *testing.T) {
	s := newAPIServer(t)
	s.put(testNode("n1", "10.0.0.1"), testBalancer("web", "10.96.0.1", "", nil))
	var first, second atomic.Int64
	s.misbehave(func(w http.ResponseWriter, r *http.Request) bool {
		if !is(r, http.MethodPatch, "/status") {
			return false
		}
		if first.CompareAndSwap(0, time.Now().UnixNano()) {
			w.Header().Set("Retry-After", "1")
			w.WriteHeader(http.StatusTooManyRequests) // in plain text, as API servers do
			fmt.Fprint(w, "Too many requests, please try again later.")
			return true
		}
		second.CompareAndSwap(0, time.Now().UnixNano())
		return false
	})
	newBox(t, providerConfig("box1", pool("public", "192.0.2.0/30")), map[string]*apiServer{"prod": s})
	has(t, s, "web", "192.0.2.0", "Assigned")
	if gap := time.Duration(second.Load() - first.Load()); gap < time.Second {
		t.Errorf("it was asked again after %s", gap)
	}
}

// The lease cluster is restored from a backup: its versions begin at an earlier one.
func TestRestoredHomeIsReadAgain(t *testing.T) {
	s, p := one(t, pool("public", "192.0.2.0/30"))
	has(t, s, "web", "192.0.2.0", "Assigned")
	s.mu.Lock()
	s.version = 10
	for i, o := range s.matching("leases", "") {
		o.SetResourceVersion(fmt.Sprint(2 + i))
	}
	s.history = nil
	s.mu.Unlock()
	s.CloseClientConnections()
	s.compact()
	s.edit("web", func(v *corev1.Service) { v.Annotations = map[string]string{"weir/addresses": "192.0.2.3"} })
	has(t, s, "web", "192.0.2.3", "Assigned")
	eventually(t, "the old one is let go of", func() bool { return p.Status().Usage.Pools[0].Retained == 1 })
}

// Its version may be later than that of the first list, and earlier than that of an event.
func TestRestoredHomeIsReadAgainAfterEvents(t *testing.T) {
	s, p := one(t, pool("public", "192.0.2.0/30"))
	has(t, s, "web", "192.0.2.0", "Assigned")
	s.mu.Lock()
	s.version = 1000
	s.mu.Unlock()
	s.put(testBalancer("api", "10.96.0.2", "", nil))
	has(t, s, "api", "192.0.2.1", "Assigned")
	s.mu.Lock()
	api := s.objects["leases"]["weir-system/weir-192.0.2.1"]
	s.mu.Unlock()
	cfg := providerConfig("box1", pool("public", "192.0.2.0/30"))
	cfg.IPAM.Retention = time.Millisecond
	p.Configure(cfg)
	s.remove(testBalancer("api", "10.96.0.2", "", nil))
	eventually(t, "its claim is gone", func() bool { return len(p.Status().Claims) == 1 })
	s.mu.Lock()
	s.version = 500
	s.objects["leases"]["weir-system/weir-192.0.2.1"] = api
	for i, o := range s.matching("leases", "") {
		o.SetResourceVersion(fmt.Sprint(400 + i))
	}
	s.history = nil
	s.mu.Unlock()
	s.CloseClientConnections()
	s.compact()
	s.put(testBalancer("db", "10.96.0.3", "", nil))
	eventually(t, "it has an address", func() bool { got, _ := s.statusOf("db"); return len(got) == 1 })
}

// The claim that an older state of the lease cluster has is no result of a write: it is an
// error, and the next write waits.
func TestOlderClaimIsAnError(t *testing.T) {
	p := NewProvider(providerConfig("box1", pool("public", "192.0.2.0/30")), silentLog())
	w := claimWrite{Write: ipam.Write{Claim: ipam.Claim{Addr: netip.MustParseAddr("192.0.2.0")}}}
	p.alloc.Gone(w.Claim.Addr, 1000)
	lease, err := leaseOf(w.Claim, "weir-system", DefaultAnnotationPrefix)
	if err != nil {
		t.Fatal(err)
	}
	lease.ResourceVersion = "400"
	list := &coordinationv1.LeaseList{Items: []coordinationv1.Lease{*lease}}
	if err := (claimWriter{p.providerState}).resolved(w, list, errNotWriter); !errors.Is(err, errOlder) {
		t.Errorf("got %v", err)
	}
}

func TestPanicEndsNothingElse(t *testing.T) {
	s, p := one(t, pool("public", "192.0.2.0/30"))
	has(t, s, "web", "192.0.2.0", "Assigned")
	p.locked(func() { p.alloc = nil }) // any use of it panics
	p.update()
	s.put(testBalancer("api", "10.96.0.2", "", nil))
	has(t, s, "api", "192.0.2.1", "Assigned")
}

// A claim of a later version, or made by hand, is read before its address leaves a status, and
// never overwritten.
func TestAnUnreadableClaimIsNotWritten(t *testing.T) {
	s := newAPIServer(t)
	vip, text := "VIP", `{"format":2,"holders":"of a later version"}`
	claim := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{
		Namespace: "weir-system", Name: "weir-192.0.2.0", ResourceVersion: "1", Annotations: map[string]string{"weir/claim": text},
	}}
	s.put(testNode("n1", "10.0.0.1"), claim, testBalancer("web", "10.96.0.1", "192.0.2.0", &vip))
	newBox(t, providerConfig("box1", pool("public", "192.0.2.0/30")), map[string]*apiServer{"prod": s})
	has(t, s, "web", "192.0.2.1", "Assigned")
	s.mu.Lock()
	defer s.mu.Unlock()
	if now := s.objects["leases"]["weir-system/weir-192.0.2.0"]; now.GetAnnotations()["weir/claim"] != text {
		t.Errorf("the claim was %s and is %v", text, now.GetAnnotations())
	}
}
