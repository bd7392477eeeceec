package advertise

import (
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"weir/cmd/weirlab/histories"
	"weir/lb"
)

// The reference of an Advertiser: a model that computes everything from scratch at each step,
// by looking through all VIPs, and random histories for both.

// model is an Advertiser without counters, queues and diffs.
type model struct {
	policy Policy
	labels map[lb.ServiceID]map[string]string
	drains Drains
	roles  map[netip.Addr]Role
	now    time.Time
	vips   map[netip.Addr]*modelVIP
}

type modelVIP struct {
	claims      []served
	withheld    lb.Withheld
	good, ended time.Time
	up, kept    bool
	lost, old   bool
}

func newModel() *model { return &model{vips: map[netip.Addr]*modelVIP{}, roles: map[netip.Addr]Role{}} }

func (m *model) addrs() []netip.Addr {
	return slices.SortedFunc(maps.Keys(m.vips), netip.Addr.Compare)
}

// receivers is the set of peers to which the rules announce a VIP, with the rule.
func (m *model) receivers(a netip.Addr, v *modelVIP) map[string]int {
	out := map[string]int{}
	for _, peer := range m.policy.Peers {
		for i, r := range m.policy.Rules {
			if (len(r.Peers) > 0 && !slices.Contains(r.Peers, peer.Name)) || !r.Match.matches(a, v.claims, m.policy.Pools) {
				continue
			}
			f := peer.Families
			if !r.Refuse && (f == Families{} || a.Is4() && f.IPv4 || a.Is6() && f.IPv6) {
				out[peer.Name] = i
			}
			break
		}
	}
	return out
}

// step moves the clock.
func (m *model) step(now time.Time) {
	if now.After(m.now) {
		m.now = now
	}
	for _, v := range m.vips {
		if v.withheld == "" && !v.up && v.lost && !v.good.Add(m.policy.ReannounceDelay).After(m.now) {
			v.up, v.lost = true, false
		}
	}
	if _, _, kept := m.counts(); kept == 0 {
		for _, v := range m.vips {
			v.old = v.old || m.now.Sub(v.ended) > time.Minute
		}
	}
}

// counts counts for the floor.
func (m *model) counts() (all, up, kept int) {
	for a, v := range m.vips {
		if !m.counted(a) || len(m.receivers(a, v)) == 0 {
			continue
		}
		switch {
		case v.up:
			all++
			up++
			if v.kept {
				kept++
			}
		case v.lost && v.withheld == "", v.lost && v.withheld == lb.NoLiveBackend && !v.old:
			all++
		}
	}
	return all, up, kept
}

// counted reports whether a VIP counts for the floor, apart from rules.
func (m *model) counted(a netip.Addr) bool {
	return m.drains.Of(a) == NotDrained && m.roles[a] != Out
}

func (m *model) floorHolds() bool {
	all, up, _ := m.counts()
	return all >= 4 && up-1 < int(math.Ceil(m.policy.MinAnnounced*float64(all)-1e-9))
}

func (m *model) onAir(a netip.Addr, v *modelVIP) bool {
	out := m.roles[a] == Out && m.drains.Of(a) == NotDrained
	return v.up && m.drains.Of(a) != Drained && !out && len(m.receivers(a, v)) > 0
}

func (m *model) take(routes []lb.Route) {
	routes = slices.SortedFunc(slices.Values(routes), func(x, y lb.Route) int { return x.Addr.Compare(y.Addr) })
	for _, r := range routes {
		if r.Withheld != lb.NoLiveBackend {
			m.takeOther(r)
		}
	}
	for _, r := range routes {
		if r.Withheld == lb.NoLiveBackend {
			m.takeLack(r.Addr)
		}
	}
	m.release()
}

func (m *model) vip(a netip.Addr) *modelVIP {
	if m.vips[a] == nil {
		m.vips[a] = &modelVIP{withheld: "new"}
	}
	return m.vips[a]
}

func (m *model) takeOther(r lb.Route) {
	if r.Withheld == lb.Gone {
		delete(m.vips, r.Addr)
		return
	}
	v := m.vip(r.Addr)
	if r.Withheld != "" {
		v.up, v.kept, v.withheld = false, false, r.Withheld
		if r.Withheld == lb.NotServed {
			v.lost, v.claims = false, nil
		}
		return
	}
	if v.withheld != "" {
		v.withheld, v.good = "", m.now
	}
	v.claims = nil
	for _, s := range r.Serves {
		v.claims = append(v.claims, served{s, m.labels[s.Service]})
	}
	v.kept = false
	if !v.lost || m.policy.ReannounceDelay <= 0 {
		v.up, v.lost = true, false
	}
}

func (m *model) takeLack(a netip.Addr) {
	v := m.vip(a)
	if v.withheld == "" {
		v.ended, v.old = m.now, false
	}
	v.withheld = lb.NoLiveBackend
	switch {
	case !v.up || v.kept:
	case m.counted(a) && len(m.receivers(a, v)) > 0 && m.floorHolds():
		v.kept = true
	default:
		v.lost = m.onAir(a, v)
		v.up = false
	}
}

