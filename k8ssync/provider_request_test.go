package k8ssync

import (
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"weir/k8ssync/ipam"
	"weir/lb"
)

func TestRequests(t *testing.T) {
	t.Parallel()
	id := lb.ServiceID{Source: "prod", Namespace: "shop", Name: "web"}
	plain := func() *service {
		return &service{
			key: key{"shop", "web"}, UID: "u", Version: "7", Created: made, Type: "LoadBalancer",
			Families: []string{"IPv4"}, Ports: []servicePort{{"http", "TCP", 80, 30080}, {"dns", "UDP", 53, 0}},
			Selector: "app=web", Labels: map[string]string{"tier": "gold"},
		}
	}
	base := func() ipam.Request {
		return ipam.Request{
			ID: id, UID: "u", Version: "7", Created: made, Required: []lb.Family{lb.IPv4}, Selector: "app=web", Labels: map[string]string{"tier": "gold"},
			Ports: []lb.PortKey{{Port: 80, Proto: lb.TCP}, {Port: 53, Proto: lb.UDP}},
		}
	}
	foreign := func(change func(*ipam.Request)) ipam.Request {
		r := ipam.Request{ID: id, UID: "u", Version: "7", Created: made, Foreign: true}
		change(&r)
		return r
	}
	dual := []lb.Family{lb.IPv4, lb.IPv6}
	say := func(name, text string) func(*service) {
		return func(s *service) { s.Annotations = map[string]string{"" + name: text} }
	}
	for _, c := range []struct {
		name   string
		change func(*service)
		want   func(*ipam.Request)
	}{
		{"plain", func(*service) {}, func(*ipam.Request) {}},
		{"our class", func(s *service) { s.LoadBalancerClass = "weir/lb" }, func(*ipam.Request) {}},
		{"both families", func(s *service) { s.Families, s.FamilyPolicy = []string{"IPv6", "IPv4"}, "RequireDualStack" }, func(r *ipam.Request) { r.Required = dual }},
		{"both if there are", func(s *service) { s.Families, s.FamilyPolicy = []string{"IPv4", "IPv6"}, "PreferDualStack" }, func(r *ipam.Request) { r.Required, r.Preferred = nil, dual }},
		{"the first of two", func(s *service) { s.Families, s.FamilyPolicy = []string{"IPv6", "IPv4"}, "SingleStack" }, func(r *ipam.Request) { r.Required = []lb.Family{lb.IPv6} }},
		{"from before there were families", func(s *service) { s.Families, s.ClusterIPs = nil, addrs("10.0.0.1") }, func(*ipam.Request) {}},
		{"spec.loadBalancerIP", func(s *service) { s.Asked = "192.0.2.7" }, func(r *ipam.Request) { r.Addrs = addrs("192.0.2.7") }},
		{"the annotation says more", func(s *service) {
			s.Asked = "192.0.2.7"
			say("addresses", "192.0.2.8, ::ffff:192.0.2.9 2001:db8::1")(s)
		}, func(r *ipam.Request) { r.Addrs = addrs("192.0.2.8", "192.0.2.9", "2001:db8::1") }},
		{"no address in spec.loadBalancerIP", func(s *service) { s.Asked = "192.0.2.300" }, func(r *ipam.Request) {
			r.Bad = `spec.loadBalancerIP: invalid address "192.0.2.300": write one, as in "192.0.2.7"`
		}},
		{"no address", say("addresses", "web.example"), func(r *ipam.Request) {
			r.Bad = `weir/addresses: invalid address "web.example": write one of a family, as in "192.0.2.7, 2001:db8::7"`
		}},
		{"a zone", say("addresses", "fe80::1%eth0"), func(r *ipam.Request) {
			r.Bad = `weir/addresses: invalid address "fe80::1%eth0": write one of a family, as in "192.0.2.7, 2001:db8::7"`
		}},
		{"a pool", say("pool", " public "), func(r *ipam.Request) { r.Pool = "public" }},
		{"a key", say("sharing-key", "site"), func(r *ipam.Request) { r.Share = "site" }},
		{"Local", func(s *service) { s.ExternalLocal = true }, func(r *ipam.Request) { r.Local = true }},
		{"addresses of a pool", func(s *service) { s.Ingress, s.Proxied = addrs("192.0.2.1"), addrs("192.0.2.2") }, func(r *ipam.Request) { r.Status = addrs("192.0.2.1", "192.0.2.2") }},
		{"one that goes keeps its addresses", func(s *service) { s.Deleting, s.Ingress = true, addrs("192.0.2.1") }, func(r *ipam.Request) { r.Status = addrs("192.0.2.1") }},
		{"one that goes gets none", func(s *service) { s.Deleting = true }, func(r *ipam.Request) { *r = foreign(func(*ipam.Request) {}) }},
		{"another class", func(s *service) { s.LoadBalancerClass, s.Ingress = "metallb", addrs("192.0.2.1") }, func(r *ipam.Request) {
			*r = foreign(func(r *ipam.Request) { r.Status = addrs("192.0.2.1") })
		}},
		{"another's address", func(s *service) { s.Ingress = addrs("203.0.113.1") }, func(r *ipam.Request) {
			*r = foreign(func(r *ipam.Request) { r.Status = addrs("203.0.113.1") })
		}},
		{"another's host name", func(s *service) { s.Named = true }, func(r *ipam.Request) { *r = foreign(func(*ipam.Request) {}) }},
		{"another's address, but it asks", func(s *service) { s.Ingress = addrs("203.0.113.1"); say("pool", "public")(s) }, func(r *ipam.Request) {
			r.Status, r.Pool = addrs("203.0.113.1"), "public"
		}},
		{"an address that weir gave, of a pool that is gone", func(s *service) { s.Ingress, s.Condition = addrs("203.0.113.1"), condition{Status: "True"} }, func(r *ipam.Request) {
			r.Status = addrs("203.0.113.1")
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			cfg := providerConfig("box1", pool("public", "192.0.2.0/24", "2001:db8::/64"))
			s, want := plain(), base()
			c.change(s)
			c.want(&want)
			want.AnnotationPrefix = DefaultAnnotationPrefix
			got, some := cfg.request(&Config{Name: "prod"}, s)
			if d := cmp.Diff(want, got, exact); d != "" || !some {
				t.Errorf("%v (-want +got): %s", some, d)
			}
		})
	}
	cfg := providerConfig("box1", pool("public", "192.0.2.0/24"))
	cfg.DefaultClass = false
	if r, _ := cfg.request(&Config{Name: "prod"}, plain()); !r.Foreign {
		t.Error("without default_class, a Service without a class is ours")
	}
	s := plain()
	s.Type = "NodePort"
	if _, some := cfg.request(&Config{Name: "prod"}, s); some {
		t.Error("a NodePort Service is to do with addresses")
	}
}

