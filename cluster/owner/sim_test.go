package owner

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"time"
)

// A fleet that is simulated: boxes with kernels, processes, clocks of their own and
// backends, and a network that delays, loses and parts. Only the gossip, the daemon's
// part and the routers are models; who owns what is decided by this package.

const (
	tickEvery    = 100 * time.Millisecond
	deadAfter    = 3 * time.Second  // silence, until a member is dead
	awayAfter    = time.Second      // silence, until it is found that the kernel refuses
	restartGrace = 10 * time.Second // see Seen
	joinWindow   = 3 * time.Second
	keptFor      = time.Minute      // how long a trace counts
	routesStay   = 30 * time.Second // graceful restart: routes of a process that is gone
	preemptDelay = 30 * time.Second
)

// outgoing is a box's message to others; serves is nil until it knows.
type outgoing struct {
	seq                   int // of the box, ever growing
	standing              State
	serves, holds, drains []bool
}

// incoming is a box's state of another one.
type incoming struct {
	outgoing
	at   time.Duration // when its last message arrived, by simBox.ran; 0: never
	away time.Duration // since when it is missed, if its kernel refuses; 0: it does not
}

// parcel is a message on its way.
type parcel struct {
	at       time.Duration
	from, to int
	said     outgoing
}

// simBox is a box.
type simBox struct {
	id                  int
	name                string
	power, process      bool
	frozen              time.Duration // until then its process does not run
	broken, draining    bool
	serves, drains      []bool // what is so, whatever any box publishes
	clock               time.Duration
	started, ready      time.Duration // of the process
	ran                 time.Duration // how long it ran: silence while it is stopped is its own
	joined              bool
	self                Self
	now                 Result
	others              []incoming
	says                outgoing
	verdicts            []Decision
	claims              []bool // Decision.Owner is this box
	announces           []bool // as the routers see it
	stopped             time.Duration
	traceOK             bool // of this boot
	traceAt             time.Duration
	traceHolds          []bool
	turnedOn, turnedOff []int // claims, since the counts were cleared
}

type sim struct {
	*rand.Rand
	rules    Rules
	now      time.Duration
	boxes    []*simBox
	vips     []netip.Addr
	cut      [][]bool // cut[a][b]: nothing gets from a to b
	loss     float64
	delay    time.Duration // the longest
	parcels  []parcel
	lastHard time.Duration // the last event after which a VIP may be without an owner
	log      []string
}

func newSim(seed uint64, boxes, vipCount int, rules Rules) *sim {
	s := &sim{Rand: rand.New(rand.NewPCG(seed, 7)), rules: rules, vips: vips(vipCount), delay: 300 * time.Millisecond, boxes: make([]*simBox, 0, boxes)}
	for i := range boxes {
		s.cut = append(s.cut, make([]bool, boxes))
		b := &simBox{id: i, name: fmt.Sprint("box", i+1), power: true}
		for _, f := range []*[]bool{&b.serves, &b.drains, &b.claims, &b.announces} {
			*f = make([]bool, vipCount)
		}
		for v := range b.serves {
			b.serves[v] = true
		}
		b.turnedOn, b.turnedOff = make([]int, vipCount), make([]int, vipCount)
		b.verdicts = make([]Decision, vipCount)
		s.boxes = append(s.boxes, b)
		s.start(b)
	}
	return s
}

func (s *sim) note(format string, args ...any) {
	s.log = append(s.log, fmt.Sprintf("%7.1fs ", s.now.Seconds())+fmt.Sprintf(format, args...))
}

func (b *simBox) String() string { return b.name }

func (b *simBox) runs(now time.Duration) bool { return b.power && b.process && now >= b.frozen }

// start begins the process of a box. Its clock is any.
func (s *sim) start(b *simBox) {
	b.process, b.started, b.ran, b.joined = true, s.now, 0, false
	b.clock = time.Duration(s.IntN(1e6)) * time.Millisecond
	b.ready = s.now + 300*time.Millisecond + time.Duration(s.IntN(1500))*time.Millisecond
	b.self = Self{PreemptDelay: preemptDelay}
	if b.traceOK {
		b.self.StableUntil = b.clock + keptFor - (s.now - b.traceAt)
		b.self.CountedUntil = b.clock + restartGrace - (s.now - b.traceAt)
	} else {
		clear(b.claims)
	}
	b.others = make([]incoming, cap(s.boxes))
	b.now = Result{}
}

// kill ends a process; the kernel goes on, and the routers keep its routes.
func (s *sim) kill(b *simBox) {
	if b.process {
		b.process, b.stopped = false, s.now
	}
}

func (s *sim) powerOff(b *simBox) {
	s.kill(b)
	b.power, b.traceOK = false, false
	clear(b.announces)
	clear(b.claims)
}

// tick lets a little time pass.
func (s *sim) tick() {
	s.now += tickEvery
	s.parcels = slices.DeleteFunc(s.parcels, func(p parcel) bool {
		if p.at > s.now {
			return false
		}
		if to := s.boxes[p.to]; to.runs(s.now) {
			to.hear(p)
		}
		return true
	})
	for _, b := range s.boxes {
		switch {
		case b.runs(s.now):
			s.live(b)
		case b.power && !b.process && s.now-b.stopped >= routesStay:
			clear(b.announces)
		}
	}
}

