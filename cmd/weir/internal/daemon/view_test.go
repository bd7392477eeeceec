package daemon

import (
	"net/netip"
	"testing"

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
	rec.Facts().Strangers = map[lb.Frontend]bool{front("192.0.2.2"): true}
	owners := newOwners(rec)
	if w, ok := owners.of(front("192.0.2.1")); !ok || w.ServiceID != static("a") {
		t.Errorf("the first is %v", w)
	}
	if w, ok := owners.of(front("192.0.2.2")); ok {
		t.Errorf("the stranger's is %v", w)
	}
}
