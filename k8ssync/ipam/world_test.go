package ipam

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"weir/lb"
)

// A world of several writers, each with its own late view of one claim store and two
// API servers, and all of them writing at once: elections are left out, so that claims
// must keep the laws by themselves. What is bounded is how late a view, or a write, can be:
// lag for each, which together is less than Retention.
const lag = after / 4

// world holds the truth. Time is its own.
type world struct {
	t    testing.TB
	r    *rand.Rand
	now  time.Time
	rv   uint64
	logs map[string]*log // by cluster; that of the store is lease
	// claims and services are what the store and the API servers have.
	claims   map[netip.Addr]Claim
	services map[lb.ServiceID]*service
	config   Config
	configs  int // how many there have been
	writers  []*writer
	zombies  []Decision // of writers that died while they wrote
	writes   int        // of claims, that were done
	most     halves     // of the claims that the writers know; zero is the default
}

const home = "home"

// log is what a watch brings, in order.
type log struct {
	at     []time.Time
	events []func(*Allocator)
}

// service is a Service as its API server has it.
type service struct {
	Request
	asks int // how often it asked for something else
	// given is which ask brought an address; planted was there before weir.
	given   map[netip.Addr]int
	planted bool
}

// writer is a process, and how far it has read.
type writer struct {
	a      *Allocator
	config int
	read   map[string]int
	down   map[string]time.Time // links that are down, since when
	stash  []stashed
}

// stashed is a Decision that is being carried out for long.
type stashed struct {
	Decision
	at time.Time
}

func newWorld(t testing.TB, seed uint64, writers int) *world {
	w := &world{
		t: t, r: rand.New(rand.NewPCG(seed, 4)), now: start, rv: 1,
		logs: map[string]*log{home: {}, "prod": {}, "test": {}}, claims: map[netip.Addr]Claim{}, services: map[lb.ServiceID]*service{},
	}
	w.config = w.randomConfig()
	w.plant()
	for range writers {
		p := &writer{}
		w.writers = append(w.writers, p)
		w.restart(p)
	}
	return w
}

// log adds an event to a log.
func (w *world) log(source string, event func(*Allocator)) {
	l := w.logs[source]
	l.at, l.events = append(l.at, w.now), append(l.events, event)
}

// restart restarts a writer.
func (w *world) restart(p *writer) {
	for _, s := range p.stash {
		w.zombies = append(w.zombies, s.Decision)
	}
	*p = writer{a: New(w.config), config: w.configs, read: map[string]int{}, down: map[string]time.Time{}}
	if w.most != (halves{}) {
		p.a.most = w.most
	}
	for _, source := range w.sources() {
		w.relist(p, source)
	}
}

func (w *world) sources() []string { return []string{home, "prod", "test"} }

// relist reads all that a source has.
func (w *world) relist(p *writer, source string) {
	p.read[source] = len(w.logs[source].events)
	if source == home {
		p.a.Relist(w.rv, slices.Collect(maps.Values(w.claims)), Intake{})
		return
	}
	for id, s := range w.services {
		if old := p.a.requests[id]; id.Source == source && (old == nil || old.Version != s.Version) {
			p.a.Put(s.Request)
		}
	}
	for id := range p.a.requests {
		if id.Source == source && w.services[id] == nil {
			p.a.Delete(id)
		}
	}
	p.a.Synced(source, true)
}

// deliver brings the next event of a source to a writer.
func (w *world) deliver(p *writer, source string) {
	i := p.read[source]
	p.read[source]++
	w.logs[source].events[i](p.a)
}

// store does a Write, if it is lawful, and gives what is there then.
func (w *world) store(v Write) (Claim, bool) {
	old := w.claims[v.Claim.Addr]
	if old.Version != v.Claim.Version {
		return old, false
	}
	if !v.Delete && old.Version > 0 && slices.EqualFunc(old.Holders, v.Claim.Holders, Holder.equal) {
		return old, true // as an API server does
	}
	w.rv++
	w.writes++
	next := Claim{v.Claim.Addr, w.rv, slices.Clone(v.Claim.Holders)}
	if v.Delete {
		next.Holders = nil
	}
	w.checkClaim(old, next)
	if x, rv := v.Claim.Addr, w.rv; v.Delete {
		delete(w.claims, x)
		w.log(home, func(a *Allocator) { a.Gone(x, rv) })
		return Claim{}, true
	}
	// What is stored is text.
	text, err := next.MarshalText()
	if err == nil {
		err = next.UnmarshalText(text)
	}
	if err != nil {
		w.t.Fatal(err)
	}
	w.claims[next.Addr] = next
	w.log(home, func(a *Allocator) { a.Learn(next) })
	return next, true
}

// change puts a Service as it is now, and logs it.
func (w *world) change(s *service) {
	w.rv++
	s.Version = strconv.FormatUint(w.rv, 10)
	w.services[s.ID] = s
	r := s.Request
	r.Status = slices.Clone(r.Status)
	w.log(s.ID.Source, func(a *Allocator) { a.Put(r) })
}

