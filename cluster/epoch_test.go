package cluster

import (
	"encoding/json"
	"net"
	"slices"
	"testing"
	"time"

	"github.com/hashicorp/memberlist"
)

// day is the unit of the jumps of clocks.
const day = 24 * time.Hour

func TestEpochsGrow(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 24, 6, 0, 0, 0, time.UTC)
	at := uint64(now.UnixMilli())
	for _, c := range []struct {
		name string
		last uint64
		now  time.Time
		want uint64
	}{
		{"the first start", 0, now, at},
		{"a later start", at - 1000, now, at},
		{"a start after the clock was set back", at, now.Add(-400 * day), at + 1},
		{"a start after the clock was ahead", at + uint64((400 * day).Milliseconds()), now, at + uint64((400 * day).Milliseconds()) + 1},
		{"a clock before 1970", 0, time.Unix(-1000, 0), 1},
		{"the last epoch", maxEpoch, now, maxEpoch},
	} {
		if got := epochAfter(c.last, c.now); got != c.want {
			t.Errorf("%s: %d, want %d", c.name, got, c.want)
		}
	}
}

// admits returns the error of a state of a member.
func (b *box) admits(t *testing.T, name string, port uint16, s State) error {
	t.Helper()
	meta, err := s.encode()
	must(t, err)
	n := &memberlist.Node{Name: name, Addr: net.IPv4(192, 0, 2, 2), Port: port, Meta: meta}
	if err := newDelegate(b.Fleet).NotifyAlive(n); err != nil {
		return err
	}
	if b.table.members[name] == nil || b.table.members[name].Life != Alive {
		newDelegate(b.Fleet).NotifyJoin(n)
	} else if b.table.members[name].Addr == addrPort(n) {
		newDelegate(b.Fleet).NotifyUpdate(n)
	}
	return nil
}

func TestOlderStatesAreRefused(t *testing.T) {
	t.Parallel()
	stamp := func(epoch, sequence uint64) State { return State{Stamp: Stamp{epoch, sequence}, Weight: 1} }
	dies := func(b *box) { b.table.remove("b", time.Now()) }
	restarts := func(b *box) { // this box
		content, err := json.Marshal(b.Memory())
		must(t, err)
		var last Memory
		must(t, json.Unmarshal(content, &last))
		b.table, b.epochs = newTable(), newEpochs()
		b.Restore(last, time.Now())
	}
	for _, c := range []struct {
		name   string
		before func(b *box)
		state  State
		port   uint16
		want   bool
	}{
		{"a newer state", nil, stamp(5, 8), 1, true},
		{"a newer epoch", nil, stamp(6, 1), 1, true},
		{"a late state of this epoch, which memberlist orders", nil, stamp(5, 6), 1, true},
		{"an older epoch", nil, stamp(4, 9), 1, false},
		{"an older epoch after the death", dies, stamp(4, 9), 1, false},
		{"an older state after the death", dies, stamp(5, 6), 1, false},
		{"the same state after the death", dies, stamp(5, 7), 1, true},
		{"an older epoch after a restart of this box", restarts, stamp(4, 9), 1, false},
		{"an older state after a restart of this box", restarts, stamp(5, 6), 1, false},
		{"the same state after a restart of this box", restarts, stamp(5, 7), 1, true},
		{"an older epoch from another address, a name conflict", nil, stamp(4, 9), 2, true},
		{"an older epoch from another address after the death", dies, stamp(4, 9), 2, false},
		{"no epoch", nil, stamp(0, 0), 1, false},
		{"no epoch after an answer of the older version", func(b *box) { newDelegate(b.Fleet).pinged("b", nil) }, stamp(0, 0), 1, true},
		{"no epoch after an answer of this version", func(b *box) { newDelegate(b.Fleet).pinged("b", []byte(epochMark)) }, stamp(0, 0), 1, false},
		{"no epoch after the death", dies, stamp(0, 0), 1, true},
	} {
		b := made(t, config(t, "a"))
		must(t, b.admits(t, "b", 1, stamp(5, 7)))
		if c.before != nil {
			c.before(b)
		}
		err := b.admits(t, "b", c.port, c.state)
		if (err == nil) != c.want {
			t.Errorf("%s: %v", c.name, err)
		}
		if n := b.Status().Counters.Replayed; (n == 0) != c.want {
			t.Errorf("%s: counted %d times", c.name, n)
		}
	}
}

// A member publishes several times a second, so a message may be newer than the known state.
func TestOlderMessagesAreRefused(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		s    Stamp
		want bool
	}{
		{"newer", Stamp{5, 8}, true}, {"of a newer epoch", Stamp{6, 0}, true}, {"older", Stamp{5, 6}, false},
		{"of an older epoch", Stamp{4, 9}, false}, {"without a stamp", Stamp{}, false},
	} {
		b := made(t, config(t, "a"))
		must(t, b.admits(t, "b", 1, State{Stamp: Stamp{5, 7}, Message: text("known").Digest()}))
		b.table.members["b"].requestedAs = text("known").Digest()
		wire := text("other").Wire()
		packet := encodePacket(packetStamped, "b", encodeStamp(c.s, wire))
		if c.s == (Stamp{}) {
			packet = encodePacket(packetMessage, "b", wire)
		}
		newDelegate(b.Fleet).NotifyMsg(packet)
		m, _ := b.sees("b")
		if got := !m.Message.empty(); got != c.want || (b.Status().Counters.Replayed == 0) != c.want {
			t.Errorf("%s: accepted: %v, %+v", c.name, got, b.Status().Counters)
		}
	}
}

