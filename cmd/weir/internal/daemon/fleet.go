package daemon

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"reflect"
	"runtime/debug"
	"sync"
	"time"

	"weir/cluster"
	"weir/cmd/weir/internal/config"
	"weir/lb"
)

// gossip is who is alive and what they say: a cluster.Fleet, or a test's.
type gossip interface {
	Configure(cfg cluster.Config) error
	Run(ctx context.Context) error
	Changed() <-chan struct{}
	Status() cluster.Status
	Say(s cluster.State, text []byte) error
	Leave(ctx context.Context) error
}

// joinWindow is how long a box that begins waits for others to answer before it
// believes that there are none. It claims nothing meanwhile.
const joinWindow = 3 * time.Second

// rejoinWindow is that of one that has to go before it can come again.
const rejoinWindow = joinWindow + 3*time.Second

// fleet is this box's part in the fleet: how it stands, what it hears of others, and
// who owns which VIP by that. The loop owns it. Without [cluster] it is a fleet of this
// box alone, which owns everything; without [l2] too it does nothing.
type fleet struct {
	log     *slog.Logger
	version string
	cfg     *config.Fleet // nil without [cluster]
	host    string        // the box's name without [cluster]
	byL2    bool          // nobody but neighbors is told who owns a VIP: there is [l2] and no [bgp]
	// extras are what the owner of everything has beside the VIPs, each with the
	// interfaces on which it answers for it.
	extras map[netip.Addr][]string
	doors  []string // interfaces at which clients or routers are
	// yielded is that this box has let go of what another member asked for, as no client
	// sends anything here.
	yielded bool

	gossip gossip // nil without [cluster]
	joins  func(cluster.Config) (gossip, error)
	left   bool  // for good: nothing is decided any more
	badErr error // why there is no gossip although there is a [cluster]
	parts  parts
	signs  signs
	tracer tracer
	answer answer

	stand  stand
	news   bool // something has happened outside
	pulse  pulse
	unread spell // the kernel
	asked  spell // the routers, for sessions
	// unheard is since when the box is alone, and has no session with a router.
	unheard spell

	// routes are all VIPs that Services here claim, each with those that serve it; gated
	// is that the kernel serves nobody.
	routes  map[netip.Addr][]lb.Serving
	gated   bool
	sums    sums
	orders  func() map[lb.Frontend]uint64
	heard   cluster.Status
	fellows map[string]*fellow // the other members
	differ  differences
	share   share
	say     say
}

// newFleet makes a fleet that nobody is part of until set. The folder is that of the
// socket.
func newFleet(log *slog.Logger, version, folder string, now time.Time) *fleet {
	host, err := os.Hostname()
	if err != nil || host == "" {
		host = "weir"
	}
	f := &fleet{
		log: log, version: version, host: host,
		joins:  func(cfg cluster.Config) (gossip, error) { return cluster.New(cfg, log) },
		parts:  newParts(log),
		signs:  signs{links: "/sys/class/net", stats: "/proc/net/ip_vs_stats"},
		tracer: tracer{dir: folder, boot: bootID()},
		answer: newAnswer(),
		routes: map[netip.Addr][]lb.Serving{}, sums: sums{}, fellows: map[string]*fellow{}, differ: newDifferences(), share: newShare(),
	}
	f.stand.started = now
	f.stand.begins(f.tracer.load(uptime()))
	return f
}

// on tells whether there is a fleet to be part of, or addresses to answer for.
func (f *fleet) on() bool { return f != nil && (f.cfg != nil || f.answer.cfg != nil) }

// name is this box's.
func (f *fleet) name() string {
	if f.cfg != nil {
		return f.cfg.Gossip.Name
	}
	return f.host
}

// changed gets a value when something outside the loop has something new.
func (f *fleet) changed() <-chan struct{} {
	if f == nil {
		return nil
	}
	return f.parts.signal
}

