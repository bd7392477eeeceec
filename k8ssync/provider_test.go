package k8ssync

import (
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"weir/k8ssync/ipam"
	"weir/lb"
)

// one is a cluster with Service web, of which addresses of one pool can be had.
func one(t *testing.T, pools ...ipam.Pool) (*apiServer, *box) {
	t.Helper()
	s := newAPIServer(t)
	s.put(testNode("n1", "10.0.0.1"), testBalancer("web", "10.96.0.1", "", nil))
	return s, newBox(t, providerConfig("box1", pools...), map[string]*apiServer{"prod": s})
}

func TestAServiceGetsAnAddress(t *testing.T) {
	s := newAPIServer(t)
	s.put(testNode("n1", "10.0.0.1"), testBalancer("web", "10.96.0.1", "", nil))
	var mu sync.Mutex
	var order []string
	s.misbehave(func(_ http.ResponseWriter, r *http.Request) bool {
		mu.Lock()
		defer mu.Unlock()
		if r.Method != http.MethodGet && !strings.Contains(r.URL.Path, writerLease) && r.URL.RawQuery != "" || r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "/leases") {
			order = append(order, r.Method+" "+r.URL.Path)
		}
		return false
	})
	p := newBox(t, providerConfig("box1", pool("public", "192.0.2.0/30")), map[string]*apiServer{"prod": s})
	has(t, s, "web", "192.0.2.0", "Assigned")
	if d := cmp.Diff(map[string]string{"weir-192.0.2.0": "prod/shop/web"}, s.claimed()); d != "" {
		t.Errorf("claims (-want +got): %s", d)
	}
	// The watch may bring the status before the answer to its write, which counts it.
	eventually(t, "it is seen to be written, and counted", func() bool {
		st := p.Status()
		return st.Writing && len(st.Decisions) == 1 && st.Decisions[0].Written && st.Usage.Pools[0].Used == 1 && st.Counters.Assigned > 0
	})
	st := p.Status()
	if st.Counters.Assigned != 1 || st.Counters.StatusWrites != 1 || st.Counters.Errors != 0 || st.Counters.Conflicts != 0 {
		t.Errorf("counters %+v", st.Counters)
	}
	if l := p.TakeLatencies(); len(l) != 1 || l[0] <= 0 || l[0] > 20*time.Second {
		t.Errorf("latencies %v", l)
	}
	// The applied object has only these fields, and the version that was read.
	want := `{"apiVersion":"v1","kind":"Service","metadata":{"name":"web","namespace":"shop","uid":"uid-of-web","resourceVersion":"102"},` +
		`"status":{"loadBalancer":{"ingress":[{"ip":"192.0.2.0","ipMode":"VIP"}]},` +
		`"conditions":[{"type":"weir/LoadBalancer","status":"True","lastTransitionTime":"TIME","reason":"Assigned","message":"192.0.2.0"}]}}`
	_, c := s.statusOf("web")
	s.mu.Lock()
	got := strings.ReplaceAll(strings.Join(s.applied, "\n"), c.LastTransitionTime.UTC().Format(time.RFC3339), "TIME")
	s.mu.Unlock()
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("applied (-want +got): %s", d)
	}
	// The claim comes before the status.
	mu.Lock()
	defer mu.Unlock()
	writes := []string{
		"POST /apis/coordination.k8s.io/v1/namespaces/weir-system/leases", // the writer's
		"POST /apis/coordination.k8s.io/v1/namespaces/weir-system/leases",
		"PATCH /api/v1/namespaces/shop/services/web/status",
	}
	if d := cmp.Diff(writes, order); d != "" {
		t.Errorf("writes (-want +got): %s", d)
	}
}

