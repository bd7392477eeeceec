package cluster

import (
	"context"
	"errors"
	"net"
	"sync"
	"syscall"
	"time"

	"github.com/hashicorp/memberlist"
)

const (
	// missesMost is how many pings of this box a member may leave without an answer
	// before it is Suspect. After a stop of this process itself (SIGSTOP, a guest that
	// is not run) one ping at most looks lost, so there have to be two.
	missesMost = 2
	// knockEvery is how often a member that is Suspect or Dead is looked at, and
	// knockTimeout how long it has for an answer.
	knockEvery, knockTimeout = 500 * time.Millisecond, 500 * time.Millisecond
	// knockFor is for how long that is done from when it was first missed. Later on it
	// is asked to join like anybody else.
	knockFor = time.Minute
	// looksMost is at how many members this box looks at a time.
	looksMost = 64
)

// look is what a box does about one member now.
type look struct {
	name string
	node *memberlist.Node
	ping bool
}

// watch looks at every member until ctx ends, each at most once at a time. memberlist
// does it as well, but at one member after the other, tells nobody of a member that it
// begins to doubt, and decides only after a while: enough to name an heir, and too late
// to get it ready.
func (f *Fleet) watch(ctx context.Context, list *memberlist.Memberlist, every time.Duration) {
	var looks sync.WaitGroup
	defer looks.Wait()
	room := make(chan struct{}, looksMost)
	tick := time.NewTicker(min(every, knockEvery))
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-tick.C:
			for _, l := range f.toLookAt(now, every) {
				select {
				case <-ctx.Done():
					return
				case room <- struct{}{}:
				}
				looks.Go(func() {
					defer func() { <-room }()
					f.lookAt(ctx, list, l)
				})
			}
		}
	}
}

// toLookAt gives the members whose turn it is.
func (f *Fleet) toLookAt(now time.Time, every time.Duration) []look {
	f.mu.Lock()
	defer f.mu.Unlock()
	var out []look
	for _, m := range f.members {
		if m.Name == f.cfg.Name || m.looking || m.Life == Left {
			continue
		}
		doubted := m.Suspect || m.Life == Dead
		if doubted && now.Sub(m.missed) > knockFor {
			if m.Away {
				m.Away = false
				signal(f.changed)
			}
			doubted = false
		}
		wait := every
		if doubted {
			wait = knockEvery
		}
		// A tick that comes a little early is meant.
		if m.Life == Dead && !doubted || now.Sub(m.looked) < wait*9/10 {
			continue
		}
		m.looking, m.looked = true, now
		out = append(out, look{m.Name, m.node(), m.Life == Alive})
	}
	return out
}

// lookAt pings a member that is alive, and knocks at the door of one that does not
// answer.
func (f *Fleet) lookAt(ctx context.Context, list *memberlist.Memberlist, l look) {
	if l.ping {
		to := &net.UDPAddr{IP: l.node.Addr, Port: int(l.node.Port)}
		if _, err := list.Ping(l.name, to); err == nil {
			f.answered(l.name)
		} else {
			f.unanswered(l.name, time.Now())
		}
	}
	doubted, door := f.doubts(l.name), error(nil)
	if doubted {
		knocking, cancel := context.WithTimeout(ctx, knockTimeout)
		door = f.knock(knocking, l.node.Address(), f.fleet())
		cancel()
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	m := f.members[l.name]
	if m == nil {
		return
	}
	m.looking = false
	if doubted && ctx.Err() == nil && m.Addr == addrPort(l.node) && (m.Suspect || m.Life == Dead) {
		f.doorOf(m, door)
	}
}

// doorOf takes down what knocking at a member's door has come to. mu is held.
func (f *Fleet) doorOf(m *Member, err error) {
	away := m.Away // if it opens: the weir is there again, and will say so itself
	if err != nil {
		away = errors.Is(err, syscall.ECONNREFUSED)
	}
	if away == m.Away {
		return
	}
	if m.Away = away; away {
		m.AwaySince = m.missed
	}
	signal(f.changed)
}

// knock tries to connect to a member; a connection is closed at once. It says whose
// it is before, for else the other one counts it as a stranger's.
func knock(ctx context.Context, address, fleet string) error {
	var d net.Dialer
	c, err := d.DialContext(ctx, "tcp", address)
	if err != nil {
		return err
	}
	return errors.Join(memberlist.AddLabelHeaderToStream(c, fleet), c.Close())
}

func (f *Fleet) fleet() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.cfg.Fleet
}

// doubts tells whether it has to be found out if a member's weir is there.
func (f *Fleet) doubts(name string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	m := f.members[name]
	return m != nil && (m.Suspect || m.Life == Dead)
}

// unanswered takes down that a ping got no answer in time.
func (f *Fleet) unanswered(name string, now time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	m := f.members[name]
	if m == nil || m.Life != Alive {
		return
	}
	if m.misses++; m.misses == 1 {
		m.missed = now
	}
	if m.misses < missesMost || m.Suspect {
		return
	}
	m.Suspect = true
	f.counts.Suspicions++
	signal(f.changed)
}

// answered takes down that a member has answered.
func (f *Fleet) answered(name string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	m := f.members[name]
	if m == nil || m.Life != Alive {
		return
	}
	m.misses = 0
	if m.Suspect || m.Away {
		m.Suspect, m.Away = false, false
		signal(f.changed)
	}
}

// AckPayload implements memberlist.PingDelegate.
func (f *Fleet) AckPayload() []byte { return nil }

// NotifyPingComplete implements memberlist.PingDelegate: memberlist's own pings are as
// good as ours.
func (f *Fleet) NotifyPingComplete(n *memberlist.Node, _ time.Duration, _ []byte) {
	f.answered(n.Name)
}
