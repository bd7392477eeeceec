package k8ssync

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"weir/cmd/weirlab/shards"
	"weir/lb"
)

// impatient are timings for tests.
var impatient = timing{
	poll: 20 * time.Millisecond, grace: 5 * time.Second,
	quiet: time.Millisecond, saves: time.Millisecond, refresh: time.Hour,
	backoff: 50 * time.Millisecond,
	timeouts: timeouts{
		dial: time.Second, header: 5 * time.Second, idle: 5 * time.Second, ping: 5 * time.Second,
		http1: 30 * time.Second, http2: 30 * time.Second,
	},
}

// kubeconfigFor writes a kubeconfig.
func kubeconfigFor(t testing.TB, server, user string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "kubeconfig")
	writeKubeconfig(t, file, server, user)
	return file
}

func writeKubeconfig(t testing.TB, file, server, user string) {
	t.Helper()
	text := fmt.Sprintf(`
apiVersion: v1
kind: Config
current-context: c
contexts: [{name: c, context: {cluster: k, user: u}}]
clusters: [{name: k, cluster: {server: %q, insecure-skip-tls-verify: %v}}]
users: [{name: u, user: {%s}}]
`, server, strings.HasPrefix(server, "https"), user)
	must(t, replaceFile(file, []byte(text)))
}

// testConfig is that of an edge box.
func testConfig(kubeconfig string) Config {
	return Config{
		Name: "prod", Kubeconfig: kubeconfig, Version: "test",
		Kinds:     map[lb.VIPKind]bool{lb.LoadBalancer: true, lb.ClusterIP: true, lb.ExternalIP: true, lb.NodePort: true},
		Scheduler: lb.Scheduler{Name: "rr"},
	}
}

func silentLog() *slog.Logger { return slog.New(slog.DiscardHandler) }

// running are the Clusters that run, and how many goroutines there were without any.
var running struct {
	sync.Mutex
	clusters, before int
}

// run runs a Cluster until the test ends or stop is called. The last one that stops sees
// that none has left anything behind.
func run(t *testing.T, c *Cluster) (stop func()) {
	t.Helper()
	running.Lock()
	if running.clusters++; running.clusters == 1 {
		running.before = runtime.NumGoroutine()
	}
	before := running.before
	running.Unlock()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- c.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		select {
		case err := <-done:
			if err != nil {
				t.Errorf("Run: %v", err)
			}
		case <-time.After(10 * time.Second):
			t.Error("Run does not end")
			return
		}
		running.Lock()
		running.clusters--
		last := running.clusters == 0
		running.Unlock()
		if last && !poll(20*time.Second, func() bool { return runtime.NumGoroutine() <= before }) {
			stacks := make([]byte, 1<<20)
			t.Errorf("%d goroutines before, %d after:\n%s", before, runtime.NumGoroutine(), stacks[:runtime.Stack(stacks, true)])
		}
	})
	t.Cleanup(stop)
	return stop
}

// poll asks until it is so.
func poll(within time.Duration, so func() bool) bool {
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(within)
	for !so() {
		select {
		case <-tick.C:
		case <-deadline:
			return so()
		}
	}
	return true
}

// patience is a limit against hanging: a machine may be busy.
const patience = time.Minute

func eventually(t *testing.T, what string, so func() bool) {
	t.Helper()
	if !poll(patience, so) {
		t.Fatalf("it never happens: %s", what)
	}
}

// never checks that something does not happen for a while, which is many times as long as
// a file waits for what is next.
func never(t *testing.T, what string, so func() bool) {
	t.Helper()
	if poll(50*time.Millisecond, so) {
		t.Errorf("it happens: %s", what)
	}
}

// next waits for an Update, and lets it through.
func next(t *testing.T, c *Cluster) lb.Update {
	t.Helper()
	deadline := time.After(patience)
	for {
		if u, ok := c.Take(); ok {
			c.Commit(nil)
			return u
		}
		select {
		case <-c.Changed():
		case <-deadline:
			t.Fatalf("no update; status %+v", c.Status())
		}
	}
}

// names gives those of the Services of an update.
func names(u lb.Update) (put, gone []string) {
	for _, s := range u.Put {
		put = append(put, s.ID.Namespace+"/"+s.ID.Name)
	}
	for _, id := range u.Delete {
		gone = append(gone, id.Namespace+"/"+id.Name)
	}
	return put, gone
}

// backends counts those of a Service in an update.
func backends(u lb.Update, name string) int {
	for _, s := range u.Put {
		if s.ID.Name == name {
			return len(s.Ports[0].Backends)
		}
	}
	return -1
}

func testService(name, ip string) *corev1.Service {
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, UID: "uid-of-" + types.UID(name), CreationTimestamp: metav1.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)},
		Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeClusterIP, ClusterIP: ip, ClusterIPs: []string{ip}, IPFamilies: []corev1.IPFamily{corev1.IPv4Protocol},
			Ports: []corev1.ServicePort{{Name: "http", Port: 80, Protocol: corev1.ProtocolTCP}},
		},
	}
}

func testSlice(service string, addrs ...string) *discoveryv1.EndpointSlice {
	name, port, proto, ready := "http", int32(8080), corev1.ProtocolTCP, true
	s := &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Namespace: "shop", Name: service + "-1", Labels: map[string]string{discoveryv1.LabelServiceName: service}},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports:       []discoveryv1.EndpointPort{{Name: &name, Port: &port, Protocol: &proto}},
	}
	for _, a := range addrs {
		s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{Addresses: []string{a}, Conditions: discoveryv1.EndpointConditions{Ready: &ready}})
	}
	return s
}

func testNode(name, ip string) *corev1.Node {
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelTopologyZone: "a"}},
		Spec:       corev1.NodeSpec{PodCIDR: "10.1.0.0/24", PodCIDRs: []string{"10.1.0.0/24"}},
		Status: corev1.NodeStatus{
			Addresses:  []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: ip}},
			Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}},
		},
	}
}

// testCluster is a Cluster of a server, impatient.
func testCluster(t testing.TB, s *apiServer, change ...func(*Config)) *Cluster {
	t.Helper()
	cfg := testConfig(kubeconfigFor(t, s.URL, ""))
	for _, f := range change {
		f(&cfg)
	}
	c := New(cfg, silentLog())
	c.timing = impatient
	return c
}

func TestMain(m *testing.M) {
	os.Setenv("HTTPS_PROXY", "http://127.0.0.1:1") // which must be ignored
	os.Setenv("HTTP_PROXY", "http://127.0.0.1:1")
	os.Exit(shards.Run(m, 6)) // they wait for servers, and count goroutines
}

// watchEvent and fakeWatch are those of a watch with events of a test.
type watchEvent = watch.Event

type fakeWatch struct {
	out  chan watchEvent
	once sync.Once
}

func (f *fakeWatch) Decode() (watch.EventType, apiruntime.Object, error) {
	e, ok := <-f.out
	if !ok {
		return "", nil, io.EOF
	}
	return e.Type, e.Object, nil
}

func (f *fakeWatch) Close() { f.once.Do(func() { close(f.out) }) }

// must ends the test if err is not nil.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
