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
	refused, served := flow{vip: vip, backend: vip, proto: lb.UDP}, flow{vip: vip, backend: backend, proto: lb.UDP}
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

// A SYN that this box routed elsewhere, before it had the VIP, left an entry without translation.
func TestUnansweredFlowsAreForgottenWhenAnAddressComes(t *testing.T) {
	vip, other, backend := netip.MustParseAddrPort("192.0.2.10:80"), netip.MustParseAddrPort("192.0.2.11:80"), netip.MustParseAddrPort("10.2.0.11:80")
	pool := []lb.Op{{Verb: lb.Add, Object: lb.PoolRoute{Prefix: netip.MustParsePrefix("192.0.2.0/28")}}}
	port := []lb.Op{{Verb: lb.Add, Object: lb.Member{Set: lb.SetIPVSPorts, Addr: vip.Addr(), Port: vip.Port(), Proto: lb.UDP}}}
	address := []lb.Op{{Verb: lb.Add, Object: lb.Address{Addr: vip.Addr()}}}
	unanswered := flow{vip: vip, backend: vip, proto: lb.TCP}
	for _, tt := range []struct {
		name string
		ops  []lb.Op
		flow flow
		want bool
	}{
		{"a new address", address, unanswered, true},
		{"a new pool", pool, unanswered, true},
		{"another address", address, flow{vip: other, backend: other, proto: lb.TCP}, false},
		{"another pool", []lb.Op{{Verb: lb.Add, Object: lb.PoolRoute{Prefix: netip.MustParsePrefix("192.0.2.16/28")}}}, unanswered, false},
		{"another protocol", port, unanswered, false},
		{"answered datagrams", address, flow{vip: vip, backend: vip, proto: lb.UDP, replied: true}, true},
		{"answered", address, flow{vip: vip, backend: vip, proto: lb.TCP, replied: true}, false},
		{"served", address, flow{vip: vip, backend: backend, proto: lb.TCP}, false},
		{"an address that goes", []lb.Op{{Verb: lb.Delete, Object: lb.Address{Addr: vip.Addr()}}}, unanswered, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := newConntrack(&Traffic{}).stale(tt.ops, []error{nil}, false)
			if got := s.has(tt.flow); got != tt.want {
				t.Errorf("the flow is forgotten: %t", got)
			}
			if dumps := s.dumps(); tt.want && !dumps[flowDump{lb.IPv4, tt.flow.replied}] {
				t.Errorf("no dump has the flow: %v", dumps)
			}
		})
	}
}
