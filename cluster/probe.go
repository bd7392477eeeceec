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
	// maxMissed is how many pings must stay unanswered before a member is Suspect, and how many
	// connections before a box without its process counts as gone. After a stop of this process
	// itself (SIGSTOP, a paused guest) at most one looks lost, so there must be two.
	maxMissed = 2
	// connectEvery is the interval at which members that are Suspect or Dead are probed
	// by TCP, and connectTimeout the time for an answer.
	connectEvery, connectTimeout = 500 * time.Millisecond, 500 * time.Millisecond
	// connectFor is how long that goes on after the first missed ping. Later the member is only
	// joined, like any other.
	connectFor = time.Minute
	// MaxRestartGrace is the maximum of fleet.restart_grace. For so long members are probed that
	// have answered without their process.
	MaxRestartGrace = 10 * time.Minute
	// maxProbes bounds the probes at a time.
	maxProbes = 64
)

// prober pings every member and finds out whether the process of a silent one is down.
// memberlist pings one member after the other, reports no doubt, and decides late: that is
// enough to name the next owner, and too late to prepare it.
type prober struct {
	*Fleet
	list  *memberlist.Memberlist
	every time.Duration
}

// probe is a probe of one member.
type probe struct {
	name string
	node *memberlist.Node
	ping bool
}

// run probes until ctx ends, each member at most once at a time.
func (p prober) run(ctx context.Context) {
	var probes sync.WaitGroup
	defer probes.Wait()
	room := make(chan struct{}, maxProbes)
	tick := time.NewTicker(min(p.every, connectEvery))
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-tick.C:
			for _, one := range p.due(now) {
				select {
				case <-ctx.Done():
					return
				case room <- struct{}{}:
				}
				probes.Go(func() {
					defer p.caught()
					defer func() { <-room }()
					p.probe(ctx, one)
				})
			}
		}
	}
}

// due returns the probes that are due.
func (p prober) due(now time.Time) []probe {
	p.mu.Lock()
	defer p.mu.Unlock()
	var out []probe
	for _, m := range p.table.members {
		if m.Name == p.cfg.Name || m.probing || m.Life == Left {
			continue
		}
		doubtful, limit := m.doubtful(), connectFor
		if m.ProcessDownSince.Equal(m.missedSince) { // it has answered since, perhaps not the last time
			limit = MaxRestartGrace
		}
		if doubtful && now.Sub(m.missedSince) > limit {
			if m.ProcessDown {
				m.ProcessDown = false
				signal(p.changed)
			}
			doubtful = false
		}
		wait := p.every
		if doubtful {
			wait = connectEvery
		}
		// The tick may come a little early.
		if m.Life == Dead && !doubtful || now.Sub(m.probed) < wait*9/10 {
			continue
		}
		m.probing, m.probed = true, now
		out = append(out, probe{m.Name, m.node(), m.Life == Alive})
	}
	return out
}

// probe pings a member that is alive, and connects to one that does not answer.
func (p prober) probe(ctx context.Context, one probe) {
	if one.ping {
		to := &net.UDPAddr{IP: one.node.Addr, Port: int(one.node.Port)}
		if _, err := p.list.Ping(one.name, to); err == nil {
			p.answered(one.name, time.Now())
		} else {
			p.unanswered(one.name, time.Now())
		}
	}
	p.mu.Lock()
	doubtful, fleet, result := p.table.doubtful(one.name), p.cfg.Fleet, error(nil)
	p.mu.Unlock()
	if doubtful {
		connecting, cancel := context.WithTimeout(ctx, connectTimeout)
		result = p.hooks.connect(connecting, one.node.Address(), fleet)
		cancel()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	m := p.table.members[one.name]
	if m == nil {
		return
	}
	m.probing = false
	if doubtful && ctx.Err() == nil && m.Addr == addrPort(one.node) && m.doubtful() && m.connected(result) {
		signal(p.changed)
	}
}

// connected records the result of a connection to a silent member. It reports whether
// ProcessDown has changed. A connection that succeeds changes nothing: a process that is
// back announces itself. A single one without an answer changes nothing either: a busy box,
// or this one, may be late.
func (m *entry) connected(err error) (changed bool) {
	down := m.ProcessDown
	switch {
	case err == nil:
		m.unreached = 0
	case errors.Is(err, syscall.ECONNREFUSED):
		m.unreached, down = 0, true
	default:
		m.unreached++
		down = down && m.unreached < maxMissed
	}
	if down == m.ProcessDown {
		return false
	}
	if m.ProcessDown = down; down {
		m.ProcessDownSince = m.missedSince
	}
	return true
}

// connect connects to a member and closes the connection. It sends the label of the fleet
// first, or else the member would count a refused message.
func connect(ctx context.Context, address, fleet string) error {
	var d net.Dialer
	c, err := d.DialContext(ctx, "tcp", address)
	if err != nil {
		return err
	}
	return errors.Join(memberlist.AddLabelHeaderToStream(c, fleet), c.Close())
}

// unanswered records a ping without an answer.
func (f *Fleet) unanswered(name string, now time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.table.unanswered(name, now) {
		signal(f.changed)
	}
}

// answered records an answer of a member.
func (f *Fleet) answered(name string, now time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.table.answered(name, now) {
		signal(f.changed)
	}
}
