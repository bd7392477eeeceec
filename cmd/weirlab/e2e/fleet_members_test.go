package e2e

import (
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"weir/cmd/weirlab/internal/traffic"
	"weir/cmd/weirlab/lab"
)

// kin are two boxes on one network, which answer ARP and NDP for VIPs of it.
type kin struct {
	*site
	boxes [2]*site
}

// kinVIPs are in the clients' own network, so that no client needs a route to them.
var kinVIPs = func() (out []string) {
	for i := range 8 {
		out = append(out, fmt.Sprintf("10.1.0.%d", 100+i), fmt.Sprintf("fd01::1:%d", i))
	}
	return out
}()

// newKin boots a site with two boxes side by side.
func newKin(t *testing.T, plan lab.Site) *kin {
	t.Helper()
	all := openBoxes(t, plan)
	return &kin{all[0], [2]*site(all)}
}

// key makes one, in a file of its name on a box.
func (s *site) key(t *testing.T, name, key string) {
	t.Helper()
	must(t, s.box.WriteFile(within(t, 10*time.Second), "/etc/weir/"+name, key+"\n", 0o600))
}

func newKey() string {
	var key [32]byte
	_, _ = rand.Read(key[:]) // never fails
	return base64.StdEncoding.EncodeToString(key[:])
}

// config is that of a box, with keys and more of [fleet].
func (k *kin) config(box int, keys string, vips []string, more string) string {
	return fmt.Sprintf(`
[kernel]
sync_period = "2s"
[fleet]
name = "kin"
member = "box%d"
bind = "10.1.0.%d:7946"
join = ["10.1.0.1", "10.1.0.9"]
keys = [%s]
timing = "local"
preempt_delay = "2s"
%s
[l2]
interfaces = ["front"]
[[service]]
name = "web"
vips = ["%s"]
ports = ["80:8080"]
backends = ["10.2.0.11", "10.2.0.12", "fd02::11", "fd02::12"]
`, box+1, []int{1, 9}[box], keys, more, strings.Join(vips, `", "`))
}

// fellowship is `weir members -o json`, as far as these tests ask.
type fellowship struct {
	Members []struct {
		Name, State, Reason, Digest string
		Owns                        int
	}
	Differing []struct{ Source string }
	VIPs      map[string]int
	Self      string
	Counters  struct {
		Moves int `json:"moves_total"`
	}
}

// are is nil when the members of the fleet are as wanted in the eyes of a box: "box1 serving".
func (s *site) are(t testing.TB, want ...string) error {
	var doc fellowship
	s.weirJSON(t, &doc, "members")
	var got []string
	for _, m := range doc.Members {
		got = append(got, m.Name+" "+m.State)
	}
	if !slices.Equal(got, want) {
		return fmt.Errorf("members are %q, want %q: %+v", got, want, doc)
	}
	return nil
}

// owned is the number of VIPs that a box owns, as `weir members` shows it.
func (s *site) owned(t testing.TB) int {
	t.Helper()
	var doc fellowship
	s.weirJSON(t, &doc, "members")
	for _, m := range doc.Members {
		if m.Name == doc.Self {
			return m.Owns
		}
	}
	t.Fatalf("%s is not among %+v", doc.Self, doc.Members)
	return 0
}

// answered is how many addresses a box answers ARP and NDP for.
func (s *site) answered(t testing.TB) int {
	t.Helper()
	answered, _ := s.l2(t)
	return answered
}

// l2 is how many addresses a box answers ARP and NDP for, and how many it would, if no other member
// did.
func (s *site) l2(t testing.TB) (answered, contested int) {
	t.Helper()
	var doc struct {
		L2 struct {
			Interfaces []struct{ Answered, Contested int }
		}
	}
	s.weirJSON(t, &doc, "status")
	for _, x := range doc.L2.Interfaces {
		answered += x.Answered
		contested += x.Contested
	}
	return answered, contested
}

// shares is nil when each address has one owner, who answers for it: so many of box 1, all others of box 2;
// -1 is that both have some.
func (k *kin) shares(t testing.TB, first int) error {
	t.Helper()
	var owned, answered [2]int
	for i, s := range k.boxes {
		owned[i] = s.owned(t)
		answered[i] = s.answered(t)
	}
	switch {
	case owned != answered:
		return fmt.Errorf("they own %v and answer for %v", owned, answered)
	case owned[0]+owned[1] != len(kinVIPs):
		return fmt.Errorf("they own %v of %d", owned, len(kinVIPs))
	case first >= 0 && owned[0] != first, first < 0 && (owned[0] == 0 || owned[1] == 0):
		return fmt.Errorf("they own %v, want %d of box1", owned, first)
	}
	return nil
}

