// Package membership makes this box a member of its fleet: it runs the gossip and the ARP
// answerer, reads the interfaces, and keeps a trace of the run for the next one. It never
// decides: package fleet does, with the facts that this package collects.
//
// # Start, stop and failure
//
// The loop of the daemon calls Observe and Decide in every pass, and when a member, an
// interface or a session changes. The kernel is not involved: it has all VIPs on all boxes.
// Roles reach the routers with the routes of the same pass, before a new VIP is announced
// for the first time. A claim comes after the kernel has been read back to serve the VIP,
// and is released before the kernel stops serving it.
//
// A box that starts announces and claims nothing until all of fleet.join have answered,
// or for three seconds. A box that was stable less than a minute ago, in the same boot, is
// stable again as soon as it is fit. For fleet.restart_grace after its end the other
// members count with it as it was, so it publishes nothing until its kernel is ready, and
// a restart moves nothing. After that they have taken over, and yield when it is back.
//
// When only the gossip is restarted, by a reload or after a panic, the other members count
// as before until it has found them, or for six seconds, and nothing is decided.
//
// A box that becomes unfit publishes that at once. It releases a VIP a second later, when
// the others have received the message, and only if a fit member serves the VIP.
//
// A gossip that cannot start (its port is in use) makes the box degraded, and a fleet of
// its own: it serves, and probes via ARP before it answers for anything.
package membership

import (
	"context"
	"log/slog"
	"net/netip"
	"os"
	"reflect"
	"time"

	"weir/cluster"
	"weir/cluster/l2"
	"weir/cmd/weir/internal/config"
	"weir/cmd/weir/internal/fleet"
	"weir/cmd/weir/internal/status"
	"weir/cmd/weir/internal/supervise"
	"weir/lb"
)

// Gossip is the messages between members: a cluster.Fleet, or a test's.
type Gossip interface {
	Configure(cfg cluster.Config) error
	Run(ctx context.Context) error
	Changed() <-chan struct{}
	Status() cluster.Status
	Publish(s cluster.State, m cluster.Message) error
	Leave(ctx context.Context) error
}

// Answerer answers ARP and NDP: an l2.Answerer, or a test's.
type Answerer interface {
	Configure(cfg l2.Config)
	Run(ctx context.Context) error
	Changed() <-chan struct{}
	Status() l2.Status
	Set(changes map[netip.Addr]*l2.Claim)
	SetMembers(members map[l2.MAC]l2.Member)
	Announce()
}

// Options are what a Member is made with.
type Options struct {
	Log     *slog.Logger
	Version string
	// Folder is where the trace of a run is kept for the next one of this boot, StateDir
	// where the epochs of the members are kept for ever.
	Folder, StateDir string
	// Sysfs is the folder of the interfaces; empty: /sys/class/net.
	Sysfs string
	// WithoutIPVS is set if the kernel's rules serve the VIPs. Its counter of packets to VIPs then stays as it is.
	WithoutIPVS bool
	// SessionUp reports whether a router has a BGP session. It may be called at any time.
	SessionUp func() bool
	// Orders returns the order of backends of each frontend with scheduler mh.
	Orders func() map[lb.Frontend]uint64
	// Took observes the time from the ownership of an address until ARP is answered.
	Took func(time.Duration)
	// Join and Answer make the gossip and the answerer; nil: the real ones.
	Join   func(cluster.Config) (Gossip, error)
	Answer func() Answerer
}

// Member is this box in its fleet. The loop of the daemon owns it.
type Member struct {
	opts     Options
	host     string // the name of this box without [fleet]
	cfg      *config.Config
	joinErr  error // the reason that there is no gossip although there is a [fleet]
	engine   *fleet.Engine
	gossip   Gossip   // nil without [fleet]
	answerer Answerer // nil before there is an [l2]
	tasks    *supervise.Group
	sensors  sensors
	tracer   tracer
	l2       *status.L2 // the state of the claims; nil without [l2]
	// outside counts the changes outside, seen those that Observe has read.
	outside, seen uint64
	left          bool   // for good: nothing is decided any more
	publishErr    string // of the last message
}

