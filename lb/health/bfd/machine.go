package bfd

import (
	"fmt"
	"math/rand/v2"
	"time"
)

// Config are the parameters of a session. All intervals are positive.
type Config struct {
	// MinTx is the interval of packets while the session is up, IdleTx while it is not: 1s or more
	// (RFC 5880, 6.8.3). MinRx is the shortest interval that this side can receive.
	MinTx, IdleTx, MinRx time.Duration
	// Multiplier is the number of lost packets after which the peer considers this side dead.
	Multiplier uint8
	// Passive waits for the first packet of the peer.
	Passive bool
}

// machine is the state of a session (RFC 5880, 6.8.1). Its methods are the events.
type machine struct {
	Config
	state  State
	diag   Diagnostic
	mine   uint32
	poll   bool // a poll sequence is under way
	remote struct {
		state      State
		discr      uint32 // 0 is unknown
		minTx      time.Duration
		minRx      time.Duration
		multiplier uint8
		demand     bool
		diag       Diagnostic
	}
	expires time.Time // of the detection time; zero without a packet
	reason  string    // why the session went down
}

func newMachine(c Config) *machine {
	m := &machine{Config: c, state: Down, mine: rand.Uint32() | 1}
	m.remote.state = Down
	m.remote.minRx = time.Microsecond
	return m
}

// receive applies a packet (RFC 5880, 6.8.6). It reports whether a packet must be sent at once,
// and whether it is the answer to a poll.
func (m *machine) receive(p Packet, now time.Time) (send, final bool) {
	if p.Yours != 0 && p.Yours != m.mine {
		return false, false
	}
	r := &m.remote
	r.state, r.discr, r.demand, r.diag = p.State, p.Mine, p.Demand, p.Diagnostic
	r.minTx, r.minRx, r.multiplier = p.DesiredMinTx, p.RequiredMinRx, p.Multiplier
	if p.Final {
		m.poll = false
	}
	m.expires = now.Add(m.detection())
	return m.step(), p.Poll
}

// step changes the state after a packet, and reports whether it has changed.
func (m *machine) step() bool {
	was := m.state
	switch remote := m.remote.state; {
	case remote == AdminDown && was != Down:
		m.fall(NeighborDown, "the peer has ended the session (AdminDown)")
	case remote == AdminDown:
		m.reason = "the peer has ended the session (AdminDown)"
	case was == Down && remote == Down:
		m.state = Init
	case was == Down && remote == Init, was == Init && remote >= Init:
		m.state, m.diag = Up, NoDiagnostic
		m.poll = true // the interval changes from IdleTx to MinTx
	case was == Up && remote == Down:
		m.fall(NeighborDown, fmt.Sprintf("the peer reports that the session is down (%s)", m.remote.diag))
	}
	return m.state != was
}

func (m *machine) fall(d Diagnostic, reason string) {
	m.state, m.diag, m.reason, m.poll = Down, d, reason, false
}

// expire ends the session if the detection time is over (RFC 5880, 6.8.4). It reports whether it
// is. A call that comes late means that this box did not get to run, and the packets of the peer
// wait: then they have one more interval.
func (m *machine) expire(now time.Time) bool {
	switch {
	case !m.overdue(now):
		return false
	case now.Sub(m.expires) > m.receiveInterval():
		m.expires = now.Add(m.receiveInterval())
		return false
	}
	m.lapse()
	return true
}

// overdue reports whether the detection time is over.
func (m *machine) overdue(now time.Time) bool { return !m.expires.IsZero() && !now.Before(m.expires) }

// lapse ends the session after the detection time.
func (m *machine) lapse() {
	if m.state == Up {
		m.fall(Expired, fmt.Sprintf("no packet within %s (%d x %s)", m.detection(), m.remote.multiplier, m.receiveInterval()))
	} else if m.state == Init {
		m.fall(Expired, "the peer does not complete the handshake")
	}
	m.expires, m.remote.discr, m.remote.minRx = time.Time{}, 0, time.Microsecond
}

// detection is the time without a packet after which the session is down.
func (m *machine) detection() time.Duration {
	return time.Duration(m.remote.multiplier) * m.receiveInterval()
}

func (m *machine) receiveInterval() time.Duration { return max(m.MinRx, m.remote.minTx) }

// desired is the interval that this side announces and sends with.
func (m *machine) desired() time.Duration {
	if m.state == Up {
		return m.MinTx
	}
	return m.IdleTx
}

// sends reports whether packets are sent periodically (RFC 5880, 6.8.7).
func (m *machine) sends() bool {
	switch {
	case m.remote.discr == 0 && m.Passive, m.remote.minRx == 0:
		return false
	case m.remote.demand && m.state == Up && m.remote.state == Up:
		return m.poll
	}
	return true
}

// wait returns the time to the next packet: shorter than the interval by a random part, so that
// systems do not send in step.
func (m *machine) wait(random float64) time.Duration {
	interval := m.desired()
	if m.poll { // a longer one only when the peer knows it (RFC 5880, 6.8.3)
		interval = min(interval, m.IdleTx)
	}
	interval = max(interval, m.remote.minRx)
	least, most := 0.75, 1.0
	if m.Multiplier == 1 {
		most = 0.9
	}
	return time.Duration(float64(interval) * (least + (most-least)*random))
}

// packet returns the packet to send now.
func (m *machine) packet(final bool) Packet {
	return Packet{
		Diagnostic: m.diag, State: m.state, Poll: m.poll && !final, Final: final, Multiplier: m.Multiplier,
		Mine: m.mine, Yours: m.remote.discr, DesiredMinTx: m.desired(), RequiredMinRx: m.MinRx,
	}
}