func TestProviderContinuesAfterARestart(t *testing.T) {
	s, p := one(t, pool("public", "192.0.2.0/30"))
	has(t, s, "web", "192.0.2.0", "Assigned")
	s.put(testBalancer("api", "10.96.0.2", "", nil))
	has(t, s, "api", "192.0.2.1", "Assigned")
	p.stop()
	s.mu.Lock()
	written := len(s.applied)
	s.mu.Unlock()
	newBox(t, providerConfig("box1", pool("public", "192.0.2.0/30")), map[string]*apiServer{"prod": s})
	s.put(testBalancer("db", "10.96.0.3", "", nil))
	has(t, s, "db", "192.0.2.2", "Assigned")
	has(t, s, "web", "192.0.2.0", "Assigned")
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.applied) != written+1 {
		t.Errorf("%d statuses were written at the restart, want that of db alone: %s", len(s.applied)-written, s.applied[written:])
	}
}

func TestPendingHasAReasonAndEndsWithAPool(t *testing.T) {
	s, p := one(t, pool("other", "2001:db8::/126"))
	has(t, s, "web", "", "FamilyMissing")
	eventually(t, "a Note", func() bool {
		n := notesOf(p)
		return len(n) == 1 && n[0].Reason == lb.AddressPending && strings.HasPrefix(n[0].Text, "family-missing: ")
	})
	p.Configure(providerConfig("box1", pool("other", "2001:db8::/126"), pool("public", "192.0.2.0/30")))
	has(t, s, "web", "192.0.2.0", "Assigned")
	eventually(t, "no Note", func() bool { return len(notesOf(p)) == 0 })
	eventually(t, "Events", func() bool { return len(s.written()) == 2 })
	for i, want := range []string{"Normal shop/web uid-of-web AddressAssigned: assigned 192.0.2.0", "Warning shop/web uid-of-web AddressPending: FamilyMissing: "} {
		if got := s.written()[i]; !strings.HasPrefix(got, want) {
			t.Errorf("Event %q, want %q", got, want)
		}
	}
}

// The nearest available address in a condition is that of the time at which the rest was
// written: it changes for all pending Services at a time.
func TestNearestAddressIsNoReasonToWrite(t *testing.T) {
	s, p := one(t, pool("public", "192.0.2.0/29"))
	has(t, s, "web", "192.0.2.0", "Assigned")
	db := testBalancer("db", "10.96.0.2", "", nil)
	db.Annotations = map[string]string{"weir/addresses": "192.0.2.0"}
	s.put(db)
	has(t, s, "db", "", "AddressInUse")
	s.put(testBalancer("api", "10.96.0.3", "", nil))
	has(t, s, "api", "192.0.2.1", "Assigned")
	s.edit("db", func(v *corev1.Service) { v.Spec.SessionAffinity = corev1.ServiceAffinityClientIP }) // it is decided again
	eventually(t, "it is written", func() bool {
		d, _ := p.Decision(lb.ServiceID{Source: "prod", Namespace: "shop", Name: "db"})
		return d.Written && strings.Contains(d.Pending.Text(), "is 192.0.2.2 of pool")
	})
	if _, c := s.statusOf("db"); !strings.Contains(c.Message, "is 192.0.2.1 of pool") {
		t.Errorf("it says %q", c.Message)
	}
	s.edit("db", func(v *corev1.Service) { v.Annotations["weir/addresses"] = "192.0.2.1" })
	eventually(t, "another rule is written", func() bool {
		_, c := s.statusOf("db")
		return strings.Contains(c.Message, "192.0.2.1 is the address of prod/shop/api; the nearest available address is 192.0.2.2")
	})
}

