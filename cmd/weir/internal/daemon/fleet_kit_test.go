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
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"weir/cluster"
	"weir/cluster/l2"
	"weir/cluster/owner"
	"weir/cmd/weir/internal/fleet/message"
	"weir/cmd/weir/internal/membership"
	"weir/lb"
)

// The times of packages fleet and membership.
const (
	publishEvery        = 200 * time.Millisecond
	publishDigestsEvery = 5 * time.Second
	garpEvery           = 5 * time.Second
	sensorsEvery        = 200 * time.Millisecond
)

// fakeGossip is the gossip of a test, with the members that the test reports.
type fakeGossip struct {
	mu      sync.Mutex
	status  cluster.Status
	said    []cluster.State
	word    cluster.Message
	left    bool
	changed chan struct{}
	cfgs    []cluster.Config
	runs    int
	others  bool // there are some that have not answered
}

func (r *fakeGossip) Configure(cfg cluster.Config) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cfgs = append(r.cfgs, cfg)
	return nil
}

func (r *fakeGossip) Run(ctx context.Context) error {
	r.mu.Lock()
	r.runs++
	r.mu.Unlock()
	<-ctx.Done()
	return nil
}

func (r *fakeGossip) Changed() <-chan struct{} { return r.changed }

func (r *fakeGossip) Status() cluster.Status {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.status
	s.Members = slices.Clone(s.Members)
	return s
}

func (r *fakeGossip) Publish(s cluster.State, m cluster.Message) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.said, r.word = append(r.said, s), m
	return nil
}

func (r *fakeGossip) Leave(context.Context) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.left = true
	return nil
}

// last returns the last state that the box published.
func (r *fakeGossip) last() cluster.State {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.said) == 0 {
		return cluster.State{}
	}
	return r.said[len(r.said)-1]
}

// report sets another member and its message.
func (r *fakeGossip) report(t *testing.T, m cluster.Member, w message.Message) {
	t.Helper()
	text, err := w.Encode()
	must(t, err)
	m.Message, m.MessageDigest, m.State.Message = text, text.Digest(), text.Digest()
	if m.Since.IsZero() {
		m.Since = time.Now()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.status.Members = slices.DeleteFunc(r.status.Members, func(x cluster.Member) bool { return x.Name == m.Name })
	r.status.Members = append(r.status.Members, m)
	r.status.Joined = !r.others
}

// rejoin forgets all members, as a gossip that is restarted.
func (r *fakeGossip) rejoin() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.status.Members, r.status.Joined = nil, false
	r.status.Rejoins++
}

// fakeAnswerer writes claims to the history.
type fakeAnswerer struct {
	history *history
	mu      sync.Mutex
	peers   []string
	members map[l2.MAC]l2.Member
	status  l2.Status
	bursts  int
	claimed map[netip.Addr]time.Time // the last claims
}

func (m *fakeAnswerer) Configure(l2.Config)           {}
func (m *fakeAnswerer) Run(ctx context.Context) error { <-ctx.Done(); return nil }
func (m *fakeAnswerer) Changed() <-chan struct{}      { return nil }

func (m *fakeAnswerer) Status() l2.Status {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.status
}

func (m *fakeAnswerer) Set(changes map[netip.Addr]*l2.Claim) {
	var lines []string
	if m.claimed == nil {
		m.claimed = map[netip.Addr]time.Time{}
	}
	for a, c := range changes {
		m.claimed[a] = time.Now()
		switch {
		case c == nil:
			lines = append(lines, "release "+a.String())
		case c.Cautious:
			lines = append(lines, "claim with doubt "+a.String())
		case c.Interfaces != nil:
			lines = append(lines, fmt.Sprintf("claim %s on %v", a, c.Interfaces))
		default:
			lines = append(lines, "claim "+a.String())
		}
	}
	slices.Sort(lines)
	m.history.write("%s", strings.Join(lines, ", "))
}

func (m *fakeAnswerer) SetMembers(peers map[l2.MAC]l2.Member) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.peers, m.members = nil, peers
	for mac, f := range peers {
		m.peers = append(m.peers, mac.String()+" "+f.Name)
	}
	slices.Sort(m.peers)
}

func (m *fakeAnswerer) Announce() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.bursts++
}

// inFleet is the [fleet] of tests: this box is "a", and stable after 30 s.
const inFleet = `
[fleet]
name = "tests"
member = "a"
bind = "10.9.0.1:7946"
join = ["10.9.0.2"]
insecure_without_key = true
mode = "active-standby"
preempt_delay = "30s"
`

// onWire is the [l2] of tests.
const onWire = `
[l2]
interfaces = ["eth0"]
`

// member is a box in a fleet with fakes.
type member struct {
	*box
	speaker  *fakeSpeaker
	gossip   *fakeGossip
	answerer *fakeAnswerer
	links    string
	// joinErr is the error of joining; orders are the orders of backends with scheduler mh;
	// took are the times of takeovers.
	joinErr error
	orders  map[lb.Frontend]uint64
	took    []time.Duration
}

