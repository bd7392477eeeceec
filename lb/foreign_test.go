package lb

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// A box with an address on eth0, and a Service of another user that claims it.
func ownAddress(t *testing.T, vip VIP, backend string, apart bool) ([]Object, []Note) {
	t.Helper()
	return Plan(Service{
		ID: ServiceID{Source: "prod", Namespace: "shop", Name: "web"}, VIPs: []VIP{vip}, Apart: apart,
		Ports:     []Port{{Proto: TCP, Port: 22, Backends: []Backend{{Addr: netip.MustParseAddrPort(backend), Weight: 1}}}},
		Scheduler: Scheduler{Name: "rr"},
		Notes:     []Note{{ServiceID{Source: "prod", Namespace: "shop", Name: "web"}, BadObject, "spec.ports[1]: 0 is no port"}},
	}, &Facts{HostAddrs: map[netip.Addr]string{netip.MustParseAddr("192.0.2.1"): "eth0"}})
}

func reasons(notes []Note) (out []Reason) {
	for _, n := range notes {
		out = append(out, n.Reason)
	}
	return out
}

func has[T Object](objects []Object) bool {
	return slices.ContainsFunc(objects, func(o Object) bool { _, ok := o.(T); return ok })
}

func TestForeignVIPNeverTakesTheBoxsOwnAddress(t *testing.T) {
	own := VIP{Addr: netip.MustParseAddr("192.0.2.1"), Kind: ExternalIP}
	objects, _ := ownAddress(t, own, "10.0.0.1:80", false)
	if !has[VirtualServer](objects) || has[Address](objects) {
		t.Errorf("an operator's VIP is served where the box has it: %v", objects)
	}
	own.Foreign = true
	objects, notes := ownAddress(t, own, "10.0.0.1:80", false)
	if len(objects) > 0 {
		t.Errorf("a foreign VIP got %v", objects)
	}
	if got, want := reasons(notes), []Reason{NotAllowed, BadObject}; !slices.Equal(got, want) {
		t.Errorf("notes %v, want %v: the source's own and the refusal", notes, want)
	}
	own.Addr = netip.MustParseAddr("192.0.2.2")
	if objects, _ = ownAddress(t, own, "10.0.0.1:80", false); !has[Address](objects) {
		t.Errorf("another address is served: %v", objects)
	}
}

func TestBackendsOfAnApartServiceAreNeverTheBox(t *testing.T) {
	vip := VIP{Addr: netip.MustParseAddr("192.0.2.2")}
	if objects, _ := ownAddress(t, vip, "192.0.2.1:22", false); !has[RealServer](objects) {
		t.Errorf("the box may be a backend of its own cluster: %v", objects)
	}
	objects, notes := ownAddress(t, vip, "192.0.2.1:22", true)
	if has[RealServer](objects) {
		t.Errorf("the box became a backend: %v", objects)
	}
	if got := reasons(notes); !slices.Contains(got, NotAllowed) || !slices.Contains(got, NoBackends) {
		t.Errorf("notes %v", notes)
	}
}

