package health

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"weir/cmd/weirlab/histories"
	"weir/lb"
)

func TestRecordFollowsRiseAndFall(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name       string
		rise, fall int
		checks     string // + passed, - failed
		want       string // the state after each: U up, D down
	}{
		{"first check suffices: up", 3, 3, "+", "U"},
		{"first check suffices: down", 3, 3, "-", "D"},
		{"falls after fall failures in a row", 1, 3, "+---", "UUUD"},
		{"a success in between starts the count again", 1, 3, "+--+--+---", "UUUUUUUUUD"},
		{"rises after rise successes in a row", 2, 1, "-++", "DDU"},
		{"a failure in between starts the count again", 3, 1, "-++-+++", "DDDDDDU"},
		{"one of each flips at once", 1, 1, "+-+-", "UDUD"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			c := &Check{Rise: tt.rise, Fall: tt.fall}
			var b record
			var got []byte
			for i, r := range tt.checks {
				result := map[rune]state{'+': up, '-': down}[r]
				b = b.after(result, c, time.Unix(int64(i), 0))
				got = append(got, " UD"[b.state])
			}
			if string(got) != tt.want {
				t.Errorf("states %s, want %s", got, tt.want)
			}
		})
	}
}

func TestTallyDecidesQuorum(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name               string
		unknown, up, down  int
		was                bool
		quorum, hysteresis int
		want               bool
	}{
		{"enough are up", 0, 2, 3, false, 2, 1, false},
		{"too few are up", 0, 1, 4, false, 2, 1, true},
		{"an unknown one may be up", 1, 1, 3, false, 2, 1, false},
		{"nothing is known", 5, 0, 0, false, 2, 1, false},
		{"stays lost below quorum and hysteresis", 0, 2, 3, true, 2, 1, true},
		{"comes back at quorum and hysteresis", 0, 3, 2, true, 2, 1, false},
		{"hysteresis beyond the backends: all must be up", 0, 3, 0, true, 2, 9, false},
		{"hysteresis beyond the backends: one is down", 0, 2, 1, true, 2, 9, true},
		{"quorum beyond the backends: all are up", 0, 2, 0, false, 5, 0, false},
		{"quorum beyond the backends: one is down", 0, 1, 1, false, 5, 0, true},
		{"unknown ones don't bring it back", 2, 1, 0, true, 2, 0, true},
		{"no backend at all", 0, 0, 0, false, 1, 0, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			counts := tally{unknown: tt.unknown, up: tt.up, down: tt.down}
			if got := counts.lost(tt.was, tt.quorum, tt.hysteresis); got != tt.want {
				t.Errorf("lost = %t, want %t", got, tt.want)
			}
		})
	}
}

// model is the documented behaviour in its simplest form: whole histories of checks, counted
// again each time.
type model struct {
	group   Group
	history map[netip.AddrPort][]bool
	state   map[netip.AddrPort]state
	lost    bool
}

func (m *model) add(a netip.AddrPort, passed bool) {
	h := append(m.history[a], passed)
	m.history[a] = h
	need, result := m.group.Check.Fall, down
	if passed {
		need, result = m.group.Check.Rise, up
	}
	if len(h) == 1 || len(h) >= need && !slices.Contains(h[len(h)-need:], !passed) {
		m.state[a] = result
	}
	m.decide()
}

func (m *model) decide() {
	all, ups, unknowns := 0, 0, 0
	for _, be := range m.group.Ports[0].Backends {
		if be.Weight == 0 {
			continue
		}
		all++
		switch m.state[be.Addr] {
		case up:
			ups++
		case unknown:
			unknowns++
		}
	}
	quorum, back := m.group.Quorum, m.group.Quorum+m.group.Hysteresis
	if all > 0 && quorum > all {
		quorum = all
	}
	if all > 0 && back > all {
		back = all
	}
	switch {
	case m.lost && ups >= back:
		m.lost = false
	case !m.lost && unknowns == 0 && ups < quorum:
		m.lost = true
	}
}

func (m *model) health() lb.Health {
	var h lb.Health
	for _, be := range m.group.Ports[0].Backends {
		if m.state[be.Addr] != up {
			if h.Down == nil {
				h.Down = map[netip.AddrPort]bool{}
			}
			h.Down[be.Addr] = true
		}
	}
	if m.lost {
		h.Lost = map[lb.FamilyPort]bool{{Port: m.group.Ports[0].Key(), Family: lb.IPv4}: true}
		if len(m.group.Ports[0].Backends) == 0 {
			h.Lost[lb.FamilyPort{Port: m.group.Ports[0].Key(), Family: lb.IPv6}] = true
		}
	}
	return h
}

