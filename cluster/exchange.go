package cluster

import (
	"bytes"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/memberlist"
)

const (
	// requestEvery is the interval at which a missing message or part is requested.
	requestEvery = 500 * time.Millisecond
	// maxRequests is how often the parts of a message are requested before the message is
	// requested again: the member may no longer have them.
	maxRequests = 4
)

// A packet begins with one of these, followed by the length and the name of the sender.
const (
	packetRequest byte = 'w' // of the message, or of the parts with the digests that follow
	packetMessage byte = 'h'
	packetParts   byte = 'p'
	packetStamped byte = 's' // a message with the stamp of its state
	packetEpoch   byte = 'e' // the stamp of the last known state of a member, and its name
)

var packetKinds = []byte{packetRequest, packetMessage, packetParts, packetStamped, packetEpoch}

// encodePacket returns a packet to another member.
func encodePacket(kind byte, from string, text []byte) []byte {
	out := append([]byte{kind, byte(len(from))}, from...)
	return append(out, text...)
}

// parsePacket parses a packet of another member.
func parsePacket(b []byte) (kind byte, from string, text []byte, ok bool) {
	if len(b) < 2 || len(b) < 2+int(b[1]) {
		return 0, "", nil, false
	}
	n := 2 + int(b[1])
	return b[0], string(b[2:n]), b[n:], bytes.IndexByte(packetKinds, b[0]) >= 0
}

// exchange has the requests of other members, the answers that are being sent, and the
// requests of this box for parts. Fleet.mu guards asked.
type exchange struct {
	requests chan request
	answers  limited
	asked    map[partDigest]time.Time
}

// request is a request of a member for this box's message, or for parts of it.
type request struct {
	from  string
	parts []partDigest // empty: the message
}

// parseRequest parses the text of a request.
func parseRequest(from string, text []byte) (r request, ok bool) {
	r.from = from
	for chunk := range slices.Chunk(text, len(partDigest{})) {
		if len(chunk) < len(partDigest{}) || len(r.parts) == partsPerRequest {
			return request{}, false
		}
		r.parts = append(r.parts, partDigest(chunk))
	}
	return r, true
}

// outgoing is a request to a member.
type outgoing struct {
	to   *memberlist.Node
	text []byte
}

// request asks members for messages and parts that are missing, for each one at most once
// in requestEvery. It sends datagrams; what is lost is requested again.
func (f *Fleet) request(list *memberlist.Memberlist, now time.Time) {
	var self string
	var ask []outgoing
	f.locked(func() { self, ask = f.cfg.Name, f.exchange.due(&f.table, f.cfg.Name, now) })
	for _, x := range ask {
		if err := list.SendBestEffort(x.to, encodePacket(packetRequest, self, x.text)); err != nil {
			f.log.Debug("request not sent", "member", x.to.Name, "error", err)
		}
	}
}

// due returns the requests to send.
func (x *exchange) due(t *table, self string, now time.Time) (ask []outgoing) {
	for d, at := range x.asked {
		if now.Sub(at) >= requestEvery {
			delete(x.asked, d)
		}
	}
	for _, m := range t.members {
		if m.Name == self || m.Life != Alive || !m.Stale || m.State.Message == "" {
			continue
		}
		if m.unfinished != nil {
			if text := x.ask(m.unfinished, now); len(text) > 0 {
				ask = append(ask, outgoing{m.node(), text})
			}
			if m.unfinished.asked <= maxRequests {
				continue
			}
			m.unfinished = nil
		}
		if m.requestedAs != m.State.Message || now.Sub(m.requested) >= requestEvery {
			m.requested, m.requestedAs = now, m.State.Message
			ask = append(ask, outgoing{m.node(), nil})
		}
	}
	return ask
}

// ask returns the request for the parts that a message misses, without those that were
// requested just before from any member.
func (x *exchange) ask(u *unfinished, now time.Time) (text []byte) {
	for d := range u.missing {
		if _, asked := x.asked[d]; asked || len(text) == partsPerRequest*len(d) {
			continue
		}
		x.asked[d] = now
		text = append(text, d[:]...)
	}
	if len(text) > 0 {
		u.asked++
	}
	return text
}