// TestForeignVIPTakesNoPortOfTheNode checks that a refused VIP blocks no other use of its port: neither a
// NodePort, nor a VIP that the operator chose.
func TestForeignVIPTakesNoPortOfTheNode(t *testing.T) {
	foreign := web(be1)
	foreign.ID, foreign.VIPs = ServiceID{"prod", "bad", "web"}, []VIP{{Addr: box, Kind: ExternalIP, Foreign: true}}
	foreign.Ports[0].Port = 30080
	api := web(be2)
	api.ID, api.VIPs, api.Created = ServiceID{"prod", "good", "api"}, []VIP{{Addr: box}}, testNow
	api.Ports[0].Port = 30080
	nodePort := Frontend{Addr: box, Port: 30080, Proto: TCP}
	for _, tt := range []struct {
		name string
		good Service
		want Outcome
		then netip.AddrPort // when no Service has the address any more
	}{
		{"a NodePort", func() Service { s := kube(backends(near), all4); s.Created = testNow; return s }(), hidden(be1), be1},
		{"a VIP of the operator's", api, hidden(be2), be2}, // to which an external IP yields
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := newLocalStory(t, tt.good)
			check := func(when string, want Outcome) {
				t.Helper()
				mustSync(t, s.Reconciler, s.now)
				if d := cmp.Diff(want, s.k.Connect(outside, nodePort), exact); d != "" {
					t.Errorf("%s (-want +got):\n%s", when, d)
				}
				if !slices.ContainsFunc(s.Notes(), func(n Note) bool { return n.Service == foreign.ID && n.Reason == NotAllowed }) {
					t.Errorf("%s: notes %v, want a refusal of %s", when, s.Notes(), foreign.ID)
				}
			}
			s.send(tt.good, foreign)
			check("the box has the address", tt.want)
			e := s.Explain(Query{Frontend: nodePort, Client: outside})
			if len(e.Claims) != 2 || e.Claims[1].Service != foreign.ID.String() || !strings.Contains(e.String(), "is not served: choose an unused address") {
				t.Errorf("who is refused is not told:\n%s", e)
			}
			s.k.HostAddrs = nil
			mustAudit(t, s.Reconciler, s.now)
			mustSync(t, s.Reconciler, s.now)
			if got := s.k.Connect(outside, nodePort); !slices.Equal(got.Backends, []netip.AddrPort{tt.then}) {
				t.Errorf("an address that is nobody's is served: %v, want %v", got, tt.then)
			}
			s.k.HostAddrs = map[netip.Addr]string{box: "eth0"}
			mustAudit(t, s.Reconciler, s.now)
			check("the box has it again", tt.want)
		})
	}
}

// An external IP is what a Service's author writes: it takes nothing from a younger
// Service that was given the address.
func TestExternalIPYieldsToLoadBalancer(t *testing.T) {
	k := &Fake{}
	r := NewReconciler(k, Options{Base: base}, "prod")
	old, young := web(be1), web(be2)
	old.ID, old.Created = ServiceID{"prod", "tenant", "old"}, testNow
	old.VIPs[0].Kind = ExternalIP
	young.ID, young.Created = ServiceID{"prod", "shop", "young"}, testNow.Add(time.Hour)
	r.Update(Update{Source: "prod", Put: []Service{old, young}, Synced: true})
	mustSync(t, r, testNow)
	if got := k.Connect(clients[0], Frontend{Addr: vip, Port: 80, Proto: TCP}).Backends; !slices.Equal(got, []netip.AddrPort{be2}) {
		t.Errorf("it goes to %v, want the Service that was given the address", got)
	}
}

// TestNodePortIsServedWhereAForeignServerIsNoMore checks a virtual server of another program on one
// address of the node.
func TestNodePortIsServedWhereAForeignServerIsNoMore(t *testing.T) {
	svc := kube(backends(near), all4)
	s := newLocalStory(t, svc)
	foreign := VirtualServer{Frontend: Frontend{Addr: netip.MustParseAddr("172.16.0.1"), Port: 30080, Proto: TCP}, Scheduler: Scheduler{Name: "wlc"}}
	s.k.Put(foreign)
	s.k.HostAddrs = map[netip.Addr]string{box: "eth0", foreign.Frontend.Addr: "eth1"}
	mustAudit(t, s.Reconciler, s.now)
	if got := reasons(s.Notes()); !slices.Contains(got, ForeignFrontend) {
		t.Fatalf("notes %v", s.Notes())
	}
	s.k.Remove(foreign.ID())
	mustAudit(t, s.Reconciler, s.now)
	if got := s.k.Connect(outside, foreign.Frontend); got.Fate != Served || len(s.Notes()) > 0 {
		t.Errorf("after its removal: %v, notes %v", got, s.Notes())
	}
}
