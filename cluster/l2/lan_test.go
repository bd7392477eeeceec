package l2

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"testing"
	"time"
)

// lan is a network of boxes in virtual time. All boxes of a segment receive what is
// sent, after delay.
type lan struct {
	t     *testing.T
	now   time.Time
	boxes map[string]*box
	sent  []sent      // all that was ever sent
	air   []sent      // on its way
	lost  func() bool // whether a frame is lost for one receiver
}

const delay = 200 * time.Microsecond

// box is an engine with one interface, or a foreign host that is no weir.
type box struct {
	name    string
	mac     MAC
	segment int
	e       *engine             // nil: a foreign host
	has     map[netip.Addr]bool // a foreign host's
	next    time.Time
}

type sent struct {
	by   *box
	at   time.Time
	data []byte
	message
}

var begin = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func newLAN(t *testing.T, names ...string) *lan {
	n := &lan{t: t, now: begin, boxes: map[string]*box{}}
	for i, name := range names {
		n.boxes[name] = &box{name: name, mac: MAC{2, 0, 0, 0, 0, byte(i + 1)}, e: newEngine()}
	}
	for _, b := range n.boxes {
		b.e.configure(Config{Interfaces: []string{"eth0"}, GARPInterval: time.Minute}, n.now)
		b.e.setLink("eth0", linkState{index: 7, mac: b.mac, carrier: true}, n.now)
		members := map[MAC]Member{}
		for _, f := range n.boxes {
			if f != b {
				members[f.mac] = Member{Name: f.name, Preferred: func(vip netip.Addr) bool { return preferred(f.name, b.name, vip) }}
			}
		}
		b.e.setMembers(members)
	}
	return n
}

// foreign host adds one that has addresses, and answers for them.
func (n *lan) foreign(mac MAC, has ...netip.Addr) *box {
	b := &box{name: "foreign host", mac: mac, has: map[netip.Addr]bool{}}
	for _, a := range has {
		b.has[a] = true
	}
	n.boxes[b.name] = b
	return b
}

func (n *lan) set(name string, c *Claim, vips ...netip.Addr) {
	changes := map[netip.Addr]*Claim{}
	for _, v := range vips {
		changes[v] = c
	}
	n.boxes[name].e.set(changes, n.now)
	n.step()
}

// send puts a frame of a box on the network.
func (n *lan) send(b *box, data []byte) {
	m, ok := parseARP(data)
	if !ok {
		m, ok = parseND(data)
	}
	if !ok {
		n.t.Fatalf("%s sends what nobody understands: %x", b.name, data)
	}
	s := sent{b, n.now, data, m}
	n.sent = append(n.sent, s)
	n.air = append(n.air, s)
}

// step has all engines do what is due, and send what they have to.
func (n *lan) step() {
	for _, name := range slices.Sorted(maps.Keys(n.boxes)) {
		b := n.boxes[name]
		if b.e == nil {
			continue
		}
		l := b.e.links["eth0"]
		l.filtered = l.bindingChanges // sockets follow at once
		b.e.tick(n.now)
		b.next = b.e.next(n.now)
		if !b.next.IsZero() && !b.next.After(n.now) {
			n.t.Fatalf("%s: tick at %v wants the next one at %v", name, n.now.Sub(begin), b.next.Sub(begin))
		}
		for _, f := range b.e.out {
			n.send(b, f.data)
		}
		b.e.out = b.e.out[:0]
	}
}

// run lets time pass.
func (n *lan) run(d time.Duration) {
	end := n.now.Add(d)
	for {
		next := end
		if len(n.air) > 0 {
			next = earlier(next, n.air[0].at.Add(delay))
		}
		for _, b := range n.boxes {
			next = earlier(next, b.next)
		}
		n.now = next
		if !next.Before(end) {
			n.step()
			return
		}
		for len(n.air) > 0 && !n.air[0].at.Add(delay).After(n.now) {
			s := n.air[0]
			n.air = n.air[1:]
			n.deliver(s)
		}
		n.step()
	}
}

func (n *lan) deliver(s sent) {
	for _, name := range slices.Sorted(maps.Keys(n.boxes)) {
		b := n.boxes[name]
		to := MAC(s.data[:6])
		switch {
		case b == s.by || b.segment != s.by.segment || to.single() && to != b.mac:
		case n.lost != nil && n.lost():
		case b.e != nil:
			b.e.receive(b.e.links["eth0"], s.message, n.now)
		case b.has[s.asked]:
			n.send(b, answer(b.mac, s.message))
		}
	}
}

func (n *lan) binding(name string, vip netip.Addr) *binding {
	return n.boxes[name].e.links["eth0"].bindings[vip]
}

// holders are the boxes that hold a VIP.
func (n *lan) holders(vip netip.Addr) (names []string) {
	for name, b := range n.boxes {
		if b.e == nil {
			continue
		}
		if s := b.e.links["eth0"].bindings[vip]; s != nil && s.state == Answered {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

func (n *lan) expect(vip netip.Addr, want ...string) {
	n.t.Helper()
	if got := n.holders(vip); !slices.Equal(got, want) {
		n.t.Fatalf("after %v: %v is answered by %v, want %v", n.now.Sub(begin), vip, got, want)
	}
}

// times are those at which a box sent something about a VIP that is so, since the
// beginning.
func (n *lan) times(name string, is func(sent) bool) (at []time.Duration) {
	for _, s := range n.sent {
		if s.by.name == name && is(s) {
			at = append(at, s.at.Sub(begin))
		}
	}
	return at
}

func isProbe(s sent) bool { return s.probes() }

func isGratuitous(s sent) bool { return s.used.IsValid() && !MAC(s.data[:6]).single() }

func vip4(i int) netip.Addr { return netip.AddrFrom4([4]byte{192, 0, byte(2 + i>>8), byte(i)}) }

func vip6(i int) netip.Addr { return netip.MustParseAddr(fmt.Sprintf("2001:db8::%x", i+1)) }

// wins gives the first VIP, of a family, that one box keeps against the other.
func preferredVIP(one, other string, of func(int) netip.Addr) netip.Addr {
	for i := 1; ; i++ {
		if preferred(one, other, of(i)) {
			return of(i)
		}
	}
}