// set makes the fleet what a configuration says.
func (f *fleet) set(cfg *config.Config, now time.Time) {
	before := f.cfg
	f.cfg = cfg.Fleet
	f.extras = extrasOf(cfg)
	f.byL2 = cfg.L2 != nil && cfg.BGP == nil
	switch {
	case cfg.Fleet == nil && before != nil:
		f.part()
	case cfg.Fleet != nil && f.gossip == nil:
		f.join()
	case cfg.Fleet != nil:
		f.rejoin(before.Gossip, now)
	}
	if cfg.Fleet != nil {
		f.stand.self.TakeBack = cfg.Fleet.TakeBack
		if cfg.Fleet.Rules.Stay {
			f.stand.self.TakeBack = 0 // nothing is taken back from whoever holds it
		}
		f.stand.keep(cfg.Fleet.RestartGrace)
	}
	f.answer.set(cfg.L2, f)
	f.say.rules = digestOfRules(cfg)
	f.share.mine = f.share.owned(f.name()) // it may be another now
	f.doors = doorsOf(cfg)
	f.signs.watch(interfacesThatMatter(cfg), f.doors)
	f.parts.keep("signs", f.on(), f.watch)
	f.news, f.share.all, f.say.stale = true, true, true
}

// join makes a gossip, which begins when the loop says so.
func (f *fleet) join() {
	f.stand.joined, f.stand.knew, f.stand.begun = false, false, time.Time{}
	f.gossip, f.badErr = f.joins(f.cfg.Gossip)
	if f.badErr != nil {
		f.gossip = nil
		f.log.Error("this box takes no part in the fleet", "error", f.badErr)
	}
}

// rejoin has a gossip follow another configuration. One that it can't follow without
// going and coming again is a new begin: those that were heard of are not there for a
// moment, which says nothing of them.
func (f *fleet) rejoin(before cluster.Config, now time.Time) {
	after := f.cfg.Gossip
	if reflect.DeepEqual(before, after) {
		return
	}
	if err := f.gossip.Configure(after); err != nil {
		f.log.Error("the fleet stays as it is configured", "error", err)
		return
	}
	before.Keys, before.Join = after.Keys, after.Join
	if !reflect.DeepEqual(before, after) && !f.stand.begun.IsZero() {
		f.stand.joined, f.stand.begun, f.stand.alone = false, now, now.Add(rejoinWindow)
	}
}

// part leaves the fleet for good.
func (f *fleet) part() {
	if f.gossip != nil {
		ctx, cancel := context.WithTimeout(context.Background(), partTimeout)
		defer cancel()
		if err := f.gossip.Leave(ctx); err != nil {
			f.log.Warn("the fleet has perhaps not heard that this box leaves it", "error", err)
		}
	}
	f.parts.keep("fleet", false, nil)
	f.parts.keep("fleet news", false, nil)
	f.gossip, f.badErr, f.heard = nil, nil, cluster.Status{}
	f.say = say{}
	clear(f.fellows)
	f.tracer.keep(false, nil)
}

// partTimeout bounds how long it takes to say good-bye.
const partTimeout = 2 * time.Second

// begin has the gossip begin, once. A box that has been settled in a run just before
// stays silent until its kernel is ready: the fleet counts with it as it was, and what
// it said before that would only be less.
func (f *fleet) begin(ready bool, now time.Time) {
	if f.gossip == nil || !f.stand.begun.IsZero() || !ready && f.stand.kept(now) {
		return
	}
	f.stand.begun, f.stand.alone = now, now.Add(joinWindow)
	f.stand.next = soonest(f.stand.next, f.stand.alone)
	f.speak(now)
	f.parts.keep("fleet", true, f.gossip.Run)
	f.parts.forward("fleet", f.gossip.Changed())
}

// leave is for a box that will not serve any more: it answers for nothing, and says
// good-bye.
func (f *fleet) leave() {
	if f == nil {
		return
	}
	f.left = true
	f.answer.release()
	if f.gossip != nil {
		f.part()
		if err := f.tracer.forget(); err != nil {
			f.log.Warn("weir counts as fit at once if it starts again soon", "error", err)
		}
	}
}

