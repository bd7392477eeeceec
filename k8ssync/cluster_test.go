package k8ssync

import (
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"weir/lb"
)

func TestFirstUpdateWaitsForAllResources(t *testing.T) {
	s := newAPIServer(t)
	s.put(testService("web", "10.96.0.1"), testSlice("web", "10.1.0.1", "10.1.0.2"), testService("db", "10.96.0.2"), testNode("n1", "192.0.2.1"))
	open := make(chan struct{})
	s.misbehave(func(_ http.ResponseWriter, r *http.Request) bool {
		if strings.HasSuffix(r.URL.Path, "/nodes") {
			<-open
		}
		return false
	})
	c := testCluster(t, s, func(cfg *Config) { cfg.NodeName = "n1" })
	run(t, c)
	eventually(t, "services and slices listed", func() bool { return c.Status().Objects["endpointslices"] == 1 && c.Status().Relists == 2 })
	if u, ok := c.Take(); ok || c.Status().Synced {
		t.Fatalf("an update without Nodes: %+v", u)
	}
	close(open)
	u := next(t, c)
	put, gone := names(u)
	if diff := cmp.Diff([]string{"shop/db", "shop/web"}, put); diff != "" || !u.Synced || len(gone) > 0 || u.Source != "prod" {
		t.Errorf("first update (-want +got): %s synced %v gone %v source %s", diff, u.Synced, gone, u.Source)
	}
	if n := backends(u, "web"); n != 2 {
		t.Errorf("web has %d backends, want 2", n)
	}
	eventually(t, "connected", func() bool { return c.Status().Connected })
	st := c.Status()
	if diff := cmp.Diff(map[string]int{"services": 2, "endpointslices": 1, "nodes": 1}, st.Objects); diff != "" || st.Endpoints != 2 {
		t.Errorf("objects (-want +got): %s; %d endpoints", diff, st.Endpoints)
	}
	if !st.Synced || st.Stale || st.Error != "" || time.Since(st.LastContact) > 10*time.Second || st.Relists != 3 {
		t.Errorf("status %+v", st)
	}
	if fmt.Sprint(st.NodePodCIDRs, st.NodeAddrs) != "[10.1.0.0/24] [192.0.2.1]" {
		t.Errorf("own Node: %v %v", st.NodePodCIDRs, st.NodeAddrs)
	}
	if !s.agents["weir/test"] || len(s.agents) != 1 {
		t.Errorf("user agents %v", s.agents)
	}
}

func TestStatusOfALeavingNode(t *testing.T) {
	s := newAPIServer(t)
	own, other := testNode("n1", "192.0.2.1"), testNode("n2", "192.0.2.2")
	other.Spec.Taints = []corev1.Taint{{Key: taintScaledDown, Effect: corev1.TaintEffectNoSchedule}}
	s.put(own, other)
	c := testCluster(t, s, func(cfg *Config) { cfg.NodeName = "n1" })
	run(t, c)
	eventually(t, "synced", func() bool { return c.Status().Synced })
	if c.Status().NodeLeaving {
		t.Error("another Node's taint is taken for the own one's")
	}
	own = own.DeepCopy()
	own.Spec.Taints = other.Spec.Taints
	s.put(own)
	eventually(t, "leaving", func() bool { return c.Status().NodeLeaving })
}

func TestUpdatesHaveOnlyChanges(t *testing.T) {
	s := newAPIServer(t)
	web, db := testService("web", "10.96.0.1"), testService("db", "10.96.0.2")
	s.put(web, db, testSlice("web", "10.1.0.1"), testNode("n1", "192.0.2.1"))
	c := testCluster(t, s)
	run(t, c)
	next(t, c)
	for _, tc := range []struct {
		name      string
		do        func()
		put, gone []string
	}{
		{"new Service", func() { s.put(testService("new", "10.96.0.3")) }, []string{"shop/new"}, nil},
		{"endpoint added", func() { s.put(testSlice("web", "10.1.0.1", "10.1.0.2")) }, []string{"shop/web"}, nil},
		{"slice gone", func() { s.remove(testSlice("web")) }, []string{"shop/web"}, nil},
		{"slice of another Service", func() { s.put(testSlice("db", "10.1.0.9")) }, []string{"shop/db"}, nil},
		{"Service gone", func() { s.remove(testService("new", "10.96.0.3")) }, nil, []string{"shop/new"}},
	} {
		tc.do()
		u := next(t, c)
		put, gone := names(u)
		if !slices.Equal(put, tc.put) || !slices.Equal(gone, tc.gone) || u.Synced {
			t.Errorf("%s: put %v gone %v synced %v", tc.name, put, gone, u.Synced)
		}
	}
	// Irrelevant changes are not published: a new resourceVersion, a Node's heartbeat.
	s.put(db, testNode("n1", "192.0.2.1"))
	s.put(testService("last", "10.96.0.7"))
	put, _ := names(next(t, c))
	if !slices.Equal(put, []string{"shop/last"}) {
		t.Errorf("said %v, want only shop/last", put)
	}
}

