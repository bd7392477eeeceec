package daemon

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"weir/bgp"
	"weir/cmd/weir/internal/config"
	"weir/lb"
)

// herald is a speaker of a test. It writes down what it is told, in the diary that the
// kernel writes to, too.
type herald struct {
	diary *diary
	mu    sync.Mutex
	now   map[netip.Prefix][]bgp.Path
	cfg   bgp.Config
	up    bool  // there is a router
	fail  error // of Configure

	// peers and routes are what Status says, if they are set.
	peers  []bgp.PeerStatus
	routes []bgp.RouteStatus
}

// diary is what happened, in turn.
type diary struct {
	mu    sync.Mutex
	lines []string
}

func (d *diary) write(format string, args ...any) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.lines = append(d.lines, fmt.Sprintf(format, args...))
}

// read gives what was written since the last time.
func (d *diary) read() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	out := d.lines
	d.lines = nil
	return out
}

func (h *herald) Configure(_ context.Context, cfg bgp.Config) error {
	if h.fail != nil {
		return h.fail
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.cfg = cfg
	h.diary.write("begin with %d prefixes", len(h.now))
	return nil
}

func (h *herald) Set(changes map[netip.Prefix][]bgp.Path) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.now == nil {
		h.now = map[netip.Prefix][]bgp.Path{}
	}
	var lines []string
	for p, paths := range changes {
		if len(paths) == 0 {
			delete(h.now, p)
			lines = append(lines, "withdraw "+p.String())
			continue
		}
		h.now[p] = paths
		line := "announce " + p.String()
		if slices.Contains(paths[0].Communities, bgp.GracefulShutdown) {
			line += " shutting"
		}
		if paths[0].MED == bgp.MetricOf(bgp.StandbyMED) {
			line += " standby"
		}
		lines = append(lines, line)
	}
	slices.Sort(lines)
	h.diary.write("%s", strings.Join(lines, ", "))
	return nil
}

func (h *herald) Settled(context.Context) error { return nil }

func (h *herald) Status() bgp.Status {
	h.mu.Lock()
	defer h.mu.Unlock()
	s := bgp.Status{ASN: h.cfg.ASN, RouterID: h.cfg.RouterID, Peers: h.peers, Routes: h.routes}
	if h.up && h.peers == nil {
		s.Peers = []bgp.PeerStatus{{Name: "tor1", State: bgp.Established}, {Name: "tor2", State: bgp.Idle}}
	}
	return s
}

// says changes what Status says of the peers.
func (h *herald) says(peers ...bgp.PeerStatus) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.peers = peers
}

func (h *herald) Heard() bool {
	return slices.ContainsFunc(h.Status().Peers, func(p bgp.PeerStatus) bool { return p.State == bgp.Established })
}

func (h *herald) Close() error { h.diary.write("close"); return nil }

func (h *herald) Leave(context.Context) error { h.diary.write("leave"); return nil }

const oneRouter = `
[bgp]
asn = 64500
router_id = "10.0.0.5"
hold_down = "5s"
floor = "0%"
drain_delay = "10s"
[[bgp.peer]]
name = "tor1"
address = "10.0.0.1"
asn = 64501
`

// heraldBox is a box whose kernel is a Fake and whose speaker is a herald; both write
// to one diary.
func heraldBox(t *testing.T, toml string) (*box, *herald, *lb.Fake) {
	t.Helper()
	d := &diary{}
	kernel := &lb.Fake{After: func(op lb.Op) {
		switch o := op.Object.(type) {
		case lb.VirtualServer, lb.RealServer, lb.Unreachable:
			d.write("%s", op)
		case lb.Address:
			d.write("%s %s", op.Verb, o)
		}
	}}
	b := &box{log: slog.New(slog.DiscardHandler), cfg: parse(t, toml), ready: true, started: time.Now()}
	b.metrics = newMetrics(b)
	h := &herald{diary: d, up: true}
	b.told.Store(&told{})
	b.announcer = newAnnouncer(b.log, h, b.cfg.BGP, time.Now())
	b.rec = lb.NewReconciler(kernel, b.options(), config.Source)
	b.rec.Update(lb.Update{Source: config.Source, Put: b.cfg.Services, Synced: true})
	return b, h, kernel
}

// options are without what only a real kernel has.
func (b *box) options() lb.Options {
	out := b.lbOptions(b.cfg, node{})
	out.Base.Sysctls = nil
	return out
}

// turn is a pass without what is for the real kernel.
func (b *box) turn(t *testing.T) {
	t.Helper()
	b.again = false
	_, err := b.rec.Sync(t.Context(), time.Now())
	b.announce(t.Context(), err, time.Now())
}

// say makes the static services those of a configuration.
func (b *box) say(t *testing.T, toml string) {
	t.Helper()
	before := b.cfg.Services
	b.cfg = parse(t, toml)
	u := lb.Update{Source: config.Source, Put: b.cfg.Services, Synced: true}
	for _, s := range before {
		if !slices.ContainsFunc(b.cfg.Services, func(x lb.Service) bool { return x.ID == s.ID }) {
			u.Delete = append(u.Delete, s.ID)
		}
	}
	b.rec.Update(u)
}

func web(backends string) string {
	return "[[service]]\nname = \"web\"\nvips = [\"192.0.2.1\"]\nports = [80]\ndrain = \"0s\"\nbackends = [" + backends + "]\n"
}

func checkDiary(t *testing.T, what string, h *herald, want ...string) {
	t.Helper()
	if diff := cmp.Diff(want, h.diary.read()); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}