// New returns a Member without a configuration.
func New(opts Options, now time.Time) *Member {
	host, err := os.Hostname()
	if err != nil || host == "" {
		host = "weir"
	}
	if opts.Join == nil {
		opts.Join = func(cfg cluster.Config) (Gossip, error) { return remember(cfg, opts.StateDir, opts.Log, time.Now()) }
	}
	if opts.Answer == nil {
		opts.Answer = func() Answerer { return l2.New(opts.Log) }
	}
	if opts.Sysfs == "" {
		opts.Sysfs = "/sys/class/net"
	}
	if opts.Took == nil {
		opts.Took = func(time.Duration) {}
	}
	m := &Member{
		opts: opts, host: host, cfg: &config.Config{}, tasks: supervise.NewGroup(opts.Log),
		sensors: sensors{sysfs: opts.Sysfs, ipvs: "/proc/net/ip_vs_stats", sessionUp: opts.SessionUp},
		tracer:  tracer{dir: opts.Folder, boot: bootID()},
	}
	if opts.WithoutIPVS {
		m.sensors.ipvs = ""
	}
	m.engine = fleet.NewEngine(opts.Version, m.tracer.load(uptime()), now)
	return m
}

// Configure brings a configuration into force. known are the Services known so far, for a
// box that gets its [fleet] by a reload.
func (m *Member) Configure(cfg *config.Config, sources []string, known []lb.Service) {
	before := m.cfg.Fleet
	m.cfg = cfg
	switch {
	case cfg.Fleet == nil && before != nil:
		m.leave()
		m.joinErr = nil
	case cfg.Fleet != nil && m.gossip == nil:
		m.join(cfg.Fleet.Gossip)
	case cfg.Fleet != nil:
		m.rejoin(before.Gossip, cfg.Fleet.Gossip)
	}
	if before == nil && cfg.Fleet != nil {
		for _, svc := range known {
			m.Receive(lb.Update{Source: svc.ID.Source, Put: []lb.Service{svc}})
		}
	}
	m.engine.Follow(sources)
	m.engine.Configure(cfg, m.host, m.joinErr)
	m.configureL2(cfg.L2)
	m.sensors.watch(interfacesOf(cfg), fleet.Uplinks(cfg))
	m.tasks.Keep("sensors", m.on(), m.watch)
	m.Refresh()
}

// join makes the gossip; a Decision starts it.
func (m *Member) join(cfg cluster.Config) {
	m.engine.Join()
	m.gossip, m.joinErr = m.opts.Join(cfg)
	if m.joinErr != nil {
		m.gossip = nil
		m.opts.Log.Error("joining the fleet failed", "error", m.joinErr)
	}
}

// rejoin brings another configuration of the gossip into force. Most changes make the box
// leave and join again.
func (m *Member) rejoin(before, after cluster.Config) {
	if reflect.DeepEqual(before, after) {
		return
	}
	if err := m.gossip.Configure(after); err != nil {
		m.opts.Log.Error("fleet configuration refused", "error", err)
	}
}

// configureL2 starts or stops the answerer.
func (m *Member) configureL2(cfg *config.L2) {
	if cfg == nil {
		m.release()
		m.tasks.End("l2")
		m.l2 = nil
		return
	}
	if m.answerer == nil {
		m.answerer = m.opts.Answer()
	}
	m.answerer.Configure(l2.Config{Interfaces: cfg.Interfaces, GARPInterval: cfg.GARPInterval})
	m.start("l2", m.answerer.Run, m.answerer.Changed())
}

// start starts a task, and wakes the loop for each of its changes.
func (m *Member) start(name string, run func(context.Context) error, changed <-chan struct{}) {
	m.tasks.Keep(name, true, run)
	m.tasks.Forward(name, changed)
}

// release releases all claims.
func (m *Member) release() {
	if changes := m.engine.Release(); len(changes) > 0 {
		m.answerer.Set(changes)
	}
}

// leaveTimeout bounds how long it takes to leave.
const leaveTimeout = 2 * time.Second

// leave leaves the fleet.
func (m *Member) leave() {
	if m.gossip != nil {
		ctx, cancel := context.WithTimeout(context.Background(), leaveTimeout)
		defer cancel()
		if err := m.gossip.Leave(ctx); err != nil {
			m.opts.Log.Warn("leaving the fleet failed", "error", err)
		}
	}
	m.tasks.End("fleet")
	m.gossip = nil
	m.engine.Leave()
	m.tracer.keep(false, nil)
}

// Leave is for a box that stops serving: it releases all claims and leaves the fleet.
func (m *Member) Leave() {
	if m == nil {
		return
	}
	m.left = true
	m.release()
	if m.gossip != nil {
		m.leave()
		if err := m.tracer.forget(); err != nil {
			m.opts.Log.Warn("fleet trace not removed: a restart counts as stable", "error", err)
		}
	}
}