// visit asks every address once, as a client without any known MAC address.
func (k *kin) visit(t testing.TB) {
	t.Helper()
	k.client1.Must(t, "ip", "neigh", "flush", "dev", "front")
	for _, vip := range kinVIPs {
		if _, err := get(within(t, 20*time.Second), k.client1, net.JoinHostPort(vip, "80")); err != nil {
			t.Errorf("%s: %v", vip, err)
		}
	}
}

// TestFleetMembers has two boxes without routers share VIPs: as members come and go, as they are
// drained, one after the other and both at once, and with more of them than a test can ask
// one by one.
func TestFleetMembers(t *testing.T) {
	t.Parallel()
	k := newKin(t, boxBeside(plain(lab.UML), 9))
	k.serveAll(t, 8080)
	one, two := newKey(), newKey()
	weir := hurried(t)
	for i, s := range k.boxes {
		s.weir = weir
		s.key(t, "one.key", one)
		s.key(t, "two.key", two)
		s.box.Must(t, "ip", "link", "add", "uplink", "type", "dummy")
		s.box.Must(t, "ip", "link", "set", "uplink", "up")
		s.run(t, k.config(i, `"one.key"`, kinVIPs, ""))
	}
	for _, x := range []struct {
		name string
		test func(t *testing.T)
	}{
		{"each address has one owner, and only that one answers", k.oneOwner},
		{"keys change without a gap", k.rotate},
		{"a daemon that is killed moves nothing", k.killed},
		{"another configuration is noted", k.differs},
		{"a wrong key is kept out", k.wrongKey},
		{"a box without carrier gives everything away, and says why", k.dark},
		{"a box that has to join anew serves on", k.rejoins},
		{"a box leaves by a reload, and comes back by another", k.leaves},
		{"one box is drained after the other", k.drainsBoth},
		{"one address is drained", k.drainsOne},
		{"many VIPs, and the power of one box is cut", k.ownsMany},
	} {
		for _, s := range k.boxes {
			eventually(t, time.Minute, func() error { return s.are(t, "box1 serving", "box2 serving") })
		}
		eventually(t, time.Minute, func() error { return k.shares(t, -1) })
		if !t.Run(x.name, x.test) {
			break
		}
	}
}

func (k *kin) oneOwner(t *testing.T) {
	k.visit(t)
	macs := map[string]int{}
	for line := range strings.Lines(k.client1.Must(t, "ip", "neigh", "show", "dev", "front")) {
		f := strings.Fields(line)
		if i := slices.Index(f, "lladdr"); i > 0 && slices.Contains(kinVIPs, f[0]) {
			macs[f[i+1]]++
		}
	}
	var got []int
	for _, n := range macs {
		got = append(got, n)
	}
	first := k.boxes[0].owned(t)
	slices.Sort(got)
	if want := []int{min(first, len(kinVIPs)-first), max(first, len(kinVIPs)-first)}; !slices.Equal(got, want) {
		t.Errorf("neighbors of a client: %v, want %v", macs, want)
	}
	if k.boxes[0].owned(t) == 0 {
		t.Error("box1 owns nothing")
	}
	figure(t, "members: addresses by owner", got)
	t.Logf("\n%s\n%s", k.call(t, "members").Stdout, k.call(t, "explain", kinVIPs[0]).Stdout)
	k.boxes[0].printsDocuments(t, "members")
}

// rotate exchanges the key as in the reference: both know the new one, both use it, both forget the
// old one. Neither box is missed meanwhile.
func (k *kin) rotate(t *testing.T) {
	deaths := func(s *site) float64 { return s.metric(t, "weir_fleet_deaths_total") }
	before := [2]float64{deaths(k.boxes[0]), deaths(k.boxes[1])} // of a box that began late
	for _, keys := range []string{`"one.key", "two.key"`, `"two.key", "one.key"`, `"two.key"`} {
		for i, s := range k.boxes {
			s.reload(t, k.config(i, keys, kinVIPs, ""))
			for _, each := range k.boxes {
				if err := each.are(t, "box1 serving", "box2 serving"); err != nil {
					t.Errorf("with keys %s on box%d: %v", keys, i+1, err)
				}
			}
		}
		k.visit(t)
	}
	for i, s := range k.boxes {
		if n := deaths(s) - before[i]; n != 0 {
			t.Errorf("%s has taken %v members for dead", s.box.Name(), n)
		}
	}
}

