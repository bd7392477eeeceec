package fleet

import (
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"weir/cluster"
	"weir/cluster/owner"
	"weir/cmd/weir/internal/config"
	"weir/cmd/weir/internal/fleet/message"
	"weir/lb"
)

// TestRestartOfTheGossip restarts the gossip of box "a", which knows no members then. They count as before until it has
// had the time to find them. "a" is fresh, "b" is stable and owns the VIP, of which "a" is the owner among equals.
func TestRestartOfTheGossip(t *testing.T) {
	t.Parallel()
	mine := ownVIP()
	forgets := func(rejoins uint64) func(*moment) {
		return func(in *moment) {
			in.Members = &cluster.Status{Members: []cluster.Member{{Name: "a", Self: true}}, Rejoins: rejoins}
		}
	}
	finds := func(rejoins uint64) func(*moment) {
		return func(in *moment) {
			in.Members = withMember(in.Now, message.Serves|message.Owns, mine, func(m *cluster.Member) { m.State.Stable = true })
			in.Members.Rejoins = rejoins
		}
	}
	asBefore := outcome{state: owner.Fresh, owner: "b"}
	takes := outcome{state: owner.Stable, owner: "a", role: "as ruled", claim: "claim"}
	for _, tt := range []struct {
		name  string
		steps []step
	}{
		{"b is found", []step{
			{"b is forgotten", time.Second, forgets(1), asBefore},
			{"b is found", 3 * time.Second, finds(1), asBefore},
			{"nothing happens", 20 * time.Second, nil, asBefore},
			{"it is fit for long enough", 10 * time.Second, nil, takes},
		}},
		{"b is not found", []step{
			{"b is forgotten", time.Second, forgets(1), asBefore},
			{"the window is not over", rejoinWindow - 1, nil, asBefore},
			{"the window is over", 1, nil, takes},
		}},
		{"panics without end", []step{
			{"the first", time.Second, forgets(1), asBefore},
			{"the second", 5 * time.Second, forgets(2), asBefore},
			{"the third", 5 * time.Second, forgets(3), asBefore},
			{"the fourth", 5 * time.Second, forgets(4), asBefore},
			{"the fifth", 5 * time.Second, forgets(5), asBefore},
			{"the sixth", 5 * time.Second, forgets(6), asBefore},
			{"the seventh", 5 * time.Second, forgets(7), takes},
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			e, in := freshBesideB(t, mine, finds(0))
			for _, s := range tt.steps {
				in.Now, in.Members = in.Now.Add(s.after), nil
				if s.change != nil {
					s.change(&in)
				}
				if d := cmp.Diff(s.want, outcomeOf(e, e.update(in), mine), cmp.AllowUnexported(outcome{})); d != "" {
					t.Fatalf("%s (-want +got):\n%s", s.name, d)
				}
			}
		})
	}
	t.Run("it ends no isolation", func(t *testing.T) {
		t.Parallel()
		e, in := freshBesideB(t, mine, finds(0))
		in.Members.Members[1].Life = cluster.Dead
		e.update(in)
		for _, after := range []time.Duration{0, rejoinWindow - 1, 1, time.Hour} {
			in.Now, in.Members = in.Now.Add(after), nil
			if after != 1 {
				forgets(1)(&in)
			}
			if e.update(in); !e.members.allGone() || !e.members.silent("b") {
				t.Errorf("%s later: b is not gone", after)
			}
		}
		in.Now = in.Now.Add(goneFor)
		forgets(1)(&in)
		if e.update(in); e.members.allGone() {
			t.Error("a day later b is still known to be gone")
		}
	})
	t.Run("b has left, or is of another fleet", func(t *testing.T) {
		t.Parallel()
		for _, fleet := range []string{"tests", "others"} {
			e, in := freshBesideB(t, mine, finds(0))
			if fleet == "tests" {
				in.Members.Members[1].Life = cluster.Left
			}
			e.update(in)
			cfg := inFleet(owner.Rules{Mode: owner.ActiveStandby})
			cfg.L2, cfg.Fleet.Gossip.Fleet = &config.L2{Interfaces: []string{"eth0"}, Static: true}, fleet
			e.Configure(cfg, "a", nil)
			forgets(1)(&in)
			e.update(in)
			in.Now, in.Members = in.Now.Add(rejoinWindow), nil
			if got := outcomeOf(e, e.update(in), mine); got.owner != "a" || e.members.allGone() {
				t.Errorf("in fleet %s: owner %s, all members are gone: %t", fleet, got.owner, e.members.allGone())
			}
		}
	})
	t.Run("it had a conflict of names", func(t *testing.T) {
		t.Parallel()
		e, in := freshBesideB(t, mine, finds(0))
		in.Members.NameConflict = "10.0.0.9:7946"
		e.update(in)
		in.Members.Rejoins, in.Members.NameConflict = 1, "10.0.0.9:7946" // it is restarted under the same name first
		e.update(in)
		in.Now = in.Now.Add(time.Hour)
		in.Members.Rejoining = true
		e.update(in)
		in.Now = in.Now.Add(time.Second / 100)
		forgets(2)(&in)
		if got := outcomeOf(e, e.update(in), mine); got.owner != "b" || got.claim != "" {
			t.Errorf("with its first status of another gossip: %+v", got)
		}
	})
	t.Run("another name is about to come", func(t *testing.T) {
		t.Parallel()
		yes, theirs := func(netip.Addr) bool { return true }, ownVIP()
		beats := func(name string) bool {
			both := []owner.Member{{Name: name, State: owner.Stable, Serves: yes}, {Name: "b", State: owner.Stable, Serves: yes}}
			return (owner.Rules{}).Owner(both, theirs) == name
		}
		for beats("a") || !beats("c") {
			theirs = theirs.Next()
		}
		finds := func(in *moment) {
			in.Members = withMember(in.Now, message.Serves|message.Owns, theirs, func(m *cluster.Member) { m.State.Stable = true })
		}
		e, in := freshBesideB(t, theirs, finds)
		in.Now = in.Now.Add(time.Minute)
		if got := outcomeOf(e, e.update(in), theirs); got.state != owner.Stable || got.owner != "b" {
			t.Fatalf("a minute later: %+v", got)
		}
		cfg := inFleet(owner.Rules{Mode: owner.ActiveStandby})
		cfg.L2, cfg.Fleet.Gossip.Name = &config.L2{Interfaces: []string{"eth0"}, Static: true}, "c"
		e.Configure(cfg, "c", nil)
		for range 20 { // the former gossip ends slowly
			finds(&in)
			in.Members.Rejoining = true
			if d := e.update(in); len(d.Roles)+len(d.Late)+len(d.Claims) > 0 {
				t.Fatalf("under its new name it decides %+v with members that it knows by the former one", d)
			}
			in.Now = in.Now.Add(time.Second / 2)
		}
	})
}