// Which box may take the lease, only by its own clock.
func TestElection(t *testing.T) {
	t.Parallel()
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	lease := func(version, holder string, seconds int32) *coordinationv1.Lease {
		far := metav1.NewMicroTime(start.Add(-1000 * time.Hour)) // its clock does not matter
		return &coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{ResourceVersion: version},
			Spec:       coordinationv1.LeaseSpec{HolderIdentity: &holder, LeaseDurationSeconds: &seconds, RenewTime: &far, AcquireTime: &far},
		}
	}
	e := election{identity: "me", timing: defaultElection}
	for i, c := range []struct {
		after  time.Duration
		lease  *coordinationv1.Lease
		may    bool
		writer string
	}{
		{0, lease("1", "you", 15), false, "you"},
		{14 * time.Second, lease("1", "you", 15), false, "you"},
		{16 * time.Second, lease("2", "you", 15), false, "you"}, // renewed
		{30 * time.Second, lease("2", "you", 15), false, "you"},
		{31 * time.Second, lease("2", "you", 15), true, ""},
		{32 * time.Second, lease("3", "", 1), true, ""}, // given back
		{33 * time.Second, lease("4", "me", 15), true, "me"},
		{90 * time.Second, lease("4", "me", 15), true, ""},      // expired, and not taken
		{91 * time.Second, lease("5", "you", 15), false, "you"}, // taken by another box
		{100 * time.Second, lease("6", "you", math.MaxInt32), false, "you"},
		{249 * time.Second, lease("6", "you", math.MaxInt32), false, "you"},
		{250 * time.Second, lease("6", "you", math.MaxInt32), true, ""}, // no lease lasts for ever
		{260 * time.Second, lease("7", "you", -1), false, "you"},
		{275 * time.Second, lease("7", "you", -1), true, ""},
	} {
		now := start.Add(c.after)
		if may := e.mayTake(c.lease, now); may != c.may || e.writer(now) != c.writer {
			t.Errorf("step %d: may take %v, want %v; writer %q, want %q", i, may, c.may, e.writer(now), c.writer)
		}
	}
	mine := lease("9", "you", 15)
	e.renew(mine, "weir-system", start)
	if *mine.Spec.HolderIdentity != "me" || *mine.Spec.LeaseTransitions != 1 || !mine.Spec.AcquireTime.Time.Equal(start) || *mine.Spec.LeaseDurationSeconds != 15 {
		t.Errorf("taken: %+v", mine.Spec)
	}
	e.renew(mine, "weir-system", start.Add(time.Minute))
	if *mine.Spec.LeaseTransitions != 1 || !mine.Spec.AcquireTime.Time.Equal(start) || !mine.Spec.RenewTime.Time.Equal(start.Add(time.Minute)) {
		t.Errorf("renewed: %+v", mine.Spec)
	}
}