func TestSliceChangesItsService(t *testing.T) {
	s := newAPIServer(t)
	s.put(testService("web", "10.96.0.1"), testService("db", "10.96.0.2"), testSlice("web", "10.1.0.1"), testNode("n1", "192.0.2.1"))
	c := testCluster(t, s)
	run(t, c)
	next(t, c)
	moved := testSlice("web", "10.1.0.1")
	moved.Labels["kubernetes.io/service-name"] = "db"
	s.put(moved)
	u := next(t, c)
	if backends(u, "web") != 0 || backends(u, "db") != 1 {
		t.Errorf("web %d db %d backends, want 0 and 1", backends(u, "web"), backends(u, "db"))
	}
	nobodys := testSlice("web", "10.1.0.1")
	nobodys.Labels = nil
	s.put(nobodys)
	if u := next(t, c); backends(u, "db") != 0 {
		t.Errorf("db has %d backends of a slice that is nobody's", backends(u, "db"))
	}
}

func TestTriggeredMustBePlausible(t *testing.T) {
	s := newAPIServer(t)
	at := func(when time.Time, addrs ...string) metav1.Object {
		sl := testSlice("web", addrs...)
		sl.Annotations = map[string]string{"endpoints.kubernetes.io/last-change-trigger-time": when.Format(time.RFC3339Nano)}
		return sl
	}
	s.put(testService("web", "10.96.0.1"), at(time.Now().Add(-time.Hour), "10.1.0.1"), testNode("n1", "192.0.2.1"))
	c := testCluster(t, s)
	run(t, c)
	if u := next(t, c); len(u.Triggered) > 0 {
		t.Errorf("before weir began: %v", u.Triggered)
	}
	now := time.Now()
	id := lb.ServiceID{Source: "prod", Namespace: "shop", Name: "web"}
	for _, tc := range []struct {
		name string
		put  metav1.Object
		want bool
	}{
		{"now", at(now, "10.1.0.2"), true},
		{"the same again, for another reason", at(now, "10.1.0.3"), false},
		{"tomorrow", at(now.Add(24*time.Hour), "10.1.0.4"), false},
		{"never", testSlice("web", "10.1.0.5"), false},
	} {
		s.put(tc.put)
		u := next(t, c)
		if got, ok := u.Triggered[id]; ok != tc.want || ok && !got.Equal(now) {
			t.Errorf("%s: %v %v", tc.name, got, ok)
		}
	}
}

func TestStormOfOneServiceIsFewUpdates(t *testing.T) {
	s := newAPIServer(t)
	s.put(testService("web", "10.96.0.1"), testSlice("web", "10.1.0.1"), testNode("n1", "192.0.2.1"))
	c := testCluster(t, s)
	run(t, c)
	next(t, c)
	const changes = 1000
	began := time.Now()
	go func() {
		for i := range changes {
			s.put(testSlice("web", fmt.Sprintf("10.1.%d.%d", i/250, 1+i%250), "10.1.9.9"))
		}
		s.put(testSlice("web", "10.1.0.1", "10.1.0.2", "10.1.0.3"))
	}()
	updates := 0
	for {
		u := next(t, c)
		updates++
		if backends(u, "web") == 3 {
			break
		}
	}
	took := time.Since(began)
	if most := 2 + int(took/minInterval); updates > most {
		t.Errorf("%d updates in %s, want %d at most", updates, took, most)
	}
	t.Logf("%d changes in %s: %d updates", changes, took, updates)
}

func TestSlowReaderGetsAllChangesTogether(t *testing.T) {
	s := newAPIServer(t)
	s.put(testNode("n1", "192.0.2.1"))
	c := testCluster(t, s)
	run(t, c)
	next(t, c)
	for i := range 20 {
		s.put(testService(fmt.Sprintf("s%02d", i), fmt.Sprintf("10.96.1.%d", i)))
	}
	s.remove(testService("s00", "10.96.1.0"))
	eventually(t, "all known", func() bool { return c.Status().Objects["services"] == 19 })
	have := map[string]bool{}
	for len(have) < 19 || have["shop/s00"] {
		put, gone := names(next(t, c))
		for _, n := range put {
			have[n] = true
		}
		for _, n := range gone {
			delete(have, n)
		}
	}
}

