package cluster

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// longMessage returns a message of 30 parts of 6,000 bytes.
func longMessage(head string) Message {
	m := text(head)
	for i := range 30 {
		m.Parts = append(m.Parts, part(i))
	}
	return m
}

// part returns 6,000 bytes that memberlist cannot compress.
func part(seed int) []byte {
	out := make([]byte, 6000)
	_, _ = rand.NewChaCha8([32]byte{byte(seed)}).Read(out)
	return out
}

func (b *box) publishes(m Message) {
	b.t.Helper()
	if err := b.Publish(State{}, m); err != nil {
		b.t.Fatal(err)
	}
}

// gets waits until a box has the message of another.
func (b *box) gets(name string, want Message) {
	b.t.Helper()
	within(b.t, b.cfg.Name+" has the message of "+name, func() bool {
		m, _ := b.sees(name)
		return !m.Stale && bytes.Equal(m.Message.Head, want.Head) && slices.EqualFunc(m.Message.Parts, want.Parts, bytes.Equal)
	})
}

// Members that have the same parts send digests. One that has none gets each part once,
// and of a changed message only the changed part.
func TestPartsThatMembersHaveAreNotSent(t *testing.T) {
	t.Parallel()
	inAir(t, func(t *testing.T, n *air) {
		a := n.run(n.config("a"))
		b := n.run(n.config("b", a))
		boxes := []*box{a, b}
		ma, mb := longMessage("a"), longMessage("b")
		a.publishes(ma)
		b.publishes(mb)
		a.gets("b", mb)
		b.gets("a", ma)
		sent := func() (bytes int64) {
			for _, x := range boxes {
				bytes += x.wire.sent.Swap(0)
			}
			return bytes
		}
		if got := sent(); got > 10_000 {
			t.Errorf("members that agree sent %d bytes of 2 x %d", got, ma.Len())
		}

		c := n.run(n.config("c", a, b))
		boxes = append(boxes, c)
		c.gets("a", ma)
		c.gets("b", mb)
		time.Sleep(time.Second)
		// memberlist makes random bytes a third longer when it compresses them.
		if got := sent(); got < 150_000 || got > 300_000 {
			t.Errorf("a member without any part received %d bytes of %d", got, ma.Len())
		}
		if err := c.Status().Counters.Refused; err != 0 {
			t.Errorf("%d packets were refused", err)
		}

		ma.Parts = slices.Clone(ma.Parts)
		ma.Parts[7] = part(99)
		a.publishes(ma)
		b.gets("a", ma)
		c.gets("a", ma)
		if got := sent(); got < 6_000 || got > 30_000 {
			t.Errorf("one changed part of 6,000 bytes cost %d", got)
		}
		c.gets("b", mb)
	})
}

// A member that loses a tenth of all packets completes messages all the same, also of a
// member with a message that changes all the time.
func TestPartsArriveWhilePacketsAreLost(t *testing.T) {
	t.Parallel()
	inAir(t, func(t *testing.T, n *air) {
		a := n.run(n.config("a"))
		b := n.run(n.config("b", a))
		b.wants("a", Alive)
		for _, x := range []*box{a, b} {
			x.wire.mu.Lock()
			x.wire.loss = 0.1
			x.wire.mu.Unlock()
		}
		seen := map[string]bool{}
		m := longMessage("")
		for i := range 50 {
			m.Head = fmt.Append(nil, i)
			m.Parts[i%30] = part(100 + i)
			a.publishes(m)
			time.Sleep(200 * time.Millisecond)
			x, _ := b.sees("a")
			seen[string(x.Message.Head)] = true
		}
		b.gets("a", m)
		if len(seen) < 5 {
			t.Errorf("%d of 50 messages arrived before the last one", len(seen))
		}
	})
}

// The sender of a message may no longer have its parts, and a receiver asks again
// for the message.
func TestMessageIsRequestedAgainWithoutItsParts(t *testing.T) {
	t.Parallel()
	old, now := longMessage("old"), longMessage("now")
	old.Parts[3] = part(99)
	inAir(t, func(t *testing.T, n *air) {
		a := n.run(n.config("a"))
		b := n.run(n.config("b", a))
		b.wants("a", Alive)
		a.publishes(now)
		b.gets("a", now)
		b.mu.Lock()
		u, err := parseWire(old.Wire())
		m := b.table.members["a"]
		m.Stale, m.unfinished, m.State.Message = true, &u, u.digest
		b.mu.Unlock()
		must(t, err)
		later := longMessage("later")
		a.publishes(later)
		b.gets("a", later)
	})
}

func TestReceiveRefusesMalformedMessages(t *testing.T) {
	t.Parallel()
	whole := longMessage("head").Wire()
	for name, wire := range map[string][]byte{
		"a cut one":          whole[:100],
		"too many parts":     {0xff, 0xff, 0x7f},
		"a part beyond":      {1, 0xff, 0xff, 0xff, 0xff, 0x0f},
		"an endless number":  bytes.Repeat([]byte{0xff}, 11),
		"a short part, cut":  {1, 20, 'x'},
		"parts beyond 8 MiB": append([]byte{2}, bytes.Repeat(append([]byte{0xff, 0xff, 0xff, 0x07}, make([]byte, 16)...), 2)...),
	} {
		if _, err := parseWire(wire); err == nil {
			t.Errorf("%s is accepted", name)
		}
	}
	if _, ok := parseParts([]byte{5, 'x'}); ok {
		t.Error("a cut part is accepted")
	}
	if _, ok := parseRequest("a", make([]byte, 17)); ok {
		t.Error("half a digest is accepted")
	}
	if _, ok := parseRequest("a", make([]byte, 16*(partsPerRequest+1))); ok {
		t.Error("any number of digests is accepted")
	}
	f := made(t, config(t, "a"))
	if err := f.Publish(State{}, Message{Head: make([]byte, MaxMessage), Parts: [][]byte{{1}}}); err == nil {
		t.Error("a message that is too long is published")
	}
}
