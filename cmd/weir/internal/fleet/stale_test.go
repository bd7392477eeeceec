package fleet

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"reflect"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"weir/cluster"
	"weir/cluster/l2"
	"weir/cluster/owner"
	"weir/cmd/weir/internal/config"
	"weir/cmd/weir/internal/fleet/message"
	"weir/lb"
)

// TestLawNoDecisionIsStale changes random inputs of an Engine, and then lets it decide everything again by the same
// facts. That must change nothing: an input without a generation of its own leaves a stale decision.
func TestLawNoDecisionIsStale(t *testing.T) {
	t.Parallel()
	for seed := range uint64(200) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			w := newWorld(rand.New(rand.NewPCG(seed, 11)))
			for range 60 {
				changed := w.change()
				w.engine.update(w.moment)
				w.check(t, changed)
				w.Now = w.Now.Add(time.Duration(w.rand.IntN(4000)) * time.Millisecond)
			}
		})
	}
}

// world is an Engine and its inputs, which change at random.
type world struct {
	moment
	rand   *rand.Rand
	engine *Engine
	vips   []netip.Addr
	// members are the other members, as the Engine has received them.
	members map[string]cluster.Member
}

func newWorld(r *rand.Rand) *world {
	w := &world{rand: r, members: map[string]cluster.Member{}}
	w.Now, w.Box.Ready = startTime, true
	for i := range 5 {
		w.vips = append(w.vips, netip.AddrFrom4([4]byte{192, 0, 2, byte(10 + i)}))
	}
	w.engine = newTestEngine(w.config())
	w.engine.update(w.moment) // it joins: no member is known before
	return w
}

func (w *world) one(n int) bool { return w.rand.IntN(n) == 0 }

// config returns a random configuration of one fleet.
func (w *world) config() *config.Config {
	cfg := inFleet(owner.Rules{Mode: owner.ActiveStandby, NoPreempt: w.one(2)})
	if w.one(3) {
		cfg.Fleet.Rules.Mode = owner.ActiveActive
	}
	cfg.Fleet.Weight = uint16(100 + 50*w.rand.IntN(2))
	if !w.one(3) {
		cfg.L2 = &config.L2{Interfaces: []string{"eth0"}, Static: true}
	}
	return cfg
}

// change changes some inputs, and names them.
func (w *world) change() (names []string) {
	w.Routes, w.Members, w.L2 = nil, nil, nil
	a := w.vips[w.rand.IntN(len(w.vips))]
	for _, c := range []struct {
		name  string
		often int
		do    func()
	}{
		{"a VIP", 3, func() { w.Routes = []lb.Route{w.route(a)} }},
		{"IPVS", 9, func() { w.Box.NoIPVS = !w.Box.NoIPVS }},
		{"a link", 9, func() {
			if w.Links.Down == nil {
				w.Links.Down = []string{"eth0 has no carrier"}
			} else {
				w.Links.Down = nil
			}
		}},
		{"the MACs", 9, func() { w.Links.MACs = []string{fmt.Sprintf("02:00:00:00:00:%02x", w.rand.IntN(3))} }},
		{"a drained VIP", 6, func() { w.drainVIP(a) }},
		{"a drained box", 15, func() { w.drain.All = !w.drain.All; w.drain.Version++ }},
		{"a member", 2, func() { w.Members = w.member() }},
		{"the claims", 4, func() { w.L2 = &l2.Status{VIPs: []l2.VIP{w.claim(a)}} }},
		{"a source", 4, func() {
			w.engine.Receive(lb.Update{Source: config.Source, Put: []lb.Service{{ID: lb.ServiceID{Source: config.Source, Name: fmt.Sprint(w.rand.IntN(3))}}}})
		}},
		{"the configuration", 12, func() { w.engine.Configure(w.config(), "a", nil) }},
	} {
		if w.one(c.often) {
			c.do()
			names = append(names, c.name)
		}
	}
	return names
}

func (w *world) route(a netip.Addr) lb.Route {
	switch w.rand.IntN(3) {
	case 0:
		return lb.Route{Addr: a, Withheld: lb.Gone}
	case 1:
		return lb.Route{Addr: a}
	}
	return lb.Route{Addr: a, Serves: []lb.Serving{{Service: lb.ServiceID{Source: config.Source, Name: "web"}}}}
}

