package lb

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
	"time"

	"weir/cmd/weirlab/histories"
)

// What the laws are held for: random Services on random boxes, and what clients
// meet there.

// seeds runs f for n random boxes, times WEIR_HISTORIES.
func seeds(t *testing.T, n uint64, f func(t *testing.T, g *gen)) {
	t.Helper()
	for seed := range histories.Times(n) {
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			t.Parallel()
			f(t, &gen{rand.New(rand.NewPCG(seed, 1)), int(seed % 4)})
		})
	}
}

// gen makes random things out of a space so small that they often clash.
type gen struct {
	*rand.Rand
	perPass int // see Options
}

func (g *gen) chance(percent int) bool { return g.IntN(100) < percent }

func (g *gen) vip() netip.Addr {
	if g.chance(30) {
		return netip.MustParseAddr(fmt.Sprintf("2001:db8::%d", 1+g.IntN(3)))
	}
	return netip.AddrFrom4([4]byte{192, 0, 2, byte(1 + g.IntN(3))})
}

func (g *gen) backend(port uint16) netip.AddrPort {
	if g.chance(30) {
		return netip.AddrPortFrom(netip.MustParseAddr(fmt.Sprintf("fd00::%d", 1+g.IntN(4))), port)
	}
	if g.chance(5) { // the box itself
		return netip.AddrPortFrom(netip.MustParseAddr("10.9.9.1"), port)
	}
	if g.chance(10) { // what is a VIP now and then
		return netip.AddrPortFrom(g.vip(), port)
	}
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, 0, byte(1 + g.IntN(4))}), port)
}

func (g *gen) service(name string) Service {
	s := Service{
		ID:        ServiceID{Source: "static", Name: name},
		Scheduler: Scheduler{Name: []string{"rr", "wrr", "mh"}[g.IntN(3)]},
		Keep:      g.chance(30),
		Apart:     g.chance(20),
		Drain:     time.Duration(g.IntN(2)) * time.Minute,
		WhenDown:  WhenDown(g.IntN(3)),
	}
	if g.chance(20) {
		s.Created = testNow.Add(time.Duration(g.IntN(3)) * time.Hour)
	}
	if g.chance(20) {
		s.Affinity = time.Hour
	}
	if g.chance(30) {
		s.Restricted, s.Ranges = true, RangeScope(g.IntN(3))
		ranges := []string{"203.0.113.0/24", "198.51.100.0/24", "0.0.0.0/0", "fd00:c::/64", "10.9.9.0/24", "fd00:9::/64"}
		for range 1 + g.IntN(2) {
			s.SourceRanges = append(s.SourceRanges, netip.MustParsePrefix(ranges[g.IntN(len(ranges))]))
		}
	}
	if g.chance(20) {
		s.HealthCheck = HealthCheck{Port: uint16(30000 + g.IntN(2)), Endpoints: g.IntN(3)}
	}
	local := g.chance(40) // a Service has one external traffic policy
	for range 1 + g.IntN(3) {
		v := VIP{Addr: g.vip(), Kind: VIPKind(g.IntN(4)), Local: local, Foreign: g.chance(20)}
		switch v.Kind {
		case ClusterIP:
			v.Local = g.chance(40)
		case NodePort:
			v.Addr = unspecified(FamilyOf(v.Addr))
		}
		if !slices.ContainsFunc(s.VIPs, func(x VIP) bool { return x.Addr == v.Addr && x.Kind == v.Kind }) {
			s.VIPs = append(s.VIPs, v)
		}
	}
	for range 1 + g.IntN(2) {
		p := Port{Proto: []Protocol{TCP, UDP, SCTP}[g.IntN(3)], Port: uint16(80 + g.IntN(2)), NodePort: uint16(g.IntN(3)) * 81}
		if slices.ContainsFunc(s.Ports, func(x Port) bool { return x.Key() == p.Key() || x.NodePort != 0 && x.NodePort == p.NodePort }) {
			continue
		}
		for range g.IntN(5) {
			b := Backend{Addr: g.backend(8000 + p.Port), Weight: uint32(g.IntN(3)), Scope: Scope(g.IntN(3))}
			if !slices.ContainsFunc(p.Backends, func(x Backend) bool { return x.Addr == b.Addr }) {
				p.Backends = append(p.Backends, b)
			}
		}
		s.Ports = append(s.Ports, p)
	}
	if s.WhenDown == UseFallback {
		s.Fallback = []netip.AddrPort{g.backend(9000)}
	}
	if s.Affinity != 0 && s.Scheduler.Name == "mh" {
		oneGroup(&s)
	}
	g.forward(&s)
	return s
}

