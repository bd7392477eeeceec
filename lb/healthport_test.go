package lb

import (
	"context"
	"fmt"
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestHealthPortsAreAdmittedWhileTheBoxAnswers(t *testing.T) {
	s := newStory(t)
	s.sets()
	svc := web(be1)
	svc.HealthCheck = HealthCheck{Port: 32000, Endpoints: 1}
	s.Update(put(svc))
	admitted := func(want bool) {
		t.Helper()
		if _, err := s.Sync(context.Background(), s.now); err != nil {
			t.Fatal(err)
		}
		if ok := s.Have().Has(portMember(SetHealthCheckNodePort, IPv4, 32000)); ok != want {
			t.Errorf("admitted: %v, want %v", ok, want)
		}
	}
	admitted(true) // what was found at the start stays until it is known
	for _, step := range []struct {
		ports         map[uint16]bool
		differs, want bool
	}{
		{map[uint16]bool{}, true, false},
		{map[uint16]bool{32001: true}, false, false},
		{map[uint16]bool{32000: true}, true, true},
		{map[uint16]bool{32000: true}, false, true},
	} {
		if got := s.SetHealthPorts(step.ports); got != step.differs {
			t.Errorf("%v differs: %v", step.ports, got)
		}
		admitted(step.want)
	}
}

func TestNodeAddrsAreThoseOfNodePorts(t *testing.T) {
	k := &Fake{}
	k.HostAddrs = map[netip.Addr]string{
		netip.MustParseAddr("10.1.0.1"): "eth0", netip.MustParseAddr("10.2.0.1"): "eth1",
		netip.MustParseAddr("127.0.0.1"): "lo", netip.MustParseAddr("fd00::1"): "eth0",
	}
	opts := Options{Base: Base{Families: []Family{IPv4}}, NodePortNets: []netip.Prefix{netip.MustParsePrefix("10.1.0.0/16")}}
	r := NewReconciler(k, opts)
	must(t, r.Adopt(context.Background()))
	if d := cmp.Diff("[10.1.0.1]", fmt.Sprint(r.NodeAddrs())); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}