func (b *simBox) hear(p parcel) {
	h := &b.others[p.from]
	h.at, h.away = b.ran+1, 0
	if p.said.seq < h.seq {
		return
	}
	serves, holds, drains := h.serves, h.holds, h.drains
	h.outgoing = p.said
	if p.said.serves == nil { // it has no Word yet: the last one stands
		h.serves, h.holds, h.drains = serves, holds, drains
		if p.said.standing != Stable {
			h.standing = Absent
		}
	}
}

// live is what a daemon does all the time.
func (s *sim) live(b *simBox) {
	b.ran += tickEvery
	s.look(b)
	members, othersSettled, words := s.members(b)
	if !b.joined && (b.ran >= joinWindow || words) {
		b.joined = true
	}
	ready := s.now >= b.ready
	b.now = b.self.Advance(b.clock+s.now-b.started, Facts{
		Fit: ready && !b.broken, Draining: b.draining, Joined: b.joined, OtherStable: othersSettled,
	})
	members = append(members, Member{
		Name: b.String(), State: b.now.Effective,
		Serves: s.has(b.serves), Drains: s.has(b.drains), Owns: s.has(b.claims),
	})
	if ready && b.joined {
		for v, addr := range s.vips {
			b.decide(v, s.rules.Decide(b.String(), members, addr))
		}
	}
	if b.now.Published == Stable && b.joined {
		b.traceOK, b.traceAt, b.traceHolds = true, s.now, slices.Clone(b.claims)
	} else if b.joined {
		b.traceOK = false
	}
	s.publish(b, ready)
}

// decide records the decision of a box about a VIP.
func (b *simBox) decide(v int, verdict Decision) {
	claims := verdict.Owner == b.String()
	if claims && !b.claims[v] {
		b.turnedOn[v]++
	} else if !claims && b.claims[v] {
		b.turnedOff[v]++
	}
	b.verdicts[v], b.claims[v], b.announces[v] = verdict, claims, verdict.Role >= Standby
}

// look finds out which of those that are silent have a kernel that refuses.
func (s *sim) look(b *simBox) {
	for _, o := range s.boxes {
		h := &b.others[o.id]
		// One with a restarted process counts only when its message arrives.
		there := o.power && (!o.process || h.away > 0) && !s.cut[b.id][o.id] && !s.cut[o.id][b.id]
		if h.away = 0; there && b.ran-h.at >= awayAfter {
			h.away = h.at
		}
	}
}

// members gives the other members as a box sees them, whether one of them is Stable,
// and whether it has the messages of all that there could be.
func (s *sim) members(b *simBox) (out []Member, settled, words bool) {
	words = true
	for _, o := range s.boxes {
		h := &b.others[o.id]
		if o == b {
			continue
		}
		words = words && h.serves != nil
		if h.at == 0 {
			continue
		}
		standing := b.sees(o.id)
		settled = settled || standing == Stable
		out = append(out, Member{Name: o.String(), State: standing, Serves: s.has(h.serves), Owns: s.has(h.holds), Drains: s.has(h.drains)})
	}
	return out, settled, words
}

func (b *simBox) sees(id int) State {
	h := &b.others[id]
	sight := Alive
	switch {
	case h.at == 0:
		sight = Dead
	case h.away > 0:
		sight = ProcessDown
	case b.ran-h.at >= deadAfter:
		sight = Dead
	}
	return StateOf(h.standing, sight, b.ran-h.away, restartGrace)
}

// has makes of a list a function, as the daemon makes one of a Word.
func (s *sim) has(list []bool) func(netip.Addr) bool {
	if list == nil {
		return nil
	}
	return func(a netip.Addr) bool {
		i := slices.Index(s.vips, a)
		return i >= 0 && list[i]
	}
}

// publish sends a box's message to all others.
func (s *sim) publish(b *simBox, ready bool) {
	is := outgoing{standing: b.now.Published}
	if ready {
		is.serves, is.drains, is.holds = b.serves, b.drains, b.claims
		if !b.joined && b.traceOK {
			is.holds = b.traceHolds
		}
	}
	if old := b.says; old.standing != is.standing || (old.serves == nil) != (is.serves == nil) || !slices.Equal(old.serves, is.serves) ||
		!slices.Equal(old.holds, is.holds) || !slices.Equal(old.drains, is.drains) {
		b.says = outgoing{old.seq + 1, is.standing, slices.Clone(is.serves), slices.Clone(is.holds), slices.Clone(is.drains)}
	}
	for _, o := range s.boxes {
		if o != b && !s.cut[b.id][o.id] && s.Float64() >= s.loss {
			s.parcels = append(s.parcels, parcel{s.now + time.Duration(s.Int64N(int64(s.delay)+1)), b.id, o.id, b.says})
		}
	}
}

// part cuts the fleet in two, or in one direction only.
func (s *sim) part(side func(*simBox) bool, oneWay bool) {
	for _, a := range s.boxes {
		for _, b := range s.boxes {
			if side(a) != side(b) && (!oneWay || side(a)) {
				s.cut[a.id][b.id] = true
			}
		}
	}
}

func (s *sim) heal() {
	for i := range s.cut {
		clear(s.cut[i])
	}
}

// quiet lets time pass.
func (s *sim) quiet(d time.Duration, check func()) {
	for end := s.now + d; s.now < end; {
		s.tick()
		if check != nil {
			check()
		}
	}
}