// markOnly makes a Service of a given mark.
func markOnly(s *Service) {
	oneGroup(s)
	s.Group, s.Restricted, s.Keep, s.HealthCheck = false, false, true, HealthCheck{}
	s.FWMark = uint32(len(s.VIPs))
	s.Ports = s.Ports[:1]
	s.Ports[0] = Port{Proto: TCP, Backends: s.Ports[0].Backends}
	for i, b := range s.Ports[0].Backends {
		s.Ports[0].Backends[i].Addr = netip.AddrPortFrom(b.Addr.Addr(), 0)
	}
	for i, a := range s.Fallback {
		s.Fallback[i] = netip.AddrPortFrom(a.Addr(), 0)
	}
}

// oneGroup makes one group of all ports: with the same backends.
func oneGroup(s *Service) {
	s.Group = true
	for i := range s.VIPs {
		if s.VIPs[i].Kind == NodePort {
			s.VIPs[i].Addr = map[Family]netip.Addr{IPv4: netip.MustParseAddr("192.0.2.1"), IPv6: netip.MustParseAddr("2001:db8::1")}[FamilyOf(s.VIPs[i].Addr)]
		}
		s.VIPs[i].Kind, s.VIPs[i].Local = LoadBalancer, false
	}
	slices.SortFunc(s.VIPs, func(a, b VIP) int { return a.Addr.Compare(b.Addr) })
	s.VIPs = slices.CompactFunc(s.VIPs, func(a, b VIP) bool { return a.Addr == b.Addr })
	for i := range s.Ports {
		var backends []Backend
		for _, b := range s.Ports[0].Backends {
			b.Addr, b.Scope = netip.AddrPortFrom(b.Addr.Addr(), s.Ports[i].Port), Wide
			backends = append(backends, b)
		}
		s.Ports[i].Backends = backends
	}
}

// forward has some Services, or some of their backends, reply to clients themselves. Their VIPs are
// checked there.
func (g *gen) forward(s *Service) {
	choice := g.IntN(10)
	if choice == 2 && s.Affinity == 0 {
		g.tunnelToOtherFamily(s)
		return
	}
	s.CheckVIPs = choice < 2
	if choice == 0 {
		s.Forward, s.Keep = DirectRouting, true
	}
	for _, p := range s.Ports {
		for i := range p.Backends {
			if choice == 0 || choice == 1 && i == 0 {
				p.Backends[i].Forward = DirectRouting
			}
		}
	}
}

// tunnelToOtherFamily gives a Service VIPs of one family, and tunnels to backends of the other one.
func (g *gen) tunnelToOtherFamily(s *Service) {
	family := []Family{IPv4, IPv6}[g.IntN(2)]
	s.VIPs = slices.DeleteFunc(s.VIPs, func(v VIP) bool { return FamilyOf(v.Addr) != family })
	s.Forward, s.Keep = Tunnel, true
	for i, p := range s.Ports {
		s.Ports[i].Backends = slices.DeleteFunc(p.Backends, func(b Backend) bool { return FamilyOf(b.Addr.Addr()) == family })
		for j := range s.Ports[i].Backends {
			s.Ports[i].Backends[j].Forward = Tunnel
		}
	}
	s.Fallback = slices.DeleteFunc(s.Fallback, func(a netip.AddrPort) bool { return FamilyOf(a.Addr()) == family })
}

// syncing adds the synchronization daemons to options now and then, if no Service has backends of
// another family: a configuration can't have both.
func (g *gen) syncing(o Options, services []Service) Options {
	mixed := slices.ContainsFunc(services, func(s Service) bool { _, mixed := s.Mixed(); return mixed })
	if o.Base.Sync = nil; !mixed && g.chance(50) {
		o.Base.Sync = syncing.Sync
	}
	return o
}

func (g *gen) services() []Service {
	var out []Service
	for i := range g.IntN(5) {
		s := g.service(fmt.Sprintf("s%d", i))
		if s.Affinity != 0 && s.Scheduler.Name == "wrr" {
			markOnly(&s)
		}
		for j := range s.VIPs {
			last := s.VIPs[j].Addr.As16()[15]
			s.VIPs[j].Assigned = (i+int(last))%5 == 0
		}
		out = append(out, s)
	}
	return out
}