// freshBesideB returns box "a", which serves a VIP, and the facts of the moment in which it has found "b".
func freshBesideB(t *testing.T, vip netip.Addr, finds func(*moment)) (*Engine, moment) {
	t.Helper()
	cfg := inFleet(owner.Rules{Mode: owner.ActiveStandby})
	cfg.L2 = &config.L2{Interfaces: []string{"eth0"}, Static: true}
	e := newTestEngine(cfg)
	serves := []lb.Serving{{Service: lb.ServiceID{Source: config.Source, Name: "web"}}}
	in := moment{Inputs: Inputs{Now: startTime, Box: Box{Ready: true}, Routes: []lb.Route{{Addr: vip, Serves: serves}}}}
	e.update(in)
	in.Now, in.Routes = in.Now.Add(time.Second), nil
	finds(&in)
	if got := outcomeOf(e, e.update(in), vip); got.state != owner.Fresh || got.owner != "b" {
		t.Fatalf("beside b: %+v", got)
	}
	return e, in
}

// Only an answerer of [l2] has members: without it none may be given, and a reload that adds it gives all.
func TestMembersOfAnAnswererThatIsAdded(t *testing.T) {
	t.Parallel()
	cfg := inFleet(owner.Rules{Mode: owner.ActiveStandby})
	e := newTestEngine(cfg)
	member := func(name, mac string) cluster.Member {
		m := message.Message{Answers: true, MACs: []string{mac}}
		out, err := m.Encode()
		if err != nil {
			t.Fatal(err)
		}
		d := cluster.DigestOf(out.Wire())
		return cluster.Member{Name: name, Life: cluster.Alive, State: cluster.State{Stable: true, Message: d}, Message: out, MessageDigest: d}
	}
	b, c := member("b", "02:00:00:00:00:0b"), member("c", "02:00:00:00:00:0c")
	in := moment{Inputs: Inputs{Now: startTime, Box: Box{Ready: true}}}
	step := func(d time.Duration, s *cluster.Status) Decision {
		in.Now, in.Members = in.Now.Add(d), s
		return e.update(in)
	}
	step(time.Second, &cluster.Status{Members: []cluster.Member{b, c}, Joined: true})
	// The gossip is restarted, and c is gone.
	step(time.Second, &cluster.Status{Members: []cluster.Member{b}, Rejoins: 1})
	after := &cluster.Status{Members: []cluster.Member{b}, Rejoins: 1, Joined: true}
	step(rejoinWindow+time.Second, after)

	with := *cfg
	with.L2 = &config.L2{Interfaces: []string{"eth0"}, Static: true}
	e.Configure(&with, "a", nil)
	if d := step(time.Second, after); len(d.Peers) != 1 {
		t.Errorf("the added answerer gets members %v, want b", d.Peers)
	}
	e.Configure(cfg, "a", nil)
	e.Leave()
	e.Configure(&config.Config{}, "a", nil)
	if d := step(time.Second, nil); d.Peers != nil {
		t.Errorf("without an answerer members %v are given", d.Peers)
	}
}
