package lb

import (
	"math/rand/v2"
	"net/netip"
	"slices"
)

// The generator of the laws, for tests outside this package: one that compares Fake
// with a kernel imports lb/linux, which imports lb.

// Gen is the generator of random Services and boxes.
type Gen = gen

// NewGen returns a generator. Its output depends on seed only.
func NewGen(seed uint64) *Gen { return &gen{rand.New(rand.NewPCG(seed, 1)), 0} }

// Services returns random Services.
func (g *gen) Services() []Service { return g.services() }

// Health returns random results of health checks.
func (g *gen) Health(services []Service) map[ServiceID]Health { return g.health(services) }

// Options returns random options of a Reconciler.
func (g *gen) Options() Options { return g.options() }

// Fake returns an empty Fake with random rules and addresses of the box.
func (g *gen) Fake() *Fake { return g.kernel() }

// Chance returns true in so many of a hundred cases.
func (g *gen) Chance(percent int) bool { return g.chance(percent) }

// WantOf returns the state that Services have on a box like k.
func WantOf(k *Fake, services []Service, o Options, health map[ServiceID]Health) *State {
	return wantOf(k, services, o, health)
}

// FrontendsOf returns the addresses of k to which clients of Services may connect. A given mark is none.
func FrontendsOf(k *Fake, services []Service) []Frontend {
	return slices.DeleteFunc(k.allFrontends(services), func(f Frontend) bool { return f.Given })
}

// HostsOf returns the addresses of k's other interfaces.
func HostsOf(k *Fake) map[netip.Addr]string { return k.HostAddrs }

// BaseOfLaws returns what the laws' boxes have before any Service.
func BaseOfLaws() Base { return base }

// ClientsOfLaws returns the clients of the laws.
func ClientsOfLaws() []netip.Addr { return clients }

// SameStep reports whether one call of Apply may carry out a and b.
func SameStep(a, b Op) bool { return a.step == b.step && a.Object.kind() == b.Object.kind() }

// SetConns sets the connections of a real server.
func (k *Fake) SetConns(rs RealServer, c Conns) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.conns == nil {
		k.conns = map[Object]Conns{}
	}
	k.conns[rs.ID()] = c
}

// Calls returns the number of Ops that were tried.
func (k *Fake) Calls() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.calls
}