// release withdraws what was kept and need not be.
func (m *model) release() {
	for {
		_, _, kept := m.counts()
		if kept == 0 || m.floorHolds() {
			return
		}
		var first *modelVIP
		for _, a := range m.addrs() {
			if v := m.vips[a]; v.kept && (first == nil || v.ended.Before(first.ended)) {
				first = v
			}
		}
		first.up, first.kept, first.lost = false, false, true
	}
}

func (m *model) drain(d Drains) { m.move(func() { m.drains = d }) }

func (m *model) assign(roles map[netip.Addr]Role) { m.move(func() { maps.Copy(m.roles, roles) }) }

// move changes drains or roles.
func (m *model) move(change func()) {
	was := map[netip.Addr]bool{}
	for a, v := range m.vips {
		was[a] = m.onAir(a, v)
	}
	change()
	for a, v := range m.vips {
		if v.kept && !m.counted(a) {
			v.up, v.kept, v.lost = false, false, was[a]
		}
	}
	m.release()
}

func (m *model) configure(p Policy, now time.Time) {
	m.policy = p
	if now.After(m.now) {
		m.now = now
	}
	for a, v := range m.vips {
		if v.kept && len(m.receivers(a, v)) == 0 {
			v.up, v.kept, v.lost = false, false, false
		}
	}
	m.step(now)
	m.release()
}

// announced is what must be announced, worked out from nothing.
func (m *model) announced() map[netip.Prefix][]Path {
	type key struct {
		prefix netip.Prefix
		peer   string
	}
	// The best that a VIP wants: the lowest of four numbers, then the lowest rule.
	type wish struct{ badness, rule int }
	wanted := map[key]wish{}
	for a, v := range m.vips {
		if !m.onAir(a, v) {
			continue
		}
		badness := 0
		if m.roles[a] != AsRuled {
			badness++
		}
		if m.drains.Of(a) == Shutting {
			badness += 2
		}
		for peer, rule := range m.receivers(a, v) {
			k, w := key{m.policy.Rules[rule].prefix(a), peer}, wish{badness, rule}
			if b, ok := wanted[k]; !ok || w.badness < b.badness || w.badness == b.badness && w.rule < b.rule {
				wanted[k] = w
			}
		}
	}
	out := map[netip.Prefix][]Path{}
	for _, k := range slices.SortedFunc(maps.Keys(wanted), func(x, y key) int { return strings.Compare(x.peer, y.peer) }) {
		path := m.path(k.peer, wanted[k].rule, wanted[k].badness)
		i := slices.IndexFunc(out[k.prefix], func(p Path) bool { p.Peers = nil; return p.Equal(path) })
		if i < 0 {
			out[k.prefix] = append(out[k.prefix], path)
			i = len(out[k.prefix]) - 1
		}
		out[k.prefix][i].Peers = append(out[k.prefix][i].Peers, k.peer)
	}
	return out
}

// path is a rule's to a peer: 1 is a standby's, 2 asks to be avoided, 3 is both.
func (m *model) path(peer string, rule, badness int) Path {
	r := m.policy.Rules[rule]
	if badness%2 == 1 {
		h := m.policy.Peers[slices.IndexFunc(m.policy.Peers, func(p Peer) bool { return p.Name == peer })].Standby
		pref := uint32(100)
		if r.LocalPref.Given {
			pref = r.LocalPref.Value
		}
		switch h {
		case Handicap{}:
			r.MED = MetricOf(r.MED.Value + 100)
		case Handicap{MED: 7}:
			r.MED = MetricOf(r.MED.Value + 7)
		case Handicap{LocalPref: 150}:
			r.LocalPref = MetricOf(max(pref, 150) - 150)
		case Handicap{Prepend: 3}:
			r.Prepend += 3
		default:
			panic("a handicap that the model does not know")
		}
	}
	if badness >= 2 {
		r.Communities, r.LocalPref = append(slices.Clone(r.Communities), GracefulShutdown), MetricOf(0)
	}
	return r.path(plain, Handicap{})
}

// gen makes random things out of a space so small that they often meet.
type gen struct{ *rand.Rand }

func (g *gen) chance(percent int) bool { return g.IntN(100) < percent }

func pick[T any](g *gen, of ...T) T { return of[g.IntN(len(of))] }

func (g *gen) addr() netip.Addr {
	if g.chance(30) {
		return netip.MustParseAddr(fmt.Sprintf("2001:db8::%d", 1+g.IntN(6)))
	}
	return netip.AddrFrom4([4]byte{192, 0, 2, byte(1 + g.IntN(12))})
}

func (g *gen) serving() lb.Serving {
	if g.chance(20) {
		return lb.Serving{Service: lb.ServiceID{Source: "static", Name: pick(g, "web", "dns")}, Kind: pick(g, lb.LoadBalancer, lb.ExternalIP)}
	}
	return lb.Serving{
		Service: lb.ServiceID{Source: pick(g, "prod", "test"), Namespace: pick(g, "shop", "mail"), Name: pick(g, "web", "dns")},
		Kind:    pick(g, lb.LoadBalancer, lb.LoadBalancer, lb.LoadBalancer, lb.ClusterIP, lb.ExternalIP, lb.NodePort),
	}
}