func TestStatusFollowsTheRequest(t *testing.T) {
	s, _ := one(t, pool("public", "192.0.2.0/24", "2001:db8::/120"), pool("private", "10.9.0.0/24"))
	has(t, s, "web", "10.9.0.0", "Assigned") // by name
	for _, c := range []struct {
		what   string
		change func(*corev1.Service)
		addrs  string
		reason string
	}{
		{"another pool", func(v *corev1.Service) { v.Annotations = map[string]string{"weir/pool": "public"} }, "192.0.2.0", "Assigned"},
		{"an address", func(v *corev1.Service) { v.Annotations = map[string]string{"weir/addresses": "192.0.2.7"} }, "192.0.2.7", "Assigned"},
		{"nonsense changes nothing", func(v *corev1.Service) { v.Annotations = map[string]string{"weir/addresses": "foo"} }, "192.0.2.7", "BadRequest"},
		{"nor does an unknown pool", func(v *corev1.Service) { v.Annotations = map[string]string{"weir/pool": "publik"} }, "192.0.2.7", "NoPool"},
		{"no address", func(v *corev1.Service) { v.Annotations, v.Spec.LoadBalancerIP = nil, "192.0.2.300" }, "192.0.2.7", "BadRequest"},
		{"spec.loadBalancerIP", func(v *corev1.Service) { v.Annotations, v.Spec.LoadBalancerIP = nil, "192.0.2.9" }, "192.0.2.9", "Assigned"},
		{"two families", func(v *corev1.Service) {
			policy := corev1.IPFamilyPolicyRequireDualStack
			v.Spec.IPFamilyPolicy, v.Spec.IPFamilies, v.Spec.ClusterIPs = &policy, []corev1.IPFamily{"IPv4", "IPv6"}, []string{"10.96.0.1", "fd00::1"}
		}, "192.0.2.9,2001:db8::", "Assigned"},
	} {
		s.edit("web", c.change)
		has(t, s, "web", c.addrs, c.reason)
		t.Logf("%s: %s", c.what, c.addrs)
	}
}

func TestAnAddressWaitsForItsService(t *testing.T) {
	s, p := one(t, pool("public", "192.0.2.0/30"))
	has(t, s, "web", "192.0.2.0", "Assigned")
	s.remove(testBalancer("web", "10.96.0.1", "", nil))
	eventually(t, "held", func() bool { return p.Status().Usage.Pools[0].Retained == 1 })
	s.put(testBalancer("api", "10.96.0.2", "", nil))
	has(t, s, "api", "192.0.2.1", "Assigned")
	again := testBalancer("web", "10.96.0.1", "", nil)
	again.UID = "uid-of-another"
	s.put(again)
	has(t, s, "web", "192.0.2.0", "Assigned")
	if n := s.claimed(); len(n) != 2 {
		t.Errorf("claims %v", n)
	}
	// And is free when it has waited long enough.
	short := providerConfig("box1", pool("public", "192.0.2.0/30"))
	short.IPAM.Retention = 50 * time.Millisecond
	p.Configure(short)
	s.remove(testBalancer("web", "10.96.0.1", "", nil))
	eventually(t, "free", func() bool { return len(s.claimed()) == 1 })
	eventually(t, "Event", func() bool {
		return slices.ContainsFunc(s.written(), func(e string) bool {
			return strings.HasPrefix(e, "Normal shop/web uid-of-web AddressReleased: the Service is gone: 192.0.2.0 is kept for one of this name for 1h0m0s")
		})
	})
}

func TestForeignServicesAreNotWritten(t *testing.T) {
	s := newAPIServer(t)
	vip, metal := "VIP", "metallb"
	foreign := testBalancer("metal", "10.96.0.1", "192.0.2.0", &vip)
	foreign.Spec.LoadBalancerClass = &metal
	empty := testBalancer("none", "10.96.0.2", "", nil)
	empty.Spec.LoadBalancerClass = &metal
	elsewhere := testBalancer("cloud", "10.96.0.3", "203.0.113.1", nil)
	labelled := testBalancer("kept", "10.96.0.5", "", nil)
	s.put(testNode("n1", "10.0.0.1"), foreign, empty, elsewhere, labelled, testService("plain", "10.96.0.6"))
	p := newBox(t, providerConfig("box1", pool("public", "192.0.2.0/30")), map[string]*apiServer{"prod": s})
	has(t, s, "kept", "192.0.2.1", "Assigned") // 192.0.2.0 is the foreign one's
	if d := cmp.Diff(map[string]string{"weir-192.0.2.1": "prod/shop/kept"}, s.claimed()); d != "" {
		t.Errorf("claims (-want +got): %s", d)
	}
	if n := len(p.Status().Decisions); n != 1 {
		t.Errorf("%d decisions, want that of kept alone", n)
	}
	// It asks, so it is ours.
	s.edit("cloud", func(v *corev1.Service) { v.Annotations = map[string]string{"weir/addresses": "192.0.2.2"} })
	has(t, s, "cloud", "192.0.2.2", "Assigned")
	// It has addresses of a pool without a claim: it keeps them.
	s.put(testBalancer("adopted", "10.96.0.7", "192.0.2.3", &vip))
	has(t, s, "adopted", "192.0.2.3", "Assigned")
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, a := range s.applied {
		if !strings.Contains(a, `"name":"kept"`) && !strings.Contains(a, `"name":"cloud"`) && !strings.Contains(a, `"name":"adopted"`) {
			t.Errorf("written: %s", a)
		}
	}
}