// drainVIP drains a VIP, or ends its drain.
func (w *world) drainVIP(a netip.Addr) {
	vips := maps.Clone(w.drain.VIPs)
	if vips == nil {
		vips = map[netip.Addr]time.Time{}
	}
	if _, drained := vips[a]; drained {
		delete(vips, a)
	} else {
		vips[a] = w.Now
	}
	w.drain.VIPs = vips
	w.drain.Version++
}

func (w *world) claim(a netip.Addr) l2.VIP {
	v := l2.VIP{Addr: a, Interface: "eth0", State: l2.Answered, Since: w.Now}
	if w.one(2) {
		v.State, v.Other = l2.Contested, l2.MAC{2, 0, 0, 0, 0, 99}
	}
	return v
}

// member changes another member, or removes it.
func (w *world) member() *cluster.Status {
	name := []string{"b", "c"}[w.rand.IntN(2)]
	m, known := w.members[name]
	switch {
	case known && w.one(6):
		delete(w.members, name)
	case known && w.one(4):
		m.Life = map[bool]cluster.Life{true: cluster.Dead, false: cluster.Alive}[m.Life == cluster.Alive]
		w.members[name] = m
	default:
		flags := map[netip.Addr]message.Flags{}
		for _, a := range w.vips {
			if !w.one(3) {
				flags[a] = []message.Flags{message.Serves, message.Serves | message.Owns, message.Serves | message.Drains, message.Serves | message.Mute}[w.rand.IntN(4)]
			}
		}
		sources := w.engine.message(nil).Sources // most members have what this box has
		if w.one(3) {
			sources[config.Source] = "other"
		}
		text, err := message.Message{VIPs: flags, Answers: w.one(2), MACs: []string{"02:00:00:00:01:" + name + "0"}, Sources: sources}.Encode()
		if err != nil {
			panic(err)
		}
		w.members[name] = cluster.Member{
			Name: name, Since: w.Now, Message: text, MessageDigest: text.Digest(),
			State: cluster.State{Weight: 100, Stable: w.one(2), Message: text.Digest()},
		}
	}
	out := &cluster.Status{Joined: true, Members: []cluster.Member{{Name: "a", Self: true}}}
	for _, x := range w.members {
		out.Members = append(out.Members, x)
	}
	return out
}

// check compares the decisions of the Engine with new ones by the same facts.
func (w *world) check(t *testing.T, changed []string) {
	t.Helper()
	e := w.engine
	if e.publisher.throttle.due.IsZero() && e.self.gossiping {
		if d := cmp.Diff(e.message(nil), e.publisher.message, compareNetip, cmpopts.EquateEmpty()); d != "" {
			t.Fatalf("after a change of %v the published message is stale (-facts +published):\n%s", changed, d)
		}
	}
	gen, published, elected, compared := e.gen, e.publisher, e.ownership.seen, e.differences.seen
	verdicts, sources := maps.Clone(e.ownership.verdicts), maps.Clone(e.differences.sources)
	all := reflect.ValueOf(&e.gen).Elem()
	for i := range all.NumField() {
		*(*uint64)(all.Field(i).Addr().UnsafePointer()) += 1 << 32
	}
	e.publisher.throttle = throttle{last: w.Now} // the comparison is with the published message
	d := e.update(moment{Inputs{Now: w.Now, Box: w.Box, Links: w.Links}, w.drain})
	if len(d.Roles)+len(d.Late)+len(d.Claims) > 0 || !maps.EqualFunc(verdicts, e.ownership.verdicts, sameOwner) {
		t.Fatalf("after a change of %v decisions were stale: roles %v, late roles %v, claims %v, owners (-stale +by the facts):\n%s", changed,
			d.Roles, d.Late, d.Claims, cmp.Diff(verdicts, e.ownership.verdicts, compareNetip))
	}
	if d := cmp.Diff(sources, e.differences.sources); d != "" {
		t.Fatalf("after a change of %v the comparison was stale (-stale +by the facts):\n%s", changed, d)
	}
	// The new decisions must not hide the next change.
	e.gen, e.publisher, e.ownership.seen, e.differences.seen = gen, published, elected, compared
}

// sameOwner reports whether two decisions about a VIP are equal. The reason may differ: an elected member is the
// incumbent of the next election.
func sameOwner(a, b owner.Decision) bool { return a.Owner == b.Owner && a.Role == b.Role }
