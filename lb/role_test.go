package lb

import (
	"net/netip"
	"testing"
)

// TestStepsFollowDependencies compares the order of Ops with the dependencies between objects.
func TestStepsFollowDependencies(t *testing.T) {
	f := Frontend{Addr: netip.MustParseAddr("192.0.2.1"), Port: 80, Proto: TCP}
	net := netip.MustParsePrefix("192.0.2.0/24")
	inner := MarkFrontend(IPv4, 3)
	examples := map[role][]Object{
		roleSet: {IPSet{SetClusterIP, IPv4}}, roleRules: {Rules{Family: IPv4}}, roleDevice: {Device{"kube-ipvs0"}},
		roleGuard: {guardOf(f.Addr)}, roleAddress: {Address{f.Addr}},
		roleNetGuard: {Member{Set: SetIPVSNets, Net: net}}, rolePool: {PoolRoute{Prefix: net}},
		roleRecord:  {tuple(SetLoadBalancer, f), tuple(SetClusterIP, f), tuple(SetExternalIP, f), tuple(SetNodePorts, f), markMember(inner)},
		roleVirtual: {VirtualServer{Frontend: f}, VirtualServer{Frontend: inner}},
		roleReal:    {RealServer{Frontend: f}, RealServer{Frontend: inner}},
		roleMapping: {tuple(SetInternal, f), tuple(SetGroup, f)}, roleNoLocal: {tuple(SetNoLocal, f)},
		roleRange: {
			Member{Set: SetSourceCIDR, Addr: f.Addr, Port: 80, Proto: TCP, Net: net},
			Member{Set: SetSourceIP, Addr: f.Addr, Port: 80, Proto: TCP, Net: single(f.Addr)},
		},
		roleRestriction: {tuple(SetFirewall, f)}, roleAdmission: {tuple(SetIPVSPorts, f)},
	}
	for r, objects := range examples {
		for _, o := range objects {
			if got := roleOf(o); got != r {
				t.Errorf("%s has role %d, want %d", o, got, r)
			}
		}
	}
	for s := range numSets {
		if s.role() == noRole {
			t.Errorf("members of %s have no role", s)
		}
	}
	for k := range numKinds {
		if k != kindMember && kindRoles[k] == noRole {
			t.Errorf("kind %s has no role", k)
		}
	}
	have, want := &Table{}, NewState()
	for _, d := range dependencies {
		for _, upper := range examples[d.upper] {
			for _, lower := range examples[d.lower] {
				if d.in && addStep(lower, have) >= addStep(upper, have) {
					t.Errorf("%s comes in before %s, or with it", upper, lower)
				}
				if d.out && deleteStep(upper, have, want) >= deleteStep(lower, have, want) {
					t.Errorf("%s goes before %s, or with it", lower, upper)
				}
			}
		}
		p := &pass{model: &model{want: NewState()}, opts: &Options{Base: base}, marks: &marks{model: &model{}, byMark: map[uint32]markUse{}}}
		for _, o := range examples[d.upper] {
			if d.in && len(p.related(o, d.lower)) == 0 {
				t.Errorf("%s stands on nothing in role %d", o, d.lower)
			}
		}
		for _, o := range examples[d.lower] {
			f, _ := frontendOf(o)
			leads := d.upper == roleMapping || d.upper == roleAdmission && f.Mark != 0
			if d.out && !leads && len(p.related(o, d.upper)) == 0 {
				t.Errorf("nothing in role %d stands on %s", d.upper, o)
			}
		}
		if len(examples[d.upper]) == 0 || len(examples[d.lower]) == 0 {
			t.Errorf("no example of roles %d and %d", d.upper, d.lower)
		}
	}
}