func TestOnlyConfiguredNamespaces(t *testing.T) {
	s := newAPIServer(t)
	other := testService("other", "10.96.0.9")
	other.Namespace = "elsewhere"
	s.put(testService("web", "10.96.0.1"), other, testNode("n1", "192.0.2.1"))
	c := testCluster(t, s, func(cfg *Config) { cfg.Namespaces = []string{"shop", "empty"} })
	run(t, c)
	if put, _ := names(next(t, c)); !slices.Equal(put, []string{"shop/web"}) {
		t.Errorf("put %v", put)
	}
	if n := s.requests("watch services"); n < 2 {
		t.Errorf("%d watches of services, want one a namespace", n)
	}
}

// limitServices has a cluster keep n Services, and half as many of a namespace.
func limitServices(c *Cluster, n int) {
	limit := most
	limit.services = n
	for _, f := range c.conn.feeds {
		f.limit = limit
	}
	c.store.live = newObjects(limit)
}

func TestClusterBeyondTheLimitsIsServedInPart(t *testing.T) {
	for _, old := range []bool{false, true} {
		s := newAPIServer(t)
		s.oldLists = old
		for i := range 10 {
			s.put(testService(fmt.Sprintf("s%d", i), fmt.Sprintf("10.96.1.%d", i)))
		}
		s.put(testNode("n1", "192.0.2.1"))
		c := testCluster(t, s)
		limitServices(c, 10)
		run(t, c)
		if u := next(t, c); len(u.Put) != 5 {
			t.Errorf("%d Services, want 5", len(u.Put))
		}
		eventually(t, "the error", func() bool { return strings.Contains(c.Status().Error, "more than 5 Services in namespace ") })
		// Once there is room, the others are found.
		for i := range 7 {
			s.remove(testService(fmt.Sprintf("s%d", i), ""))
		}
		eventually(t, "all that fits", func() bool { return c.Status().Objects["services"] == 3 && c.Status().Error == "" })
	}
}

// A list that takes longer than the checks for room is not cut off because it leaves out objects.
func TestSlowListBeyondTheLimitsIsReadOnce(t *testing.T) {
	s := newAPIServer(t)
	for i := range 10 {
		s.put(testService(fmt.Sprintf("s%d", i), fmt.Sprintf("10.96.1.%d", i)))
	}
	s.put(testNode("n1", "192.0.2.1"))
	s.misbehave(func(w http.ResponseWriter, r *http.Request) bool {
		if r.URL.Query().Get("watch") == "" || !strings.HasSuffix(r.URL.Path, "/services") {
			return false
		}
		s.mu.Lock()
		services, at := s.matching("services", ""), s.version
		s.mu.Unlock()
		w.Header().Set("Content-Type", "application/json")
		for _, o := range services {
			writeEvent(w, "ADDED", o)
			time.Sleep(impatient.poll)
		}
		writeEvent(w, "BOOKMARK", bookmark("services", at, true))
		<-r.Context().Done()
		return true
	})
	c := testCluster(t, s)
	limitServices(c, 10)
	run(t, c)
	if u := next(t, c); len(u.Put) != 5 {
		t.Errorf("%d Services, want 5", len(u.Put))
	}
	if n := s.requests("watch services"); n != 1 {
		t.Errorf("%d lists of Services, want 1", n)
	}
}

// A list has its namespaces in order: the first ones take nothing of the fair part of the last.
func TestFirstNamespacesOfAListDoNotFillIt(t *testing.T) {
	for _, old := range []bool{false, true} {
		s := newAPIServer(t)
		s.oldLists = old
		for n, namespace := range []string{"a", "b", "victim"} {
			for i := range []int{10, 10, 3}[n] {
				svc := testService(fmt.Sprintf("s%d", i), fmt.Sprintf("10.96.%d.%d", n, i))
				svc.Namespace, svc.UID = namespace, types.UID(namespace+svc.Name)
				s.put(svc)
			}
		}
		s.put(testNode("n1", "192.0.2.1"))
		c := testCluster(t, s)
		limitServices(c, 12)
		run(t, c)
		count := map[string]int{}
		for _, svc := range next(t, c).Put {
			count[svc.ID.Namespace]++
		}
		if count["victim"] != 3 || count["a"] < 4 || count["b"] < 4 || count["a"]+count["b"] > 9 {
			t.Errorf("old lists %v: %v", old, count)
		}
	}
}

func TestNodesAreWatchedOnlyIfNeeded(t *testing.T) {
	for _, tc := range []struct {
		name   string
		change func(*Config)
		want   string
	}{
		{"edge box", func(*Config) {}, "all"},
		{"edge box of ClusterIPs", func(c *Config) { c.Kinds = map[lb.VIPKind]bool{lb.ClusterIP: true} }, "all"},
		{"edge box of ClusterIPs and given endpoints", func(c *Config) {
			c.Kinds, c.EndpointRanges = map[lb.VIPKind]bool{lb.ClusterIP: true}, prefixes("10.0.0.0/8")
		}, "none"},
		{"node", func(c *Config) { c.NodeName = "n1" }, "metadata.name=n1"},
		{"through node ports", func(c *Config) { c.NodeName, c.Reach = "n1", NodePorts }, "all"},
	} {
		cfg := testConfig("")
		tc.change(&cfg)
		got := "none"
		for _, r := range cfg.resources() {
			if r.name == "nodes" {
				got = "all"
				if r.fields != "" {
					got = r.fields
				}
			}
		}
		if got != tc.want {
			t.Errorf("%s: %s, want %s", tc.name, got, tc.want)
		}
	}
}

