package l2

import (
	"errors"
	"log/slog"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Answerer answers ARP and NDP for addresses. All its methods may be called at any time,
// from any goroutine, before, during and after Run.
type Answerer struct {
	log         *slog.Logger
	changed     chan struct{}
	wake        chan struct{} // Run has work to do
	inNamespace func(do func() error) error

	mu      sync.Mutex
	engine  *engine
	ports   map[string]*port // of the links that are spoken on
	running bool
	hints   uint64    // counts notifications that interfaces may have changed
	done    progress  // of Run
	next    time.Time // when Run wakes up at the latest; the zero Time is never
	// signalled are the changes of Status that Changed has had, the last time at signalledAt.
	signalled   uint64
	signalledAt time.Time
}

// progress is what Run has seen: a generation of each of its inputs.
type progress struct{ statusChanges, hints, linksAdded uint64 }

// changeGap is the shortest time between two values of Changed. Thousands of VIPs change
// one after the other, and each value makes the reader check all of them.
const changeGap = 50 * time.Millisecond

// New returns an Answerer that does nothing before Run.
func New(log *slog.Logger) *Answerer {
	return &Answerer{
		log:         log,
		changed:     make(chan struct{}, 1),
		wake:        make(chan struct{}, 1),
		inNamespace: func(do func() error) error { return do() },
		engine:      newEngine(),
		ports:       map[string]*port{},
	}
}

// Configure replaces the Config. Claims on interfaces that both Configs have continue
// undisturbed.
func (a *Answerer) Configure(c Config) {
	a.with(func(e *engine) { e.configure(c, time.Now()) })
}

// Set changes claims; nil removes one, and claims that are not in the map stay. From the
// moment that Set returns, a removed VIP is no longer answered for, and nothing is sent
// about it. Addresses have no zone; a mapped one (::ffff:192.0.2.1) is the IPv4 address.
func (a *Answerer) Set(changes map[netip.Addr]*Claim) {
	a.with(func(e *engine) { e.set(changes, time.Now()) })
}

// SetMembers replaces the MAC addresses of the other members, with those of all their
// interfaces.
func (a *Answerer) SetMembers(members map[MAC]Member) {
	a.with(func(e *engine) { e.setMembers(members) })
}

// Announce announces every answered VIP again, as after a takeover: for when a member came
// back or a partition has healed.
func (a *Answerer) Announce() { a.with((*engine).announceAll) }

// Status returns the present state.
func (a *Answerer) Status() (st Status) {
	a.with(func(e *engine) {
		for name, p := range a.ports {
			if l := e.links[name]; l != nil {
				l.ReceiveDrops += p.lost()
			}
		}
		st = e.status(time.Now())
	})
	return st
}

// Changed gets a value when a State or an Interface of Status may have changed since the
// last one: at once, but at most twenty times a second.
func (a *Answerer) Changed() <-chan struct{} { return a.changed }

// with runs a function on the engine, then sends the frames that follow from it. The lock
// is kept until they are sent: a released VIP is in no later frame.
func (a *Answerer) with(do func(*engine)) {
	a.mu.Lock()
	defer a.mu.Unlock()
	e := a.engine
	do(e)
	for _, f := range e.out {
		if p := a.ports[f.link.name]; p == nil || !p.write(f) {
			f.link.SendDrops++
		}
	}
	clear(e.out)
	e.out = e.out[:0]
	now := time.Now()
	a.signal(now)
	if a.done != a.inputs() || earlier(a.next, a.due(now)) != a.next {
		poke(a.wake)
	}
}

// signal signals changes of Status, but not too often while Run can do it in time.
func (a *Answerer) signal(now time.Time) {
	if changes := a.engine.statusChanges; changes != a.signalled && (!a.running || now.Sub(a.signalledAt) >= changeGap) {
		a.signalled, a.signalledAt = changes, now
		poke(a.changed)
	}
}

// inputs returns the inputs of Run as they are now.
func (a *Answerer) inputs() progress {
	return progress{a.engine.statusChanges, a.hints, a.engine.linksAdded}
}

// due returns when Run has work to do if its inputs stay the same; the zero Time is never.
func (a *Answerer) due(now time.Time) time.Time {
	next := a.engine.next(now)
	if a.signalled != a.engine.statusChanges {
		next = earlier(next, a.signalledAt.Add(changeGap))
	}
	return next
}

func poke(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

func (a *Answerer) begin() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.running {
		return false
	}
	a.running, a.done = true, progress{}
	return true
}

func (a *Answerer) linkHint() { a.with(func(*engine) { a.hints++ }) }

// received handles a message that was read on a port.
func (a *Answerer) received(p *port, m message) {
	a.with(func(e *engine) {
		if l := e.links[p.name]; l != nil && a.ports[p.name] == p {
			e.receive(l, m, time.Now())
		}
	})
}

// checkPermission returns an error if the process may not open packet sockets.
func checkPermission() error {
	s, err := openPacket(0, 0, filterARP(nil))
	if errors.Is(err, unix.EPERM) {
		return errors.Join(err, errors.New("answering ARP and NDP needs CAP_NET_RAW"))
	}
	if err != nil {
		return err
	}
	return s.close()
}
