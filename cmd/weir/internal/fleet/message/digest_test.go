package message

import (
	"net/netip"
	"slices"
	"testing"
	"time"

	"weir/lb"
)

// full is a Service with something in every field that counts.
func full() lb.Service {
	return lb.Service{
		ID: lb.ServiceID{Source: "prod", Namespace: "default", Name: "web"}, Created: time.Unix(1000, 0),
		VIPs: []lb.VIP{{Addr: vipA}, {Addr: netip.MustParseAddr("2001:db8::1"), Kind: lb.ExternalIP}},
		Ports: []lb.Port{
			{Proto: lb.TCP, Port: 80, NodePort: 30080, Backends: []lb.Backend{
				{Addr: netip.MustParseAddrPort("10.0.0.1:80"), Weight: 1}, {Addr: netip.MustParseAddrPort("10.0.0.2:80"), Weight: 2},
			}},
			{Proto: lb.UDP, Port: 53},
		},
		Scheduler: lb.Scheduler{Name: "mh"}, SourceRanges: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}, Restricted: true,
		Fallback: []netip.AddrPort{netip.MustParseAddrPort("10.0.9.9:80")}, Labels: map[string]string{"a": "1", "b": "2"},
	}
}

func TestDigestCoversTheSharedParts(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name   string
		change func(*lb.Service)
		same   bool
	}{
		{"nothing", func(*lb.Service) {}, true},
		{"the order of VIPs", func(s *lb.Service) { slices.Reverse(s.VIPs) }, true},
		{"the order of backends", func(s *lb.Service) { slices.Reverse(s.Ports[0].Backends) }, true},
		{"a backend of this node", func(s *lb.Service) {
			s.Ports[0].Backends = append(s.Ports[0].Backends, lb.Backend{Addr: netip.MustParseAddrPort("10.0.0.3:80"), Scope: lb.Near})
		}, true},
		{"a backend here under either policy", func(s *lb.Service) { s.Ports[0].Backends[0].Scope = lb.Both }, true},
		{"what is complained about", func(s *lb.Service) { s.Notes = []lb.Note{{Text: "x"}} }, true},
		{"endpoints of this node", func(s *lb.Service) { s.HealthCheck.Endpoints = 3 }, true},
		{"a name", func(s *lb.Service) { s.ID.Name = "web2" }, false},
		{"a VIP", func(s *lb.Service) { s.VIPs[0].Addr = vipA.Next() }, false},
		{"its kind", func(s *lb.Service) { s.VIPs[0].Kind = lb.ClusterIP }, false},
		{"a traffic policy", func(s *lb.Service) { s.VIPs[0].Local = true }, false},
		{"a port", func(s *lb.Service) { s.Ports[1].Port = 54 }, false},
		{"a node port", func(s *lb.Service) { s.Ports[0].NodePort = 30081 }, false},
		{"a protocol", func(s *lb.Service) { s.Ports[1].Proto = lb.TCP }, false},
		{"a backend less", func(s *lb.Service) { s.Ports[0].Backends = s.Ports[0].Backends[:1] }, false},
		{"a backend at the other port", func(s *lb.Service) {
			s.Ports[1].Backends = s.Ports[0].Backends[:1]
			s.Ports[0].Backends = s.Ports[0].Backends[1:]
		}, false},
		{"a weight", func(s *lb.Service) { s.Ports[0].Backends[0].Weight = 7 }, false},
		{"a scheduler", func(s *lb.Service) { s.Scheduler.Flags = lb.WithPort }, false},
		{"who is admitted", func(s *lb.Service) { s.SourceRanges = nil }, false},
		{"a label", func(s *lb.Service) { s.Labels["b"] = "3" }, false},
		{"source addresses", func(s *lb.Service) { s.Keep = true }, false},
		{"a drain", func(s *lb.Service) { s.Drain = time.Second }, false},
		{"what answers in need", func(s *lb.Service) { s.Fallback = nil }, false},
	} {
		a, b := full(), full()
		tt.change(&b)
		if same := hashService(a) == hashService(b); same != tt.same {
			t.Errorf("%s: alike %v, want %v", tt.name, same, tt.same)
		}
	}
}

// Sums that follow changes are those of publishing everything at once.
func TestSumsFollowChanges(t *testing.T) {
	t.Parallel()
	one, two, three := full(), full(), full()
	two.ID.Name, three.ID.Name = "two", "three"
	changed := two
	changed.Drain = time.Hour
	followed := Sums{}
	followed.Update(lb.Update{Source: "prod", Put: []lb.Service{one, two}, Synced: true})
	followed.Update(lb.Update{Source: "prod", Put: []lb.Service{three}})
	followed.Update(lb.Update{Source: "prod", Put: []lb.Service{changed}, Delete: []lb.ServiceID{one.ID, {Source: "prod", Name: "never"}}})
	atOnce := Sums{}
	atOnce.Update(lb.Update{Source: "prod", Put: []lb.Service{three, changed}, Synced: true})
	if a, b := followed.Digests()["prod"], atOnce.Digests()["prod"]; a != b {
		t.Errorf("%s and %s", a, b)
	}
	followed.Update(lb.Update{Source: "prod", Put: []lb.Service{one}, Synced: true})
	if a, b := followed.Digests()["prod"], atOnce.Digests()["prod"]; a == b {
		t.Error("another Service gives the same")
	}
	if all := DigestOfAll(followed.Digests()); all == DigestOfAll(atOnce.Digests()) || all == "" {
		t.Errorf("all: %q", all)
	}
	followed.Keep([]string{"static"})
	if len(followed) != 0 {
		t.Errorf("forgotten sources: %v", followed.Digests())
	}
}

func BenchmarkHashService(b *testing.B) {
	s := lb.Service{ID: lb.ServiceID{Source: "static", Name: "web"}, VIPs: []lb.VIP{{Addr: vipA}}, Ports: []lb.Port{{Proto: lb.TCP, Port: 80}}}
	for i := range 50 {
		s.Ports[0].Backends = append(s.Ports[0].Backends, lb.Backend{Addr: netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, 0, byte(i)}), 80), Weight: 1})
	}
	for b.Loop() {
		hashService(s)
	}
}