// killed ends a daemon with SIGKILL, and it comes again within restart_grace.
func (k *kin) killed(t *testing.T) {
	configure := func(more string) {
		for i, s := range k.boxes {
			s.reload(t, k.config(i, `"two.key"`, kinVIPs, more))
		}
	}
	configure(`restart_grace = "10m"`)
	defer configure("")
	other := k.boxes[0]
	before := other.moves(t)
	k.boxes[1].stop(t, syscall.SIGKILL)
	k.visitKnown(t)
	// Gossip takes it for dead, and its kernel forwards on.
	eventually(t, time.Minute, func() error { return other.are(t, "box1 serving", "box2 daemon-down") })
	k.visitKnown(t)
	k.boxes[1].start(t)
	eventually(t, time.Minute, func() error { return k.shares(t, -1) })
	if moves := other.moves(t) - before; moves != 0 {
		t.Errorf("%d addresses have moved", moves)
	}
	k.visit(t)
}

// visitKnown is visit as a client that has just been there.
func (k *kin) visitKnown(t testing.TB) {
	t.Helper()
	for _, vip := range kinVIPs {
		if _, err := get(within(t, 20*time.Second), k.client1, net.JoinHostPort(vip, "80")); err != nil {
			t.Errorf("%s: %v", vip, err)
		}
	}
}

// moves counts what a box has taken over or given away.
func (s *site) moves(t testing.TB) int {
	t.Helper()
	var doc fellowship
	s.weirJSON(t, &doc, "members")
	return doc.Counters.Moves
}

// differs gives one box a VIP more. That is served, and reported.
func (k *kin) differs(t *testing.T) {
	k.boxes[0].reload(t, k.config(0, `"two.key"`, append([]string{"10.1.0.200"}, kinVIPs...), ""))
	for _, s := range k.boxes {
		eventually(t, 90*time.Second, func() error {
			if out := s.call(t, "status").Stdout; !strings.Contains(out, "fleet-differs") {
				return fmt.Errorf("%s says\n%s", s.box.Name(), out)
			}
			return nil
		})
	}
	if got := fate(t.Context(), k.client1, "tcp", "10.1.0.200:80"); got != traffic.Answered {
		t.Errorf("what only box1 has: %s", got)
	}
	k.boxes[0].reload(t, k.config(0, `"two.key"`, kinVIPs, ""))
	eventually(t, time.Minute, func() error {
		if out := k.call(t, "members").Stdout; strings.Contains(out, "differ") {
			return fmt.Errorf("%s", out)
		}
		return nil
	})
}

// wrongKey has a box use a key that the other one does not know: neither sees the other one,
// and asks the wire before it answers, so that no address has two owners.
func (k *kin) wrongKey(t *testing.T) {
	k.boxes[1].reload(t, k.config(1, `"one.key"`, kinVIPs, ""))
	eventually(t, time.Minute, func() error {
		return errors.Join(k.boxes[0].are(t, "box1 serving", "box2 dead"), k.boxes[1].are(t, "box1 dead", "box2 serving"))
	})
	// Each wants all, and finds that the other one answers for some.
	for i, s := range k.boxes {
		eventually(t, time.Minute, func() error {
			answers, contested := s.l2(t)
			others, _ := k.boxes[1-i].l2(t)
			if answers+contested != len(kinVIPs) || answers+others != len(kinVIPs) {
				return fmt.Errorf("%s answers for %d, finds %d answered for, and the other box answers for %d of %d",
					s.box.Name(), answers, contested, others, len(kinVIPs))
			}
			return nil
		})
	}
	k.visit(t)
	if n := k.boxes[0].metric(t, "weir_fleet_refused_total"); n == 0 {
		t.Error("nothing was refused")
	}
	k.boxes[1].reload(t, k.config(1, `"two.key"`, kinVIPs, ""))
}

