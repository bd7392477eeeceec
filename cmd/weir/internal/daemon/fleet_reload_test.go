package daemon

import (
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"weir/cluster"
	"weir/cluster/l2"
	"weir/cluster/owner"
	"weir/cmd/weir/internal/config"
	"weir/cmd/weir/internal/fleet/message"
)

func TestFleetByReload(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		first, second := ownVIPs()
		both := []string{first, second}
		slices.Sort(both)
		mine, theirs := both[0], both[1]
		m := newMember(t, onWire+services(mine, theirs))
		m.pass(t)
		m.announced()
		reload := func(toml string) {
			m.target.cfg = parse(t, oneRouter+toml+services(mine, theirs))
			m.steering.configure()
			m.pass(t)
			synctest.Wait()
		}
		reload(inFleet + onWire)
		m.check(t, "in a fleet, of which nothing is known")
		m.gossip.report(t, stablePeer("b"), serving(netip.MustParseAddr(mine), netip.MustParseAddr(theirs)))
		m.receive(t)
		m.check(t, "b is settled, and this box not yet", "release "+mine+", release "+theirs,
			"announce "+mine+"/32 standby, announce "+theirs+"/32 standby")
		w, err := message.Parse(m.gossip.word)
		if err != nil || len(w.Sources[config.Source]) == 0 || w.Count(message.Serves) != 2 {
			t.Errorf("it says %+v, %v", w, err)
		}
		m.live(t, time.Second)
		reload(strings.Replace(inFleet, `member = "a"`, `member = "a"`+"\ntiming = \"wan\"", 1) + onWire)
		if len(m.gossip.cfgs) != 1 || m.gossip.cfgs[0].Timing != cluster.WAN {
			t.Errorf("another timing: %+v", m.gossip.cfgs)
		}
		m.live(t, publishEvery)
		if said := m.gossip.last(); said.Unfit != "" {
			t.Errorf("it is no less fit for that, and says %+v", said)
		}
		reload(onWire)
		if !m.gossip.left {
			t.Error("nobody has heard that it leaves")
		}
		m.check(t, "alone again", "claim "+mine+", claim "+theirs, "announce "+mine+"/32, announce "+theirs+"/32")
		if len(m.answerer.peers) > 0 {
			t.Errorf("it yields to %v, and has left the fleet", m.answerer.peers)
		}
		reload("")
		m.check(t, "without [l2]", "release "+mine+", release "+theirs)
	})
}

// A gossip that is restarted, as after a panic, knows no members at first. The box must not take their VIPs for that,
// unless they stay away.
func TestNewGossipIsNoDeathOfMembers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mine, theirs := ownVIPs()
		m := stableMember(t, inFleet+onWire, mine, theirs)
		for range 3 {
			m.gossip.rejoin()
			m.receive(t)
			m.live(t, 5*time.Second)
			m.check(t, "the gossip knows no members yet")
			m.gossip.report(t, stablePeer("b"), serving(netip.MustParseAddr(mine), netip.MustParseAddr(theirs)))
			m.receive(t)
			m.live(t, time.Minute)
			m.check(t, "b is there")
		}
		m.gossip.rejoin()
		m.receive(t)
		m.live(t, 7*time.Second)
		m.check(t, "b has not come back", "claim "+theirs, "announce "+theirs+"/32")
	})
}

// Messages of each joined fleet arrive, of the second one too.
func TestSecondJoinWakesTheLoop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mine, _ := ownVIPs()
		m := newMember(t, inFleet+services(mine))
		m.pass(t)
		for _, toml := range []string{"", inFleet} {
			m.target.cfg = parse(t, oneRouter+toml+services(mine))
			m.gossip = &fakeGossip{changed: make(chan struct{}, 1)}
			m.steering.configure()
			m.pass(t)
			synctest.Wait()
		}
		select {
		case <-m.steering.fleet.Changed():
		default:
		}
		m.gossip.changed <- struct{}{}
		synctest.Wait()
		select {
		case <-m.steering.fleet.Changed():
		default:
			t.Error("nobody hears it")
		}
	})
}

// A box that begins to answer ARP knows at once which others may.
func TestMembersAreKnownWhenL2ComesByReload(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mine, _ := ownVIPs()
		m := stableMember(t, inFleet, mine)
		m.target.cfg = parse(t, oneRouter+inFleet+onWire+services(mine))
		m.steering.configure()
		m.pass(t)
		if want := []string{"02:00:00:00:00:02 b"}; !slices.Equal(m.answerer.peers, want) {
			t.Errorf("peers %v, want %v", m.answerer.peers, want)
		}
	})
}

// A fleet that can't be joined keeps no Service from being served.
func TestJoinErrorKeepsServing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mine, _ := ownVIPs()
		m := newMember(t, onWire+services(mine))
		m.joinErr = errors.New("no random numbers")
		m.target.cfg = parse(t, oneRouter+inFleet+onWire+services(mine))
		m.steering.configure()
		m.pass(t)
		m.pass(t)
		m.check(t, "alone", "claim "+mine, "announce "+mine+"/32", "begin with 1 prefixes")
		if doc := m.steering.fleet.Members(time.Now()); doc.Error != "no random numbers" {
			t.Errorf("it says %+v", doc)
		}
	})
}

func TestLeaveReleasesClaims(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mine, _ := ownVIPs()
		m := stableMember(t, inFleet+onWire, mine)
		m.steering.fleet.Leave()
		m.check(t, "good-bye", "release "+mine)
		if !m.gossip.left {
			t.Error("nobody has heard of it")
		}
		m.gossip.report(t, stablePeer("b"), serving())
		m.steering.fleet.Refresh()
		m.pass(t)
		m.check(t, "after that")
	})
}

// Two boxes that hold one VIP let the same one keep it that owns it, also when their
// weights differ and one of them changes.
func TestConflictsFollowTheWeights(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := stableMember(t, inFleet+onWire, "192.0.2.1")
		for _, weight := range []uint16{100, 1000, 10} {
			m.gossip.mu.Lock()
			for i := range m.gossip.status.Members {
				m.gossip.status.Members[i].State.Weight = weight
			}
			m.gossip.mu.Unlock()
			m.steering.fleet.Refresh()
			m.pass(t)
			yes := func(netip.Addr) bool { return true }
			members := []owner.Member{
				{Name: "a", Weight: 100, State: owner.Stable, Serves: yes}, {Name: "b", Weight: int(weight), State: owner.Stable, Serves: yes},
			}
			theirs := 0
			for i := range 200 {
				vip := netip.AddrFrom4([4]byte{192, 0, 2, byte(i)})
				other := m.answerer.members[l2.MAC{2, 0, 0, 0, 0, 2}].Preferred(vip)
				if got := m.target.cfg.Fleet.Rules.Owner(members, vip) == "b"; got != other {
					t.Fatalf("weight %d, %v: owned by b: %t, kept by b: %t", weight, vip, got, other)
				}
				if other {
					theirs++
				}
			}
			if theirs == 0 || theirs == 200 {
				t.Errorf("weight %d: b keeps %d of 200", weight, theirs)
			}
		}
	})
}