// stop ends everything without a word.
func (f *fleet) stop() {
	if f != nil {
		f.parts.stop()
	}
}

// watch looks at cables and sessions, and keeps the trace, until ctx ends.
func (f *fleet) watch(ctx context.Context) error {
	tick := time.NewTicker(signsEvery)
	defer tick.Stop()
	for {
		if f.signs.look() {
			f.parts.wake()
		}
		f.tracer.touch(uptime(), f.log)
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// take takes in how addresses are now.
func (f *fleet) take(routes []lb.Route) {
	for _, r := range routes {
		if r.Withheld == lb.Gone {
			delete(f.routes, r.Addr)
		} else {
			f.routes[r.Addr] = r.Serves
		}
		f.share.dirty[r.Addr] = struct{}{}
		f.say.stale = true
	}
}

// gate takes in whether the kernel serves nobody at all.
func (f *fleet) gate(gated bool) {
	if f.gated != gated {
		f.gated, f.share.all, f.say.stale = gated, true, true
	}
}

// serves tells whether this box can serve an address: a VIP of the kernel, or one that
// the owner of everything has.
func (f *fleet) serves(a netip.Addr) bool {
	_, extra := f.extras[a]
	return !f.gated && (extra || len(f.routes[a]) > 0) && !f.stand.out.isGone(a)
}

// mayAnnounce tells whether the box knows enough of the fleet to tell routers anything:
// what they hear first is to be true.
func (f *fleet) mayAnnounce() bool { return f == nil || f.cfg == nil || f.stand.knew }

// next is when there is something to do even if nothing happens; the zero time: not by
// itself.
func (f *fleet) next() time.Time {
	if !f.on() {
		return time.Time{}
	}
	next := f.stand.next
	for _, t := range []time.Time{f.say.pace.due, f.answer.burst.due, f.graceEnds(), f.handoverEnds(), f.differ.due} {
		if !t.IsZero() && (next.IsZero() || t.Before(next)) {
			next = t
		}
	}
	return next
}

// parts are the goroutines of a fleet, by name. Each runs until it is not wanted, again
// and again if need be: it must not harm the box that serves.
type parts struct {
	log     *slog.Logger
	signal  chan struct{} // one of them has something new
	running map[string]context.CancelFunc
	tasks   *sync.WaitGroup
}

func newParts(log *slog.Logger) parts {
	return parts{log, make(chan struct{}, 1), map[string]context.CancelFunc{}, &sync.WaitGroup{}}
}

func (p *parts) wake() {
	select {
	case p.signal <- struct{}{}:
	default:
	}
}

// keep has a part run, or not.
func (p *parts) keep(name string, wanted bool, run func(context.Context) error) {
	stop, runs := p.running[name]
	switch {
	case wanted && !runs:
		ctx, cancel := context.WithCancel(context.Background())
		p.running[name] = cancel
		p.tasks.Go(func() { p.run(ctx, name, run) })
	case !wanted && runs:
		stop()
		delete(p.running, name)
	}
}

// forward wakes the loop whenever a part that runs has something new.
func (p *parts) forward(name string, from <-chan struct{}) {
	p.keep(name+" news", true, func(ctx context.Context) error {
		for {
			select {
			case <-ctx.Done():
				return nil
			case <-from:
				p.wake()
			}
		}
	})
}

func (p *parts) run(ctx context.Context, name string, run func(context.Context) error) {
	for ctx.Err() == nil {
		if err := runOnce(ctx, run); err != nil && ctx.Err() == nil {
			p.log.Error("a part of the fleet has failed; what is served stays, and it begins anew", "part", name, "error", err, "in", panicPause)
		}
		select {
		case <-ctx.Done():
		case <-time.After(panicPause):
		}
	}
}

func runOnce(ctx context.Context, run func(context.Context) error) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("panic: %v\n%s", v, debug.Stack())
		}
	}()
	return run(ctx)
}

// stop ends all parts, and waits until they have.
func (p *parts) stop() {
	for name, stop := range p.running {
		stop()
		delete(p.running, name)
	}
	p.tasks.Wait()
}
