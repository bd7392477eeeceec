package cluster

import (
	"context"
	"slices"
	"time"

	"github.com/hashicorp/memberlist"
)

// MaxWord is the length of the longest Word.
const MaxWord = 8 << 20

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

// NotifyMsg implements memberlist.Delegate. It must not wait: a request that there is no
// room for is made again.
func (f *Fleet) NotifyMsg(b []byte) {
	kind, from, text, ok := parseMessage(b)
	switch {
	case !ok || len(text) > MaxWord:
		f.refused()
	case kind == haveWord:
		f.keep(from, text)
	default:
		select {
		case f.asked <- from:
		default:
			f.mu.Lock()
			f.counts.Dropped++
			f.mu.Unlock()
		}
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

// keep takes in a Word that was asked for. It may be another than the one asked for: an
// author who says something new several times a second is ahead of what is known of it.
// Nobody else's is kept, for who has a key could fill the memory with them.
func (f *Fleet) keep(from string, text []byte) {
	digest := DigestOf(text) // of a long one that takes a while, so not with mu held
	f.mu.Lock()
	defer f.mu.Unlock()
	m := f.members[from]
	if m == nil || digest == "" || !m.Old || m.askedFor == "" || m.State.Word == "" {
		f.counts.Dropped++
		return
	}
	m.Word, m.Has = slices.Clone(text), digest
	m.Old = digest != m.State.Word
	signal(f.changed)
}

// node is a member as memberlist sends to it.
func (m *Member) node() *memberlist.Node {
	return &memberlist.Node{Name: m.Name, Addr: m.Addr.Addr().AsSlice(), Port: m.Addr.Port()}
}
