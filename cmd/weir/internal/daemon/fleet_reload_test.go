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
	"weir/cmd/weir/internal/config"
)

func TestAFleetComesAndGoesByReload(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		first, second := rivals()
		both := []string{first, second}
		slices.Sort(both)
		mine, theirs := both[0], both[1]
		m := newMember(t, onWire+services(mine, theirs))
		m.turn(t)
		m.told()
		reload := func(toml string) {
			had := m.cfg.Fleet
			m.cfg = parse(t, oneRouter+toml+services(mine, theirs))
			m.setFleet(had, time.Now())
			m.turn(t)
			synctest.Wait()
		}
		reload(inFleet + onWire)
		m.check(t, "in a fleet, of which nothing is known")
		m.rumor.says(t, settledMember("b"), able(netip.MustParseAddr(mine), netip.MustParseAddr(theirs)))
		m.hear(t)
		m.check(t, "b is settled, and this box not yet", "release "+mine+", release "+theirs,
			"announce "+mine+"/32 standby, announce "+theirs+"/32 standby")
		w, err := parseWord(m.rumor.word)
		if err != nil || len(w.sources[config.Source]) == 0 || w.count(partServes) != 2 {
			t.Errorf("it says %+v, %v", w, err)
		}
		m.live(t, time.Second)
		reload(strings.Replace(inFleet, `member = "a"`, `member = "a"`+"\ntiming = \"wan\"", 1) + onWire)
		if len(m.rumor.cfgs) != 1 || m.rumor.cfgs[0].Timing != cluster.WAN || m.fleet.stand.joined {
			t.Errorf("another timing: %+v, joined %v", m.rumor.cfgs, m.fleet.stand.joined)
		}
		m.live(t, sayEvery)
		if said := m.rumor.last(); said.Unfit != "" {
			t.Errorf("it is no less fit for that, and says %+v", said)
		}
		reload(onWire)
		if !m.rumor.left {
			t.Error("nobody has heard that it leaves")
		}
		m.check(t, "alone again", "claim "+mine+", claim "+theirs, "announce "+mine+"/32, announce "+theirs+"/32")
		reload("")
		m.check(t, "without [l2]", "release "+mine+", release "+theirs)
	})
}

// Each fleet that is joined is heard, the second one too.
func TestAFleetThatIsJoinedAgainIsHeard(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mine, _ := rivals()
		m := newMember(t, inFleet+services(mine))
		m.turn(t)
		for _, toml := range []string{"", inFleet} {
			had := m.cfg.Fleet
			m.cfg = parse(t, oneRouter+toml+services(mine))
			m.rumor = &rumor{changed: make(chan struct{}, 1)}
			m.setFleet(had, time.Now())
			m.turn(t)
			synctest.Wait()
		}
		select {
		case <-m.fleet.changed():
		default:
		}
		m.rumor.changed <- struct{}{}
		synctest.Wait()
		select {
		case <-m.fleet.changed():
		default:
			t.Error("nobody hears it")
		}
	})
}

// Whoever begins to answer ARP knows at once who else may.
func TestFellowsAreKnownWhenL2ComesByReload(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mine, _ := rivals()
		m := grown(t, inFleet, mine)
		had := m.cfg.Fleet
		m.cfg = parse(t, oneRouter+inFleet+onWire+services(mine))
		m.setFleet(had, time.Now())
		m.turn(t)
		if want := []string{"02:00:00:00:00:02 b"}; !slices.Equal(m.mouth.fellows, want) {
			t.Errorf("fellows %v, want %v", m.mouth.fellows, want)
		}
	})
}

// A fleet that can't be had keeps nobody from being served.
func TestABoxThatCantJoinServes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mine, _ := rivals()
		m := newMember(t, onWire+services(mine))
		m.fleet.joins = func(cluster.Config) (gossip, error) { return nil, errors.New("no random numbers") }
		m.cfg = parse(t, oneRouter+inFleet+onWire+services(mine))
		m.setFleet(nil, time.Now())
		m.turn(t)
		m.turn(t)
		m.check(t, "alone", "claim "+mine, "announce "+mine+"/32", "begin with 1 prefixes")
		if doc := m.fleet.doc(time.Now()); doc.Error != "no random numbers" {
			t.Errorf("it says %+v", doc)
		}
	})
}

func TestRulesThatMembersMustHaveAlike(t *testing.T) {
	t.Parallel()
	gateway := "[[l2.gateway]]\naddress = \"10.2.0.254\"\ninterface = \"eth1\"\n"
	one := "owners = \"one\"\n"
	base := digestOfRules(parse(t, inFleet+one+onWire+gateway))
	for _, tt := range []struct {
		name, toml string
		same       bool
	}{
		{"another member", strings.Replace(inFleet, `"a"`, `"b"`, 1) + one + onWire + gateway, true},
		{"another interface", inFleet + one + strings.Replace(onWire, "eth0", "ens3", 1) + strings.Replace(gateway, "eth1", "ens4", 1), true},
		{"another weight", inFleet + one + "weight = 7\n" + onWire + gateway, true},
		{"another mode", strings.Replace(inFleet, "active-standby", "active-active", 1) + one + onWire + gateway, false},
		{"spread", inFleet + onWire, false},
		{"holders stay", strings.Replace(inFleet, `"30s"`, `"never"`, 1) + one + onWire + gateway, false},
		{"another gateway", inFleet + one + onWire + strings.Replace(gateway, "254", "253", 1), false},
		{"other VIPs", inFleet + one + onWire + "vips = [\"static\"]\n" + gateway, false},
	} {
		if same := digestOfRules(parse(t, tt.toml)) == base; same != tt.same {
			t.Errorf("%s: alike %v, want %v", tt.name, same, tt.same)
		}
	}
}

func TestWhoLeavesClaimsNothingMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mine, _ := rivals()
		m := grown(t, inFleet+onWire, mine)
		m.fleet.leave()
		m.check(t, "good-bye", "release "+mine)
		if !m.rumor.left {
			t.Error("nobody has heard of it")
		}
		m.fleet.share.all = true
		m.turn(t)
		m.check(t, "after that")
	})
}
