package cluster

import (
	"fmt"
	"time"

	"github.com/hashicorp/memberlist"
)

// NodeMeta implements memberlist.Delegate.
func (d delegate) NodeMeta(int) []byte {
	defer d.caught()
	d.mu.Lock()
	defer d.mu.Unlock()
	out, err := d.own.state.encode()
	if err != nil {
		return nil // cannot happen: texts and numbers are never refused
	}
	return out
}

// GetBroadcasts implements memberlist.Delegate: everything is in the metadata.
func (d delegate) GetBroadcasts(int, int) [][]byte { return nil }

// LocalState implements memberlist.Delegate.
func (d delegate) LocalState(bool) []byte { return nil }

// MergeRemoteState implements memberlist.Delegate.
func (d delegate) MergeRemoteState([]byte, bool) {}

// NotifyMsg implements memberlist.Delegate. It must not wait: a request that finds the
// queue full is repeated by the member.
func (d delegate) NotifyMsg(b []byte) {
	defer d.caught()
	kind, from, text, ok := parsePacket(b)
	ok = ok && len(text) <= maxWire
	switch {
	case ok && kind == packetMessage:
		ok = d.receive(from, Stamp{}, text)
	case ok && kind == packetStamped:
		var s Stamp
		if s, text, ok = parseStamp(text); ok {
			ok = d.receive(from, s, text)
		}
	case ok && kind == packetEpoch:
		ok = d.corrected(text)
	case ok && kind == packetParts:
		ok = d.receiveParts(from, text)
	case ok:
		var r request
		if r, ok = parseRequest(from, text); ok {
			d.queue(r)
		}
	}
	if !ok {
		d.refused()
	}
}

// queue queues a request of a member.
func (d delegate) queue(r request) {
	select {
	case d.exchange.requests <- r:
	default:
		d.mu.Lock()
		d.table.counts.Dropped++
		d.mu.Unlock()
	}
}

// NotifyAlive implements memberlist.AliveDelegate: a host with a key can announce any
// number of members, with any names, and another host can send recorded states. After a
// panic the member is refused, too.
func (d delegate) NotifyAlive(n *memberlist.Node) (err error) {
	defer d.caught()
	err = errPanicked // of a panic: it sets no other
	if !d.present(func() { err = d.accept(n) }) {
		return nil // whatever the ended list makes of it
	}
	return err
}

// accept returns an error if a member must not be in the table.
func (d delegate) accept(n *memberlist.Node) error {
	if !nameForm.MatchString(n.Name) {
		return fmt.Errorf("%.64q is not a valid member name", n.Name)
	}
	if _, known := d.table.members[n.Name]; !known && len(d.table.members) >= maxMembers {
		return fmt.Errorf("more than %d members", maxMembers)
	}
	return d.admit(n, time.Now())
}

// NotifyJoin implements memberlist.EventDelegate.
func (d delegate) NotifyJoin(n *memberlist.Node) { d.update(n, true) }

// NotifyUpdate implements memberlist.EventDelegate.
func (d delegate) NotifyUpdate(n *memberlist.Node) { d.update(n, false) }

func (d delegate) update(n *memberlist.Node, joins bool) {
	defer d.caught()
	state, err := decodeState(n.Meta)
	self := false
	if !d.present(func() {
		d.table.update(n, state, err, joins)
		if self = n.Name == d.cfg.Name; joins && !self {
			d.table.counts.Joins++
		}
		if stamp, err := decodeStamp(n.Meta); err == nil && !self {
			d.epochs.learn(n.Name, stamp)
		}
	}) {
		return
	}
	if joins && !self {
		d.log.Info("member joined", "member", n.Name, "address", n.Address(), "version", state.Version)
	}
	signal(d.wake)
	signal(d.changed)
}

// NotifyLeave implements memberlist.EventDelegate.
func (d delegate) NotifyLeave(n *memberlist.Node) {
	defer d.caught()
	var gone *entry
	var life Life
	d.present(func() {
		if gone = d.table.remove(n.Name, time.Now()); gone != nil {
			life = gone.Life
		}
	})
	if gone == nil {
		return
	}
	d.log.Warn("member gone", "member", n.Name, "address", n.Address(), "life", life)
	signal(d.changed)
}

// NotifyConflict implements memberlist.ConflictDelegate: a second box uses a member's
// name, and is ignored. If it is the name of this box, and this box has just started,
// then this box is the one that is ignored.
func (d delegate) NotifyConflict(existing, other *memberlist.Node) {
	defer d.caught()
	now := time.Now()
	if !d.present(func() {
		d.table.counts.Conflicts++
		if s := &d.session; existing.Name == d.cfg.Name && (s.conflict != "" || now.Sub(s.begun) < startPhase) {
			s.conflict, s.conflictSeen = other.Address(), now
		}
	}) {
		return
	}
	d.lines.warn(now, "two boxes have one name; rename one of them", "member", existing.Name, "address", existing.Address(), "other", other.Address())
	signal(d.changed)
}

// AckPayload implements memberlist.PingDelegate.
func (d delegate) AckPayload() []byte { return []byte(epochMark) }

// NotifyPingComplete implements memberlist.PingDelegate: memberlist's own pings count like
// those of the prober.
func (d delegate) NotifyPingComplete(n *memberlist.Node, _ time.Duration, payload []byte) {
	defer d.caught()
	d.pinged(n.Name, payload)
}
