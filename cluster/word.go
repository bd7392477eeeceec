package cluster

import (
	"context"
	"time"

	"github.com/hashicorp/memberlist"
)

// MaxWord is the length of the longest Word.
const MaxWord = 8 << 20

// word is what a member said at length.
type word struct {
	from string
	text []byte
}

// Messages begin with one of these, and the name of who sends it, after its length.
const (
	wantWord byte = 'w'
	haveWord byte = 'h'
)

// message makes what is sent to another member.
func message(kind byte, from string, text []byte) []byte {
	out := append([]byte{kind, byte(len(from))}, from...)
	return append(out, text...)
}

// parseMessage reads what another member sent.
func parseMessage(b []byte) (kind byte, from string, text []byte, ok bool) {
	if len(b) < 2 || len(b) < 2+int(b[1]) {
		return 0, "", nil, false
	}
	n := 2 + int(b[1])
	return b[0], string(b[2:n]), b[n:], b[0] == wantWord || b[0] == haveWord
}

// NotifyMsg implements memberlist.Delegate. It must not wait: what there is no room
// for is asked for again.
func (f *Fleet) NotifyMsg(b []byte) {
	kind, from, text, ok := parseMessage(b)
	if !ok || len(text) > MaxWord {
		f.refused()
		return
	}
	dropped := false
	if kind == wantWord {
		select {
		case f.asked <- from:
		default:
			dropped = true
		}
	} else {
		select {
		case f.got <- word{from, append([]byte(nil), text...)}:
		default:
			dropped = true
		}
	}
	if dropped {
		f.mu.Lock()
		f.counts.Dropped++
		f.mu.Unlock()
	}
}

// fetch asks members for the Words that are not here, for each one at most once in
// fetchEvery. It asks by a datagram: an answer that does not come is asked for again.
func (f *Fleet) fetch(list *memberlist.Memberlist, now time.Time) {
	f.mu.Lock()
	var ask []*memberlist.Node
	for _, m := range f.members {
		if m.Name == f.cfg.Name || m.Life != Alive || !m.Old || m.State.Word == "" {
			continue
		}
		if m.askedFor != m.State.Word || now.Sub(m.asked) >= fetchEvery {
			m.asked, m.askedFor = now, m.State.Word
			ask = append(ask, m.node())
		}
	}
	self := f.cfg.Name
	f.mu.Unlock()
	for _, n := range ask {
		if err := list.SendBestEffort(n, message(wantWord, self, nil)); err != nil {
			f.log.Debug("a member can't be asked", "member", n.Name, "error", err)
		}
	}
}

// answer sends this box's Word to a member that has asked for it. One that is not
// known gets none: its name says nothing about where it is.
func (f *Fleet) answer(ctx context.Context, list *memberlist.Memberlist, name string) {
	f.mu.Lock()
	m, text, self := f.members[name], f.word, f.cfg.Name
	known := m != nil && m.Life == Alive
	var to *memberlist.Node
	if known {
		to = m.node()
	}
	f.mu.Unlock()
	if !known || text == nil || ctx.Err() != nil {
		return
	}
	// It waits for one who does not read for as long as memberlist does, 10 s; nobody
	// else waits for that.
	f.answers.Go(func() {
		if err := list.SendReliable(to, message(haveWord, self, text)); err != nil {
			f.log.Debug("a member does not take what it has asked for", "member", name, "error", err)
		}
	})
}

// keep takes in a Word, if it is the one that its author says it has.
func (f *Fleet) keep(w word) {
	f.mu.Lock()
	defer f.mu.Unlock()
	m := f.members[w.from]
	if m == nil || !m.Old || DigestOf(w.text) != m.State.Word {
		return
	}
	m.Word, m.has, m.Old = w.text, m.State.Word, false
	signal(f.changed)
}

// node is a member as memberlist sends to it.
func (m *Member) node() *memberlist.Node {
	return &memberlist.Node{Name: m.Name, Addr: m.Addr.Addr().AsSlice(), Port: m.Addr.Port()}
}