func TestAddressesOfNodesAreNotAssigned(t *testing.T) {
	s := newAPIServer(t)
	s.put(testNode("n1", "192.0.2.0"), testBalancer("web", "10.96.0.1", "", nil))
	newBox(t, providerConfig("box1", pool("public", "192.0.2.0/30")), map[string]*apiServer{"prod": s})
	has(t, s, "web", "192.0.2.1", "Assigned")
	s.edit("web", func(v *corev1.Service) { v.Spec.LoadBalancerIP = "192.0.2.0" })
	has(t, s, "web", "192.0.2.1", "AddressInUse")
	if _, c := s.statusOf("web"); !strings.Contains(c.Message, "192.0.2.0 is the address of a Node of cluster prod") {
		t.Error(c.Message)
	}
}

// A kubelet lists any addresses as its own. In a pool for other clusters they stay available.
func TestANodeExcludesAddressesOnlyFromPoolsForItsCluster(t *testing.T) {
	home, stage := newAPIServer(t), newAPIServer(t)
	home.put(testNode("n1", "10.0.0.1"), testBalancer("web", "10.96.0.1", "", nil))
	stage.put(testNode("n2", "192.0.2.0"), testNode("n3", "198.51.100.0"))
	private, common := pool("a", "192.0.2.0/30"), pool("b", "198.51.100.0/30")
	private.Clusters = []string{"prod"}
	p := newBox(t, providerConfig("box1", private, common), map[string]*apiServer{"prod": home, "stage": stage})
	eventually(t, "it is taken in the common pool", func() bool { return p.Status().Usage.Pools[1].Taken == 1 })
	has(t, home, "web", "192.0.2.0", "Assigned")
	home.edit("web", func(v *corev1.Service) { v.Annotations = map[string]string{"weir/pool": "b"} })
	has(t, home, "web", "198.51.100.1", "Assigned")
	if n := p.Status().Usage.Pools[0].Taken; n != 0 {
		t.Errorf("%d addresses are taken in the pool for prod", n)
	}
}

func TestAddressesOfNodesOfARemovedClusterAreFree(t *testing.T) {
	home, stage := newAPIServer(t), newAPIServer(t)
	home.put(testNode("n1", "10.0.0.1"))
	stage.put(testNode("n2", "192.0.2.0"))
	p := newBox(t, providerConfig("box1", pool("public", "192.0.2.0/30")), map[string]*apiServer{"prod": home, "stage": stage})
	eventually(t, "it is taken", func() bool { return p.Status().Usage.Pools[0].Taken == 1 })
	p.Follow(map[string]*Cluster{"prod": p.clusters["prod"]})
	eventually(t, "it is free", func() bool { return p.Status().Usage.Pools[0].Taken == 0 })
}

// Its field has other owners, so that an apply without the field would leave it.
func TestAddressOfAnotherServiceIsRemoved(t *testing.T) {
	s, p := one(t, pool("public", "192.0.2.0/32"))
	has(t, s, "web", "192.0.2.0", "Assigned")
	vip := "VIP"
	s.put(testBalancer("twin", "10.96.0.2", "192.0.2.0", &vip))
	has(t, s, "twin", "", "PoolExhausted")
	s.remove(testBalancer("web", "10.96.0.1", "", nil))
	cfg := providerConfig("box1", pool("public", "192.0.2.0/32"))
	cfg.IPAM.Retention = time.Millisecond
	p.Configure(cfg)
	has(t, s, "twin", "192.0.2.0", "Assigned")
}

