package daemon

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"weir/cluster"
	"weir/cluster/owner"
	"weir/l2"
)

var compareNetip = cmp.Comparer(func(a, b netip.Addr) bool { return a == b })

// rumor is the gossip of a test: it tells what the test says that others say.
type rumor struct {
	mu      sync.Mutex
	status  cluster.Status
	said    []cluster.State
	word    []byte
	left    bool
	changed chan struct{}
	cfgs    []cluster.Config
	runs    int
	others  bool // there are some that have not answered
}

func (r *rumor) Configure(cfg cluster.Config) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cfgs = append(r.cfgs, cfg)
	return nil
}

func (r *rumor) Run(ctx context.Context) error {
	r.mu.Lock()
	r.runs++
	r.mu.Unlock()
	<-ctx.Done()
	return nil
}

func (r *rumor) Changed() <-chan struct{} { return r.changed }

func (r *rumor) Status() cluster.Status {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.status
	s.Members = slices.Clone(s.Members)
	return s
}

func (r *rumor) Say(s cluster.State, text []byte) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.said, r.word = append(r.said, s), text
	return nil
}

func (r *rumor) Leave(context.Context) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.left = true
	return nil
}

// last is what the box said last.
func (r *rumor) last() cluster.State {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.said) == 0 {
		return cluster.State{}
	}
	return r.said[len(r.said)-1]
}

// says has another member be as given, and say a word.
func (r *rumor) says(t *testing.T, m cluster.Member, w word) {
	t.Helper()
	text, err := w.encode()
	if err != nil {
		t.Fatal(err)
	}
	m.Word, m.Has, m.State.Word = text, cluster.DigestOf(text), cluster.DigestOf(text)
	if m.Since.IsZero() {
		m.Since = time.Now()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.status.Members = slices.DeleteFunc(r.status.Members, func(x cluster.Member) bool { return x.Name == m.Name })
	r.status.Members = append(r.status.Members, m)
	r.status.Joined = !r.others
}

// mouth answers for what it is told, in the diary.
type mouth struct {
	diary   *diary
	mu      sync.Mutex
	fellows []string
	status  l2.Status
	bursts  int
}

func (m *mouth) Configure(l2.Config)           {}
func (m *mouth) Run(ctx context.Context) error { <-ctx.Done(); return nil }
func (m *mouth) Changed() <-chan struct{}      { return nil }

func (m *mouth) Status() l2.Status {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.status
}

func (m *mouth) Set(changes map[netip.Addr]*l2.Claim) {
	var lines []string
	for a, c := range changes {
		switch {
		case c == nil:
			lines = append(lines, "release "+a.String())
		case c.Doubtful:
			lines = append(lines, "claim with doubt "+a.String())
		case c.Interfaces != nil:
			lines = append(lines, fmt.Sprintf("claim %s on %v", a, c.Interfaces))
		default:
			lines = append(lines, "claim "+a.String())
		}
	}
	slices.Sort(lines)
	m.diary.write("%s", strings.Join(lines, ", "))
}

func (m *mouth) Fellows(fellows map[l2.MAC]l2.Fellow) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.fellows = nil
	for mac, f := range fellows {
		m.fellows = append(m.fellows, mac.String()+" "+f.Name)
	}
	slices.Sort(m.fellows)
}

func (m *mouth) Announce() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.bursts++
}

// inFleet is the [cluster] of tests: this box is "a", and settles after 30 s.
const inFleet = `
[cluster]
name = "tests"
member = "a"
bind = "10.9.0.1:7946"
join = ["10.9.0.2"]
insecure_without_key = true
mode = "active-standby"
take_back = "30s"
`

// onWire is the [l2] of tests.
const onWire = `
[l2]
interfaces = ["eth0"]
`

// member is a box with a fleet, whose parts are a test's.
type member struct {
	*box
	herald *herald
	rumor  *rumor
	mouth  *mouth
	links  string
}

