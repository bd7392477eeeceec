package linux

import (
	"net/netip"
	"testing"

	"weir/lb"
)

// A process of the box that sent datagrams to a Service without backends has a flow in conntrack
// that no rule changes any more.
func TestRefusedFlowsAreForgottenWhenABackendComes(t *testing.T) {
	vip, backend := netip.MustParseAddrPort("192.0.2.10:53"), netip.MustParseAddrPort("10.2.0.11:53")
	fe := lb.Frontend{Addr: vip.Addr(), Port: vip.Port(), Proto: lb.UDP}
	add := []lb.Op{{Verb: lb.Add, Object: lb.RealServer{Frontend: fe, Addr: backend}}}
	refused, served := flow{vip: vip, backend: vip}, flow{vip: vip, backend: backend}
	for _, tt := range []struct {
		name            string
		byRules         bool
		refused, served bool
	}{
		{"rules", true, true, false},
		{"IPVS refuses before conntrack knows", false, false, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := newConntrack(&Traffic{}).stale(add, []error{nil}, tt.byRules)
			if got := s.has(refused); got != tt.refused {
				t.Errorf("the refused flow is forgotten: %t", got)
			}
			if got := s.has(served); got != tt.served {
				t.Errorf("the served flow is forgotten: %t", got)
			}
		})
	}
}
