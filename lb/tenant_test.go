package lb

import (
	"encoding/binary"
	"math/rand/v2"
	"net/netip"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"weir/cmd/weirlab/fuzzing"
)

// A tenant writes Services beside the Service of another one, which is older, or to which weir has
// assigned the addresses, and which has them not as external IPs. Neither the objects of that Service nor a connection
// to it change, whatever the tenant writes. Addresses of backends are no VIPs here: the
// ranges of the configuration see to that.

// victim returns a Service that no younger Service may disturb.
func (g *gen) victim() Service {
	s := g.service("web")
	s.ID.Namespace, s.Created = "victim", testNow
	s.VIPs = slices.DeleteFunc(s.VIPs, func(v VIP) bool { return v.Kind == NodePort })
	for i := range s.VIPs {
		if s.VIPs[i].Kind == ExternalIP {
			s.VIPs[i].Kind = LoadBalancer
		}
	}
	s.VIPs = oneKind(s.VIPs)
	vip := func(a netip.AddrPort) bool {
		return slices.ContainsFunc([]string{"192.0.2.0/24", "2001:db8::/64"}, func(p string) bool { return netip.MustParsePrefix(p).Contains(a.Addr()) })
	}
	for i := range s.Ports {
		if g.chance(80) {
			for _, a := range []string{"10.0.0.1", "fd00::1"} {
				s.Ports[i].Backends = append([]Backend{{Addr: netip.AddrPortFrom(netip.MustParseAddr(a), 8079), Weight: 1}}, s.Ports[i].Backends...)
			}
		}
		s.Ports[i].Backends = slices.DeleteFunc(s.Ports[i].Backends, func(b Backend) bool { return vip(b.Addr) })
	}
	s.Fallback = slices.DeleteFunc(s.Fallback, vip)
	assigned := g.chance(50)
	for i := range s.VIPs {
		s.VIPs[i].Assigned = assigned
	}
	return s
}

// assignedAll reports whether weir has assigned all VIPs of a Service.
func assignedAll(s Service) bool {
	return !slices.ContainsFunc(s.VIPs, func(v VIP) bool { return !v.Assigned })
}

// oneKind returns VIPs with each address once.
func oneKind(vips []VIP) []VIP {
	slices.SortStableFunc(vips, func(a, b VIP) int { return a.Addr.Compare(b.Addr) })
	return slices.CompactFunc(vips, func(a, b VIP) bool { return a.Addr == b.Addr })
}

// hostile returns Services of a tenant. If weir has not assigned the victim's addresses, they are
// younger or have external IPs.
func (g *gen) hostile(victim Service) []Service {
	out := slices.DeleteFunc(g.services(), func(s Service) bool { return s.FWMark != 0 }) // no tenant can have one
	for i := range out {
		out[i].ID.Namespace = []string{"a", "zoo"}[g.IntN(2)] // before and after the victim's
		out[i].Created = testNow.Add(time.Duration(1+g.IntN(3)) * time.Second)
		for j := range out[i].VIPs {
			v := &out[i].VIPs[j]
			v.Assigned = v.Assigned && !slices.ContainsFunc(victim.VIPs, func(of VIP) bool { return of.Addr == v.Addr })
		}
		if g.chance(30) {
			out[i].Created = testNow.Add(-time.Hour)
			if assignedAll(victim) {
				continue
			}
			for j := range out[i].VIPs {
				if v := &out[i].VIPs[j]; v.Kind != NodePort {
					v.Kind = ExternalIP
				}
			}
			out[i].VIPs = oneKind(out[i].VIPs)
		}
	}
	return out
}

// besideTenant checks that nothing of a victim changes while a tenant changes its Services, at most so many,
// rounds times. It returns how many connections to the victim are served.
func besideTenant(t *testing.T, g *gen, rounds, most int) (served int) {
	victim, opts, k := g.victim(), g.options(), g.kernel()
	health := g.health([]Service{victim})
	r := NewReconciler(k, opts, "static")
	apply := func(now time.Time, tenant []Service) {
		all := g.health(tenant)
		if h, ok := health[victim.ID]; ok {
			all[victim.ID] = h
		}
		r.Update(Update{Source: "static", Put: append(slices.Clone(tenant), victim), Synced: true})
		r.SetHealth(all, true)
		mustSync(t, r, now)
	}
	apply(testNow, nil)
	planned := func() []Object {
		return slices.SortedFunc(slices.Values(r.want.Objects(Owner{Service: victim.ID})), Compare)
	}
	objects := planned()
	// A frontend without a virtual server is not the victim's: its address is excluded, or the
	// box's own.
	frontends := slices.DeleteFunc(victim.Frontends(), func(f Frontend) bool {
		return !slices.ContainsFunc(objects, func(o Object) bool { v, ok := o.(VirtualServer); return ok && v.Frontend == f })
	})
	before := outcomes(k, frontends)
	for _, o := range before {
		if o.Fate == Served {
			served++
		}
	}
	var tenant []Service
	k.After = func(op Op) {
		if d := diffOf(before, outcomes(k, frontends)); d != "" {
			t.Fatalf("%s changes connections to %+v, beside %+v (-before +after):\n%s", op, victim, tenant, d)
		}
	}
	for i := range rounds {
		tenant = g.hostile(victim)
		tenant = tenant[:min(len(tenant), most)]
		g.busy(k)
		apply(testNow.Add(time.Duration(i)*40*time.Second), tenant)
		if d := diffOf(objects, planned()); d != "" {
			t.Fatalf("the objects of %+v change, beside %+v (-before +after):\n%s", victim, tenant, d)
		}
	}
	return served
}

// diffOf is cmp.Diff, without its time for values that are equal: a fuzzer makes thousands of comparisons.
func diffOf(before, after any) string {
	if reflect.DeepEqual(before, after) {
		return ""
	}
	return cmp.Diff(before, after, exact)
}

func TestLawATenantDoesNotChangeTheTrafficOfAnother(t *testing.T) {
	seeds(t, 75, func(t *testing.T, g *gen) { besideTenant(t, g, 6, 100) })
}

// bytesSource makes the choices of a gen from bytes, so that a fuzzer can change one of them.
type bytesSource struct {
	data []byte
	rest rand.Source // once there are no bytes
}

func (s *bytesSource) Uint64() uint64 {
	if len(s.data) == 0 {
		return s.rest.Uint64()
	}
	b := s.data[0]
	s.data = s.data[1:]
	return uint64(b) * 0x0101010101010101
}

// FuzzTenant is the same law for Services that a fuzzer chooses.
func FuzzTenant(f *testing.F) {
	fuzzing.Wide(f)
	for seed := range uint64(8) {
		source, data := rand.NewPCG(seed, 1), []byte(nil)
		for range 40 {
			data = binary.LittleEndian.AppendUint64(data, source.Uint64())
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		besideTenant(t, &gen{rand.New(&bytesSource{data, rand.NewPCG(0, 1)}), 0}, 1, 2)
	})
}

// The law would hold for victims that serve nothing.
func TestVictimsAreServed(t *testing.T) {
	served := 0
	for seed := range uint64(50) {
		if besideTenant(t, &gen{rand.New(rand.NewPCG(seed, 1)), 0}, 0, 0) > 0 {
			served++
		}
	}
	if t.Logf("%d of 50 victims are served", served); served < 25 {
		t.Error("fewer than half")
	}
}
