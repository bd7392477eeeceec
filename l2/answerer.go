package l2

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Answerer answers for addresses. All its methods may be called at any time, from any
// goroutine, before, while and after Run.
type Answerer struct {
	log     *slog.Logger
	changed chan struct{}
	wake    chan struct{} // Run: there is something to do
	enter   func(do func() error) error

	mu      sync.Mutex
	engine  *engine
	ports   map[string]*port // of the links that are spoken on
	running bool
	hinted  bool      // links may have changed
	owing   bool      // a change has not been told
	told    time.Time // when one last was
}

// changeGap is the shortest time between two values of Changed: thousands of VIPs change
// one after the other, and whoever is told looks at all of them.
const changeGap = 50 * time.Millisecond

// New gives an Answerer that does nothing before Run.
func New(log *slog.Logger) *Answerer {
	return &Answerer{
		log:     log,
		changed: make(chan struct{}, 1),
		wake:    make(chan struct{}, 1),
		enter:   func(do func() error) error { return do() },
		engine:  newEngine(),
		ports:   map[string]*port{},
	}
}

// Configure replaces the Config. Claims on interfaces that are in the old one and in the
// new one go on undisturbed.
func (a *Answerer) Configure(c Config) {
	a.with(func(e *engine) { e.configure(c, time.Now()) })
}

// Set changes claims: those in changes are to be as they are there, nil is no more, all
// others stay. A VIP that is released is not answered for from the moment that Set
// returns, and nothing is said about it. Addresses are without a zone; one that is
// mapped (::ffff:192.0.2.1) is the IPv4 address.
func (a *Answerer) Set(changes map[netip.Addr]*Claim) {
	a.with(func(e *engine) { e.set(changes, time.Now()) })
}

// Fellows says which MACs are other members' (all of their interfaces'); it replaces
// what was said before.
func (a *Answerer) Fellows(fellows map[MAC]Fellow) {
	a.with(func(e *engine) { e.know(fellows) })
}

// Announce tells the neighbours again of all that is held, as after a takeover: for when
// a member came, or a network that was split is whole again.
func (a *Answerer) Announce() { a.with((*engine).announceAll) }

// Status tells what is done now.
func (a *Answerer) Status() (st Status) {
	a.with(func(e *engine) {
		for name, p := range a.ports {
			if l := e.links[name]; l != nil {
				l.Unheard += p.lost()
			}
		}
		st = e.status(time.Now())
	})
	return st
}

// Changed gets a value when a State or an Interface of Status may have changed since the
// last one: at once, but at most twenty times a second.
func (a *Answerer) Changed() <-chan struct{} { return a.changed }

// with does something to the engine, and what follows from it. Frames are sent before
// anybody else gets the engine: what has been released is not spoken of any more.
func (a *Answerer) with(do func(*engine)) {
	a.mu.Lock()
	defer a.mu.Unlock()
	e := a.engine
	do(e)
	for _, f := range e.out {
		if p := a.ports[f.link.name]; p == nil || !p.write(f) {
			f.link.Unsent++
		}
	}
	clear(e.out)
	e.out = e.out[:0]
	a.hinted = a.hinted || e.named
	if e.stirred || a.hinted {
		e.stirred, e.named = false, false
		poke(a.wake)
	}
	if e.changed {
		e.changed, a.owing = false, true
		if a.running && time.Since(a.told) < changeGap {
			poke(a.wake) // Run tells it in time
			return
		}
	}
	a.tellChange()
}

// tellChange tells others that something has changed, if it has, and not too often.
func (a *Answerer) tellChange() {
	if now := time.Now(); a.owing && now.Sub(a.told) >= changeGap {
		a.owing, a.told = false, now
		poke(a.changed)
	}
}

func poke(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// Run opens sockets, follows interfaces that come, go, lose their carrier and get it
// back, and answers, until ctx ends; then it falls silent, and every claim is Idle. It
// may be called again. The error says that this process may not do it at all
// (CAP_NET_RAW), or not on this kernel; trouble with one interface is in Status.
func (a *Answerer) Run(ctx context.Context) error {
	if !a.begin() {
		return errors.New("answer for addresses: is running already")
	}
	r := runner{a: a, notes: notes{log: a.log}}
	err := a.enter(func() error { return r.open() })
	if err == nil {
		r.readers.Go(func() { r.watch.listen(a.hint) })
		r.loop(ctx)
		r.close()
	}
	a.with(func(e *engine) {
		for name := range e.links {
			e.setLink(name, linkState{}, time.Now())
		}
		a.running = false
		a.told = time.Time{} // nobody would tell it later
	})
	return err
}

func (a *Answerer) begin() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.running {
		return false
	}
	a.running, a.hinted = true, true
	return true
}

func (a *Answerer) hint() { a.with(func(*engine) { a.hinted = true }) }

// heard takes what has been read on a port.
func (a *Answerer) heard(p *port, m message) {
	a.with(func(e *engine) {
		if l := e.links[p.name]; l != nil && a.ports[p.name] == p {
			e.hear(l, m, time.Now())
		}
	})
}

// mayListen tells whether the process may open packet sockets.
func mayListen() error {
	s, err := openPacket(0, 0, filterARP(nil))
	if errors.Is(err, unix.EPERM) {
		return errors.Join(err, errors.New("answering ARP and NDP needs CAP_NET_RAW"))
	}
	if err != nil {
		return err
	}
	return s.close()
}
