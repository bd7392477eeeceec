package cluster

import (
	"net/netip"
	"time"

	"github.com/hashicorp/memberlist"
)

const (
	// forgetAfter is how long members that are gone stay in Status.
	forgetAfter = 24 * time.Hour
	// maxMembers bounds the table: a host with a key can announce any number of members.
	maxMembers = 1000
	// justAnswered is how long the answer to a ping shows that a box is up, whatever memberlist reports: less than
	// the time that it takes memberlist to report a member without answers as dead.
	justAnswered = time.Second
)

// table has all members that are known. Fleet.mu guards it.
type table struct {
	members map[string]*entry
	forget  map[string]time.Time // when members that are gone are removed
	counts  Counters
}

// entry is a member and the progress of its probes and of its message.
type entry struct {
	Member
	requested   time.Time    // when the message was last requested
	requestedAs Digest       // the digest at that time
	unfinished  *unfinished  // the received message, if parts are missing
	digests     []partDigest // of the parts of Message
	missed      int          // pings without an answer
	missedSince time.Time    // the first of them
	answeredAt  time.Time    // the last answer to a ping
	unreached   int          // connections without an answer, in a row
	probed      time.Time    // the last probe
	probing     bool         // a probe is running
}

func newTable() table { return table{members: map[string]*entry{}, forget: map[string]time.Time{}} }

// clear removes all members. The counters stay.
func (t *table) clear() { t.members, t.forget = map[string]*entry{}, map[string]time.Time{} }

// update enters what memberlist knows about a member. joins: it has just appeared.
func (t *table) update(n *memberlist.Node, state State, problem error, joins bool) {
	m := t.members[n.Name]
	if m == nil {
		m = &entry{Member: Member{Name: n.Name}}
		t.members[n.Name] = m
	}
	delete(t.forget, n.Name)
	if joins {
		m.Life, m.Since = Alive, time.Now()
		m.Suspect, m.ProcessDown, m.missed = false, false, 0
	}
	m.Addr, m.State, m.Unreadable = addrPort(n), state, ""
	if problem != nil {
		m.Unreadable = problem.Error()
	}
	if m.Stale = m.MessageDigest != state.Message; !m.Stale {
		m.unfinished = nil
	}
}

// remove marks a member as Dead, or as Left if it announced that. It returns nil if there
// is no such member.
func (t *table) remove(name string, now time.Time) *entry {
	m := t.members[name]
	if m == nil {
		return nil
	}
	m.Life, m.Since, m.Suspect, m.unfinished = Dead, now, false, nil
	if m.missed == 0 {
		m.missedSince = now
	}
	if m.State.Leaving {
		m.Life, m.ProcessDown = Left, false
	} else {
		t.counts.Deaths++
		// The earlier process of a box that has restarted dies when the new one answers already, and has not
		// joined yet. The box keeps its VIPs until connections to it find no process.
		if m.missed == 0 && now.Sub(m.answeredAt) < justAnswered {
			m.ProcessDown, m.ProcessDownSince = true, m.missedSince
		}
	}
	t.forget[name] = now.Add(forgetAfter)
	return m
}

// expire removes members that have been gone for long.
func (t *table) expire(now time.Time) {
	for name, when := range t.forget {
		if now.After(when) {
			delete(t.forget, name)
			delete(t.members, name)
		}
	}
}

// unanswered records a ping without an answer. It reports whether the member has become
// Suspect.
func (t *table) unanswered(name string, now time.Time) bool {
	m := t.members[name]
	if m == nil || m.Life != Alive {
		return false
	}
	if m.missed++; m.missed == 1 {
		m.missedSince = now
	}
	if m.missed < maxMissed || m.Suspect {
		return false
	}
	m.Suspect = true
	t.counts.Suspicions++
	return true
}

// answered records an answer. It reports whether the member was Suspect or its process
// was down.
func (t *table) answered(name string, now time.Time) bool {
	m := t.members[name]
	if m == nil || m.Life != Alive {
		return false
	}
	m.missed, m.answeredAt = 0, now
	recovered := m.Suspect || m.ProcessDown
	m.Suspect, m.ProcessDown = false, false
	return recovered
}

// doubtful reports whether it is unknown if a member's process runs.
func (t *table) doubtful(name string) bool {
	m := t.members[name]
	return m != nil && m.doubtful()
}

func (m *entry) doubtful() bool { return m.Suspect || m.Life == Dead }

// dead returns the addresses of dead members other than self, but none that a live member
// has by now.
func (t *table) dead(self string) (addrs []string) {
	taken := map[netip.AddrPort]bool{}
	for _, m := range t.members {
		taken[m.Addr] = taken[m.Addr] || m.Life == Alive
	}
	for _, m := range t.members {
		if m.Life == Dead && m.Name != self && !taken[m.Addr] {
			addrs = append(addrs, m.Addr.String())
		}
	}
	return addrs
}

// node returns a member as memberlist sends to it.
func (m *Member) node() *memberlist.Node {
	return &memberlist.Node{Name: m.Name, Addr: m.Addr.Addr().AsSlice(), Port: m.Addr.Port()}
}

func addrPort(n *memberlist.Node) netip.AddrPort {
	a, _ := netip.AddrFromSlice(n.Addr)
	return netip.AddrPortFrom(a.Unmap(), n.Port)
}