// Two Services of two backends fit; with a third backend the younger one yields.
func TestKernelObjectsOfAClusterAreLimited(t *testing.T) {
	s := newAPIServer(t)
	s.put(testNode("n1", "192.0.2.1"))
	at := func(name string, year int) *corev1.Service {
		svc := testService(name, "10.96.0."+name)
		svc.CreationTimestamp = metav1.Date(year, 1, 1, 0, 0, 0, 0, time.UTC)
		return svc
	}
	s.put(at("1", 2026), testSlice("1", "10.1.0.1", "10.1.0.2"), at("2", 2025), testSlice("2", "10.1.0.3", "10.1.0.4"))
	c := testCluster(t, s)
	c.cfg.Budget.Cluster = 2 * (perFrontend + 2)
	run(t, c)
	if u := next(t, c); backends(u, "1") != 2 || backends(u, "2") != 2 {
		t.Errorf("both find room: %+v", u)
	}
	s.put(testSlice("2", "10.1.0.3", "10.1.0.4", "10.1.0.5"))
	u := next(t, c)
	if len(u.Put) != 2 || len(u.Put[0].Ports) != 0 || len(u.Put[0].VIPs) != 0 || len(u.Put[0].Notes) != 1 || backends(lb.Update{Put: u.Put[1:]}, "2") != 3 {
		t.Errorf("the younger one yields: %+v", u)
	}
	if n := u.Put[0].Notes[0]; n.Reason != lb.OverBudget || !strings.Contains(n.Text, "max_objects") {
		t.Errorf("note: %s", n)
	}
	got := c.Status()
	if !strings.Contains(got.Error, "1 Services are not served") || got.OverBudget != 1 || got.KernelObjects != 2*perFrontend+5 {
		t.Errorf("status: %q, %d over budget, %d objects", got.Error, got.OverBudget, got.KernelObjects)
	}
	s.put(testSlice("2", "10.1.0.3"))
	if u := next(t, c); backends(u, "1") != 2 || backends(u, "2") != 1 {
		t.Errorf("there is room again: %+v", u)
	}
	if got := c.Status(); got.Error != "" || got.OverBudget != 0 {
		t.Errorf("status: %q, %d over budget", got.Error, got.OverBudget)
	}
}

func TestInvalidNamesAreLeftOut(t *testing.T) {
	s := newAPIServer(t)
	s.put(testService("web", "10.96.0.1"), testNode("n1", "192.0.2.1"))
	for _, name := range []string{"../up", "a\nb", "UPPER", "a b", strings.Repeat("a", 254)} {
		s.put(testService(name, "10.96.0.9"))
	}
	odd := testService("db", "10.96.0.8")
	odd.Namespace = "shop.x"
	s.put(odd)
	c := testCluster(t, s)
	run(t, c)
	if put, _ := names(next(t, c)); !slices.Equal(put, []string{"shop/web"}) {
		t.Errorf("put %v", put)
	}
	if got := c.Status().Error; !strings.Contains(got, "is left out: names must be as RFC 1123 has them") || len(got) > 400 {
		t.Errorf("status: %q", got)
	}
}

// lockedBuffer is a log.
type lockedBuffer struct {
	mu   sync.Mutex
	text strings.Builder
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// A cluster that has never been reachable is logged once, and again after it was connected.
func TestAnUnreachableClusterIsLogged(t *testing.T) {
	s := newAPIServer(t)
	s.put(testNode("n1", "192.0.2.1"))
	var log lockedBuffer
	c := New(testConfig(kubeconfigFor(t, s.URL, "")), slog.New(slog.NewTextHandler(&log, nil)))
	c.timing = impatient
	refuse := func(w http.ResponseWriter, _ *http.Request) bool {
		answer(w, http.StatusForbidden, metav1.StatusReasonForbidden, "no right")
		return true
	}
	s.misbehave(refuse)
	run(t, c)
	count := func() int { return strings.Count(log.String(), "cluster unreachable") }
	eventually(t, "logged", func() bool { return count() == 1 && strings.Contains(log.String(), "no right") })
	s.misbehave(nil)
	eventually(t, "connected", func() bool { return c.Status().Connected })
	if n := count(); n != 1 {
		t.Errorf("logged %d times", n)
	}
	s.misbehave(refuse)
	s.CloseClientConnections()
	eventually(t, "logged again", func() bool { return count() == 2 })
}
