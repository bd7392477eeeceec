package cluster

import (
	"fmt"
	"regexp"
	"time"

	"github.com/hashicorp/memberlist"
)

// What memberlist calls, mostly with its own locks held: nothing here waits, and
// nothing calls memberlist.

// NodeMeta implements memberlist.Delegate.
func (f *Fleet) NodeMeta(int) []byte {
	f.mu.Lock()
	defer f.mu.Unlock()
	out, err := f.self.encode()
	if err != nil {
		return nil // texts and numbers are never refused
	}
	return out
}

// GetBroadcasts implements memberlist.Delegate: all there is to tell is in the meta.
func (f *Fleet) GetBroadcasts(int, int) [][]byte { return nil }

// LocalState implements memberlist.Delegate.
func (f *Fleet) LocalState(bool) []byte { return nil }

// MergeRemoteState implements memberlist.Delegate.
func (f *Fleet) MergeRemoteState([]byte, bool) {}

// nameForm is that of a member: it is shown to people and to programs as it is.
var nameForm = regexp.MustCompile(`^[a-z0-9]([a-z0-9.-]{0,61}[a-z0-9])?$`)

// NotifyAlive implements memberlist.AliveDelegate: who has a key could tell of any
// number of members, with any names.
func (f *Fleet) NotifyAlive(n *memberlist.Node) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !nameForm.MatchString(n.Name) {
		return fmt.Errorf("%.64q can't be the name of a member", n.Name)
	}
	if _, known := f.members[n.Name]; !known && len(f.members) >= mostMembers {
		return fmt.Errorf("more than %d members", mostMembers)
	}
	return nil
}

// NotifyJoin implements memberlist.EventDelegate.
func (f *Fleet) NotifyJoin(n *memberlist.Node) { f.meet(n, true) }

// NotifyUpdate implements memberlist.EventDelegate.
func (f *Fleet) NotifyUpdate(n *memberlist.Node) { f.meet(n, false) }

func (f *Fleet) meet(n *memberlist.Node, joins bool) {
	state, err := decodeState(n.Meta)
	f.mu.Lock()
	m := f.members[n.Name]
	if m == nil {
		m = &Member{Name: n.Name}
		f.members[n.Name] = m
	}
	delete(f.forget, n.Name)
	if joins {
		m.Life, m.Since = Alive, time.Now()
		m.Suspect, m.Away, m.misses = false, false, 0
		f.counts.Joins++
	}
	m.Addr, m.State, m.Unread = addrPort(n), state, ""
	if err != nil {
		m.Unread = err.Error()
	}
	m.Old = m.Has != state.Word
	self := n.Name == f.cfg.Name
	f.mu.Unlock()
	if joins && !self {
		f.log.Info("a member is there", "member", n.Name, "address", n.Address(), "version", state.Version)
	}
	signal(f.wake)
	signal(f.changed)
}

// NotifyLeave implements memberlist.EventDelegate.
func (f *Fleet) NotifyLeave(n *memberlist.Node) {
	now := time.Now()
	f.mu.Lock()
	m := f.members[n.Name]
	if m == nil {
		f.mu.Unlock()
		return
	}
	m.Life, m.Since, m.Suspect = Dead, now, false
	if m.misses == 0 {
		m.missed = now
	}
	if m.State.Leaving {
		m.Life, m.Away = Left, false
	} else {
		f.counts.Deaths++
	}
	life := m.Life
	f.forget[n.Name] = now.Add(forgetAfter)
	f.mu.Unlock()
	f.log.Warn("a member is gone", "member", n.Name, "address", n.Address(), "life", life)
	signal(f.changed)
}

// NotifyConflict implements memberlist.ConflictDelegate: somebody else has a
// member's name, and is not heard. If it is this box's name, and this box has just begun,
// then this box is the one that is not heard.
func (f *Fleet) NotifyConflict(existing, other *memberlist.Node) {
	now := time.Now()
	f.mu.Lock()
	f.counts.Conflicts++
	if existing.Name == f.cfg.Name && (f.twin != "" || now.Sub(f.begun) < beginFor) {
		f.twin, f.heard = other.Address(), now
	}
	f.mu.Unlock()
	f.lines.say(now, "two boxes have one name; give one of them another", "member", existing.Name, "address", existing.Address(), "other", other.Address())
	signal(f.changed)
}

// twinLasts is how long nobody may tell of a twin until there is none any more: what a
// box was, before its address became another, is heard of for a few seconds, too.
const twinLasts = 3 * joinEvery

// forgetTwin takes down that there is no twin any more.
func (f *Fleet) forgetTwin(now time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.twin != "" && now.Sub(f.heard) > twinLasts {
		f.twin = ""
		signal(f.changed)
	}
}

func (f *Fleet) hasTwin() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.twin != ""
}
