package fleet

import (
	"net/netip"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"weir/bgp/advertise"
	"weir/cluster"
	"weir/cluster/l2"
	"weir/cluster/owner"
	"weir/cmd/weir/internal/config"
	"weir/cmd/weir/internal/fleet/message"
	"weir/lb"
	"weir/lb/health"
)

// moment is the facts of one moment, and the drains then.
type moment struct {
	Inputs
	drain Drain
}

// update has an Engine decide by the facts and drains of a moment.
func (e *Engine) update(m moment) Decision {
	e.Observe(m.Inputs)
	return e.Decide(m.drain)
}

// step is one moment, and what is expected of it.
type step struct {
	name   string
	after  time.Duration
	change func(in *moment)
	want   outcome
}

// outcome is the part of a Decision that a test compares, in words.
type outcome struct {
	state owner.State
	owner string
	role  string // new role for routers: "", as ruled, standby, out; late ones with "late "
	claim string // "", claim, cautious, release

}

// TestUpdate drives box "a" through the life of a fleet with "b". Both serve one VIP, of
// which "a" is the owner among equals.
func TestUpdate(t *testing.T) {
	t.Parallel()
	mine := ownVIP()
	route := lb.Route{Addr: mine, Serves: []lb.Serving{{Service: lb.ServiceID{Source: config.Source, Name: "web"}}}}
	other := func(change func(*cluster.Member), flags message.Flags) func(*moment) {
		return func(in *moment) {
			in.Members = withMember(in.Now, flags, mine, change)
		}
	}
	stable := func(m *cluster.Member) { m.State.Stable = true }
	start := []step{
		{"it starts", 0, func(in *moment) { in.Routes = []lb.Route{route} }, outcome{state: owner.Unfit}},
		{"b answers and is stable", time.Second, other(stable, message.Serves|message.Owns), outcome{state: owner.Fresh, owner: "b", role: "standby"}},
		{"nothing happens", time.Second, nil, outcome{state: owner.Fresh, owner: "b"}},
		{"it is fit for long enough", 30 * time.Second, nil, outcome{state: owner.Stable, owner: "a", role: "as ruled", claim: "claim"}},
	}
	for _, tt := range []struct {
		name  string
		steps []step
	}{
		{"alone", []step{
			{"it starts", 0, func(in *moment) { in.Routes = []lb.Route{route} }, outcome{state: owner.Unfit}},
			{"the join window is over", JoinWindow, nil, outcome{state: owner.Stable, owner: "a", claim: "claim"}},
		}},
		{"a cable is pulled", append(start[:4:4],
			step{"down", time.Second, func(in *moment) { in.Links.Down = []string{"eth0 has no carrier"} }, outcome{state: owner.Unfit, owner: "a"}},
			step{"others know", owner.ActDelay, nil, outcome{state: owner.Unfit, owner: "b", role: "out", claim: "release"}},
			step{"b is dead", time.Second, other(func(m *cluster.Member) { m.Life = cluster.Dead }, message.Serves), outcome{state: owner.Unfit, owner: "a", role: "as ruled", claim: "claim"}},
		)},
		{"the backends are down", append(start[:4:4],
			step{"no backend", time.Second, func(in *moment) { in.Routes = []lb.Route{{Addr: mine}} }, outcome{state: owner.Stable, owner: "b", role: "late out", claim: "release"}},
			step{"a backend is back", time.Second, func(in *moment) { in.Routes = []lb.Route{route} }, outcome{state: owner.Stable, owner: "a", role: "as ruled", claim: "claim"}},
		)},
		{"an operator drains the box", append(start[:4:4],
			step{"it begins", time.Second, func(in *moment) { in.drain = Drain{All: true, Version: 1} }, outcome{state: owner.Draining, owner: "a"}},
			step{"others know", owner.ActDelay, nil, outcome{state: owner.Draining, owner: "b", role: "out", claim: "release"}},
			step{"it ends", time.Second, func(in *moment) { in.drain = Drain{Version: 2} }, outcome{state: owner.Stable, owner: "a", role: "as ruled", claim: "claim"}},
		)},
		{"the kernel loses IPVS", append(start[:4:4],
			step{"lost", time.Second, func(in *moment) { in.Box.NoIPVS = true }, outcome{state: owner.Unfit, owner: "b", role: "late out", claim: "release"}},
			step{"back", time.Second, func(in *moment) { in.Box.NoIPVS = false }, outcome{state: owner.Fresh, owner: "b", role: "standby"}},
		)},
		{"the VIP is deleted", append(start[:4:4],
			step{"here", time.Second, func(in *moment) { in.Routes = []lb.Route{{Addr: mine, Withheld: lb.Gone}} }, outcome{state: owner.Stable, owner: "b", claim: "release"}},
		)},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			cfg := inFleet(owner.Rules{Mode: owner.ActiveStandby})
			cfg.L2 = &config.L2{Interfaces: []string{"eth0"}, Static: true}
			e := newTestEngine(cfg)
			in := moment{Inputs: Inputs{Now: startTime, Box: Box{Ready: true}}}
			for _, s := range tt.steps {
				in.Now, in.Routes, in.Members, in.L2 = in.Now.Add(s.after), nil, nil, nil
				if s.change != nil {
					s.change(&in)
				}
				got := outcomeOf(e, e.update(in), mine)
				if d := cmp.Diff(s.want, got, cmp.AllowUnexported(outcome{})); d != "" {
					t.Fatalf("%s (-want +got):\n%s", s.name, d)
				}
				if d := e.update(moment{Inputs{Now: in.Now, Box: in.Box, Links: in.Links}, in.drain}); len(d.Roles)+len(d.Late)+len(d.Claims) > 0 {
					t.Fatalf("%s: the same inputs again change %+v", s.name, d)
				}
			}
		})
	}
}

