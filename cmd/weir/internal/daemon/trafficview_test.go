package daemon

import (
	"context"
	"errors"
	"net/netip"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"weir/cmd/weir/internal/config"
	"weir/cmd/weir/internal/status"
	"weir/lb"
	"weir/lb/health"
)

func TestWhoAsksAtOnceSharesAReading(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newLastTraffic()
		reads := 0
		read := func(context.Context) (status.Traffic, error) {
			reads++
			now := time.Now()
			time.Sleep(300 * time.Millisecond)
			return status.Traffic{Time: now}, nil
		}
		var done sync.WaitGroup
		for range 5 {
			done.Go(func() {
				if doc, err := r.get(t.Context(), read); err != nil || doc.Time.IsZero() {
					t.Errorf("%+v: %v", doc, err)
				}
			})
		}
		done.Wait()
		if reads != 1 {
			t.Errorf("%d readings for five who ask at once", reads)
		}
		time.Sleep(trafficAge)
		if _, _ = r.get(t.Context(), read); reads != 2 {
			t.Errorf("%d readings after a while", reads)
		}
		time.Sleep(trafficAge)
		if _, err := r.get(t.Context(), func(context.Context) (status.Traffic, error) {
			return status.Traffic{Time: time.Now()}, errors.New("no kernel")
		}); err == nil {
			t.Error("a failure is told nobody")
		}
		if _, _ = r.get(t.Context(), read); reads != 3 {
			t.Error("a reading that failed is given to others")
		}
	})
}

func TestWhatHasNoCheck(t *testing.T) {
	t.Parallel()
	catalog := lb.NewCatalog(config.Source, "prod")
	backend := func(a string) lb.Backend { return lb.Backend{Addr: netip.MustParseAddrPort(a), Weight: 1} }
	put := func(source, namespace, name string, ports ...lb.Port) lb.ServiceID {
		id := lb.ServiceID{Source: source, Namespace: namespace, Name: name}
		catalog.Apply(lb.Update{Source: source, Put: []lb.Service{{ID: id, Ports: ports}}}, nil, map[lb.ServiceID]struct{}{})
		return id
	}
	two := lb.Port{Port: 80, Backends: []lb.Backend{backend("10.0.0.1:80"), backend("10.0.0.2:80")}}
	checked := put(config.Source, "", "web", two)
	put(config.Source, "", "dns", two, two)
	put("prod", "shop", "api")
	got := unchecked(catalog, []health.Group{{Service: checked}})
	want := []status.Unchecked{
		{Service: "prod/shop/api", Why: "its cluster says which backends are ready"},
		{Service: "static/dns", Backends: 2, Why: "the configuration has no [service.check] for it"},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}
