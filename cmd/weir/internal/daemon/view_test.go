package daemon

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"

	"weir/cmd/weir/internal/config"
	"weir/lb"
)

func TestAStrangersFrontendIsNobodys(t *testing.T) {
	t.Parallel()
	rec := lb.NewReconciler(&lb.Fake{}, lb.Options{}, config.Source)
	rec.Update(lb.Update{Source: config.Source, Put: parse(t, twoServices).Services, Synced: true})
	front := func(addr string) lb.Frontend {
		return lb.Frontend{Addr: netip.MustParseAddr(addr), Port: 80, Proto: lb.TCP}
	}
	services, vips := owners(rec.Catalog(), map[lb.Frontend]bool{front("192.0.2.2"): true})
	want := map[lb.Frontend]lb.ServiceID{front("192.0.2.1"): static("a")}
	if d := cmp.Diff(want, services, cmp.Comparer(func(x, y netip.Addr) bool { return x == y })); d != "" {
		t.Errorf("services (-want +got):\n%s", d)
	}
	if vips != 2 {
		t.Errorf("%d VIPs, want 2", vips)
	}
}