// With preempt_delay = "never" the owner before a restart keeps a VIP. That counts once: a VIP that is deleted and comes
// again belongs to the member that serves it first.
func TestOwnerBeforeARestart(t *testing.T) {
	t.Parallel()
	mine := ownVIP()
	cfg := inFleet(owner.Rules{Mode: owner.ActiveStandby, NoPreempt: true})
	e := NewEngine("v1", LastRun{Owned: map[netip.Addr]struct{}{mine: {}}}, startTime)
	e.Configure(cfg, "a", nil)
	in := moment{Inputs: Inputs{Now: startTime, Box: Box{Ready: true}}}
	e.update(in)
	route := lb.Route{Addr: mine, Serves: []lb.Serving{{Service: lb.ServiceID{Source: config.Source, Name: "web"}}}}
	for _, tt := range []struct {
		name  string
		route lb.Route
		flags message.Flags
		want  string
	}{
		{"both serve", route, message.Serves, "a"},
		{"it is deleted", lb.Route{Addr: mine, Withheld: lb.Gone}, 0, ""},
		{"b has it again first", route, message.Serves | message.Owns, "b"},
	} {
		in.Now, in.Routes = in.Now.Add(JoinWindow), []lb.Route{tt.route}
		in.Members = withMember(in.Now, tt.flags, mine, func(m *cluster.Member) { m.State.Stable = true })
		if got := outcomeOf(e, e.update(in), mine).owner; got != tt.want {
			t.Errorf("%s: %q owns it, want %q", tt.name, got, tt.want)
		}
	}
}

// outcomeOf returns the outcome of a Decision about a VIP.
func outcomeOf(e *Engine, d Decision, a netip.Addr) outcome {
	out := outcome{state: e.self.now.Published, owner: e.ownership.verdicts[a].Owner}
	names := map[advertise.Role]string{advertise.AsRuled: "as ruled", advertise.Standby: "standby", advertise.Out: "out"}
	if role, changed := d.Roles[a]; changed {
		out.role = names[role]
	}
	if role, changed := d.Late[a]; changed {
		out.role = "late " + names[role]
	}
	if claim, changed := d.Claims[a]; changed {
		switch {
		case claim == nil:
			out.claim = "release"
		case claim.Cautious:
			out.claim = "cautious"
		default:
			out.claim = "claim"
		}
	}
	return out
}

// ownVIP returns a VIP of which "a" is the owner, and not "b".
func ownVIP() netip.Addr {
	yes := func(netip.Addr) bool { return true }
	both := []owner.Member{{Name: "a", State: owner.Stable, Serves: yes}, {Name: "b", State: owner.Stable, Serves: yes}}
	a := vip
	for (owner.Rules{}).Owner(both, a) != "a" {
		a = a.Next()
	}
	return a
}