// Stop ends all tasks without leaving the fleet.
func (m *Member) Stop() {
	if m != nil {
		m.tasks.Stop()
	}
}

// Changed returns a channel that gets a value when something outside has changed; then
// Refresh, Observe and Decide are due.
func (m *Member) Changed() <-chan struct{} {
	if m == nil {
		return nil
	}
	return m.tasks.Signal
}

// Refresh makes the next Observe read the members and the claims again.
func (m *Member) Refresh() { m.outside++ }

// Next returns when Observe and Decide are due though nothing happens; the zero time if never.
func (m *Member) Next() time.Time {
	if m == nil || !m.on() {
		return time.Time{}
	}
	return m.engine.Next()
}

// on reports whether there is a fleet, or an address to answer ARP for.
func (m *Member) on() bool { return m.cfg.Fleet != nil || m.cfg.L2 != nil }

// Receive takes an Update of a source, for the comparison with other members.
func (m *Member) Receive(u lb.Update) {
	if m != nil && m.cfg.Fleet != nil {
		m.engine.Receive(u)
	}
}

// Observe adds the facts that this package collects to those of the daemon. View answers
// with all of them.
func (m *Member) Observe(in fleet.Inputs) {
	if m == nil || m.left {
		return
	}
	if m.seen != m.outside {
		m.seen = m.outside
		m.read(&in)
	}
	in.Links = m.sensors.read()
	if m.gossip != nil && m.opts.Orders != nil {
		in.Orders = m.opts.Orders()
	}
	m.engine.Observe(in)
}

// Decide has the Engine decide by the facts of the last Observe and by the drains, and
// applies the decision as far as it concerns members and claims.
func (m *Member) Decide(drain fleet.Drain) fleet.Decision {
	if m == nil || m.left {
		return fleet.Decision{}
	}
	d := m.engine.Decide(drain)
	m.apply(d)
	return d
}

// read reads the gossip and the claims.
func (m *Member) read(in *fleet.Inputs) {
	if m.cfg.L2 != nil {
		s := m.answerer.Status()
		in.L2, m.l2 = &s, l2Doc(s)
	}
	if m.gossip != nil {
		s := m.gossip.Status()
		in.Members = &s
	}
}

// apply applies a decision.
func (m *Member) apply(d fleet.Decision) {
	for _, e := range d.Events {
		m.opts.Log.Log(context.Background(), e.Level, e.Message, e.Args...)
	}
	for _, took := range d.Took {
		m.opts.Took(took)
	}
	if d.Peers != nil {
		m.answerer.SetMembers(d.Peers)
	}
	if len(d.Claims) > 0 {
		m.answerer.Set(d.Claims)
	}
	if d.GratuitousARP {
		m.answerer.Announce()
	}
	if d.Publish != nil {
		m.publish(*d.Publish)
	}
	if d.JoinFleet {
		m.start("fleet", m.gossip.Run, m.gossip.Changed())
	}
	if m.cfg.Fleet != nil {
		m.tracer.keep(d.Stable, d.Owned)
	}
}

// publish sends a message to the other members.
func (m *Member) publish(p fleet.Publication) {
	out, err := p.Message.Encode()
	if err == nil {
		err = m.gossip.Publish(p.State, out)
	}
	if status.ErrorText(err) != m.publishErr && err != nil {
		m.opts.Log.Error("member message not sent", "error", err)
	}
	m.publishErr = status.ErrorText(err)
}

// View returns a view of the decisions until the next Observe. Without a Member it is that
// of a box without a fleet.
func (m *Member) View() fleet.View {
	if m == nil {
		return fleet.NewEngine("", fleet.LastRun{}, time.Time{}).View()
	}
	return m.engine.View()
}

// Members returns the fleet as this box sees it, with the counters of this moment.
func (m *Member) Members(now time.Time) status.Members {
	if m.gossip == nil {
		return m.View().Members(now, nil)
	}
	s := m.gossip.Status()
	return m.View().Members(now, &s)
}

// L2 returns the addresses that ARP and NDP are answered for; nil without [l2].
func (m *Member) L2() *status.L2 { return m.l2 }

// Numbers are the values for metrics. They do not change once made.
type Numbers struct {
	fleet.Numbers
	// Gossip and Answerer are for a scrape to ask; nil without.
	Gossip   Gossip
	Answerer Answerer
}

// Numbers returns the values for metrics.
func (m *Member) Numbers() Numbers { return Numbers{m.View().Numbers(), m.gossip, m.answerer} }