// newMember makes a box that has begun, but knows nobody yet.
func newMember(t *testing.T, toml string) *member {
	t.Helper()
	if !strings.Contains(toml, "[bgp]") {
		toml = oneRouter + toml
	}
	b, h, _ := heraldBox(t, toml)
	m := &member{box: b, herald: h, links: t.TempDir()}
	m.link(t, "eth0", "1")
	m.fleetOf(t, t.TempDir())
	return m
}

// fleetOf gives the box a fleet whose trace is in a folder.
func (m *member) fleetOf(t *testing.T, folder string) {
	t.Helper()
	m.rumor = &rumor{changed: make(chan struct{}, 1)}
	m.mouth = &mouth{diary: m.herald.diary}
	f := newFleet(slog.New(slog.DiscardHandler), "v1", folder, time.Now())
	f.signs.links, f.signs.heard = m.links, m.herald.Heard
	f.joins = func(cluster.Config) (gossip, error) { return m.rumor, nil }
	f.answer.make = func(*slog.Logger) answerer { return m.mouth }
	m.fleet = f
	t.Cleanup(f.stop)
	m.setFleet(nil, time.Now())
}

// link makes an interface with a carrier, or without.
func (m *member) link(t *testing.T, name, carrier string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Join(m.links, name), 0o755); err != nil {
		t.Fatal(err)
	}
	for file, text := range map[string]string{"carrier": carrier, "address": "02:00:00:00:00:01"} {
		if err := os.WriteFile(filepath.Join(m.links, name, file), []byte(text+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if m.fleet != nil {
		m.fleet.signs.look()
	}
}

// hear has the box take in what others say now.
func (m *member) hear(t *testing.T) {
	t.Helper()
	m.fleet.news = true
	m.lead(t.Context(), nil, time.Now())
}

// live has so much time pass, with a pass every now and then.
func (m *member) live(t *testing.T, d time.Duration) {
	t.Helper()
	for end := time.Now().Add(d); time.Now().Before(end); {
		time.Sleep(min(100*time.Millisecond, time.Until(end)))
		m.turn(t)
	}
}

// settledMember is one that is alive and settled.
func settledMember(name string) cluster.Member {
	return cluster.Member{Name: name, Addr: netip.MustParseAddrPort("10.9.0.2:7946"), State: cluster.State{Version: "v1", Settled: true, Weight: 100}}
}

// able is the word of one that can serve VIPs.
func able(vips ...netip.Addr) word {
	w := word{vips: map[netip.Addr]part{}, macs: []string{"02:00:00:00:00:02"}, answers: true}
	for _, a := range vips {
		w.vips[a] = partServes
	}
	return w
}

// rivals gives a VIP of which this box, "a", is the owner in a fleet with "b", and one of
// which "b" is.
func rivals() (mine, theirs string) {
	yes := func(netip.Addr) bool { return true }
	both := []owner.Member{{Name: "a", Standing: owner.Settled, Serves: yes}, {Name: "b", Standing: owner.Settled, Serves: yes}}
	for i := 1; mine == "" || theirs == ""; i++ {
		vip := netip.AddrFrom4([4]byte{192, 0, 2, byte(i)})
		if (owner.Rules{}).Owner(both, vip) == "a" {
			mine = vip.String()
		} else {
			theirs = vip.String()
		}
	}
	return mine, theirs
}

// services are those of VIPs, a backend each.
func services(vips ...string) string {
	var b strings.Builder
	for i, vip := range vips {
		fmt.Fprintf(&b, "[[service]]\nname = \"web%d\"\nvips = [%q]\nports = [80]\ndrain = \"0s\"\nbackends = [\"10.1.0.%d\"]\n", i, vip, i+1)
	}
	return b.String()
}

// told gives the lines that are about routes and claims, not about the kernel.
func (m *member) told() []string {
	return slices.DeleteFunc(m.herald.diary.read(), func(s string) bool {
		return strings.HasPrefix(s, "add ") || strings.HasPrefix(s, "delete ") || strings.HasPrefix(s, "change ")
	})
}

func (m *member) check(t *testing.T, what string, want ...string) {
	t.Helper()
	if diff := cmp.Diff(want, m.told()); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}
