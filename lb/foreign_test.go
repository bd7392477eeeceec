package lb

import (
	"net/netip"
	"slices"
	"testing"
)

// A box with an address on eth0, and a Service of somebody else who wants it.
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
	if got, want := reasons(notes), []Reason{BadObject, HostAddress}; !slices.Equal(got, want) {
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
	if got := reasons(notes); !slices.Contains(got, HostAddress) || !slices.Contains(got, NoBackends) {
		t.Errorf("notes %v", notes)
	}
}