// replay delivers recorded datagrams to a member, as from their sender.
func (n *air) replay(from, to *box, packets [][]byte) {
	for _, b := range packets {
		to.wire.packets <- &memberlist.Packet{Buf: slices.Clone(b), From: net.UDPAddrFromAddrPort(from.wire.addr), Timestamp: time.Now()}
	}
}

// version reports whether a box sees the state with a version.
func (b *box) version(name, version string) bool {
	m, _ := b.sees(name)
	return m.Life == Alive && m.State.Version == version
}

// A host records all datagrams of a member, and repeats them when both that member and the
// receiver have been restarted: the member does not run yet and cannot object.
func TestRecordedStatesAreRefusedAfterARestart(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		known bool // whether the receiver has its Memory
	}{{"with the memory of the last start", true}, {"without it, as a check of the recording", false}} {
		inAir(t, func(t *testing.T, n *air) {
			a := n.run(n.config("a"))
			b := n.made(n.config("b", a))
			recorded := b.wire.record(a.cfg.Bind)
			b.start()
			for _, version := range []string{"0", "1", "recorded"} {
				must(t, b.Publish(State{Version: version}, Message{}))
				within(t, "the state arrives", func() bool { return a.version("b", version) })
			}
			packets := recorded()
			b.stop()
			a.wants("b", Dead)
			b = n.run(b.cfg)
			must(t, b.Publish(State{Version: "now"}, Message{}))
			within(t, "the new state arrives", func() bool { return a.version("b", "now") })
			b.stop()
			a.stop()
			last := a.Memory()
			a = n.made(a.cfg)
			if c.known {
				a.Restore(last, time.Now())
			}
			a.start()
			within(t, "a runs", func() bool { return n.at(a.cfg.Bind.String()) != nil })
			n.replay(b, a, packets)
			if c.known {
				within(t, "the recorded states are counted", func() bool { return a.Status().Counters.Replayed > 0 })
			} else {
				within(t, "a recorded state is believed", func() bool { _, known := a.sees("b"); return known })
			}
			if m, known := a.sees("b"); known == c.known {
				t.Errorf("%s: %+v", c.name, m)
			}
		})
	}
}

// The clock of a member was set back and its state folder was lost: its epoch is older than
// the known one, until another member sends that.
func TestALostEpochIsReplaced(t *testing.T) {
	t.Parallel()
	for _, wait := range []time.Duration{0, time.Minute} {
		inAir(t, func(t *testing.T, n *air) {
			a := n.run(n.config("a"))
			b := n.run(n.config("b", a))
			must(t, b.Publish(State{Version: "before"}, Message{}))
			within(t, "the state arrives", func() bool { return a.version("b", "before") })
			b.stop()
			time.Sleep(wait) // long enough to die
			b = n.made(b.cfg)
			b.own.state.Epoch = 7
			b.start()
			must(t, b.Publish(State{Version: "after"}, Message{}))
			within(t, "the state arrives", func() bool { return a.version("b", "after") })
			if got, want := b.Memory().Epoch, a.Memory().Known["b"].Epoch; got != want || got <= 7 {
				t.Errorf("epoch %d, known %d", got, want)
			}
		})
	}
}

// older is a delegate of a version without epochs.
type older struct{ delegate }

func (d older) NotifyMsg(b []byte) {
	if b[0] != packetEpoch {
		d.delegate.NotifyMsg(b)
	}
}

func TestAnOlderVersionCanComeBack(t *testing.T) {
	t.Parallel()
	for _, wait := range []time.Duration{0, time.Minute} {
		inAir(t, func(t *testing.T, n *air) {
			a := n.run(n.config("a"))
			b := n.run(n.config("b", a))
			must(t, b.Publish(State{Version: "2"}, text("two")))
			within(t, "the state arrives", func() bool { return a.version("b", "2") })
			b.stop()
			time.Sleep(wait)
			b = n.made(b.cfg)
			b.own.state.Stamp = Stamp{}
			transport := b.hooks.configure
			b.hooks.configure = func(c *memberlist.Config) error {
				c.Delegate, c.Ping = older{newDelegate(b.Fleet)}, nil
				return transport(c)
			}
			b.start()
			must(t, b.Publish(State{Version: "1"}, text("one")))
			within(t, "the state and the message arrive", func() bool {
				m, _ := a.sees("b")
				return a.version("b", "1") && string(m.Message.Head) == "one"
			})
		})
	}
}

func TestStampsOfPackets(t *testing.T) {
	t.Parallel()
	for _, s := range []Stamp{{}, {1, 2}, {maxEpoch, 1<<64 - 1}} {
		got, text, ok := parseStamp(encodeStamp(s, []byte("text")))
		if !ok || got != s || string(text) != "text" {
			t.Errorf("%+v, %q, %v, want %+v", got, text, ok, s)
		}
	}
	for _, b := range []string{"", "\x80", "\x01", "\x01\xff"} {
		if _, _, ok := parseStamp([]byte(b)); ok {
			t.Errorf("%q is a stamp", b)
		}
	}
}