// withMember returns a fleet in which "b" serves a VIP.
func withMember(now time.Time, flags message.Flags, a netip.Addr, change func(*cluster.Member)) *cluster.Status {
	text, err := message.Message{VIPs: map[netip.Addr]message.Flags{a: flags}, Answers: true, MACs: []string{"02:00:00:00:00:02"}}.Encode()
	if err != nil {
		panic(err)
	}
	b := cluster.Member{Name: "b", Since: now, State: cluster.State{Weight: 100, Message: text.Digest()}, Message: text, MessageDigest: text.Digest()}
	change(&b)
	return &cluster.Status{Members: []cluster.Member{{Name: "a", Self: true}, b}, Joined: true}
}

// TestUpdatePublishes checks the messages of a box, and the generation of their inputs.
func TestUpdatePublishes(t *testing.T) {
	t.Parallel()
	cfg := inFleet(owner.Rules{})
	cfg.L2 = &config.L2{Interfaces: []string{"eth0"}, Static: true}
	e := newTestEngine(cfg)
	in := moment{Inputs: Inputs{Now: startTime, Box: Box{Ready: true}, Links: Links{MACs: []string{"02:00:00:00:00:01"}}}}
	first := e.update(in)
	if !first.JoinFleet || first.Publish == nil || first.Publish.State.Unfit == "" {
		t.Fatalf("at the start: %+v", first)
	}
	publishes := func(name string, after time.Duration, want bool) Decision {
		t.Helper()
		in.Now = in.Now.Add(after)
		d := e.update(in)
		if d.JoinFleet || (d.Publish != nil) != want {
			t.Errorf("%s: published %+v, want %t", name, d.Publish, want)
		}
		in.Routes, in.L2 = nil, nil
		return d
	}
	publishes("nothing has changed", time.Second, false)
	in.Routes = []lb.Route{{Addr: vip, Serves: []lb.Serving{{Service: lb.ServiceID{Source: config.Source, Name: "web"}}}}}
	if d := publishes("a VIP", time.Second, true); d.Publish.Message.VIPs[vip] != message.Serves {
		t.Errorf("published %+v", d.Publish.Message)
	}
	if d := publishes("the join window is over", JoinWindow, true); !d.Publish.State.Stable || d.Publish.Message.VIPs[vip] != message.Serves|message.Owns {
		t.Errorf("published %+v", d.Publish)
	}
	publishes("nothing has changed", time.Minute, false)
	e.Receive(lb.Update{Source: config.Source})
	publishes("a digest", publishDigestsEvery, true)
	in.Links.MACs = []string{"02:00:00:00:00:09"}
	publishes("a MAC", time.Second, true)
	in.L2 = &l2.Status{VIPs: []l2.VIP{{Addr: vip, Interface: "eth0", State: l2.Answered, Since: in.Now}}}
	if d := publishes("ARP is answered", time.Second, false); len(d.Took) != 1 {
		t.Errorf("took %v", d.Took)
	}
}

// TestFactsAreValues: the Engine is pure only if it can call nothing through its facts.
func TestFactsAreValues(t *testing.T) {
	t.Parallel()
	seen := map[reflect.Type]bool{reflect.TypeFor[health.Group](): true} // its function is for a Checker
	var check func(reflect.Type, string)
	check = func(typ reflect.Type, path string) {
		if seen[typ] || strings.HasPrefix(typ.PkgPath(), "net/netip") || typ.PkgPath() == "time" {
			return
		}
		seen[typ] = true
		switch typ.Kind() {
		case reflect.Func, reflect.Chan:
			t.Errorf("%s is a %s", path, typ.Kind())
		case reflect.Map:
			check(typ.Key(), path+" key")
			check(typ.Elem(), path+" value")
		case reflect.Pointer, reflect.Slice, reflect.Array:
			check(typ.Elem(), path)
		case reflect.Struct:
			for i := range typ.NumField() {
				check(typ.Field(i).Type, path+"."+typ.Field(i).Name)
			}
		}
	}
	check(reflect.TypeFor[Inputs](), "Inputs")
	check(reflect.TypeFor[Drain](), "Drain")
}