// set takes the backends and quorum of g, and removes all others.
func (m *model) set(g Group) {
	m.group = g
	for a := range m.state {
		if !slices.ContainsFunc(g.Ports[0].Backends, func(be lb.Backend) bool { return be.Addr == a }) {
			delete(m.state, a)
			delete(m.history, a)
		}
	}
	m.decide()
}

func randomGroup(r *rand.Rand, c Check) Group {
	p := lb.Port{Port: 80, Proto: lb.TCP}
	for i := range 6 {
		if r.IntN(3) > 0 {
			p.Backends = append(p.Backends, lb.Backend{Addr: backend(i), Weight: uint32(r.IntN(4))})
		}
	}
	return Group{Service: web, Check: c, Ports: []lb.Port{p}, Quorum: 1 + r.IntN(4), Hysteresis: r.IntN(4)}
}

func TestTableFollowsModelInRandomHistories(t *testing.T) {
	t.Parallel()
	for seed := range histories.Times(50) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			t.Parallel()
			r := rand.New(rand.NewPCG(seed, 0))
			check := Check{Kind: TCP, Rise: 1 + r.IntN(3), Fall: 1 + r.IntN(3)}
			m := model{history: map[netip.AddrPort][]bool{}, state: map[netip.AddrPort]state{}}
			var b table
			var now time.Time
			var followed map[lb.ServiceID]lb.Health
			for range 200 {
				if m.group.Ports == nil || r.IntN(20) == 0 {
					g := randomGroup(r, check)
					m.set(g)
					b.set([]Group{g}, []prepared{{}}, now)
				}
				now = now.Add(time.Second)
				jobs, _ := b.take(nil, 1, now)
				for _, j := range jobs {
					passed := r.IntN(2) == 0
					m.add(j.probe.backends[0].addr, passed)
					a := answer{probe: j.probe, ended: now}
					if !passed {
						a.problem = "connection refused"
					}
					b.finish(a, now.Add(time.Duration(r.IntN(5000))*time.Millisecond))
				}
				want := map[lb.ServiceID]lb.Health{web: m.health()}
				if turned, all := b.turns(); all {
					followed = turned
				} else {
					maps.Copy(followed, turned)
				}
				if !reflect.DeepEqual(followed, want) {
					t.Fatalf("health by turns (-model +table):\n%s", cmp.Diff(want, followed, addrs))
				}
				if turned, _ := b.turns(); len(turned) > 0 {
					t.Fatalf("has turned again without an answer: %v", turned)
				}
				if got := b.health(); !reflect.DeepEqual(got, want) {
					t.Fatalf("health (-model +table):\n%s", cmp.Diff(want, got, addrs))
				}
			}
		})
	}
}

// The counts of a table are those of its backends, after each answer, check without a result and change.
func TestCountsAreThoseOfTheBackends(t *testing.T) {
	t.Parallel()
	for seed := range histories.Times(20) {
		r := rand.New(rand.NewPCG(seed, 1))
		var b table
		var now time.Time
		voids, set := 0, false
		for range 300 {
			if !set || r.IntN(30) == 0 {
				var groups []Group
				for _, id := range []lb.ServiceID{web, {Namespace: "static", Name: "dns"}} {
					g := randomGroup(r, Check{Kind: TCP, Rise: 1 + r.IntN(2), Fall: 1 + r.IntN(2)})
					g.Service = id
					second := g.Ports[0]
					second.Port = 443
					if g.Check.Port = uint16(r.IntN(2)) * 9000; r.IntN(2) == 0 {
						g.Ports = append(g.Ports, second) // with a port of the check, both share its probes
					}
					groups = append(groups, g)
				}
				b.set(groups, make([]prepared, len(groups)), now)
				set = true
			}
			now = now.Add(time.Second)
			jobs, _ := b.take(nil, 1+r.IntN(3), now)
			for _, j := range jobs {
				due := now.Add(time.Duration(r.IntN(3000)) * time.Millisecond)
				a := answer{probe: j.probe, ended: now, problem: []string{"", "refused", "no file"}[r.IntN(3)]}
				if a.problem == "no file" || r.IntN(2) == 0 && j.probe.voids > 0 {
					a.problem = "no file"
					b.discard(a, due)
				} else {
					b.finish(a, due)
				}
			}
			var want Counts
			for _, s := range b.backends {
				switch s.state {
				case up:
					want.Up++
				case down:
					want.Down++
				default:
					want.Unknown++
				}
				if s.probe.void() {
					want.Void++
					want.VoidError = "no file"
				}
			}
			voids += want.Void
			if got := b.count(); got != want {
				t.Fatalf("seed %d: counted %+v, want %+v", seed, got, want)
			}
		}
		if voids == 0 {
			t.Errorf("seed %d has no check without a result", seed)
		}
	}
}