// apply writes a status, if its Service is as the Decision knew it.
func (w *world) apply(d Decision) {
	s := w.services[d.Service]
	if s == nil || s.Version != d.Version || s.UID != d.UID || slices.Equal(s.Status, d.Addrs) {
		return
	}
	w.checkStatus(s, d)
	s.Status = slices.Clone(d.Addrs)
	w.change(s)
}

// up reports whether a writer reaches a source.
func (p *writer) up(source string) bool { return p.down[source].IsZero() }

// leads reports whether a writer may act: after a long time without an answer of the lease cluster,
// another one writes.
func (w *world) leads(p *writer) bool { return p.up(home) || w.now.Sub(p.down[home]) < lag }

// work lets a writer do one thing.
func (w *world) work(p *writer) bool {
	if !w.leads(p) {
		return false
	}
	d, ok := p.a.Next(w.now)
	if !ok {
		return false
	}
	w.checkDecision(p, d)
	if w.r.IntN(8) == 0 {
		p.stash = append(p.stash, stashed{d, w.now})
		return true
	}
	w.carryOut(p, d, w.r.IntN(6) == 0)
	return true
}

// carryOut makes the writes of a Decision; answers or writes may be lost.
func (w *world) carryOut(p *writer, d Decision, trouble bool) {
	for _, v := range d.Writes {
		x := v.Claim.Addr
		lost := trouble && w.r.IntN(2) == 0
		if !p.up(home) || lost && w.r.IntN(2) == 0 { // it is not done
			p.a.Done(x)
			p.a.Again(d.Service)
			continue
		}
		is, done := w.store(v)
		switch {
		case lost && w.r.IntN(2) == 0: // it is done, and the answer is lost
			p.a.Again(d.Service)
		case is.Version > 0:
			p.a.Learn(is)
		case done || v.Claim.Version > 0:
			p.a.Gone(x, v.Claim.Version)
		}
		p.a.Done(x)
	}
	if len(d.Writes) > 0 || !d.Apply {
		return
	}
	if !p.up(d.Service.Source) || trouble {
		p.a.Again(d.Service)
		if !p.up(d.Service.Source) || w.r.IntN(2) == 0 {
			return
		}
	}
	w.apply(d)
}

// pass lets time pass, and brings what is late.
func (w *world) pass(d time.Duration) {
	w.now = w.now.Add(d)
	for _, p := range w.writers {
		for _, source := range w.sources() {
			since, l := p.down[source], w.logs[source]
			for since.IsZero() && p.read[source] < len(l.events) && w.now.Sub(l.at[p.read[source]]) > lag {
				w.deliver(p, source)
			}
			if !since.IsZero() && source != home && w.now.Sub(since) > lag {
				p.a.Synced(source, false)
			}
		}
		for len(p.stash) > 0 && w.now.Sub(p.stash[0].at) > lag {
			w.unstash(p)
		}
	}
	w.reanimate()
}

func (w *world) unstash(p *writer) {
	d := p.stash[0].Decision
	p.stash = p.stash[1:]
	w.carryOut(p, d, false)
}

// reanimate does what dead writers had sent.
func (w *world) reanimate() {
	for _, d := range w.zombies {
		for _, v := range d.Writes {
			w.store(v)
		}
		if len(d.Writes) == 0 && d.Apply {
			w.apply(d)
		}
	}
	w.zombies = nil
}

// link cuts or heals a writer's link.
func (w *world) link(p *writer, source string, up bool) {
	switch {
	case up && !p.up(source):
		delete(p.down, source)
		w.relist(p, source)
	case !up && p.up(source):
		p.down[source] = w.now
	}
}

// configure lets a writer read its configuration, if that has changed: nothing else is
// to remind it of what it should do.
func (w *world) configure(p *writer) {
	if p.config != w.configs {
		p.config = w.configs
		p.a.SetConfig(w.config)
	}
}

// heal makes everything well, and lets the writers come to an end.
func (w *world) heal() {
	for _, p := range w.writers {
		for _, source := range w.sources() {
			w.link(p, source, true)
		}
		w.configure(p)
	}
	for range 6 {
		w.quiet()
		w.now = w.now.Add(after + time.Second)
	}
	w.quiet()
}

// quiet delivers all events and makes all writes.
func (w *world) quiet() {
	for range 10_000 {
		busy := false
		for _, p := range w.writers {
			for _, source := range w.sources() {
				for p.read[source] < len(w.logs[source].events) {
					w.deliver(p, source)
					busy = true
				}
			}
			for len(p.stash) > 0 {
				w.unstash(p)
			}
			if d, ok := p.a.Next(w.now); ok {
				w.checkDecision(p, d)
				w.carryOut(p, d, false)
				busy = true
			}
		}
		if !busy {
			return
		}
	}
	w.t.Fatal("the writers never come to an end")
}

// String is the whole world, to be compared.
func (w *world) String() string {
	var out strings.Builder
	for _, id := range sortIDs(w.services) {
		s := w.services[id]
		fmt.Fprintf(&out, "%v %s %v\n", id, s.UID, s.Status)
	}
	for _, c := range w.writers[0].a.Claims() {
		fmt.Fprintf(&out, "%v %+v\n", c.Addr, c.Holders)
	}
	return out.String()
}
