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
	"weir/bgp/advertise"
	"weir/cmd/weir/internal/announce"
	"weir/cmd/weir/internal/config"
	"weir/cmd/weir/internal/kernelmode"
	"weir/lb"
)

// fakeSpeaker is a speaker of a test. It records its calls in the history that the
// kernel writes to, too.
type fakeSpeaker struct {
	history *history
	mu      sync.Mutex
	now     map[netip.Prefix][]advertise.Path
	cfg     bgp.Config
	up      bool  // there is a router
	fail    error // of Configure

	// peers and routes are those of Status, if they are set.
	peers  []bgp.PeerStatus
	routes []bgp.RouteStatus
}

// history lists the events in their order.
type history struct {
	mu    sync.Mutex
	lines []string
}

func (d *history) write(format string, args ...any) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.lines = append(d.lines, fmt.Sprintf(format, args...))
}

// read returns the lines since the last call.
func (d *history) read() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	out := d.lines
	d.lines = nil
	return out
}

func (h *fakeSpeaker) Configure(_ context.Context, cfg bgp.Config) error {
	if h.fail != nil {
		return h.fail
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.cfg = cfg
	h.history.write("begin with %d prefixes", len(h.now))
	return nil
}

func (h *fakeSpeaker) Set(changes map[netip.Prefix][]advertise.Path) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.now == nil {
		h.now = map[netip.Prefix][]advertise.Path{}
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
		if slices.Contains(paths[0].Communities, advertise.GracefulShutdown) {
			line += " shutting"
		}
		if paths[0].MED == advertise.MetricOf(advertise.StandbyMED) {
			line += " standby"
		}
		lines = append(lines, line)
	}
	slices.Sort(lines)
	h.history.write("%s", strings.Join(lines, ", "))
	return nil
}

func (h *fakeSpeaker) Flush(context.Context) error { return nil }

func (h *fakeSpeaker) Status() bgp.Status {
	h.mu.Lock()
	defer h.mu.Unlock()
	s := bgp.Status{ASN: h.cfg.ASN, RouterID: h.cfg.RouterID, Peers: h.peers, Routes: h.routes}
	if h.up && h.peers == nil {
		s.Peers = []bgp.PeerStatus{{Name: "tor1", State: bgp.Established}, {Name: "tor2", State: bgp.Idle}}
	}
	return s
}

// setPeers sets the peers of Status.
func (h *fakeSpeaker) setPeers(peers ...bgp.PeerStatus) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.peers = peers
}

func (h *fakeSpeaker) AnyEstablished() bool {
	return slices.ContainsFunc(h.Status().Peers, func(p bgp.PeerStatus) bool { return p.State == bgp.Established })
}

func (h *fakeSpeaker) Close() error { h.history.write("close"); return nil }

func (h *fakeSpeaker) Leave(context.Context) error { h.history.write("leave"); return nil }

const oneRouter = `
[bgp]
asn = 64500
router_id = "10.0.0.5"
reannounce_delay = "5s"
min_announced = "0%"
drain_delay = "10s"
[[bgp.peer]]
name = "tor1"
address = "10.0.0.1"
asn = 64501
`

// newTestBox returns a box without a kernel, clusters or checks.
func newTestBox(cfg *config.Config) *box {
	return assemble(Options{Log: slog.New(slog.DiscardHandler)}, cfg, nil, kernelmode.Mode{})
}

// speakerBox is a box with a Fake for its kernel and a fakeSpeaker; both write
// to one history.
func speakerBox(t *testing.T, toml string) (*box, *fakeSpeaker, *lb.Fake) {
	t.Helper()
	d := &history{}
	kernel := &lb.Fake{After: func(op lb.Op) {
		switch o := op.Object.(type) {
		case lb.VirtualServer, lb.RealServer, lb.Unreachable:
			d.write("%s", op)
		case lb.Address:
			d.write("%s %s", op.Verb, o)
		}
	}}
	b := newTestBox(parse(t, toml))
	b.passes.progress.ready = true
	h := &fakeSpeaker{history: d, up: true}
	b.steering.announcer = b.announcerOf(h)
	b.target.rec = lb.NewReconciler(kernel, b.options(), config.Source)
	b.target.rec.Update(lb.Update{Source: config.Source, Put: b.target.cfg.Services, Synced: true})
	return b, h, kernel
}

// announcerOf makes an Announcer with a speaker of a test.
func (b *box) announcerOf(s announce.Speaker) *announce.Announcer {
	return announce.New(announce.Options{
		Log: b.log, Speaker: s, Ask: b.calls.Do, Announced: func(d time.Duration) { b.metrics.Announced(d) },
	}, b.target.cfg.BGP, time.Now())
}

// options are without what only a real kernel has.
func (b *box) options() lb.Options {
	out := b.target.options(b.target.cfg, kernelmode.Node{})
	out.Base.Sysctls = nil
	return out
}

// pass is a pass without the work for the real kernel.
func (b *box) pass(t *testing.T) {
	t.Helper()
	b.passes.derived.options = b.target.changes.options
	_, err := b.target.rec.Sync(t.Context(), time.Now())
	b.steering.announce(t.Context(), err, b.passes.progress.take(), time.Now())
}

// reload makes the static services those of a configuration.
func (b *box) reload(t *testing.T, toml string) {
	t.Helper()
	before := b.target.cfg.Services
	b.target.cfg = parse(t, toml)
	u := lb.Update{Source: config.Source, Put: b.target.cfg.Services, Synced: true}
	for _, s := range before {
		if !slices.ContainsFunc(b.target.cfg.Services, func(x lb.Service) bool { return x.ID == s.ID }) {
			u.Delete = append(u.Delete, s.ID)
		}
	}
	b.target.rec.Update(u)
}

func web(backends string) string {
	return "[[service]]\nname = \"web\"\nvips = [\"192.0.2.1\"]\nports = [80]\ndrain_timeout = \"0s\"\nbackends = [" + backends + "]\n"
}

func checkDiary(t *testing.T, what string, h *fakeSpeaker, want ...string) {
	t.Helper()
	if diff := cmp.Diff(want, h.history.read()); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}
