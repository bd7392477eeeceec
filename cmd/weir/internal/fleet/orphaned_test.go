package fleet

import (
	"strings"
	"testing"
	"time"

	"weir/cluster"
	"weir/cluster/l2"
	"weir/cluster/owner"
	"weir/cmd/weir/internal/config"
	"weir/cmd/weir/internal/fleet/message"
	"weir/lb"
)

// A claim is that of a dead owner only if the dead member owned the VIP and answered for it: a VIP
// with the address of a router stays that router's.
func TestClaimsOfADeadOwner(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		flags message.Flags
		life  cluster.Life
		want  bool
	}{
		{"the owner is dead", message.Serves | message.Owns, cluster.Dead, true},
		{"another member is dead", message.Serves, cluster.Dead, false},
		{"the owner is dead, and a foreign host answered instead", message.Serves | message.Owns | message.Contested, cluster.Dead, false},
	} {
		cfg := inFleet(owner.Rules{Mode: owner.ActiveStandby})
		cfg.L2 = &config.L2{Interfaces: []string{"eth0"}, Static: true}
		e := newTestEngine(cfg)
		in := Inputs{Now: startTime, Box: Box{Ready: true}}
		in.Routes = []lb.Route{{Addr: vip, Serves: []lb.Serving{{Service: lb.ServiceID{Source: config.Source, Name: "web"}}}}}
		e.update(moment{Inputs: in})
		in.Routes = nil
		var claim *l2.Claim
		var peers map[l2.MAC]l2.Member
		for i, life := range []cluster.Life{cluster.Alive, c.life, c.life} {
			in.Now = startTime.Add(time.Duration(i+1) * time.Minute)
			in.Members = withMember(in.Now, c.flags, vip, func(m *cluster.Member) { m.Life, m.State.Stable = life, true })
			d := e.update(moment{Inputs: in})
			if x, changed := d.Claims[vip]; changed {
				claim = x
			}
			if d.Peers != nil {
				peers = d.Peers
			}
		}
		if claim == nil || claim.Orphaned != c.want {
			t.Errorf("%s: claim %+v", c.name, claim)
		}
		if m := peers[l2.MAC{2, 0, 0, 0, 0, 2}]; m.Name != "b" || !m.Gone {
			t.Errorf("%s: peer %+v", c.name, m)
		}
	}
}

// A member that was renamed keeps its MAC. Only its new name counts: the fleet knows the former one for a day.
func TestTheMACOfARenamedMember(t *testing.T) {
	t.Parallel()
	cfg := inFleet(owner.Rules{Mode: owner.ActiveStandby})
	cfg.L2 = &config.L2{Interfaces: []string{"eth0"}, Static: true}
	for _, names := range [][2]string{{"b", "c"}, {"c", "b"}} {
		former, now := names[0], names[1]
		e := newTestEngine(cfg)
		in := moment{Inputs: Inputs{Now: startTime, Box: Box{Ready: true}}}
		for i := range 50 { // in the order of a map
			in.Members = withMember(in.Now, message.Serves, vip, func(m *cluster.Member) { m.Name, m.Life = former, cluster.Dead })
			again := withMember(in.Now, message.Serves, vip, func(m *cluster.Member) { m.Name = now }).Members[1]
			in.Members.Members = append(in.Members.Members, again)
			d := e.update(in)
			if m := d.Peers[l2.MAC{2, 0, 0, 0, 0, 2}]; i == 0 && (m.Name != now || m.Gone) || i > 0 && d.Peers != nil {
				t.Errorf("%s is %s now: peers %+v in round %d", former, now, d.Peers, i)
			}
		}
	}
}

// A foreign host that keeps this box from answering is published, and ends it.
func TestContestedVIPsArePublished(t *testing.T) {
	t.Parallel()
	cfg := inFleet(owner.Rules{})
	cfg.L2 = &config.L2{Interfaces: []string{"eth0"}, Static: true}
	e := newTestEngine(cfg)
	in := Inputs{Now: startTime, Box: Box{Ready: true}}
	in.Routes = []lb.Route{{Addr: vip, Serves: []lb.Serving{{Service: lb.ServiceID{Source: config.Source, Name: "web"}}}}}
	e.update(moment{Inputs: in})
	in.Routes = nil
	foreign := l2.MAC{2, 9}
	for _, c := range []struct {
		name string
		vips []l2.VIP
		want message.Flags
		note string
	}{
		{"contested by a foreign host", []l2.VIP{{Addr: vip, Interface: "eth0", State: l2.Contested, Other: foreign}}, message.Contested, "remove it from that host"},
		{"contested by a member", []l2.VIP{{Addr: vip, Interface: "eth0", State: l2.Contested, Other: foreign, Member: "b"}}, 0, ""},
		{"overruled", []l2.VIP{{Addr: vip, Interface: "eth0", State: l2.Answered, Other: foreign, Member: "b", Overruled: true}}, 0, "by b although its owner was dead"},
	} {
		in.Now = in.Now.Add(time.Minute)
		in.L2 = &l2.Status{VIPs: c.vips}
		d := e.update(moment{Inputs: in})
		if got := e.publisher.message.VIPs[vip] & message.Contested; got != c.want {
			t.Errorf("%s: flags %v, published: %v", c.name, e.publisher.message.VIPs[vip], d.Publish != nil)
		}
		note := ""
		for _, x := range e.View().Notes(in.Now) {
			if x.Reason == lb.DuplicateAddress {
				note = x.Text
			}
		}
		if (note == "") != (c.note == "") || !strings.Contains(note, c.note) {
			t.Errorf("%s: note %q, want %q", c.name, note, c.note)
		}
	}
}