func TestUnmanagedServiceLosesOnlyWeirsFields(t *testing.T) {
	for _, c := range []struct {
		what   string
		change func(*apiServer, *box)
	}{
		{"another type", func(s *apiServer, _ *box) {
			s.edit("web", func(v *corev1.Service) {
				v.Spec.Type, v.Status.LoadBalancer = corev1.ServiceTypeClusterIP, corev1.LoadBalancerStatus{}
			})
		}},
		{"default_class off", func(_ *apiServer, p *box) {
			cfg := providerConfig("box1", pool("public", "192.0.2.0/30"))
			cfg.DefaultClass = false
			p.Configure(cfg)
		}},
	} {
		t.Run(c.what, func(t *testing.T) {
			s, p := one(t, pool("public", "192.0.2.0/30"))
			has(t, s, "web", "192.0.2.0", "Assigned")
			c.change(s, p)
			has(t, s, "web", "", "")
			eventually(t, "held", func() bool { return p.Status().Usage.Pools[0].Retained == 1 })
			s.mu.Lock()
			defer s.mu.Unlock()
			if last := s.applied[len(s.applied)-1]; strings.Contains(last, `"status"`) {
				t.Errorf("applied %s", last)
			}
		})
	}
}

// Who looks only after changes sees that there are no pools any more.
func TestTheEndOfAllPoolsIsAChange(t *testing.T) {
	s, p := one(t, pool("public", "192.0.2.0/30"))
	has(t, s, "web", "192.0.2.0", "Assigned")
	time.Sleep(2 * maxInterval) // until the assignment has been reported
	select {
	case <-p.Changed():
	default:
	}
	p.Configure(providerConfig("box1"))
	last := p.Status()
	eventually(t, "no pools", func() bool {
		select {
		case <-p.Changed():
			last = p.Status()
		default:
		}
		return len(last.Usage.Pools) == 0
	})
}

