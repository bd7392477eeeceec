package cluster

import (
	"errors"
	"maps"
	"time"

	"github.com/hashicorp/memberlist"
)

// Memory is the part of a Fleet that its next start needs: with it, a recorded state is
// refused before the member itself has answered.
type Memory struct {
	// Epoch is that of this member.
	Epoch uint64 `json:"epoch"`
	// Known are the stamps of the last states of all other members.
	Known map[string]Stamp `json:"known,omitempty"`
}

// Restore takes the Memory of the last start. It must be called before Run; otherwise the
// epoch is that of the clock, and no other member is known.
func (f *Fleet) Restore(last Memory, now time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.own.state.Epoch = epochAfter(last.Epoch, now)
	for name, s := range last.Known {
		if nameForm.MatchString(name) {
			f.epochs.learn(name, s)
		}
	}
}

// Memory returns what the next start needs.
func (f *Fleet) Memory() Memory {
	f.mu.Lock()
	defer f.mu.Unlock()
	return Memory{f.own.state.Epoch, maps.Clone(f.epochs.known)}
}

// epochs are the stamps of the last states of other members. They stay when a member dies
// and when this box joins again. Fleet.mu guards them.
type epochs struct {
	known       map[string]Stamp
	corrections map[string]correction
}

// correction is the stamp of a member's last known state, for a member that publishes an
// older one. It is sent once in requestEvery.
type correction struct {
	to   *memberlist.Node
	sent time.Time // zero: it is not sent yet
}

func newEpochs() epochs {
	return epochs{known: map[string]Stamp{}, corrections: map[string]correction{}}
}

// learn records the stamp of a state that was accepted. A member of a version without
// epochs is forgotten.
func (e *epochs) learn(name string, s Stamp) {
	last, known := e.known[name]
	switch {
	case s.Epoch == 0:
		delete(e.known, name)
	case known && !last.before(s), s.Epoch > maxEpoch, !known && len(e.known) >= maxMembers:
	default:
		e.known[name] = s
	}
}

// expire forgets members that are not in the table, if there are too many: a host with a
// key can announce any number of names.
func (e *epochs) expire(t *table) {
	if len(e.known) >= maxMembers {
		maps.DeleteFunc(e.known, func(name string, _ Stamp) bool { return t.members[name] == nil })
	}
}

// errReplayed is the reason for which a state is refused.
var errReplayed = errors.New("its state is older than the known one: it was recorded, or is late")

// admit returns an error if a state of a member is older than one that was known, also
// before the last start of this box. memberlist orders the states of one epoch while it
// knows the member.
//
// A version without epochs is admitted, unless the member runs: a downgrade must not take
// it out of the fleet. If it runs, its answers to pings show the version (pinged).
func (d delegate) admit(n *memberlist.Node, now time.Time) error {
	s, err := decodeStamp(n.Meta)
	if err != nil {
		return nil //nolint:nilerr // the whole state is unreadable, which is reported
	}
	m := d.table.members[n.Name]
	alive := m != nil && m.Life == Alive
	if alive && m.Addr != addrPort(n) {
		return nil // of a second box with the name, which memberlist refuses
	}
	if n.Name == d.cfg.Name {
		if alive {
			d.outdo(s)
		}
		return nil
	}
	last := d.epochs.known[n.Name]
	if s.Epoch >= last.Epoch && (alive || !s.before(last)) || s.Epoch == 0 && !alive {
		return nil
	}
	d.table.counts.Replayed++
	if c := d.epochs.corrections; now.Sub(c[n.Name].sent) >= requestEvery {
		c[n.Name] = correction{to: &memberlist.Node{Name: n.Name, Addr: n.Addr, Port: n.Port}}
		signal(d.wake)
	}
	return errReplayed
}

// outdo takes a later epoch if another member knows a newer state of this box than the own
// one: the clock was set back, and the Memory was lost.
func (d delegate) outdo(s Stamp) {
	if !d.own.state.Stamp.before(s) || s.Epoch >= maxEpoch {
		return
	}
	d.own.state.Epoch = s.Epoch + 1
	signal(d.wake)
	signal(d.changed)
}

// correct sends the corrections that are due. One that is lost is sent again, since the
// member goes on publishing the old state.
func (f *Fleet) correct(list *memberlist.Memberlist, now time.Time) {
	var out []outgoing
	var self string
	f.locked(func() { self, out = f.cfg.Name, f.epochs.due(now) })
	for _, x := range out {
		if err := list.SendBestEffort(x.to, encodePacket(packetEpoch, self, x.text)); err != nil {
			f.log.Debug("epoch not sent", "member", x.to.Name, "error", err)
		}
	}
}

// due returns the corrections to send.
func (e *epochs) due(now time.Time) (out []outgoing) {
	for name, c := range e.corrections {
		if c.sent.IsZero() {
			out = append(out, outgoing{c.to, encodeStamp(e.known[name], []byte(name))})
			e.corrections[name] = correction{sent: now}
		} else if now.Sub(c.sent) >= requestEvery {
			delete(e.corrections, name)
		}
	}
	return out
}

// corrected takes a correction of this box by another member.
func (d delegate) corrected(text []byte) bool {
	s, name, ok := parseStamp(text)
	if !ok {
		return false
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if string(name) == d.cfg.Name {
		d.outdo(s)
	}
	return true
}

// epochMark is the payload of the answers to pings; a version without epochs sends none.
const epochMark = "e"

// pinged takes the answer of a member to a ping.
func (d delegate) pinged(name string, payload []byte) {
	if len(payload) == 0 {
		d.mu.Lock()
		delete(d.epochs.known, name)
		d.mu.Unlock()
	}
	d.answered(name, time.Now())
}