// dark takes the carrier of an interface that matters.
func (k *kin) dark(t *testing.T) {
	for i, s := range k.boxes {
		s.reload(t, k.config(i, `"two.key"`, kinVIPs, `interfaces = ["uplink"]`))
	}
	k.boxes[0].box.Must(t, "ip", "link", "set", "uplink", "down")
	took := eventually(t, 30*time.Second, func() error { return k.shares(t, 0) })
	figure(t, "members: carrier lost, all addresses at the other box", took)
	eventually(t, 30*time.Second, func() error { return k.boxes[1].are(t, "box1 unfit", "box2 serving") })
	if out := k.boxes[1].call(t, "members").Stdout; !strings.Contains(out, "uplink is down") {
		t.Errorf("box2 does not know why:\n%s", out)
	}
	k.visit(t)
	begin := time.Now() // the command ends later than it begins
	k.boxes[0].box.Must(t, "ip", "link", "set", "uplink", "up")
	eventually(t, 30*time.Second, func() error { return k.shares(t, -1) })
	if back := time.Since(begin); back < time.Second { // preempt_delay is 2 s
		t.Errorf("they are back after %s", back)
	}
	k.visit(t)
}

// leaves takes [fleet] out of a configuration. The box is then without members, and finds everything in use.
func (k *kin) leaves(t *testing.T) {
	with := k.config(1, `"two.key"`, kinVIPs, "")
	before, rest, _ := strings.Cut(with, "[fleet]")
	_, rest, _ = strings.Cut(rest, "[l2]")
	k.boxes[1].reload(t, before+"[l2]"+rest)
	eventually(t, 30*time.Second, func() error { return k.boxes[0].are(t, "box1 serving", "box2 left") })
	k.visit(t)
	k.boxes[1].reload(t, with)
	for _, s := range k.boxes {
		eventually(t, 30*time.Second, func() error { return s.are(t, "box1 serving", "box2 serving") })
	}
	eventually(t, 30*time.Second, func() error { return k.shares(t, -1) })
	k.visit(t)
}

// rejoins gives a box another timing, for which it goes and comes again. It answers on meanwhile, so that
// the other one, for which it is gone, gets nothing.
func (k *kin) rejoins(t *testing.T) {
	before := k.boxes[1].owned(t)
	for _, timing := range []string{`timing = "lan"`, `timing = "local"`} {
		k.boxes[1].reload(t, strings.Replace(k.config(1, `"two.key"`, kinVIPs, ""), `timing = "local"`, timing, 1))
		k.visit(t)
		if held := k.boxes[1].answered(t); held != before {
			t.Errorf("it answers for %d of %d meanwhile", held, before)
		}
		eventually(t, 30*time.Second, func() error { return k.boxes[1].are(t, "box1 serving", "box2 serving") })
		eventually(t, 30*time.Second, func() error { return k.boxes[0].are(t, "box1 serving", "box2 serving") })
		eventually(t, 30*time.Second, func() error { return k.shares(t, -1) })
	}
	k.visit(t)
}

// ownsMany has two boxes share many VIPs, and one take over all of them when the other one
// has lost its power.
func (k *kin) ownsMany(t *testing.T) {
	many := sized(200, 2000)
	vips := make([]string, many)
	for i, a := 0, netip.MustParseAddr("198.18.0.1"); i < many; i, a = i+1, a.Next() {
		vips[i] = a.String()
	}
	k.client1.Must(t, "ip", "route", "add", "198.18.0.0/16", "dev", "front")
	for i, s := range k.boxes {
		s.reload(t, k.config(i, `"two.key"`, vips, ""))
	}
	eventually(t, 2*time.Minute, func() error {
		a, b := k.boxes[0].answered(t), k.boxes[1].answered(t)
		if a+b != many || a < many/3 || b < many/3 {
			return fmt.Errorf("they answer for %d and %d of %d", a, b, many)
		}
		return nil
	})
	figure(t, fmt.Sprintf("fleet of %d VIPs: answered for by each", many), fmt.Sprint(k.boxes[0].answered(t), " and ", k.boxes[1].answered(t)))

	cut := time.Now()
	k.boxes[1].box.PowerCut()
	eventually(t, time.Minute, func() error {
		if n := k.boxes[0].answered(t); n != many {
			return fmt.Errorf("box1 answers for %d", n)
		}
		return nil
	})
	figure(t, fmt.Sprintf("fleet of %d VIPs: power of one box cut, the other one has all", many), time.Since(cut))
	for _, i := range []int{0, 1, many / 2, many - 1} {
		if _, err := get(within(t, 20*time.Second), k.client1, net.JoinHostPort(vips[i], "80")); err != nil {
			t.Errorf("%s: %v", vips[i], err)
		}
	}
}