func TestIPModeIsRewritten(t *testing.T) {
	s, p := one(t, pool("public", "192.0.2.0/30"))
	has(t, s, "web", "192.0.2.0", "Assigned")
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

func TestUndoneStatusIsRewritten(t *testing.T) {
	s, p := one(t, pool("public", "192.0.2.0/30"))
	for range 4 {
		has(t, s, "web", "192.0.2.0", "Assigned")
		s.edit("web", func(v *corev1.Service) { v.Status = corev1.ServiceStatus{} })
	}
	has(t, s, "web", "192.0.2.0", "Assigned")
	if n := p.Status().Usage.Pools[0].Used; n != 1 {
		t.Errorf("%d used", n)
	}
}

func TestShrinkingPoolMovesNoService(t *testing.T) {
	s, p := one(t, pool("public", "192.0.2.0/30"))
	has(t, s, "web", "192.0.2.0", "Assigned")
	next := providerConfig("box1", pool("public", "198.51.100.0/30"))
	if n := p.OutsidePool(next.IPAM); len(n) != 1 || n[0].Service.Name != "web" {
		t.Errorf("outside the next pool: %v", n)
	}
	p.Configure(next)
	has(t, s, "web", "192.0.2.0", "OutsidePool")
	eventually(t, "a Note", func() bool {
		n := notesOf(p)
		return len(n) == 1 && n[0].Reason == lb.OutsidePool
	})
	s.put(testBalancer("api", "10.96.0.2", "", nil))
	has(t, s, "api", "198.51.100.0", "Assigned")
	s.edit("web", func(v *corev1.Service) { v.Annotations = map[string]string{"weir/pool": "public"} })
	has(t, s, "web", "198.51.100.1", "Assigned")
}

func TestManyServicesOfTwoClustersShareAPoolWithoutSharingAddresses(t *testing.T) {
	const each = 40
	servers := map[string]*apiServer{"prod": newAPIServer(t), "stage": newAPIServer(t)}
	for _, s := range servers {
		s.put(testNode("n1", "10.0.0.1"))
		for i := range each {
			s.put(testBalancer(fmt.Sprintf("s%02d", i), fmt.Sprintf("10.96.1.%d", i+1), "", nil))
		}
	}
	p := newBox(t, providerConfig("box1", pool("public", "192.0.2.0/24")), servers)
	owners := func() map[string]string {
		out := map[string]string{}
		for name, s := range servers {
			for i := range each {
				if addrs, _ := s.statusOf(fmt.Sprintf("s%02d", i)); len(addrs) == 1 {
					out[addrs[0]] = fmt.Sprintf("%s/s%02d", name, i)
				}
			}
		}
		return out
	}
	eventually(t, "all have one of their own", func() bool { return len(owners()) == 2*each })
	if used := p.Status().Usage.Pools[0].Used; used != 2*each {
		t.Errorf("%d used", used)
	}
	if claims := servers["prod"].claimed(); len(claims) != 2*each || len(servers["stage"].claimed()) != 0 {
		t.Errorf("claims: %v", slices.Sorted(maps.Keys(claims)))
	}
}

func TestNoRequestsWithoutPools(t *testing.T) {
	s, p := one(t)
	eventually(t, "synced", func() bool { return p.clusters["prod"].Status().Synced })
	if n := s.requests("list leases") + s.requests("watch leases") + s.requests("get leases") + s.requests("create leases"); n != 0 {
		t.Errorf("%d requests for Leases", n)
	}
	p.Configure(providerConfig("box1", pool("public", "192.0.2.0/30")))
	has(t, s, "web", "192.0.2.0", "Assigned")
}

// A reload may add a pool for other clusters that has addresses of Nodes: the mistake must not
// wait for a change of a Node.
func TestAReloadWarnsOfPoolsWithNodes(t *testing.T) {
	s := newAPIServer(t)
	s.put(testNode("n1", "192.0.2.1"), testBalancer("web", "10.96.0.1", "", nil))
	var log lockedBuffer
	common := pool("common", "198.51.100.0/30")
	p := newBox(t, providerConfig("box1", common), map[string]*apiServer{"prod": s}, func(b *box) { b.log = slog.New(slog.NewTextHandler(&log, nil)) })
	has(t, s, "web", "198.51.100.0", "Assigned")
	const warning = "Node address ignored"
	if strings.Contains(log.String(), warning) {
		t.Errorf("before the reload: %s", log.String())
	}
	private := pool("private", "192.0.2.0/30")
	private.Clusters = []string{"test"}
	p.Configure(providerConfig("box1", common, private))
	eventually(t, "a warning", func() bool { return strings.Contains(log.String(), warning) })
}

// The log has one line only, so the status has to follow the Nodes and the pools.
func TestIgnoredAddressesOfNodesAreCounted(t *testing.T) {
	s := newAPIServer(t)
	s.put(testNode("n1", "192.0.2.1"), testNode("n2", "198.51.100.1"))
	private := pool("private", "192.0.2.0/29")
	private.Clusters = []string{"test"}
	p := newBox(t, providerConfig("box1", pool("common", "198.51.100.0/30"), private), map[string]*apiServer{"prod": s})
	ignored := func(count int, first ...string) {
		t.Helper()
		eventually(t, fmt.Sprint(count, " ignored"), func() bool {
			got := p.Status().IgnoredNodes["prod"]
			return got.Count == count && slices.Equal(got.First, addrs(first...))
		})
	}
	ignored(1, "192.0.2.1")
	for n := range 4 {
		s.put(testNode(fmt.Sprint("more", n), fmt.Sprint("192.0.2.", 2+n)))
	}
	ignored(5, "192.0.2.1", "192.0.2.2", "192.0.2.3")
	summary, _ := p.Summary()
	if got := summary.IgnoredNodes["prod"].Count; got != 5 {
		t.Errorf("the summary has %d ignored addresses", got)
	}
	s.put(testNode("n1", "10.0.0.1"))
	ignored(4, "192.0.2.2", "192.0.2.3", "192.0.2.4")
	p.Configure(providerConfig("box1", pool("common", "198.51.100.0/30")))
	ignored(0)
}
