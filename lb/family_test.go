package lb

import (
	"context"
	"net/netip"
	"testing"
)

// TestFamilyThatTheBoxDoesNotServe checks that a VIP of another family than the box's gets nothing in the kernel, even
// where sets of that family are left from an earlier run.
func TestFamilyThatTheBoxDoesNotServe(t *testing.T) {
	k := &Fake{}
	k.Put(Device{"kube-ipvs0"})
	opts := Options{Base: Base{Device: "kube-ipvs0", Families: []Family{IPv4}}}
	r := NewReconciler(k, opts, "prod")
	svc := numbered(1)
	a := netip.MustParseAddr("2001:db8::1")
	svc.VIPs = []VIP{{Addr: a}}
	svc.Ports[0].Backends = []Backend{{Addr: netip.MustParseAddrPort("[2001:db8:1::1]:80"), Weight: 1, Scope: Both}}
	r.Update(Update{Source: "prod", Put: []Service{svc}, Synced: true})
	rep, err := r.Sync(context.Background(), testNow)
	if err != nil || len(rep.Errors) > 0 {
		t.Fatal(err, rep.Errors)
	}
	for _, o := range k.Objects() {
		if at, ok := addressOf(o); ok && at == a {
			t.Errorf("%s is in the kernel", o)
		}
	}
}