func (g *gen) route(a netip.Addr) lb.Route {
	r := lb.Route{Addr: a}
	switch {
	case g.chance(45):
		for range 1 + g.IntN(2) {
			r.Serves = append(r.Serves, g.serving())
		}
	case g.chance(70):
		r.Withheld = lb.NoLiveBackend
	default:
		r.Withheld = pick(g, lb.NotProgrammed, lb.NotServed, lb.Gone)
	}
	return r
}

func (g *gen) routes() []lb.Route {
	out := map[netip.Addr]lb.Route{}
	for range 1 + g.IntN(pick(g, 2, 4, 18)) {
		a := g.addr()
		out[a] = g.route(a)
	}
	if g.chance(10) { // a check that breaks, or one that is whole again
		whole := g.chance(50)
		for i := range 12 {
			r := lb.Route{Addr: netip.AddrFrom4([4]byte{192, 0, 2, byte(1 + i)}), Withheld: lb.NoLiveBackend}
			if whole {
				r.Withheld, r.Serves = "", []lb.Serving{g.serving()}
			}
			out[r.Addr] = r
		}
	}
	return slices.Collect(maps.Values(out)) // in any order
}

func (g *gen) policy() Policy {
	peers := []Peer{{Name: "tor2"}, {Name: "tor1"}, {Name: "four", Families: Families{IPv4: true}}}
	for i := range peers {
		peers[i].Standby = pick(g, Handicap{}, Handicap{MED: 7}, Handicap{LocalPref: 150}, Handicap{Prepend: 3})
	}
	g.Shuffle(len(peers), func(i, j int) { peers[i], peers[j] = peers[j], peers[i] })
	p := Policy{
		Pools: map[string][]netip.Prefix{
			"low":  {netip.MustParsePrefix("192.0.2.0/29")},
			"high": {netip.MustParsePrefix("192.0.2.8/29"), netip.MustParsePrefix("2001:db8::4/126")},
		},
		Peers:           peers[:g.IntN(4)],
		ReannounceDelay: time.Duration(g.IntN(3)) * 5 * time.Second,
		MinAnnounced:    pick(g, 0, 0.1, 0.5, 0.5, 1),
	}
	var explicit, pools []Rule
	for i := range g.IntN(4) {
		explicit = append(explicit, g.rule(fmt.Sprintf("advertise %d", i+1)))
	}
	if g.chance(30) {
		pools = append(pools, g.rule("pool low"))
	}
	p.Rules = Rules(explicit, pools)
	return p
}

func (g *gen) rule(name string) Rule {
	r := Rule{Name: name, Refuse: g.chance(15)}
	some := func(of ...string) []string {
		if g.chance(60) {
			return nil
		}
		return []string{of[g.IntN(len(of))]}
	}
	r.Match.Pools, r.Match.Sources = some("low", "high"), some("prod", "test", "static")
	r.Match.Namespaces, r.Match.Services, r.Peers = some("shop", "mail"), some("web", "shop/web"), some("tor1", "tor2", "four", "nobody")
	if g.chance(30) {
		r.Match.Labels = map[string]string{"tier": pick(g, "gold", "tin")}
	}
	if g.chance(30) {
		r.Match.Kinds = []Kind{pick(g, LoadBalancer, ClusterIP, ExternalIP, Static), LoadBalancer}
	}
	if g.chance(40) {
		r.Communities = []Community{NoExport, Community(g.IntN(3)), NoExport}
		r.LargeCommunities = []LargeCommunity{{64500, 2, 1}, {64500, 1, uint32(g.IntN(2))}}
	}
	if g.chance(30) {
		r.LocalPref, r.MED, r.Prepend = MetricOf(uint32(g.IntN(2))*200), MetricOf(0), g.IntN(2)
	}
	if g.chance(40) {
		r.Aggregate4, r.Aggregate6 = pick(g, 28, 30, 32), pick(g, 0, 124)
	}
	return r
}

func (g *gen) drains() Drains {
	d := Drains{All: pick(g, NotDrained, NotDrained, NotDrained, Shutting, Drained), VIPs: map[netip.Addr]Stage{}}
	for range g.IntN(4) {
		d.VIPs[g.addr()] = pick(g, Shutting, Drained)
	}
	return d
}

func (g *gen) roles() map[netip.Addr]Role {
	out := map[netip.Addr]Role{}
	for range 1 + g.IntN(pick(g, 2, 20)) {
		out[g.addr()] = pick(g, AsRuled, Standby, Standby, Out)
	}
	return out
}

// seeds runs f for n random histories, times WEIR_HISTORIES. Run a single one with -run '.../seed=7$'.
func seeds(t *testing.T, n uint64, f func(t *testing.T, g *gen)) {
	t.Helper()
	for seed := range histories.Times(n) {
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			t.Parallel()
			f(t, &gen{rand.New(rand.NewPCG(seed, 4))})
		})
	}
}