// answer sends this box's message, or parts of it, to a member that has requested them,
// if the member is known: a name contains no address.
func (f *Fleet) answer(ctx context.Context, list *memberlist.Memberlist, r request) {
	var to *memberlist.Node
	var packet []byte
	f.locked(func() {
		if m := f.table.members[r.from]; m != nil && m.Life == Alive {
			to, packet = m.node(), m.answer(r, &f.own, f.cfg.Name)
		}
	})
	if packet == nil || ctx.Err() != nil {
		return
	}
	// A member that does not read blocks memberlist for 10 s; nothing else waits for it.
	f.exchange.answers.Go(func() {
		defer f.caught()
		if err := list.SendReliable(to, packet); err != nil {
			f.log.Debug("message not accepted", "member", r.from, "error", err)
		}
	})
}

// answer returns the packet that answers a request of the member; nil is none.
func (m *entry) answer(r request, own *publication, self string) []byte {
	kind, text := packetMessage, own.wire
	switch {
	case len(r.parts) > 0:
		kind, text = packetParts, own.answer(r.parts)
	case text != nil && m.State.Epoch > 0: // a version without epochs reads none
		kind, text = packetStamped, encodeStamp(own.state.Stamp, text)
	}
	if text == nil {
		return nil
	}
	return encodePacket(kind, self, text)
}

// receive takes a message that was requested. It may be newer than the requested one: a
// member that publishes several times a second is ahead of its known state. An older one
// was recorded. Messages that
// were not requested are dropped, so that a host with a key cannot fill the memory. It
// reports false if the text is no message.
func (f *Fleet) receive(from string, s Stamp, text []byte) bool {
	u, err := parseWire(text) // slow for a long one, so without the lock
	f.mu.Lock()
	defer f.mu.Unlock()
	m := f.table.members[from]
	if m == nil || u.digest == "" || !m.Stale || m.requestedAs == "" || m.State.Message == "" {
		f.table.counts.Dropped++
		return true
	}
	if err != nil {
		return false
	}
	if m.State.Epoch > 0 && u.digest != m.State.Message && !m.State.before(s) {
		f.table.counts.Replayed++
		return true
	}
	f.own.fill(&u)
	for _, other := range f.table.members {
		if len(u.missing) == 0 {
			break
		}
		other.supply(&u)
	}
	m.unfinished = &u
	f.finish(m)
	return true
}

// receiveParts takes parts that were requested. A part is identified by its content, so
// that one answer completes the messages of all members that have the part.
func (f *Fleet) receiveParts(from string, text []byte) bool {
	parts, ok := parseParts(text)
	if !ok {
		return false
	}
	digests := make([]partDigest, len(parts))
	for i, p := range parts {
		digests[i], parts[i] = digestOfPart(p), slices.Clone(p)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.table.members[from] == nil {
		f.table.counts.Dropped++
		return true
	}
	for i, d := range digests {
		delete(f.exchange.asked, d)
		wanted := false
		for _, m := range f.table.members {
			wanted = m.unfinished != nil && m.unfinished.fill(d, parts[i]) || wanted
		}
		if !wanted {
			f.table.counts.Dropped++
		}
	}
	for _, m := range f.table.members {
		if m.unfinished != nil {
			f.finish(m)
		}
	}
	return true
}

// finish takes the message of a member if all parts are here, or has the rest requested.
func (f *Fleet) finish(m *entry) {
	defer signal(f.wake)
	if len(m.unfinished.missing) > 0 {
		return
	}
	u := m.unfinished
	m.unfinished = nil
	if u.message.check() != nil { // parts that are longer than their sender stated
		f.table.counts.Refused++
		return
	}
	m.Message, m.MessageDigest, m.digests = u.message, u.digest, u.digests
	m.Stale = u.digest != m.State.Message
	signal(f.changed)
}

// supply puts the parts of a member's messages where they are missing.
func (m *entry) supply(u *unfinished) {
	u.take(m.Message.Parts, m.digests)
	if m.unfinished != nil {
		u.take(m.unfinished.message.Parts, m.unfinished.digests)
	}
}

// take fills a message from parts with their digests; nil parts are missing there, too.
func (u *unfinished) take(parts [][]byte, digests []partDigest) {
	for i, d := range digests {
		if parts[i] != nil && len(u.missing) > 0 {
			u.fill(d, parts[i])
		}
	}
}

// limited runs a few functions at a time, and drops others.
type limited struct {
	sync.WaitGroup
	once sync.Once
	room chan struct{}
}

// Go runs f, if fewer than eight functions are running.
func (l *limited) Go(f func()) {
	l.once.Do(func() { l.room = make(chan struct{}, 8) })
	select {
	case l.room <- struct{}{}:
		l.WaitGroup.Go(func() {
			defer func() { <-l.room }()
			f()
		})
	default:
	}
}