// newMember returns a box that has started and knows no member yet.
func newMember(t *testing.T, toml string) *member {
	t.Helper()
	if !strings.Contains(toml, "[bgp]") {
		toml = oneRouter + toml
	}
	b, h, _ := speakerBox(t, toml)
	m := &member{box: b, speaker: h, links: t.TempDir()}
	m.link(t, "eth0", "1")
	m.fleetOf(t, t.TempDir())
	return m
}

// fleetOf gives the box a fleet with the trace in a folder.
func (m *member) fleetOf(t *testing.T, folder string) {
	t.Helper()
	m.gossip = &fakeGossip{changed: make(chan struct{}, 1)}
	m.answerer = &fakeAnswerer{history: m.speaker.history}
	f := membership.New(membership.Options{
		Log: slog.New(slog.DiscardHandler), Version: "v1", Folder: folder, Sysfs: m.links, SessionUp: m.speaker.AnyEstablished,
		Orders: func() map[lb.Frontend]uint64 { return m.orders }, Took: func(d time.Duration) { m.took = append(m.took, d); m.metrics.TookOver(d) },
		Join:   func(cluster.Config) (membership.Gossip, error) { return m.gossip, m.joinErr },
		Answer: func() membership.Answerer { return m.answerer },
	}, time.Now())
	m.steering.fleet = f
	t.Cleanup(f.Stop)
	m.steering.configure()
}

// link creates an interface with a carrier, or without.
func (m *member) link(t *testing.T, name, carrier string) {
	t.Helper()
	must(t, os.MkdirAll(filepath.Join(m.links, name), 0o755))
	for file, text := range map[string]string{"carrier": carrier, "address": "02:00:00:00:00:01"} {
		must(t, os.WriteFile(filepath.Join(m.links, name, file), []byte(text+"\n"), 0o600))
	}
	if m.steering.fleet != nil {
		time.Sleep(sensorsEvery) // synctest has the fleet read it
		synctest.Wait()
	}
}

// receive lets the box receive the members.
func (m *member) receive(t *testing.T) {
	t.Helper()
	m.steering.fleet.Refresh()
	m.steering.steer(t.Context(), nil, time.Time{}, time.Now())
}

// live lets time pass, with regular passes.
func (m *member) live(t *testing.T, d time.Duration) {
	t.Helper()
	for end := time.Now().Add(d); time.Now().Before(end); {
		time.Sleep(min(100*time.Millisecond, time.Until(end)))
		m.pass(t)
	}
}

// stablePeer returns a member that is alive and stable.
func stablePeer(name string) cluster.Member {
	return cluster.Member{Name: name, Addr: netip.MustParseAddrPort("10.9.0.2:7946"), State: cluster.State{Version: "v1", Stable: true, Weight: 100}}
}

// serving returns the message of a member that serves VIPs.
func serving(vips ...netip.Addr) message.Message {
	w := message.Message{VIPs: map[netip.Addr]message.Flags{}, MACs: []string{"02:00:00:00:00:02"}, Answers: true}
	for _, a := range vips {
		w.VIPs[a] = message.Serves
	}
	return w
}

// ownVIPs returns a VIP that this box, "a", owns in a fleet with "b", and one that "b"
// owns.
func ownVIPs() (mine, theirs string) {
	yes := func(netip.Addr) bool { return true }
	both := []owner.Member{{Name: "a", State: owner.Stable, Serves: yes}, {Name: "b", State: owner.Stable, Serves: yes}}
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
		fmt.Fprintf(&b, "[[service]]\nname = \"web%d\"\nvips = [%q]\nports = [80]\ndrain_timeout = \"0s\"\nbackends = [\"10.1.0.%d\"]\n", i, vip, i+1)
	}
	return b.String()
}

// announced returns the lines about routes and claims, without those about the kernel.
func (m *member) announced() []string {
	return slices.DeleteFunc(m.speaker.history.read(), func(s string) bool {
		return strings.HasPrefix(s, "add ") || strings.HasPrefix(s, "delete ") || strings.HasPrefix(s, "change ")
	})
}

func (m *member) check(t *testing.T, what string, want ...string) {
	t.Helper()
	if diff := cmp.Diff(want, m.announced()); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

// message is the message that the box has published last.
func (m *member) message(t *testing.T) message.Message {
	t.Helper()
	m.gossip.mu.Lock()
	defer m.gossip.mu.Unlock()
	out, err := message.Parse(m.gossip.word)
	must(t, err)
	return out
}

// saveTrace writes the trace of a run that was stable so long ago.
func saveTrace(folder string, ago time.Duration) error {
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return err
	}
	var up unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &up); err != nil {
		return err
	}
	text := fmt.Sprintf(`{"boot":%q,"uptime":%d}`, strings.TrimSpace(string(boot)), up.Nano()-ago.Nanoseconds())
	return os.WriteFile(filepath.Join(folder, "fleet.json"), []byte(text), 0o600)
}

// must ends the test if err is not nil.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
