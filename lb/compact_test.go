package lb

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestCompact(t *testing.T) {
	var services []Service
	for n := range 50 {
		services = append(services, numbered(n+1))
	}
	services = append(services, Service{}, elsewhere("prod"))
	got := Compact(services)
	if d := cmp.Diff(services, got, exact); d != "" {
		t.Fatal(d)
	}
	got[0].Ports[0].Backends = append(got[0].Ports[0].Backends, Backend{Weight: 7})
	got[1].Ports[0].Backends[0].Weight = 9
	if got[1].Ports[0].Backends[0].Weight != 9 || services[1].Ports[0].Backends[0].Weight == 9 {
		t.Error("two Services share a backend")
	}
	if d := cmp.Diff(services[2:], got[2:], exact); d != "" {
		t.Error(d)
	}
}
