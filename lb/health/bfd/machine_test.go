package bfd

import (
	"strings"
	"testing"
	"time"
)

var start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func config() Config {
	return Config{MinTx: 100 * time.Millisecond, IdleTx: time.Second, MinRx: 100 * time.Millisecond, Multiplier: 3}
}

// upMachine returns a machine that is up with a peer.
func upMachine(t *testing.T) *machine {
	t.Helper()
	m := newMachine(config())
	m.receive(peerPacket(m, Init), start)
	if m.state != Up {
		t.Fatalf("after Init the session is %s", m.state)
	}
	return m
}

func peerPacket(m *machine, s State) Packet {
	return Packet{State: s, Multiplier: 3, Mine: 7, Yours: m.mine, DesiredMinTx: 200 * time.Millisecond, RequiredMinRx: 50 * time.Millisecond}
}

// TestStates has the table of RFC 5880, 6.8.6.
func TestStates(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ own, peer, want State }{
		{Down, AdminDown, Down}, {Down, Down, Init}, {Down, Init, Up}, {Down, Up, Down},
		{Init, AdminDown, Down}, {Init, Down, Init}, {Init, Init, Up}, {Init, Up, Up},
		{Up, AdminDown, Down}, {Up, Down, Down}, {Up, Init, Up}, {Up, Up, Up},
	} {
		m := newMachine(config())
		m.state = c.own
		send, _ := m.receive(peerPacket(m, c.peer), start)
		if m.state != c.want || send != (c.own != c.want) {
			t.Errorf("%s, and the peer is %s: got %s, sent %t; want %s", c.own, c.peer, m.state, send, c.want)
		}
	}
}

func TestDetectionTime(t *testing.T) {
	t.Parallel()
	m := upMachine(t)
	if m.expire(start.Add(599 * time.Millisecond)) {
		t.Error("expired before three intervals of the peer")
	}
	if !m.expire(start.Add(600*time.Millisecond)) || m.state != Down || m.diag != Expired {
		t.Errorf("after three intervals: %s, %s", m.state, m.diag)
	}
	if want := "no packet within 600ms (3 x 200ms)"; m.reason != want {
		t.Errorf("got reason %q, want %q", m.reason, want)
	}
	if p := m.packet(false); p.Yours != 0 || p.Diagnostic != Expired || p.DesiredMinTx != time.Second {
		t.Errorf("the peer's discriminator must be forgotten (RFC 5880, 6.8.1): %+v", p)
	}
}

// TestLateDetection has a box that did not get to run: its queue has the packets of the peer.
func TestLateDetection(t *testing.T) {
	t.Parallel()
	m := upMachine(t)
	late := start.Add(time.Second)
	if m.expire(late) || m.state != Up || !m.expires.Equal(late.Add(200*time.Millisecond)) {
		t.Errorf("400ms late: %s until %s", m.state, m.expires)
	}
	if !m.expire(m.expires) {
		t.Error("one more interval without a packet is not enough")
	}
}

func TestIntervalChangesByPoll(t *testing.T) {
	t.Parallel()
	m := newMachine(config())
	if got := m.wait(1); got != time.Second {
		t.Errorf("down: the interval is %s, want IdleTx", got)
	}
	m = upMachine(t)
	if p := m.packet(false); !p.Poll || p.DesiredMinTx != 100*time.Millisecond || m.wait(1) != 100*time.Millisecond || m.wait(0) != 75*time.Millisecond {
		t.Errorf("up: %+v every %s to %s", p, m.wait(0), m.wait(1))
	}
	answer := peerPacket(m, Up)
	answer.Final = true
	if m.receive(answer, start); m.packet(false).Poll {
		t.Error("polls after the answer")
	}
	slow := peerPacket(m, Up)
	slow.RequiredMinRx = 300 * time.Millisecond
	if m.receive(slow, start); m.wait(1) != 300*time.Millisecond {
		t.Errorf("the peer receives every 300ms, and gets a packet every %s", m.wait(1))
	}
}

// TestLongerIntervalWaitsForThePeer has packets that are rarer when the session is up.
func TestLongerIntervalWaitsForThePeer(t *testing.T) {
	t.Parallel()
	c := config()
	c.MinTx = time.Minute
	m := newMachine(c)
	m.receive(peerPacket(m, Init), start)
	if p := m.packet(false); !p.Poll || p.DesiredMinTx != time.Minute || m.wait(1) != time.Second {
		t.Errorf("before the answer: %+v every %s", p, m.wait(1))
	}
	answer := peerPacket(m, Up)
	answer.Final = true
	if m.receive(answer, start); m.wait(1) != time.Minute {
		t.Errorf("after the answer: every %s", m.wait(1))
	}
}

func TestPollIsAnswered(t *testing.T) {
	t.Parallel()
	m := upMachine(t)
	p := peerPacket(m, Up)
	p.Poll = true
	if send, final := m.receive(p, start); send || !final {
		t.Errorf("a poll: send %t, final %t", send, final)
	}
	if p := m.packet(true); !p.Final || p.Poll {
		t.Errorf("the answer has both flags or none: %+v", p)
	}
}

func TestForeignSessionIsIgnored(t *testing.T) {
	t.Parallel()
	m := upMachine(t)
	p := peerPacket(m, Down)
	p.Yours = m.mine + 1
	if m.receive(p, start.Add(time.Second)); m.state != Up || !m.expires.Equal(start.Add(600*time.Millisecond)) {
		t.Error("a packet of another session changed this one")
	}
}

func TestSending(t *testing.T) {
	t.Parallel()
	passive := newMachine(Config{MinTx: 1, IdleTx: 1, MinRx: 1, Multiplier: 3, Passive: true})
	if passive.sends() {
		t.Error("a passive session sends first")
	}
	if passive.receive(peerPacket(passive, Down), start); !passive.sends() {
		t.Error("a passive session does not answer")
	}
	m := upMachine(t)
	p := peerPacket(m, Up)
	p.Demand, p.Final = true, true
	if m.receive(p, start); m.sends() {
		t.Error("sends periodically to a peer in demand mode")
	}
	p = peerPacket(m, Up)
	p.RequiredMinRx = 0
	if m.receive(p, start); m.sends() {
		t.Error("sends to a peer that wants no packets")
	}
}

func TestReasonOfThePeer(t *testing.T) {
	t.Parallel()
	m := upMachine(t)
	p := peerPacket(m, Down)
	p.Diagnostic = Expired
	if m.receive(p, start); !strings.Contains(m.reason, "control detection time expired") {
		t.Errorf("got reason %q", m.reason)
	}
	m = upMachine(t)
	if m.receive(peerPacket(m, AdminDown), start); !strings.Contains(m.reason, "AdminDown") {
		t.Errorf("got reason %q", m.reason)
	}
}