func (g *gen) health(services []Service) map[ServiceID]Health {
	out := map[ServiceID]Health{}
	for _, s := range services {
		if g.chance(50) {
			continue
		}
		h := Health{Down: map[netip.AddrPort]bool{}, Lost: map[FamilyPort]bool{}}
		for _, p := range s.Ports {
			for _, b := range p.Backends {
				if g.chance(40) {
					h.Down[b.Addr] = true
				}
			}
			for _, f := range []Family{IPv4, IPv6} {
				if g.chance(30) {
					h.Lost[FamilyPort{p.Key(), f}] = true
				}
			}
		}
		out[s.ID] = h
	}
	return out
}

func (g *gen) options() Options {
	o := Options{Base: base, Drain: time.Minute, PerPass: g.perPass}
	if g.chance(30) {
		o.Pools = []PoolRoute{{Prefix: netip.MustParsePrefix("192.0.2.0/24"), Src: netip.MustParseAddr("10.9.9.1")}}
	}
	if g.chance(10) {
		o.Exclude = []netip.Prefix{netip.MustParsePrefix("192.0.2.2/32")}
	}
	if g.chance(30) {
		o.NodePortNets = []netip.Prefix{netip.MustParsePrefix([]string{"10.9.9.0/24", "192.0.2.0/24", "fd00:9::/64"}[g.IntN(3)])}
	}
	return o
}

// kernel makes an empty one that has addresses of its own: one of them may be a
// VIP, and on some no NodePort ever is.
func (g *gen) kernel() *Fake {
	hosts := map[netip.Addr]string{}
	for _, a := range []string{"fe80::1", "10.9.9.1", "fd00:9::1"} {
		hosts[netip.MustParseAddr(a)] = "eth0"
	}
	if g.chance(30) {
		hosts[netip.MustParseAddr("192.0.2.3")] = "eth1"
	}
	if g.chance(30) {
		hosts[netip.MustParseAddr("2001:db8::3")] = "eth1"
	}
	k := &Fake{MasqueradeAll: g.chance(20), Keeps: Kept(g.IntN(3))}
	if g.chance(80) {
		k.ClusterCIDRs = pods
	}
	k.HostAddrs = hosts
	return k
}

// like makes an empty kernel that is otherwise the same.
func like(k *Fake) *Fake {
	out := &Fake{ClusterCIDRs: k.ClusterCIDRs, MasqueradeAll: k.MasqueradeAll}
	out.HostAddrs = k.HostAddrs
	return out
}

// wantOf plans services by themselves, for a box with the addresses of k.
func wantOf(k *Fake, services []Service, opts Options, health map[ServiceID]Health) *State {
	r := NewReconciler(like(k), opts, "static")
	if err := r.Adopt(context.Background()); err != nil {
		panic(err)
	}
	r.Update(Update{Source: "static", Put: services, Synced: true})
	r.SetHealth(health, true)
	r.due(testNow)
	return r.want
}

type flow struct {
	client netip.Addr
	to     Frontend
}

// allFrontends returns what clients may connect to: every frontend of the services,
// those of NodePorts on every address of k, and a port that no Service has.
func (k *Fake) allFrontends(lists ...[]Service) []Frontend {
	var out []Frontend
	for _, services := range lists {
		for _, s := range services {
			for _, f := range s.Frontends() {
				if f.Given {
					out = append(out, f)
					continue
				}
				if !f.Addr.IsUnspecified() {
					out = append(out, f, Frontend{Addr: f.Addr, Port: 22, Proto: TCP})
					continue
				}
				hosts := slices.Collect(maps.Keys(k.HostAddrs))
				for _, a := range append(hosts, netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("::1")) {
					if FamilyOf(a) == FamilyOf(f.Addr) {
						out = append(out, Frontend{Addr: a, Port: f.Port, Proto: f.Proto})
					}
				}
			}
		}
	}
	return out
}

func outcomes(k *Fake, frontends []Frontend) map[flow]Outcome {
	out := map[flow]Outcome{}
	for _, f := range frontends {
		for _, c := range clients {
			if c.Is4() == f.Addr.Is4() {
				out[flow{c, f}] = k.Connect(c, f)
			}
		}
	}
	return out
}

// must ends the test if err is not nil.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
